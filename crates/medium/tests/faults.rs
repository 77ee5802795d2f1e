//! The fault injector breaks what its table says, and nothing else.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Memory, finish};
use proptest::prelude::*;
use std::collections::HashSet;
use std::io::ErrorKind;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::fault::{CutReport, Rng, Rule, SECTOR_BYTES};
use vellum_medium::{Fault, FaultMedium, Io, Kind, Medium, Plan};

const BLOCKS: u64 = 48;

/// Returns a block whose sectors all say which write they are from, at their start and end.
fn stamped(n: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    for sector in block.chunks_exact_mut(SECTOR_BYTES) {
        sector[..8].copy_from_slice(&n.to_le_bytes());
        sector[SECTOR_BYTES - 8..].copy_from_slice(&n.to_le_bytes());
    }
    block
}

/// Returns the stamps of a block's sectors; a mixed sector has none.
fn stamps(medium: &FaultMedium, at: u64) -> Vec<u64> {
    let mut block = [0; BLOCK_BYTES];
    medium.read(Pba(at), &mut block).unwrap();
    block
        .chunks_exact(SECTOR_BYTES)
        .map(|sector| {
            let head = u64::from_le_bytes(sector[..8].try_into().unwrap());
            let end = u64::from_le_bytes(sector[SECTOR_BYTES - 8..].try_into().unwrap());
            assert_eq!(head, end, "a sector is torn");
            head
        })
        .collect()
}

fn write(medium: &FaultMedium, at: u64, blocks: u64, n: u64, durable: bool) {
    let mut memory = Memory::new(blocks as usize);
    for i in 0..blocks {
        *memory.block_mut(i as usize) = stamped(n);
    }
    common::run(
        medium,
        vec![memory.io(n, Kind::Write { durable }, at, 0, blocks as usize)],
    );
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, blocks: u64, durable: bool },
    Sync,
    Cut(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BLOCKS).prop_flat_map(|at| (Just(at), 1..=(BLOCKS - at).min(8)));
    prop_oneof![
        8 => (range, prop::bool::weighted(0.2))
            .prop_map(|((at, blocks), durable)| Step::Write { at, blocks, durable }),
        1 => Just(Step::Sync),
        1 => any::<u64>().prop_map(Step::Cut),
    ]
}

proptest! {
    /// Whatever is written and whenever the power fails: what was synced stays, each sector is one that was written there
    /// since, and nothing else changes.
    #[test]
    fn a_cut_loses_only_what_was_not_synced(
        steps in prop::collection::vec(step(), 1..80),
        cache_blocks_max in prop_oneof![Just(0usize), 1..20usize, Just(1000)],
        seed: u64,
    ) {
        let medium = FaultMedium::over_memory(BLOCKS, Plan { cache_blocks_max, ..Plan::seeded(seed) });
        // What each sector may hold after a cut; the last value is what it holds now.
        let sectors = BLOCK_BYTES / SECTOR_BYTES;
        let mut allowed: Vec<Vec<Vec<u64>>> = vec![vec![vec![0]; sectors]; BLOCKS as usize];
        for (n, step) in steps.into_iter().chain([Step::Cut(seed)]).enumerate() {
            let n = n as u64 + 1;
            match step {
                Step::Write { at, blocks, durable } => {
                    write(&medium, at, blocks, n, durable);
                    for sector in allowed[at as usize..(at + blocks) as usize].iter_mut().flatten() {
                        if durable {
                            sector.clear();
                        }
                        sector.push(n);
                    }
                }
                Step::Sync => {
                    medium.sync().unwrap();
                    for sector in allowed.iter_mut().flatten() {
                        sector.drain(..sector.len() - 1);
                    }
                    prop_assert_eq!(medium.volatile_blocks(), 0);
                }
                Step::Cut(seed) => {
                    let CutReport { writes, kept, dropped, torn } = medium.power_cut(seed);
                    prop_assert_eq!(writes, kept + dropped + torn);
                    prop_assert!(medium.is_off());
                    prop_assert!(medium.read(Pba(0), &mut [0; BLOCK_BYTES]).is_err());
                    prop_assert!(medium.write(Pba(0), &[0; BLOCK_BYTES]).is_err());
                    prop_assert!(medium.sync().is_err());
                    medium.restart();
                    for (at, block) in allowed.iter_mut().enumerate() {
                        for (found, sector) in stamps(&medium, at as u64).into_iter().zip(block) {
                            prop_assert!(sector.contains(&found), "block {}: {} of {:?}", at, found, sector);
                            *sector = vec![found];
                        }
                    }
                }
            }
            for (at, block) in allowed.iter().enumerate() {
                for (found, sector) in stamps(&medium, at as u64).into_iter().zip(block) {
                    prop_assert_eq!(Some(&found), sector.last());
                }
            }
        }
    }

    /// The same seed gives the same faults.
    #[test]
    fn a_seed_is_repeatable(seed: u64) {
        let run = || {
            let mut plan = Plan { cache_blocks_max: 7, ..Plan::seeded(seed) }.with_cut_after(150);
            for fault in Fault::ALL {
                plan = plan.with_rate(fault, 30_000);
            }
            let medium = FaultMedium::over_memory(BLOCKS, plan);
            let mut rng = Rng::new(seed);
            let mut story = Vec::new();
            for n in 0..200 {
                let result = match rng.below(4) {
                    0 => medium.read(Pba(rng.below(BLOCKS)), &mut [0; BLOCK_BYTES]),
                    1 => medium.sync(),
                    _ => medium.write(Pba(rng.below(BLOCKS)), &stamped(n)),
                };
                story.push(result.map_err(|e| e.to_string()));
            }
            medium.restart();
            medium.set_plan(Plan::default());
            let mut image = vec![0; BLOCKS as usize * BLOCK_BYTES];
            medium.read(Pba(0), &mut image).unwrap();
            (story, image, medium.stats())
        };
        let (first, second) = (run(), run());
        prop_assert_eq!(first.0, second.0);
        prop_assert!(first.1 == second.1);
        prop_assert_eq!(first.2, second.2);
    }
}

