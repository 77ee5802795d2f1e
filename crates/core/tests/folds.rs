//! Sparse pages of parts whose blocks are stored again: what a fold frees, what happens meanwhile, what stays, and a crash at
//! every effect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, crash_everywhere, volume};
use sim::driver::Ask;
use sim::open::Volume;
use vellum_core::addr::Lba;
use vellum_core::entry::PartId;
use vellum_core::seam::{DedupPolicy, Region, WriteOnce};
use vellum_core::service::Answers;

/// Contents that are stored in parts of pages, several to a page.
fn small_contents() -> Vec<u32> {
    let small = |token: &u32| (40..80).contains(&sim::driver::parts::packed(*token).len.get());
    (20_000..).filter(small).take(200).collect()
}

const PAGE: u64 = 8;

/// Two pages of eight blocks each; all but two blocks of each have been written again since.
fn sparse(bench: &mut Bench) {
    let contents = small_contents();
    bench.0.packing = 100;
    for lba in 0..2 * PAGE {
        bench.ask_write(lba, contents[lba as usize]);
        if lba % PAGE == PAGE - 1 {
            bench.flush();
        }
    }
    for lba in (0..2 * PAGE).filter(|lba| lba % PAGE >= 2) {
        bench.ask_write(lba, contents[(20 + lba) as usize]);
    }
    bench.flush();
}

fn assert_sparse_reads(bench: &mut Bench) {
    let contents = small_contents();
    for lba in 0..2 * PAGE {
        let index = if lba % PAGE >= 2 { 20 + lba } else { lba };
        bench.assert_reads(&[(lba, contents[index as usize])]);
    }
}

fn fold(bench: &mut Bench, lba: u64, blocks: u64) {
    bench.0.begin_fold(lba, blocks).unwrap();
    bench.0.settle().unwrap();
    assert!(
        bench.0.end_fold().unwrap(),
        "the blocks to be folded have been read"
    );
}

/// The part that a block is in, if it can be folded.
fn part_of(bench: &Bench, lba: u64) -> Option<PartId> {
    let mut found = Vec::new();
    let core = &bench.0.core;
    core.foldable_in(lba..lba + 1, |_| true, &mut found);
    found.first().map(|(part, _)| *part)
}

#[test]
fn a_page_is_given_up_with_the_last_of_its_blocks() {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    sparse(&mut bench);
    let before = bench.stats();
    assert_eq!((before.packed_pages, before.packed_owners), (3, 2 * PAGE));
    fold(&mut bench, 0, 1);
    assert_eq!((bench.stats().folded_blocks, bench.stats().folds), (1, 0));
    fold(&mut bench, 1, 1);
    assert_eq!((bench.stats().folded_blocks, bench.stats().folds), (2, 1));
    fold(&mut bench, PAGE, 2);
    bench.flush();
    let after = bench.stats();
    assert_eq!((after.folded_blocks, after.folds), (4, 2));
    // The rest of two pages is in one.
    assert_eq!((after.packed_pages, after.packed_owners), (2, 2 * PAGE));
    assert_eq!(after.live_blocks, before.live_blocks - 1);
    // No client requested any of it.
    assert_eq!(after.host_blocks_written, before.host_blocks_written);
    assert_eq!(after.host_blocks_read, before.host_blocks_read);
    assert_eq!(after.packed_blocks, before.packed_blocks);
    assert_eq!(after.parts_data, before.parts_data);
    assert_sparse_reads(&mut bench);
    bench.end();
}

/// A write or discard between the read and the fold wins, even if it writes the same bytes again.
#[test]
fn a_write_or_discard_between_read_and_fold_wins() {
    let contents = small_contents();
    let asks = [
        Ask::Write {
            lba: 1,
            tokens: vec![contents[100]],
            fua: false,
        },
        Ask::Write {
            lba: 1,
            tokens: vec![contents[1]],
            fua: true,
        },
        Ask::Discard {
            lba: 0,
            blocks: 2,
            fua: false,
        },
        Ask::WriteZeroes {
            lba: 1,
            blocks: 1,
            fua: false,
        },
    ];
    for ask in asks {
        let mut bench = Bench::new(1, volume(), DedupPolicy::default());
        sparse(&mut bench);
        bench.0.begin_fold(0, PAGE).unwrap();
        bench.0.settle().unwrap();
        bench.ask(&ask);
        assert!(bench.0.end_fold().unwrap());
        bench.flush();
        let left = if matches!(ask, Ask::Discard { .. }) {
            6
        } else {
            7
        };
        assert_eq!(bench.stats().folded_blocks, left, "{ask:?}");
        // The model checks every read.
        (0..PAGE).for_each(|lba| {
            bench.read(lba);
        });
        bench.end();
    }
}

