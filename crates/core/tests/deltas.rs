//! Deltas and their bases (CSA-FS §3.2), case by case: a base whose block is written again, discarded or shared, and a crash at
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
use sim::model::Seen;
use vellum_core::addr::{Lba, Vba};
use vellum_core::entry::PartId;
use vellum_core::index::Holder;
use vellum_core::seam::DedupPolicy;
use vellum_core::service::Answers;

/// Contents that are stored in parts of pages, several to a page.
fn small_contents() -> Vec<u32> {
    let small = |token: &u32| sim::driver::parts::packed(*token).len.get() < 400;
    (20_000..).filter(small).take(16).collect()
}

/// Stores blocks in parts of pages if possible, and from then on as deltas.
fn packing(bench: &mut Bench, lbas: std::ops::Range<u64>, contents: &[u32]) {
    bench.0.packing = 100;
    bench.0.make_deltas(100).unwrap();
    for (lba, &content) in lbas.zip(contents) {
        bench.write(lba, content);
    }
}

/// What happens to the block whose content is a base.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Kept,
    Discarded,
    Written,
    Merged,
}

#[test]
fn a_base_stays_for_its_delta_whatever_happens_to_its_block() {
    let contents = small_contents();
    for fate in [Fate::Kept, Fate::Discarded, Fate::Written, Fate::Merged] {
        let mut deltas = 0;
        for seed in 0..12 {
            let mut bench = Bench::in_memory(seed, volume(), DedupPolicy::default());
            // Two blocks that share a part, and one that is stored twice.
            packing(&mut bench, 1..2, &contents);
            for lba in 2..4 {
                bench.write(lba, contents[0]);
            }
            bench.ask(&Ask::Merge {
                lba: 2,
                of: Holder::Lba(Lba(1)),
            });
            bench.flush();
            assert_eq!(bench.stats().merged_blocks, 1);
            bench.write(1, contents[1]);
            deltas += bench.stats().deltas;
            let second = match fate {
                Fate::Kept => Seen::Token(contents[0]),
                Fate::Discarded => {
                    bench.discard(2);
                    bench.flush();
                    bench.read(2)
                }
                Fate::Written => {
                    bench.write(2, 40_000);
                    Seen::Token(40_000)
                }
                Fate::Merged => {
                    bench.ask(&Ask::Merge {
                        lba: 2,
                        of: Holder::Lba(Lba(3)),
                    });
                    bench.flush();
                    Seen::Token(contents[0])
                }
            };
            bench.assert_reads(&[(1, contents[1]), (3, contents[0])]);
            assert_eq!(bench.read(2), second, "{fate:?}, seed {seed}");
            // The base goes with the delta.
            bench.discard(1);
            bench.flush();
            if bench.stats().deltas == 0 {
                assert_eq!(bench.stats().base_pages, 0, "{fate:?}, seed {seed}");
            }
            bench.end();
        }
        assert!(deltas > 6, "{fate:?}: {deltas} in 12");
    }
}

#[test]
fn a_crash_at_any_effect_of_a_delta() {
    let contents = small_contents();
    let before = |bench: &mut Bench| packing(bench, 1..6, &contents);
    let write = |bench: &mut Bench| {
        for lba in 1..4 {
            bench.ask_write(lba, contents[5 + lba as usize]);
        }
    };
    crash_everywhere(&[DedupPolicy::default()], before, |bench| {
        write(bench);
        bench.ask(&Ask::Flush);
        bench.ask_write(4, contents[11]);
    });
    let with_deltas = |bench: &mut Bench| {
        before(bench);
        write(bench);
        bench.flush();
    };
    // One delta is replaced by another, one is dropped, a base's block is written whole, and another delta is merged.
    let part = |bench: &mut Bench| {
        bench.ask_write(1, contents[10]);
        bench.ask(&Ask::Flush);
        bench.discard(2);
        bench.0.packing = 0;
        bench.ask_write(3, 40_000);
        bench.ask(&Ask::Merge {
            lba: 5,
            of: Holder::Lba(Lba(4)),
        });
    };
    crash_everywhere(&[DedupPolicy::default()], with_deltas, part);
}

fn parts_of(bench: &Bench, lbas: &std::ops::Range<u64>) -> Vec<(PartId, Lba)> {
    let mut parts = Vec::new();
    let core = &bench.0.core;
    core.foldable_in(lbas.clone(), |_| true, &mut parts);
    parts
}

