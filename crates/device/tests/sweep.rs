//! Deduplication afterwards: a sweep finds what is stored twice, and is in no client's way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/gate.rs"]
mod gate;
#[path = "common/thrice.rs"]
mod thrice;

use common::{Client, create, open, stop_sound};
use gate::{Gate, MAKES_DURABLE};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thrice::*;
use vellum_device::block::Op;
use vellum_device::limits::SWEEP_PATIENCE;
use vellum_device::policy::Policy;
use vellum_device::{Haste, Sought, Volume};
use vellum_medium::{Medium, MemoryMedium};

#[test]
fn a_sweep_shares_what_was_stored_before() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    let stored = counted(&volume, "live_blocks");
    assert_eq!(stored, 3 * CONTENTS);
    let began = Instant::now();
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "merged_blocks"), 2 * CONTENTS);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    // No clients are active: it does not lose its patience for each pair.
    assert!(began.elapsed() < SWEEP_PATIENCE * 2 * CONTENTS as u32);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
    assert_read(&open(&medium));
}

/// If the index is too small, several pages come to have one content, each with several owners.
#[test]
fn a_sweep_merges_pages_that_are_shared_already() {
    let (medium, volume) = volume();
    volume
        .set_policy(Policy {
            index_bytes: 64,
            ..deduplicating()
        })
        .unwrap();
    let mut client = Client::new(&volume);
    for round in 0..2 {
        for content in 0..CONTENTS {
            for copy in 0..2 {
                let lba = content * 4 + round * 2 + copy;
                client.write(lba, &[content + 1]).unwrap();
            }
        }
    }
    client.flush().unwrap();
    // The index is also being filled from the medium, which drops some of its entries.
    assert!(counted(&volume, "shared_pages") > CONTENTS * 3 / 2);
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "shared_pages"), CONTENTS);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    for lba in 0..4 * CONTENTS {
        assert_eq!(client.read(lba, 1).unwrap(), [lba / 4 + 1], "LBA {lba}");
    }
    stop_sound(&volume, &*medium);
}

#[test]
fn a_sweep_reads_no_faster_than_it_may() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.set_policy(slow(2000)).unwrap();
    let began = Instant::now();
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    let read = 2 * counted(&volume, "merge_reads");
    let least = Duration::from_millis((read - 2) * 1000 / 2000);
    assert!(read >= 4 * CONTENTS && began.elapsed() >= least);
    stop_sound(&volume, &*medium);
}

/// A volume on a medium whose syncs can be held back.
fn gated() -> (Arc<Gate>, Arc<Volume>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let gate = Arc::new(Gate::new(medium, MAKES_DURABLE));
    let medium: Arc<dyn Medium> = gate.clone();
    (gate, open(&medium))
}

/// A client's request is in flight while the medium syncs. Whatever the sweep is doing, it works on one pair.
#[test]
fn a_sweep_gives_way_to_a_request() {
    let (gate, volume) = gated();
    write_thrice(&volume);
    // The scout reads too.
    wait_until("no scan is due", || !volume.stats().commits.looking);
    // Slow enough to be caught in progress, and fast enough to read five pairs in the time of a round.
    volume.set_policy(slow(200)).unwrap();
    sweep(&volume);
    wait_until("the sweep is at it", || {
        counted(&volume, "merged_blocks") > 2
    });
    let mut client = Client::new(&volume);
    for round in 0..3 {
        let began = Instant::now();
        gate.close();
        client.write(2000 + round, &[9]).unwrap();
        let flush = client.request(Op::Flush, 0, 0);
        let tags = client.submit(vec![flush]);
        std::thread::sleep(Duration::from_millis(1));
        let before = gate.reads();
        std::thread::sleep(Duration::from_millis(50));
        let late = gate.reads() - before;
        // If the processor was busy for so long, the sweep's patience has ended.
        let in_time = began.elapsed() < SWEEP_PATIENCE * 9 / 10;
        assert!(
            late <= 2 || !in_time,
            "{late} blocks read from 1 ms after the request on"
        );
        assert!(progress(&volume).ended == 0);
        gate.open();
        client.sink.wait(tags[0]).unwrap();
        let merged = counted(&volume, "merged_blocks");
        wait_until("it goes on", || counted(&volume, "merged_blocks") > merged);
    }
    stop_sound(&volume, &*gate);
}

