//! The root of shadowed tables: a torn one does not count, and the loss of one that has rotted is detected.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::driver::{Ask, Driver};
use sim::medium::{Broken, Medium, Rot};
use sim::model::Model;
use sim::open::{self, Volume};
use sim::rng::Rng;
use std::ops::Range;
use vellum_core::addr::{Generation, Pba};
use vellum_core::check;
use vellum_core::engine;
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_core::format::root;
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::Kind;
use vellum_core::layout::{self, Recovered};
use vellum_core::recovery::rescue::Trust;
use vellum_core::recovery::{RecoveryError, Source, Unreadable};
use vellum_core::seam::Effect;
use vellum_core::tables::{Options, Persistence, Tables};

const VOLUME: Volume = Volume {
    medium_blocks: 1600,
    logical_blocks: Some(600),
    segment_blocks: 64,
    over_provisioning: 70,
    layout: Layout::Shadow,
    sums: SumKind::Xxh3,
};

fn opened(mut medium: Medium) -> (Driver, Superblock) {
    let mut rng = Rng::new(1);
    let Recovered::Tables(found) = open::open(&mut medium, &mut rng, false).unwrap() else {
        panic!("tables");
    };
    let superblock = found.superblock.clone();
    let options = Options {
        discard_blocks_min: 1,
        ..Options::new(&engine::Options::default(), Persistence::Weak)
    };
    let tables = Tables::new(*found, options, crc32c::crc32c);
    let model = Model::new(600);
    let mut driver = Driver::new(tables, medium, model, rng, 0);
    driver.start().unwrap();
    (driver, superblock)
}

/// Three commits.
fn with_roots() -> (Driver, Superblock) {
    let (medium, _) = VOLUME.create(Broken::No).unwrap();
    let (mut driver, superblock) = opened(medium);
    for token in 1..4 {
        let write = Ask::Write {
            lba: u64::from(token),
            tokens: vec![token],
            fua: false,
        };
        for ask in [write, Ask::Flush] {
            driver.ask(&ask).unwrap();
            driver.settle().unwrap();
        }
    }
    (driver, superblock)
}

/// The number of the newest whole root.
fn newest(medium: &Medium, superblock: &Superblock) -> Generation {
    let leaves = superblock.directory_blocks() as u32;
    let mut bytes = vec![0; superblock.shadow_root_blocks() as usize * 4096];
    let mut read = |place| {
        let at = superblock.shadow_root_at(Generation(place));
        for (block, out) in (at.0..).zip(bytes.chunks_exact_mut(4096)) {
            medium.read_into(block, out);
        }
        let root = root::decode(&bytes, &superblock.uuid(), leaves, crc32c::crc32c);
        root.map_or(Generation(0), |(header, _)| header.generation)
    };
    read(0).max(read(1))
}

/// Damages both copies of a root.
fn rot_root(medium: &mut Medium, superblock: &Superblock, generation: Generation) {
    let at = superblock.shadow_root_at(generation);
    for copy in 0..2 {
        let head = at.plus(copy * superblock.shadow_root_blocks());
        medium.rot.insert(head.0, Rot::Flip(5));
    }
}

#[test]
fn the_loss_of_a_root_that_was_durable_is_noticed() {
    let (mut driver, superblock) = with_roots();
    driver.settle_shutdown().unwrap();
    let (mut medium, ..) = driver.crash(true).unwrap();
    let lost = newest(&medium, &superblock);
    assert_eq!(lost, Generation(4), "each flush has a root");
    rot_root(&mut medium, &superblock, lost);
    match open::recover(&medium, None) {
        Err(error) => assert_eq!(error, RecoveryError::RootLost { lost }),
        Ok(_) => panic!("an older volume was opened for the newest"),
    }
}

