//! The price of metadata: the share of copies of it, and of the map, among all bytes written.

#[allow(dead_code, reason = "a test uses a part")]
#[path = "../benches/support/mod.rs"]
mod support;

use support::Idle;
use vellum_core::seam::{Input, Mend, Service};
use vellum_core::stats::Stats;

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Writes so many blocks, at random among the first `blocks`.
fn write(idle: &mut Idle, numbers: &mut Numbers, writes: u64, blocks: u64) -> Stats {
    (0..writes).for_each(|_| idle.write(numbers.below(blocks)));
    idle.engine.stats()
}

/// The share of copies among all blocks written between these, in millionths.
fn price(before: &Stats, after: &Stats) -> u64 {
    let all = |stats: &Stats| {
        stats.medium_data
            + stats.medium_moved
            + stats.medium_headers
            + stats.medium_summaries
            + stats.medium_map
    };
    let copies = after.medium_copies - before.medium_copies;
    println!(
        "{copies} copies, {} blocks of the map, {} in all, {} map checkpoints",
        after.medium_map - before.medium_map,
        all(after) - all(before),
        after.map_checkpoints - before.map_checkpoints
    );
    copies * 1_000_000 / (all(after) - all(before))
}

#[test]
fn copies_cost_less_than_a_64th_of_all_blocks_written() {
    for (gib, writes, most) in [(4u64, 600_000, 4000), (48, 900_000, 16_000)] {
        let mut idle = Idle::new(gib << 18, 280);
        let blocks = idle.logical_blocks;
        let before = idle.engine.stats();
        (0..writes).for_each(|lba| idle.write(lba % blocks));
        let between = idle.engine.stats();
        let sequential = price(&before, &between);
        let after = write(&mut idle, &mut Numbers(1), writes, blocks);
        let random = price(&between, &after);
        println!("{gib} GiB: {sequential} millionths written in order, {random} at random");
        assert!(sequential < 4000 && random < most);
    }
}

/// A map that fits into its bounds.
#[test]
fn the_map_is_a_64th_at_most_of_what_random_writes_write() {
    let mut idle = Idle::within_bounds(32 << 18, 280);
    let blocks = idle.logical_blocks;
    let stats = write(&mut idle, &mut Numbers(1), 1_300_000, blocks);
    let written = stats.medium_data + stats.medium_headers + stats.medium_summaries;
    println!("{} blocks of the map, {written} others", stats.medium_map);
    assert!(stats.map_checkpoints > 1, "{}", stats.map_checkpoints);
    assert!(stats.medium_map * 64 <= written + stats.medium_map);
}

/// Random writes all over a map that is so many times as large as its bounds, of so many leaves: a write reads the leaf that it changes,
/// and several changes of a leaf are written together. At most one in `share` is a write of the map.
fn beyond_bounds(times: u64, leaves: usize, share: u64) {
    let mut idle = Idle::with_leaves((times * leaves as u64) << 10, 280, leaves);
    let (mut numbers, blocks) = (Numbers(1), idle.logical_blocks);
    let before = write(&mut idle, &mut numbers, 400_000, blocks);
    let read = idle.metadata_reads();
    let writes = 1_000_000;
    let after = write(&mut idle, &mut numbers, writes, blocks);
    let (map, checkpoints) = (
        after.medium_map - before.medium_map,
        after.map_checkpoints - before.map_checkpoints,
    );
    let reads = idle.metadata_reads() - read;
    println!("{map} blocks of the map written in {checkpoints} checkpoints, {reads} read");
    assert!(checkpoints > 0, "{checkpoints}");
    assert!(map * share <= writes, "{map}");
    assert!(reads * 10 <= writes * 11, "{reads}");
}

#[test]
fn a_map_16_times_its_bounds_costs_a_read_for_each_random_write_and_few_writes() {
    beyond_bounds(16, 512, 20);
}

/// 64 GiB with what `map-memory` is by default.
#[test]
fn a_map_4_times_its_bounds_costs_a_read_for_each_random_write_and_few_writes() {
    beyond_bounds(4, 4096, 25);
}

/// Blocks of a GiB.
const GIB: u64 = 1 << 18;

/// A TiB of which clients write the same GiB again and again: a root writes what has changed of it, not all of its seven MiB twice.
#[test]
fn a_root_costs_what_has_changed_and_not_what_the_volume_is() {
    let mut idle = Idle::with_leaves(1 << 28, 280, 8192);
    let mut numbers = Numbers(1);
    // The first two roots after an opening are written whole.
    let before = write(&mut idle, &mut numbers, 200_000, GIB);
    let after = write(&mut idle, &mut numbers, 1_000_000, GIB);
    let checkpoints = after.map_checkpoints - before.map_checkpoints;
    let map = after.medium_map - before.medium_map;
    println!("{map} blocks of the map in {checkpoints} map checkpoints");
    assert!(checkpoints > 4, "{checkpoints}");
    // Some 256 leaves, nearly as many parities, and 60 blocks of the root.
    assert!(map <= 600 * checkpoints, "{map}");
}

/// What a scrub has found damaged, and what may lie for long, is written whole: other roots leave damage where it is.
#[test]
fn the_roots_after_damage_and_of_a_clean_stop_are_whole() {
    let mut idle = Idle::with_leaves(64 * GIB, 280, 8192);
    let mut numbers = Numbers(1);
    let whole = 2 * u64::from(idle.engine.superblock().root_blocks());
    for input in [
        Input::Service(Service::Mend(Mend::Checkpoint)),
        Input::Shutdown,
    ] {
        let before = write(&mut idle, &mut numbers, 200_000, GIB / 16);
        let between = write(&mut idle, &mut numbers, 200_000, GIB / 16);
        let checkpoints = between.map_checkpoints - before.map_checkpoints;
        let each = (between.medium_map - before.medium_map) / checkpoints;
        assert!(each < whole * 2 / 3, "{each} of {whole}");
        idle.give(input);
        let after = idle.engine.stats();
        assert_eq!(after.map_checkpoints, between.map_checkpoints + 1);
        let root = after.medium_map - between.medium_map;
        assert!(root >= whole, "{root} of {whole}");
    }
}
