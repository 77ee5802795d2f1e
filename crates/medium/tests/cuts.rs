//! A cut of a tape keeps what a sync covered and what was durable by itself. For everything else, each version that was in
//! flight is left by some cut.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Memory, finish};
use proptest::prelude::*;
use std::collections::BTreeSet;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::fault::{Asked, Cuts, Event, Recorder, SECTOR_BYTES, Tape};
use vellum_medium::{Kind, Medium, MemoryMedium};

const BLOCKS: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, blocks: u64, durable: bool },
    Sync,
    Discard { at: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..BLOCKS).prop_flat_map(|at| (Just(at), 1..=(BLOCKS - at).min(4)));
    prop_oneof![
        6 => (range, any::<bool>()).prop_map(|((at, blocks), durable)| Step::Write { at, blocks, durable }),
        2 => Just(Step::Sync),
        1 => (0..BLOCKS).prop_map(|at| Step::Discard { at }),
    ]
}

fn batches() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(), 1..4), 1..12)
}

/// Records batches: the steps of a batch are in flight together. A block says which of all writes it is from.
fn record(batches: &[Vec<Step>]) -> Tape {
    let medium = Recorder::new(MemoryMedium::new(BLOCKS));
    let mut number = 0_u64;
    for batch in batches {
        let mut memories = Vec::new();
        let mut ios = Vec::new();
        for step in batch {
            let mut memory = Memory::new(4);
            number += 1;
            for index in 0..4 {
                memory
                    .block_mut(index)
                    .copy_from_slice(&number.to_le_bytes().repeat(512));
            }
            ios.push(match *step {
                Step::Write {
                    at,
                    blocks,
                    durable,
                } => memory.io(0, Kind::Write { durable }, at, 0, blocks as usize),
                Step::Sync => memory.io(0, Kind::Sync, 0, 0, 0),
                Step::Discard { at } => memory.io(0, Kind::Discard { blocks: 1 }, at, 0, 0),
            });
            memories.push(memory);
        }
        medium.submit(&mut ios);
        finish(&medium, batch.len());
    }
    medium.take()
}

/// Returns the writes a block may be from at an instant. It uses the tape alone, and another algorithm than the playback.
fn possible(tape: &Tape, instant: usize, block: u64) -> BTreeSet<u64> {
    let events: Vec<_> = tape.events().take(instant).collect();
    let ended = |issued: usize| {
        let is_it = |e: &&Event| matches!(e, Event::Ended { issued: i, .. } if *i == issued);
        events.iter().position(is_it)
    };
    let is_safe = |issued: usize| {
        let Some(end) = ended(issued) else {
            return false;
        };
        let covers = |(at, event): (usize, &&Event)| {
            matches!(event, Event::Issued(Asked::Sync)) && at > end && ended(at).is_some()
        };
        matches!(
            events[issued],
            Event::Issued(Asked::Write { durable: true, .. })
        ) || events.iter().enumerate().any(covers)
    };
    let mut possible = BTreeSet::from([0]);
    for (issued, event) in events.iter().enumerate() {
        let Event::Issued(asked) = event else {
            continue;
        };
        if !asked.blocks().contains(&block) {
            continue;
        }
        match asked {
            Asked::Write { bytes, .. } => {
                if is_safe(issued) {
                    possible.clear();
                }
                possible.insert(u64::from_le_bytes(*bytes.first_chunk().unwrap()));
            }
            _ => {
                possible.insert(0);
            }
        }
    }
    possible
}

fn sectors(medium: &MemoryMedium, block: u64) -> BTreeSet<u64> {
    let mut bytes = [0; BLOCK_BYTES];
    medium.read(Pba(block), &mut bytes).unwrap();
    let sectors = bytes.chunks_exact(SECTOR_BYTES);
    sectors
        .map(|sector| {
            let number = *sector.first_chunk().unwrap();
            assert_eq!(sector, number.repeat(SECTOR_BYTES / 8), "a sector is torn");
            u64::from_le_bytes(number)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Batches whose steps touch different blocks: no engine has two writes to a block in flight.
    #[test]
    fn a_cut_leaves_only_possible_states(batches in batches()) {
        let apart: Vec<Vec<Step>> = batches
            .iter()
            .map(|batch| {
                let mut taken = BTreeSet::new();
                let free = |step: &&Step| match step {
                    Step::Write { at, blocks, .. } => (*at..at + blocks).all(|block| taken.insert(block)),
                    Step::Discard { at } => taken.insert(*at),
                    Step::Sync => true,
                };
                batch.iter().filter(free).cloned().collect()
            })
            .collect();
        let tape = record(&apart);
        let mut cuts = Cuts::new(&MemoryMedium::new(BLOCKS), &tape, 1);
        for instant in 0..=tape.len() {
            cuts.advance_to(instant);
            for seed in 0..4 {
                let (medium, _) = cuts.cut(seed);
                for block in 0..BLOCKS {
                    let (found, may) = (sectors(&medium, block), possible(&tape, instant, block));
                    let is_possible = found.is_subset(&may);
                    prop_assert!(is_possible, "instant {instant}, block {block}: {found:?} of {may:?}");
                }
            }
        }
    }
}

#[test]
fn a_cut_leaves_writes_in_flight_whole_torn_or_not_at_all() {
    let write = |at| Step::Write {
        at,
        blocks: 2,
        durable: false,
    };
    // The second sync is in flight with the second write, and so does not cover it.
    let tape = record(&[vec![write(0)], vec![Step::Sync], vec![write(0), Step::Sync]]);
    let mut cuts = Cuts::new(&MemoryMedium::new(BLOCKS), &tape, 1);
    cuts.advance_to(tape.len());
    assert_eq!(cuts.open(), 1);
    let found: BTreeSet<_> = (0..200).map(|seed| sectors(&cuts.cut(seed).0, 0)).collect();
    let all = [
        BTreeSet::from([1]),
        BTreeSet::from([1, 3]),
        BTreeSet::from([3]),
    ];
    assert_eq!(found, BTreeSet::from(all));
}