/// While the other copy is there nothing is lost, and a check reports the missing copy.
#[test]
fn a_check_reports_a_root_with_one_copy() {
    for copy in 0..2 {
        let (mut driver, superblock) = with_roots();
        driver.settle_shutdown().unwrap();
        let (mut medium, ..) = driver.crash(true).unwrap();
        assert_eq!(open::checked(&medium).worst(), None);
        let first = superblock.shadow_root_at(newest(&medium, &superblock));
        let at = first.plus(copy * superblock.shadow_root_blocks());
        medium.rot.insert(at.0, Rot::Flip(5));
        let report = open::checked(&medium);
        assert_eq!(report.worst(), Some(check::Severity::Redundancy));
        assert!(
            matches!(&report.findings[..], [check::Problem::Twins { twin, .. }] if *twin == at),
            "{:?}",
            report.findings
        );
    }
}

/// The same without a shutdown, after some time has passed; and not only for the first root that is marked.
#[test]
fn a_root_is_marked_while_the_volume_is_open() {
    for more in 0..3 {
        let (mut driver, superblock) = with_roots();
        for round in 0..=more {
            let write = Ask::Write {
                lba: 20,
                tokens: vec![100 + round],
                fua: false,
            };
            for ask in [write, Ask::Flush] {
                driver.ask(&ask).unwrap();
                driver.settle().unwrap();
            }
            let until = driver.now + 5_000_000_000;
            while driver.wait().unwrap() && driver.now < until {
                driver.settle().unwrap();
            }
        }
        let (mut medium, ..) = driver.crash(true).unwrap();
        let lost = newest(&medium, &superblock);
        rot_root(&mut medium, &superblock, lost);
        let error = open::recover(&medium, None).err();
        assert_eq!(error, Some(RecoveryError::RootLost { lost }));
    }
}

/// A root whose write a power cut interrupted was never promised: the one before it is the newest.
#[test]
fn a_torn_root_does_not_count() {
    let (mut driver, superblock) = with_roots();
    while driver.wait().unwrap() && driver.now < 5_000_000_000 {
        driver.settle().unwrap();
    }
    let before = newest(&driver.medium, &superblock);
    driver.holds = |effect| matches!(effect, Effect::WriteMeta { durable: true, .. });
    let write = Ask::Write {
        lba: 9,
        tokens: vec![9],
        fua: false,
    };
    driver.ask(&write).unwrap();
    driver.ask(&Ask::Flush).unwrap();
    while driver.advance().unwrap() {}
    assert!(driver.flights() > 0, "the root is on its way");
    let (mut medium, ..) = driver.crash(false).unwrap();
    let torn = Generation(before.0 + 1);
    rot_root(&mut medium, &superblock, torn);
    let (_, after) = opened(medium);
    assert_eq!(after.root_generation(), before);
}

/// The next root has the number and the place of one that a power cut has torn. What arrives of the next one must not make the torn one
/// whole: that one names table blocks that are overwritten by then.
#[test]
fn what_a_power_cut_left_of_a_root_is_void_before_the_next_one_is_written() {
    let (driver, superblock) = with_roots();
    let (mut medium, ..) = driver.crash(true).unwrap();
    let before = newest(&medium, &superblock);
    let first = superblock.shadow_root_at(Generation(before.0 + 1));
    let heads = [first, first.plus(superblock.shadow_root_blocks())];
    for head in heads {
        medium.format(head.0, &[7; 4096]);
    }
    let (mut driver, _) = opened(medium);
    driver.holds = |effect| matches!(effect, Effect::WriteMeta { durable: true, .. });
    let write = Ask::Write {
        lba: 9,
        tokens: vec![9],
        fua: false,
    };
    driver.ask(&write).unwrap();
    driver.ask(&Ask::Flush).unwrap();
    while driver.advance().unwrap() {}
    assert_eq!(driver.flights(), 2, "nothing but these is on its way");
    driver.holds = |effect| {
        matches!(
            effect,
            Effect::WriteMeta {
                durable: true,
                blocks: 2..,
                ..
            }
        )
    };
    while driver.advance().unwrap() {}
    for head in heads {
        let mut block = [1; 4096];
        driver.medium.read_into(head.0, &mut block);
        assert_eq!(block, [0; 4096], "{head}");
    }
    assert_eq!(newest(&driver.medium, &superblock), before);
    driver.holds = |_| false;
    driver.settle().unwrap();
    assert!(newest(&driver.medium, &superblock) > before);
}

