//! The price of metadata: the share of copies of it, and of the map, among all bytes written.

#[allow(dead_code, reason = "a test uses a part")]
#[path = "../benches/support/mod.rs"]
mod support;

use support::Idle;
use vellum_core::stats::Stats;

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
        let mut number = 1u64;
        for _ in 0..writes {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            idle.write((number >> 33) % blocks);
        }
        let random = price(&between, &idle.engine.stats());
        println!("{gib} GiB: {sequential} millionths written in order, {random} at random");
        assert!(sequential < 4000 && random < most);
    }
}

/// A map that fits into its bounds.
#[test]
fn the_map_is_a_64th_at_most_of_what_random_writes_write() {
    let mut idle = Idle::within_bounds(32 << 18, 280);
    let mut number = 1u64;
    for _ in 0..1_300_000 {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        idle.write((number >> 33) % idle.logical_blocks);
    }
    let stats = idle.engine.stats();
    let written = stats.medium_data + stats.medium_headers + stats.medium_summaries;
    println!("{} blocks of the map, {written} others", stats.medium_map);
    assert!(stats.map_checkpoints > 1, "{}", stats.map_checkpoints);
    assert!(stats.medium_map * 64 <= written + stats.medium_map);
}

/// Random writes all over a map that is so many times as large as its bounds, of so many leaves: a write reads the leaf that it changes,
/// and several changes of a leaf are written together. At most one in `share` is a write of the map.
fn beyond_bounds(times: u64, leaves: usize, share: u64) {
    let mut idle = Idle::with_leaves((times * leaves as u64) << 10, 280, leaves);
    let mut number = 1u64;
    let mut write = |idle: &mut Idle, writes: u64| {
        for _ in 0..writes {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            idle.write((number >> 33) % idle.logical_blocks);
        }
    };
    write(&mut idle, 400_000);
    let (before, read) = (idle.engine.stats(), idle.metadata_reads());
    let writes = 1_000_000;
    write(&mut idle, writes);
    let after = idle.engine.stats();
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

/// A TiB of which clients write the same GiB again and again: a root writes what has changed of it, not all of its seven MiB twice.
#[test]
fn a_root_costs_what_has_changed_and_not_what_the_volume_is() {
    let mut idle = Idle::with_leaves(1 << 28, 280, 8192);
    let mut number = 1u64;
    let mut write = |idle: &mut Idle, writes: u64| {
        for _ in 0..writes {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            idle.write((number >> 33) % (1 << 18));
        }
        idle.engine.stats()
    };
    // The first two roots after an opening are written whole.
    let before = write(&mut idle, 200_000);
    let after = write(&mut idle, 1_000_000);
    let checkpoints = after.map_checkpoints - before.map_checkpoints;
    let map = after.medium_map - before.medium_map;
    println!("{map} blocks of the map in {checkpoints} map checkpoints");
    assert!(checkpoints > 4, "{checkpoints}");
    // Some 256 leaves, nearly as many parities, and 60 blocks of the root.
    assert!(map <= 600 * checkpoints, "{map}");
}