#[test]
fn a_sweep_goes_on_beside_its_clients() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    sweep(&volume);
    let mut client = Client::new(&volume);
    for round in 0..200 {
        let lba = round * 7 % (3 * CONTENTS);
        let content = lba % CONTENTS + 1;
        assert_eq!(client.read(lba, 1).unwrap(), [content]);
        client.write(lba, &[content]).unwrap();
    }
    wait_for_sweeps(&volume, 1);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// An automatic sweep waits for quiet; one that a user requests does not wait for the automatic one.
#[test]
fn a_requested_sweep_does_not_wait_for_an_automatic_one() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    let mut client = Client::new(&volume);
    for _ in 0..(64 << 10) / 256 {
        client.write(2000, &[7; 256]).unwrap();
    }
    let at_rate = |sweep_blocks| Policy {
        sweep_blocks,
        ..deduplicating()
    };
    // Slow enough to be caught in progress.
    volume.set_policy(at_rate(50)).unwrap();
    wait_until("it sweeps", || progress(&volume).permille.is_some());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                client.read(0, 1).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        sweep(&volume);
        volume.set_policy(at_rate(1000)).unwrap();
        let began = Instant::now();
        while progress(&volume).ended < 2 && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(progress(&volume).ended >= 2);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

#[test]
fn stopping_ends_a_sweep() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    sweep(&volume);
    stop_sound(&volume, &*medium);
    assert_read(&open(&medium));
}

/// Blocks in parts of pages, each content written three times without an index.
#[test]
fn a_sweep_shares_parts_of_pages() {
    let (medium, volume) = volume();
    volume.set_policy(packing()).unwrap();
    write_thrice(&volume);
    // Few of them do not become smaller.
    let packed = counted(&volume, "packed_owners");
    assert!(packed > 2 * CONTENTS && packed.is_multiple_of(3));
    let stored = counted(&volume, "live_blocks");
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "merged_blocks"), 2 * CONTENTS);
    assert_eq!(counted(&volume, "merged_parts"), packed / 3 * 2);
    // Blocks that were written together leave together: two of three pages have no owner left, except at the border. These are
    // two, of the chunk that the second copy begins in: its header, and the page after it. The third is due to the rounding of
    // the division.
    assert!(counted(&volume, "live_blocks") <= stored / 3 + 3);
    assert_read(&volume);
    sweep(&volume);
    wait_for_sweeps(&volume, 2);
    assert_eq!(counted(&volume, "merged_blocks"), 2 * CONTENTS);
    stop_sound(&volume, &*medium);
    assert_read(&open(&medium));
}

/// The block that a sweep meets first must not stand for all blocks with its checksum.
#[test]
fn a_sweep_tells_blocks_of_one_checksum_apart() {
    let (medium, volume) = older_volume();
    let mut client = Client::new(&volume);
    for lba in 0..40 {
        let mut request = client.write_request(lba, &[5], false);
        if lba % 8 != 0 {
            collide(&mut request);
        }
        client.call(request).unwrap();
    }
    client.flush().unwrap();
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "live_blocks"), 2);
    for lba in 0..40 {
        let request = client.request(Op::Read, lba, 1);
        let mut request = client.call(request).unwrap();
        if lba % 8 != 0 {
            collide(&mut request);
        }
        assert_eq!(
            request.frames.block(0),
            &common::block_of(5)[..],
            "LBA {lba}"
        );
    }
    stop_sound(&volume, &*medium);
}

/// Killed whenever it begins, with its work so far on the medium or not: each sweep continues where blocks are still stored
/// twice.
#[test]
fn a_sweep_that_is_killed_goes_on_after_the_restart() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.stop().unwrap();
    drop(volume);
    for kill in 0..4 {
        let volume = open(&medium);
        // So slow that much is left for the next sweep.
        volume.set_policy(slow(100)).unwrap();
        sweep(&volume);
        wait_until("it has merged some", || {
            counted(&volume, "merged_blocks") >= 20
        });
        if kill % 2 == 0 {
            Client::new(&volume).flush().unwrap();
        }
        // Without a stop: the medium is left as by a crash.
        drop(volume);
    }
    let volume = open(&medium);
    let left = counted(&volume, "live_blocks");
    assert!(CONTENTS < left && left <= 3 * CONTENTS - 40, "{left}");
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// A volume on which a slow sweep has merged some blocks.
fn begun(rate: u32, merged: u64) -> (Arc<dyn Medium>, Arc<Volume>) {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.set_policy(slow(rate)).unwrap();
    sweep(&volume);
    wait_until("it has merged some", || {
        counted(&volume, "merged_blocks") >= merged
    });
    (medium, volume)
}