/// Cuts reach the extremes: nothing lost, all lost, only the newest lost, only the oldest, torn inside a block, an older
/// version over a newer.
#[test]
fn cuts_are_various() {
    let mut outcomes = HashSet::new();
    let (mut torn_block, mut older_wins) = (false, false);
    for seed in 0..3000 {
        let medium = FaultMedium::over_memory(4, Plan::default());
        write(&medium, 0, 1, 1, false);
        write(&medium, 1, 1, 2, false);
        write(&medium, 2, 1, 3, false);
        write(&medium, 2, 1, 4, false);
        let report = medium.power_cut(seed);
        medium.restart();
        let found: Vec<Vec<u64>> = (0..3).map(|at| stamps(&medium, at)).collect();
        torn_block |= found[0].contains(&0) && found[0].contains(&1);
        older_wins |= report.kept == 4 && found[2].contains(&3);
        outcomes.insert((found[0] == [1; 8], found[1] == [2; 8], found[2] == [4; 8]));
    }
    assert_eq!(outcomes.len(), 8);
    assert!(torn_block && older_wins);
}

#[test]
fn a_cut_during_a_write_may_leave_some_of_it() {
    let mut found = HashSet::new();
    for seed in 0..300 {
        let medium = FaultMedium::over_memory(8, Plan::seeded(seed).with_cut_after(1));
        write(&medium, 0, 1, 1, true);
        let mut memory = Memory::new(1);
        *memory.block_mut(0) = stamped(2);
        medium.submit(&mut vec![memory.io(
            0,
            Kind::Write { durable: true },
            0,
            0,
            1,
        )]);
        let done = finish(&medium, 1);
        assert!(
            done[0]
                .result
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("the power is off")
        );
        medium.restart();
        let stamps = stamps(&medium, 0);
        assert!(stamps.iter().all(|s| [1, 2].contains(s)));
        found.insert((stamps.contains(&1), stamps.contains(&2)));
        // A new life: the planned cut is over.
        write(&medium, 0, 1, 3, true);
        assert_eq!(medium.stats().cuts, 1);
    }
    assert_eq!(found.len(), 3, "old, new, torn");
}

#[test]
fn restarting_drops_completions_that_nobody_took() {
    let medium = FaultMedium::over_memory(8, Plan::default());
    medium.submit(&mut vec![Io::new(1, Kind::Sync, Pba(0))]);
    medium.power_cut(0);
    medium.restart();
    medium.submit(&mut vec![Io::new(2, Kind::Sync, Pba(0))]);
    assert_eq!(finish(&medium, 1)[0].io.token, 2);
}

#[test]
fn each_fault_strikes_where_the_rule_says() {
    let at_three = |fault| Rule {
        fault,
        blocks: 3..4,
        skip: 1,
        times: 1,
    };
    let prepared = |fault| {
        let medium = FaultMedium::over_memory(8, Plan::seeded(5).with_rule(at_three(fault)));
        write(&medium, 0, 8, 1, true); // the first that touches block 3
        medium
    };
    let mut block = [0; BLOCK_BYTES];

    let medium = prepared(Fault::WriteError);
    medium.write(Pba(2), &stamped(2)).unwrap();
    let e = medium.write(Pba(3), &stamped(2)).unwrap_err();
    assert_eq!(
        (e.offset, e.source.raw_os_error()),
        (3 * 4096, Some(libc::EIO))
    );
    assert!(stamps(&medium, 3).iter().all(|s| [1, 2].contains(s)));
    medium.write(Pba(3), &stamped(2)).unwrap();

    let medium = prepared(Fault::Full);
    let e = medium.write(Pba(3), &stamped(2)).unwrap_err();
    assert!(e.is_full() && e.source.kind() == ErrorKind::StorageFull);
    assert_eq!(stamps(&medium, 3), [1; 8]);

    let medium = prepared(Fault::LostWrite);
    medium.write(Pba(3), &stamped(2)).unwrap();
    assert_eq!(stamps(&medium, 3), [1; 8]);

    let medium = prepared(Fault::FlipWrite);
    medium.write(Pba(3), &stamped(2)).unwrap();
    for _ in 0..2 {
        medium.read(Pba(3), &mut block).unwrap();
        assert_eq!(bits_apart(&block, &stamped(2)), 1);
    }

    let medium = prepared(Fault::MisdirectedWrite);
    medium.write(Pba(3), &stamped(2)).unwrap();
    let hit: Vec<u64> = (0..8).filter(|&at| stamps(&medium, at) == [2; 8]).collect();
    assert!(hit.len() == 1 && hit[0] != 3, "{hit:?}");

    let medium = prepared(Fault::ReadError);
    medium.read(Pba(3), &mut block).unwrap();
    assert!(medium.read(Pba(3), &mut block).is_err());
    medium.read(Pba(3), &mut block).unwrap();

    let medium = prepared(Fault::FlipRead);
    medium.read(Pba(3), &mut block).unwrap();
    medium.read(Pba(3), &mut block).unwrap();
    assert_eq!(bits_apart(&block, &stamped(1)), 1);
    medium.read(Pba(3), &mut block).unwrap();
    assert_eq!(block, stamped(1));
    assert_eq!(medium.stats().faults[Fault::FlipRead as usize], 1);
}