/// The pages that hold the deltas of `lbas`, with so many buckets.
fn pages_of_deltas(buckets: u64, lbas: std::ops::Range<u64>) -> Vec<Vba> {
    let contents = small_contents();
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    // Puts all bases in a few pages, as many as are kept.
    packing(&mut bench, 0..0, &contents);
    for (lba, &content) in lbas.clone().zip(&contents) {
        bench.ask_write(lba, content);
    }
    bench.flush();
    bench.0.buckets = buckets;
    for ((part, Lba(lba)), content) in parts_of(&bench, &lbas).into_iter().zip(&contents) {
        bench.0.forced_base = Some((part, *content));
        bench.ask_write(lba, contents[(lba as usize + 5) % contents.len()]);
    }
    bench.flush();
    assert_eq!(bench.stats().deltas, lbas.end - lbas.start);
    let parts = parts_of(&bench, &lbas).into_iter();
    let pages = parts.map(|(part, _)| part.page).collect();
    bench.end();
    pages
}

/// CSA-FS's log has such buckets (§3.3).
#[test]
fn deltas_of_a_bucket_share_pages_only_with_each_other() {
    let of = |buckets| pages_of_deltas(buckets, 1..13);
    let count = |mut pages: Vec<Vba>| {
        pages.sort_unstable();
        pages.dedup();
        pages.len()
    };
    assert_eq!(count(of(0)), 1, "all in the chunk's header");
    let pages = of(3);
    assert_eq!(count(pages.clone()), 3);
    for (one, other) in (0..12).flat_map(|one| (0..12).map(move |other| (one, other))) {
        let is_same_bucket = one % 3 == other % 3;
        assert_eq!(pages[one] == pages[other], is_same_bucket, "{one}, {other}");
    }
    // Eight buckets have pages of their own. The deltas of the other buckets are together in the header.
    assert_eq!(count(of(12)), 9);
}

/// A base is not a delta, so a chain has two links. A block offered against something that cannot be a base is stored whole.
#[test]
fn a_chain_at_its_bound_gets_no_longer() {
    let contents = small_contents();
    let part = |page| PartId {
        page: Vba(page),
        slot: 0,
    };
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    packing(&mut bench, 1..2, &contents);
    let offered = |bench: &mut Bench, lba: u64, base: PartId, of: usize| {
        let whole = bench.stats().medium_data;
        bench.0.forced_base = Some((base, contents[of]));
        bench.write(lba, contents[lba as usize]);
        bench.0.forced_base = None;
        (bench.stats().deltas, bench.stats().medium_data - whole)
    };
    // Pages of parts are numbered in order of arrival: LBA 1's is the first, its delta's the second.
    assert_eq!(offered(&mut bench, 2, part(0), 0), (1, 0));
    assert_eq!(offered(&mut bench, 3, part(1), 2), (1, 1), "a delta");
    assert_eq!(
        offered(&mut bench, 4, part(7), 0),
        (1, 1),
        "a base that does not exist"
    );
    // A part of a chunk that is not sealed.
    bench.0.deltas = 0;
    bench.ask_write(5, contents[5]);
    assert_eq!(
        offered(&mut bench, 6, part(2), 5),
        (1, 1),
        "in an open chunk"
    );
    assert_eq!(
        offered(&mut bench, 7, part(2), 5),
        (2, 0),
        "when that is sealed"
    );
    bench.0.make_deltas(0).unwrap();
    assert_eq!(offered(&mut bench, 8, part(2), 5), (2, 1), "none are made");
    let before = bench.stats();
    bench.assert_reads(&[(1, contents[0]), (5, contents[5])]);
    for lba in [2, 3, 4, 6, 7, 8] {
        bench.assert_reads(&[(lba, contents[lba as usize])]);
    }
    let after = bench.stats();
    assert_eq!(after.delta_reads - before.delta_reads, 2);
    assert_eq!(after.base_reads - before.base_reads, 2);
    bench.end();
}

#[test]
fn a_crash_at_any_effect_of_a_chain_at_its_bound() {
    let contents = small_contents();
    let before = |bench: &mut Bench| {
        packing(bench, 1..2, &contents);
        for &content in &contents[1..6] {
            bench.write(1, content);
        }
    };
    crash_everywhere(&[DedupPolicy::default()], before, |bench| {
        for &content in &contents[6..10] {
            bench.ask_write(1, content);
            bench.ask(&Ask::Flush);
        }
    });
}