/// Between read and fold the block is written, its page is freed, and the page's number is given to another page, in which the block is
/// written again in the same part. The map entry is the same as before, but means another page.
#[test]
fn a_reused_number_is_not_taken_for_the_page_that_was_read() {
    let contents = small_contents();
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.packing = 100;
    bench.write(0, contents[0]);
    let before = part_of(&bench, 0);
    bench.0.begin_fold(0, 1).unwrap();
    bench.0.settle().unwrap();
    let mut written = 0;
    while written == 0 || part_of(&bench, 0) != before {
        written += 1;
        bench.write(0, contents[written]);
        // Numbers are reused only after a map checkpoint is durable.
        bench.0.swept(written as u32, true).unwrap();
        bench.flush();
    }
    assert!(bench.0.end_fold().unwrap());
    assert_eq!(bench.stats().folded_blocks, 0);
    bench.assert_reads(&[(0, contents[written])]);
    bench.end();
}

#[test]
fn blocks_that_have_to_stay_in_place_are_not_folded() {
    let contents = small_contents();
    // The block is in the open chunk, and may be replaced there.
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.packing = 100;
    bench.ask_write(3, contents[0]);
    fold(&mut bench, 3, 1);
    assert_eq!(bench.stats().folds_put_off, 1);
    bench.end();

    // The block is in a page that a delta needs. The delta is merged back.
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.packing = 100;
    bench.ask_write(3, contents[0]);
    bench.write(4, contents[1]);
    bench.0.make_deltas(100).unwrap();
    let base = part_of(&bench, 3).unwrap();
    bench.0.forced_base = Some((base, contents[0]));
    bench.write(3, contents[2]);
    assert_eq!(bench.stats().deltas, 1);
    let before = part_of(&bench, 3);
    bench.0.forced_base = None;
    bench.0.deltas = 0;
    fold(&mut bench, 3, 2);
    assert_eq!(bench.stats().folded_blocks, 1);
    assert_eq!(bench.stats().deltas, 0);
    assert!(part_of(&bench, 3) != before);
    bench.assert_reads(&[(3, contents[2]), (4, contents[1])]);
    bench.end();

    // The block is in a journal, or pledged from there.
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    let region = Region {
        start: Lba(500),
        blocks: 32,
        homes: Lba(0),
        homes_blocks: 1 << 30,
        rule: WriteOnce::Hash,
    };
    bench.0.watch(&[region]).unwrap();
    bench.0.packing = 100;
    bench.write(7, contents[0]);
    bench.ask_write(500, contents[1]);
    bench.0.committed(&[(Lba(7), Lba(500))]).unwrap();
    bench.flush();
    assert_eq!(bench.stats().pledges, 1);
    fold(&mut bench, 7, 1);
    fold(&mut bench, 500, 1);
    assert_eq!((bench.stats().folded_blocks, bench.stats().pledges), (0, 1));
    bench.end();
}

#[test]
fn a_crash_at_any_effect_of_a_fold() {
    let contents = small_contents();
    crash_everywhere(&[DedupPolicy::default()], sparse, |bench| {
        // Folds both pages at once, including blocks that left them long ago.
        fold(bench, 0, 2 * PAGE);
        bench.ask(&Ask::Flush);
        bench.ask_write(0, contents[150]);
        bench.ask(&Ask::Flush);
        bench.discard(PAGE + 1);
        bench.ask_write(12, contents[151]);
    });
}

/// If a page's owners are not neighbours, it takes several folds. The first could take the last of the room, and only the last fold frees
/// any.
#[test]
fn a_fold_takes_no_room_from_clients() {
    let contents = small_contents();
    let thin = Volume {
        logical_blocks: Some(4000),
        ..volume()
    };
    let mut bench = Bench::new(1, thin, DedupPolicy::default());
    sparse(&mut bench);
    bench.0.packing = 0;
    let left = |bench: &Bench| {
        let room = bench.0.core.room();
        room.for_anybody() - room.live
    };
    let mut lba = 100;
    while left(&bench) > 1 {
        bench.write(lba, 30_000 + lba as u32);
        lba += 1;
    }
    bench.0.packing = 100;
    fold(&mut bench, 0, 1);
    fold(&mut bench, PAGE, 1);
    assert_eq!(bench.stats().folded_blocks, 0);
    assert_eq!(left(&bench), 1);
    bench.write(5, contents[100]);
    bench.assert_reads(&[(0, contents[0]), (5, contents[100])]);
    bench.end();
}
