//! The memory that a page of parts takes, besides its own leaf and its owners' in the map.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../benches/support/mod.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod support;

use std::num::NonZeroU16;
use support::{Counting, Idle, held_bytes};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCKS: u64 = 1 << 20;

/// Three to a page.
const PART_BYTES: NonZeroU16 = NonZeroU16::new(1200).unwrap();

/// An entry of the map, or of a page.
const ENTRY_BYTES: u64 = 4;

/// There is only one test, because another's memory would be counted too.
#[test]
fn a_page_of_parts_takes_few_bytes_of_memory() {
    let mut idle = Idle::with_cached_sums(BLOCKS, 280, 64);
    let held = |idle: &Idle| held_bytes() - idle.metadata_bytes();
    let before = held(&idle);
    for lba in 0..idle.logical_blocks {
        idle.write_in(lba, lba as u32, PART_BYTES);
    }
    let stats = idle.engine.stats();
    assert_eq!(stats.packed_owners, idle.logical_blocks);
    let entries = (stats.packed_owners + stats.packed_pages) * ENTRY_BYTES;
    let hundredths = (held(&idle) - before - entries) * 100 / stats.packed_pages;
    println!(
        "{} pages of parts, {}.{:02} bytes of memory for each besides their entries",
        stats.packed_pages,
        hundredths / 100,
        hundredths % 100
    );
    assert!(hundredths <= 300);
}