/// Perhaps it is whole, and what it made count was flushed.
#[test]
fn a_root_that_cannot_be_read_is_not_taken_for_torn() {
    let (driver, superblock) = with_roots();
    let (mut medium, ..) = driver.crash(true).unwrap();
    let lost = newest(&medium, &superblock);
    let first = superblock.shadow_root_at(lost);
    let second = first.plus(superblock.shadow_root_blocks());
    medium.rot.insert(second.0, Rot::Flip(5));
    let unread = open::recover(&medium, Some(first.0)).err();
    assert!(
        matches!(unread, Some(RecoveryError::Unreadable(_))),
        "{unread:?}"
    );
    // What is older than it is not certain.
    for (trust, lost) in [(Trust::Certain, 600), (Trust::Newest, 0)] {
        let rescued = open::rescue_without(&medium, trust, Some(first.0));
        let Ok((Recovered::Tables(found), loss)) = rescued else {
            panic!("it is not rescued");
        };
        assert_eq!((loss.lost.len(), loss.guessed.len()), (lost, 600 - lost));
        assert_eq!(found.links().count() > 0, trust == Trust::Newest);
    }
    let Ok(Recovered::Tables(found)) = open::recover(&medium, None) else {
        panic!("the volume is not opened");
    };
    assert_eq!(found.generation, lost);
}

/// A root counts for a client only when both copies are written. So if one of them is blank, there was none.
#[test]
fn a_bad_block_in_a_place_without_a_root_costs_nothing() {
    let (fresh, _) = VOLUME.create(Broken::No).unwrap();
    let (driver, superblock) = with_roots();
    let (mut void, ..) = driver.crash(true).unwrap();
    let blocks = superblock.shadow_root_blocks();
    let place =
        |medium: &Medium| superblock.shadow_root_at(Generation(newest(medium, &superblock).0 + 1));
    let first = place(&void);
    for head in [first, first.plus(blocks)] {
        void.format(head.0, &[0; 4096]);
    }
    for medium in [fresh, void] {
        let first = place(&medium).0;
        for bad in first..first + 2 * blocks {
            let found = open::recover(&medium, Some(bad)).map(drop);
            assert_eq!(found, Ok(()), "block {bad} of the place at {first}");
        }
    }
}

/// A medium of which some blocks cannot be read.
struct Without<'a>(&'a Medium, Range<u64>);