fn bits_apart(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[test]
fn a_failed_sync_may_lose_what_it_held_and_a_later_one_does_not_bring_it_back() {
    let (mut lost, mut kept) = (false, false);
    for seed in 0..20 {
        let medium = FaultMedium::over_memory(8, Plan::seeded(seed).with_nth(Fault::SyncError, 0));
        write(&medium, 0, 8, 1, false);
        medium.sync().unwrap_err();
        medium.sync().unwrap();
        // Like a page cache: it reads as written until the cache is dropped or the power fails.
        let found = |medium: &FaultMedium| -> Vec<u64> {
            (0..8).flat_map(|at| stamps(medium, at)).collect()
        };
        assert!(found(&medium).iter().all(|&stamp| stamp == 1));
        match seed % 2 {
            0 => medium.drop_cache().unwrap(),
            _ => {
                medium.power_cut(seed);
                medium.restart();
            }
        }
        lost |= found(&medium).contains(&0);
        kept |= found(&medium).contains(&1);
    }
    assert!(lost && kept);
}

#[test]
fn data_that_a_failed_sync_gave_up_is_durable_when_written_again() {
    for seed in 0..20 {
        let medium = FaultMedium::over_memory(8, Plan::seeded(seed).with_nth(Fault::SyncError, 0));
        write(&medium, 0, 8, 1, false);
        medium.sync().unwrap_err();
        write(&medium, 2, 2, 1, false);
        medium.sync().unwrap();
        medium.power_cut(seed);
        medium.restart();
        let found: Vec<u64> = (2..4).flat_map(|at| stamps(&medium, at)).collect();
        assert!(found.iter().all(|&stamp| stamp == 1), "{found:?}");
    }
}

#[test]
fn a_sync_that_lies_is_found_out_by_a_cut() {
    let plan = |seed| Plan::seeded(seed).with_rate(Fault::LostSync, 1_000_000);
    let lost = (0..50).filter(|&seed| {
        let medium = FaultMedium::over_memory(8, plan(seed));
        write(&medium, 0, 1, 1, true);
        medium.sync().unwrap();
        medium.power_cut(seed);
        medium.restart();
        stamps(&medium, 0) != [1; 8]
    });
    assert!(lost.count() > 5);
}

#[test]
fn full_comes_and_goes() {
    let medium = FaultMedium::over_memory(8, Plan::default());
    medium.set_full(true);
    assert!(medium.write(Pba(0), &stamped(1)).unwrap_err().is_full());
    medium.read(Pba(0), &mut [0; BLOCK_BYTES]).unwrap();
    medium.sync().unwrap();
    medium.set_full(false);
    medium.write(Pba(0), &stamped(1)).unwrap();
}

#[test]
fn damage_at_rest_stays() {
    let medium = FaultMedium::over_memory(8, Plan::default());
    let mut block = [0; BLOCK_BYTES];
    for durable in [false, true] {
        write(&medium, 1, 1, 1, durable);
        medium.flip_bit(Pba(1), 4096 * 8 + 17).unwrap();
        medium.sync().unwrap();
        medium.read(Pba(1), &mut block).unwrap();
        assert_eq!(bits_apart(&block, &stamped(1)), 1);
    }
}

#[test]
fn a_discard_leaves_zeros_or_what_was_there() {
    let mut found = HashSet::new();
    for seed in 0..50 {
        let medium = FaultMedium::over_memory(8, Plan::seeded(seed));
        write(&medium, 0, 2, 1, true);
        write(&medium, 0, 1, 2, false);
        common::run(
            &medium,
            vec![Io::new(0, Kind::Discard { blocks: 1 }, Pba(0))],
        );
        assert_eq!(stamps(&medium, 1), [1; 8]);
        found.insert(stamps(&medium, 0));
    }
    assert_eq!(found, HashSet::from([vec![0; 8], vec![1; 8]]));
}
