//! Writes of the map table that the medium confirmed and lost: their editions reveal each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::driver::{Ask, Driver};
use sim::medium::{BLOCK, Broken, Medium, Rot};
use sim::model::Model;
use sim::open::{self, Volume};
use sim::rng::Rng;
use vellum_core::engine;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::{Kind, SECTOR_BYTES};
use vellum_core::format::{FormatError, SumKind};
use vellum_core::layout::Recovered;
use vellum_core::recovery::RecoveryError;
use vellum_core::tables::{Options, Persistence, Tables};

const LBAS: u64 = 1200;

const fn volume(sums: SumKind) -> Volume {
    Volume {
        medium_blocks: 3002,
        logical_blocks: Some(LBAS),
        segment_blocks: 64,
        over_provisioning: 70,
        layout: Layout::Ordered,
        sums,
    }
}

fn opened(mut medium: Medium) -> (Driver, Superblock) {
    let mut rng = Rng::new(1);
    let Recovered::Tables(found) = open::open(&mut medium, &mut rng, false).unwrap() else {
        panic!("tables");
    };
    let superblock = found.superblock.clone();
    let options = Options::new(&engine::Options::default(), Persistence::Weak);
    let tables = Tables::new(*found, options, crc32c::crc32c);
    let mut driver = Driver::new(tables, medium, Model::new(LBAS), rng, 0);
    driver.model.believe_all();
    driver.start().unwrap();
    (driver, superblock)
}

/// A life that writes one block under each block of the map, once a round.
fn write(driver: &mut Driver, first: u32, rounds: u32) {
    for round in 0..rounds {
        for (index, lba) in [5, 600, 1100].into_iter().enumerate() {
            let tokens = vec![first + 10 * round + index as u32];
            let fua = false;
            for ask in [Ask::Write { lba, tokens, fua }, Ask::Flush] {
                driver.ask(&ask).unwrap();
                driver.settle().unwrap();
            }
        }
    }
}

fn stopped(mut driver: Driver) -> Medium {
    driver.settle_shutdown().unwrap();
    driver.crash(true).unwrap().0
}

fn bytes(medium: &Medium, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    medium.read_into(at, &mut bytes);
    bytes
}

/// The places of the map's blocks.
fn map(superblock: &Superblock) -> std::ops::Range<u64> {
    let first = superblock.table_at(0, 0).0;
    first..first + superblock.table_blocks()[Kind::Map as usize]
}

fn twin(superblock: &Superblock, at: u64) -> u64 {
    let number = at - map(superblock).start;
    superblock.map_twin(number, 0).unwrap().0
}

/// Replaces blocks and sectors of the map in `new` by those in `old`, one at a time. If both copies are replaced, recovery refuses and
/// names the block; if only one is, nothing is lost.
fn each_is_noticed(old: &Medium, new: &Medium, superblock: &Superblock) {
    assert!(open::recover(new, None).is_ok());
    let mut changed = 0;
    for at in map(superblock) {
        let (before, after) = (bytes(old, at), bytes(new, at));
        let sectors = (0..BLOCK)
            .step_by(SECTOR_BYTES)
            .map(|from| from..from + SECTOR_BYTES);
        for part in sectors.chain(std::iter::once(0..BLOCK)) {
            let mut mixed = after.clone();
            mixed[part.clone()].copy_from_slice(&before[part.clone()]);
            if mixed == after {
                continue;
            }
            changed += 1;
            let mut medium = new.clone();
            medium.format(at, &mixed);
            assert!(
                open::recover(&medium, None).is_ok(),
                "the twin has the contents"
            );
            medium.format(twin(superblock, at), &mixed);
            match open::recover(&medium, None).err() {
                Some(RecoveryError::Table {
                    at: named,
                    error: FormatError::Stale { .. },
                }) => {
                    assert_eq!(named.0, at);
                }
                other => panic!("bytes {part:?} of block {at}: {other:?}"),
            }
            assert!(open::check(&medium).is_err(), "the check does not see it");
        }
    }
    assert!(changed >= 3 * 9, "{changed} places differ");
}

#[test]
fn a_lost_write_of_the_map_is_noticed_after_a_clean_stop() {
    let (medium, _) = volume(SumKind::Xxh3).create(Broken::No).unwrap();
    let blank = medium.clone();
    let (mut driver, superblock) = opened(medium);
    assert!(superblock.has_editions());
    write(&mut driver, 100, 1);
    let first = stopped(driver);
    each_is_noticed(&blank, &first, &superblock);
    let (mut driver, superblock) = opened(first.clone());
    write(&mut driver, 200, 5);
    let second = stopped(driver);
    each_is_noticed(&first, &second, &superblock);
    each_is_noticed(&blank, &second, &superblock);
}

/// The volume was not stopped, but the table of editions had been written: 30 s after the map.
#[test]
fn a_lost_write_of_the_map_is_noticed_after_a_crash_some_time_later() {
    let (medium, _) = volume(SumKind::Xxh3).create(Broken::No).unwrap();
    let blank = medium.clone();
    let (mut driver, superblock) = opened(medium);
    write(&mut driver, 100, 2);
    assert_eq!(
        driver.core.stats().medium_editions,
        0,
        "no answer waits for it"
    );
    while driver.core.poll_timeout().is_some() {
        driver.wait().unwrap();
        driver.settle().unwrap();
    }
    assert_eq!(driver.core.stats().medium_editions, 1);
    // The next sync, whatever needs it, makes it durable.
    write(&mut driver, 200, 1);
    let medium = driver.crash(true).unwrap().0;
    each_is_noticed(&blank, &medium, &superblock);
}

/// A damaged table of editions costs only its protection, until the next stop.
#[test]
fn damaged_editions_are_made_anew() {
    let (medium, _) = volume(SumKind::Xxh3).create(Broken::No).unwrap();
    let blank = medium.clone();
    let (mut driver, superblock) = opened(medium);
    write(&mut driver, 100, 1);
    let mut medium = stopped(driver);
    let number = superblock.table_number(Kind::Editions, 0);
    medium
        .rot
        .insert(superblock.table_at(number, 0).0, Rot::Flip(77));
    let (driver, _) = opened(medium);
    assert_eq!(driver.core.stats().lost_edition_blocks, 1);
    let medium = stopped(driver);
    assert!(medium.rot.is_empty(), "the damaged table was written again");
    each_is_noticed(&blank, &medium, &superblock);
}

/// An older volume has no editions, opens, and stays as it is.
#[test]
fn an_older_volume_has_no_editions() {
    let (medium, _) = volume(SumKind::Crc32c).create(Broken::No).unwrap();
    let (mut driver, superblock) = opened(medium);
    assert!(!superblock.has_editions());
    assert_eq!(superblock.table_blocks()[Kind::Editions as usize], 0);
    write(&mut driver, 100, 2);
    assert_eq!(driver.core.stats().medium_editions, 0);
    let medium = stopped(driver);
    open::check(&medium).unwrap();
    let (driver, _) = opened(medium);
    open::check(&stopped(driver)).unwrap();
}