impl Source for Without<'_> {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / 4096) as u64;
        if at.0 < self.1.end && at.0 + blocks > self.1.start {
            return Err(Unreadable { at, blocks });
        }
        for (block, out) in (at.0..).zip(bytes.chunks_exact_mut(4096)) {
            self.0.read_into(block, out);
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

#[test]
fn roots_that_cannot_be_read_are_not_called_damaged() {
    let (driver, superblock) = with_roots();
    let (medium, ..) = driver.crash(true).unwrap();
    let first = superblock.shadow_root_at(Generation(0)).0;
    let roots = first..first + 4 * superblock.shadow_root_blocks();
    let error = layout::recover(
        &mut Without(&medium, roots),
        medium.blocks(),
        crc32c::crc32c,
    );
    let error = error.err().unwrap();
    assert!(matches!(error, RecoveryError::Unreadable(_)), "{error}");
}

/// A root whose second copy a power cut has torn, and the contents in that copy's place.
fn with_a_lone_root() -> (Medium, Superblock, Generation, Vec<u8>) {
    let (driver, superblock) = with_roots();
    let (mut medium, ..) = driver.crash(true).unwrap();
    let alone = newest(&medium, &superblock);
    let blank = vec![0; superblock.shadow_root_blocks() as usize * 4096];
    let first = superblock.shadow_root_at(alone);
    medium.format(first.0 + superblock.shadow_root_blocks(), &blank);
    (medium, superblock, alone, blank)
}

/// A flush that is answered after the opening also covers the state of that root. So the root must not depend on a single block by then.
#[test]
fn a_flush_waits_until_a_root_found_in_one_copy_has_two() {
    let (medium, superblock, alone, blank) = with_a_lone_root();
    let first = superblock.shadow_root_at(alone);
    let (mut driver, _) = opened(medium);
    driver.ask(&Ask::Flush).unwrap();
    driver.settle().unwrap();
    let (mut medium, ..) = driver.crash(true).unwrap();
    medium.format(first.0, &blank);
    let Ok(Recovered::Tables(found)) = open::recover(&medium, None) else {
        panic!("the volume is not opened");
    };
    let is_there = found.links().any(|(lba, ..)| lba == 3);
    assert!(is_there, "a block that was flushed is lost with one block");
    assert_eq!(found.generation, alone, "the root has its second copy");
}

/// If the only copy is lost, recovery goes back to the root before it. So nothing that this root needs is overwritten before
/// there are two copies, and the superblock does not say that the newer one was durable.
#[test]
fn nothing_is_overwritten_before_a_root_found_in_one_copy_has_two() {
    let (medium, superblock, alone, blank) = with_a_lone_root();
    let first = superblock.shadow_root_at(alone);
    let bytes = |medium: &Medium, at: u64| {
        let mut block = vec![0; 4096];
        medium.read_into(at, &mut block);
        block
    };
    let (mut driver, _) = opened(medium.clone());
    driver.holds = |effect| matches!(effect, Effect::WriteMeta { durable: true, .. });
    for first in (10..510).step_by(10) {
        let write = Ask::Write {
            lba: u64::from(first),
            tokens: (first..first + 10).collect(),
            fua: false,
        };
        driver.ask(&write).unwrap();
    }
    driver.ask(&Ask::Flush).unwrap();
    for _ in 0..2 {
        while driver.advance().unwrap() {}
        // Free blocks would be discarded now, and the marks of roots in the superblock written.
        driver.now += 60_000_000_000;
        driver.tick().unwrap();
    }
    assert_eq!(driver.flights(), 1, "the second copy is on its way");
    let changed: Vec<u64> = (1..medium.blocks() - 1)
        .filter(|&at| bytes(&driver.medium, at) != bytes(&medium, at))
        .collect();
    assert_eq!(changed, [], "all but the superblocks is as it was");
    let mut medium = driver.medium.clone();
    medium.format(first.0, &blank);
    let found = open::recover(&medium, None).unwrap();
    let Recovered::Tables(found) = found else {
        panic!("tables");
    };
    assert_eq!(found.generation, Generation(alone.0 - 1));
    driver.holds = |_| false;
    driver.settle().unwrap();
    assert!(newest(&driver.medium, &superblock) > alone);
}

/// The medium confirmed a write and lost it. The block in its place is whole and two commits old, and must not be taken for the new one.
/// A block of the map has a twin with the right contents; here the twin is old as well.
#[test]
fn a_lost_write_of_a_table_is_noticed() {
    let commit = |driver: &mut Driver, token: u32| {
        let write = Ask::Write {
            lba: u64::from(token % 3),
            tokens: vec![token],
            fua: false,
        };
        for ask in [write, Ask::Flush] {
            driver.ask(&ask).unwrap();
            driver.settle().unwrap();
        }
    };
    let (mut driver, superblock) = with_roots();
    commit(&mut driver, 10);
    let before = driver.medium.clone();
    commit(&mut driver, 11);
    commit(&mut driver, 12);
    let (after, ..) = driver.crash(true).unwrap();
    for kind in [Kind::Map, Kind::Counts] {
        let number = superblock.table_number(kind, 0);
        let noticed = |slot: u64| {
            let at = superblock.table_at(number, slot);
            let mut old = [0; 4096];
            before.read_into(at.0, &mut old);
            let mut medium = after.clone();
            medium.format(at.0, &old);
            if let Some(twin) = superblock.map_twin(number, slot) {
                assert!(
                    open::recover(&medium, None).is_ok(),
                    "the twin has the contents"
                );
                medium.format(twin.0, &old);
            }
            match open::recover(&medium, None) {
                Ok(Recovered::Tables(found)) => found.lost.iter().any(|lost| lost.kind == kind),
                Ok(Recovered::Log(_)) => panic!("tables"),
                Err(error) => {
                    matches!(error, RecoveryError::Table { at: place, .. } if place == at)
                }
            }
        };
        let slots = [noticed(0), noticed(1)];
        assert!(
            slots[0] != slots[1],
            "{kind:?}: the slot that counts, {slots:?}"
        );
    }
}
