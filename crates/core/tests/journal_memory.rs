//! The memory that write-once journaling takes for each block of a journal.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../benches/support/mod.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod support;

use std::collections::VecDeque;
use support::{Counting, Idle, held_bytes};
use vellum_core::addr::Lba;
use vellum_core::seam::{Region, WriteOnce};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LAPS: usize = 12;

/// Segments whose checksums are cached, as in every volume, with a journal or without.
const CACHED_SUMS: usize = 64;

/// The most bytes a journal block, in each lap around the journal. Its blocks are written home a quarter of a lap later, so that
/// three quarters of them are shared with their homes.
fn laps(journal: u64) -> Vec<u64> {
    let mut idle = Idle::with_cached_sums(1 << 18, 280, CACHED_SUMS);
    let volume = idle.logical_blocks;
    // By now every segment has been written, and the cache of checksums is full.
    (0..4 * volume).for_each(|lba| idle.write(lba % volume));
    let mut homes = VecDeque::with_capacity(journal as usize);
    let held = |idle: &Idle| held_bytes() - idle.metadata_bytes();
    let before = held(&idle);
    idle.journals(&[Region {
        start: Lba(0),
        blocks: journal,
        homes: Lba(0),
        homes_blocks: volume,
        rule: WriteOnce::Hash,
    }]);
    let mut content = 0;
    let mut lap = || {
        let mut most = 0;
        for block in 0..journal {
            content += 1;
            // Every content occurs once, and homes are all over the volume.
            let sum = u32::wrapping_mul(content, 0x9e37_79b9);
            idle.write_content(block, sum);
            homes.push_back((journal + u64::from(sum) % (volume - journal), sum));
            if homes.len() as u64 > journal / 4 {
                let (home, sum) = homes.pop_front().unwrap();
                idle.write_content(home, sum);
            }
            if block % 512 == 0 {
                most = most.max(held(&idle) - before);
            }
        }
        most.div_ceil(journal)
    };
    let most = (0..LAPS).map(|_| lap()).collect();
    let stats = idle.engine.stats();
    assert_eq!(stats.remapped_blocks, stats.home_writes);
    assert_eq!(stats.shared_pages, journal * 3 / 4);
    assert!(stats.medium_restamped > 0);
    most
}

/// There is only one test, because another's memory would be counted too.
#[test]
fn a_journal_block_takes_few_bytes_of_memory() {
    // Most of the memory is for page numbers that rest until a map checkpoint: the shorter a journal, the more such numbers there are for
    // each block.
    for (journal, bound) in [(1 << 14, 50), (1 << 16, 32)] {
        let laps = laps(journal);
        println!("a journal of {journal} blocks, bytes a block in each lap: {laps:?}");
        let (last, before) = (laps[LAPS - 1], laps[LAPS - 4]);
        assert!(last <= bound && last <= before + 1, "{laps:?}");
    }
}