fn halt(volume: &Volume) {
    volume.halt_sweep(Sought::Duplicates).unwrap();
    wait_until("it is halted", || progress(volume).halted == 1);
}

/// A sweep that was halted continues there: blocks that are shared by then are not examined again.
#[test]
fn a_sweep_that_is_halted_goes_on_where_it_was() {
    let (medium, volume) = begun(40, 30);
    halt(&volume);
    let halted = progress(&volume);
    assert_eq!((halted.ended, halted.permille), (0, None));
    let left_at = halted.left_at.unwrap();
    let merged = counted(&volume, "merged_blocks");
    assert!(merged < 2 * CONTENTS);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counted(&volume, "merged_blocks"), merged);
    volume.stop().unwrap();
    drop(volume);

    let volume = open(&medium);
    assert_eq!(progress(&volume).left_at, Some(left_at));
    assert!(left_at > 0);
    // There is nothing to halt, and this does not affect the next one.
    volume.halt_sweep(Sought::Duplicates).unwrap();
    let stored = counted(&volume, "live_blocks");
    volume.sweep(Sought::Duplicates, Haste::Now).unwrap();
    wait_for_sweeps(&volume, 1);
    assert_eq!(progress(&volume).left_at, None);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    // Each pair that was left was read once, and no other.
    assert_eq!(counted(&volume, "merge_reads"), stored - CONTENTS);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// A sweep that continues does not look at what it has passed, whatever was written there since; the next one does.
#[test]
fn blocks_written_behind_a_sweep_are_left_to_the_next_one() {
    let (medium, volume) = begun(80, 60);
    halt(&volume);
    let mut client = Client::new(&volume);
    for content in 0..CONTENTS {
        client.write(1000 + content, &[content + 1]).unwrap();
    }
    client.flush().unwrap();
    volume.sweep(Sought::Duplicates, Haste::Now).unwrap();
    wait_for_sweeps(&volume, 1);
    let left = counted(&volume, "live_blocks");
    assert!(CONTENTS < left && left < 2 * CONTENTS, "{left}");
    volume.sweep(Sought::Duplicates, Haste::Now).unwrap();
    wait_for_sweeps(&volume, 2);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// It goes on when the volume is quiet, though nothing was written since.
#[test]
fn a_sweep_that_a_restart_has_cut_short_goes_on_by_itself() {
    let (medium, volume) = begun(40, 30);
    volume.stop().unwrap();
    drop(volume);
    let volume = open(&medium);
    volume.set_policy(deduplicating()).unwrap();
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    stop_sound(&volume, &*medium);
}

/// It waits neither for clients nor for its rate, and neither does one that is already running.
#[test]
fn a_sweep_that_is_wanted_now_waits_for_nothing() {
    let (gate, volume) = gated();
    write_thrice(&volume);
    // 600 pairs at this rate take ten minutes.
    volume.set_policy(slow(2)).unwrap();
    sweep(&volume);
    wait_until("it is under way", || progress(&volume).permille.is_some());
    // A request that is in flight all the while.
    let mut client = Client::new(&volume);
    client.write(2000, &[9]).unwrap();
    gate.close();
    let flush = client.request(Op::Flush, 0, 0);
    let tags = client.submit(vec![flush]);
    let began = Instant::now();
    volume.sweep(Sought::Duplicates, Haste::Now).unwrap();
    wait_until("it has merged nearly all", || {
        counted(&volume, "merged_blocks") > CONTENTS
    });
    // Each of so many pairs would have waited for a tenth of a second.
    assert!(began.elapsed() < SWEEP_PATIENCE * CONTENTS as u32 / 2);
    gate.open();
    client.sink.wait(tags[0]).unwrap();
    wait_for_sweeps(&volume, 2);
    assert_read(&volume);
    stop_sound(&volume, &*gate);
}
