//! Duplicates in parts of pages: they are found when they are written, merged later, and learned again after a restart. No part of a
//! damaged page is ever shared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, COLLECTOR_BUFS, crash_everywhere, volume};
use sim::driver::Ask;
use sim::medium::{Cell, Rot};
use sim::model::Seen;
use vellum_core::addr::{Lba, Vba};
use vellum_core::engine::Options;
use vellum_core::format::chunk::{RECORD_ROOM, Record};
use vellum_core::format::names::NAMES_LEAST;
use vellum_core::format::pack::OVERHEAD;
use vellum_core::index::Holder;
use vellum_core::limits::{HEADER_RESERVE, LEAST_RESERVE};
use vellum_core::seam::{DedupPolicy, Effect};

fn deduplicating() -> DedupPolicy {
    DedupPolicy {
        index_bytes: 1 << 16,
        ..DedupPolicy::default()
    }
}

/// Contents that are stored in parts of pages, several to a page.
fn small_contents() -> Vec<u32> {
    let small = |token: &u32| sim::driver::parts::packed(*token).len.get() < 400;
    (20_000..).filter(small).take(8).collect()
}

/// The places of a content, whole or in a part of a page.
fn places_of(bench: &Bench, content: u32) -> Vec<u64> {
    let medium = &bench.0.medium;
    let has_it = |&at: &u64| {
        let cell = medium.read(at);
        let parts = sim::driver::parts::directory(medium, at);
        cell == Cell::Data(content)
            || parts
                .iter()
                .any(|part| part.sum == medium.tokens.sum(content))
    };
    (0..medium.blocks()).filter(has_it).collect()
}

/// Two blocks with the same content, at LBAs 1 and 2, each stored whole or in a part.
fn pair(first_packed: bool, second_packed: bool) -> Bench {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    let content = small_contents()[0];
    for (lba, packed) in [(1, first_packed), (2, second_packed)] {
        bench.0.packing = if packed { 100 } else { 0 };
        bench.write(lba, content);
    }
    let packed = u64::from(first_packed) + u64::from(second_packed);
    assert_eq!(bench.stats().packed_owners, packed);
    assert_eq!(bench.stats().live_blocks, 2);
    bench
}

#[test]
fn a_merge_takes_parts_and_whole_blocks() {
    let content = small_contents()[0];
    for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut bench = pair(first, second);
        bench.ask(&Ask::Merge {
            lba: 2,
            of: Holder::Lba(Lba(1)),
        });
        bench.flush();
        assert_eq!(bench.stats().merged_blocks, 1);
        assert_eq!(bench.stats().merged_parts, u64::from(second));
        assert_eq!(bench.stats().live_blocks, 1);
        assert_eq!(bench.stats().packed_owners, 2 * u64::from(first));
        bench.assert_reads(&[(1, content), (2, content)]);
        bench.discard(1);
        bench.assert_reads(&[(1, 0), (2, content)]);
        bench.end();
    }
}

/// Pairs are read into the collector's buffers, half of which it keeps for itself; a pair of parts needs two.
#[test]
fn a_merge_without_a_buffer_is_put_off_and_can_be_given_again() {
    const PAIRS: u64 = 100;
    let contents = small_contents();
    let content = |lba: u64| contents[(lba % PAIRS) as usize % contents.len()];
    let options = Options {
        cached_sums: 100,
        ..Options::default()
    };
    let mut bench = Bench::with(1, volume(), DedupPolicy::default(), options);
    // Whole blocks come last: a buffer that pairs of parts leaked would be missing then.
    for (first, packing, at_once) in [
        (0, 100, COLLECTOR_BUFS / 4),
        (2 * PAIRS, 0, COLLECTOR_BUFS / 2 + 1),
    ] {
        bench.0.packing = packing;
        for lba in first..first + 2 * PAIRS {
            bench.write(lba, content(lba));
        }
        let mut left: Vec<u64> = (first..first + PAIRS).collect();
        while !left.is_empty() {
            let before = bench.stats();
            bench.0.holds =
                |effect| matches!(effect, Effect::Gather { .. } | Effect::GatherPart { .. });
            for &lba in &left {
                let of = Holder::Lba(Lba(lba));
                let lba = lba + PAIRS;
                bench.ask(&Ask::Merge { lba, of });
            }
            bench.run();
            let read = left.len().min(at_once as usize);
            let stats = bench.stats();
            assert_eq!(stats.merge_reads - before.merge_reads, read as u64);
            let put_off = stats.merges_put_off - before.merges_put_off;
            assert_eq!(put_off, (left.len() - read) as u64);
            bench.release();
            left.drain(..read);
        }
        let all: Vec<_> = (first..first + 2 * PAIRS)
            .map(|lba| (lba, content(lba)))
            .collect();
        bench.assert_reads(&all);
    }
    assert_eq!(bench.stats().merged_blocks, 2 * PAIRS);
    assert_eq!(bench.stats().merged_parts, PAIRS);
    bench.end();
}

#[test]
fn a_merge_leaves_damaged_blocks_alone() {
    let content = small_contents()[0];
    for (first, second) in [(true, true), (true, false), (false, true), (false, false)] {
        for damaged in [1, 2] {
            let mut bench = Bench::new(1, volume(), DedupPolicy::default());
            for (lba, packed) in [(1, first), (2, second)] {
                // Enough blocks that some pages are not headers: only a checksum protects these pages.
                for other in 0..40 {
                    bench.0.packing = 100;
                    bench.ask_write(lba * 100 + other, 30_000 + other as u32);
                }
                bench.0.packing = if packed { 100 } else { 0 };
                let before = places_of(&bench, content);
                bench.write(lba, content);
                let mut places = places_of(&bench, content);
                places.retain(|at| lba == damaged && !before.contains(at));
                for at in places {
                    // Flips the page's last bit, where no part lies.
                    bench.0.medium.rot.insert(at, Rot::Flip(32_767));
                    bench.0.suspects.insert(at);
                }
            }
            assert_eq!(bench.0.medium.rot.len(), 1);
            bench.ask(&Ask::Merge {
                lba: 2,
                of: Holder::Lba(Lba(1)),
            });
            bench.flush();
            assert_eq!(bench.stats().merged_blocks, 0, "{first} {second} {damaged}");
            assert_eq!(bench.read(damaged), Seen::Unknown, "an error, and no data");
            bench.assert_reads(&[(3 - damaged, content)]);
        }
    }
}

/// The checksums of the merge's two segments are never in memory at the same time. The merge must not wait for them forever.
#[test]
fn a_merge_of_two_segments_ends_with_room_for_the_checksums_of_one() {
    let contents = small_contents();
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.packing = 100;
    bench.write(1, contents[0]);
    for lba in 100..300 {
        bench.write(lba, 50_000 + lba as u32);
    }
    bench.write(2, contents[0]);
    for lba in 300..500 {
        bench.write(lba, 50_000 + lba as u32);
    }
    for _ in 0..2 {
        bench.ask(&Ask::Merge {
            lba: 2,
            of: Holder::Lba(Lba(1)),
        });
        bench.flush();
    }
    assert_eq!(bench.stats().merged_parts, 1);
    bench.assert_reads(&[(1, contents[0]), (2, contents[0])]);
    bench.end();
}

#[test]
fn a_crash_at_any_effect_of_a_merge_of_parts() {
    let contents = small_contents();
    let merge = |lba, of| Ask::Merge { lba, of };
    crash_everywhere(
        &[DedupPolicy::default()],
        |bench| {
            for lba in 1..6 {
                bench.0.packing = if lba == 3 { 0 } else { 100 };
                bench.ask_write(lba, contents[0]);
                bench.write(lba + 10, contents[lba as usize % 3]);
            }
        },
        |bench| {
            bench.ask(&merge(2, Holder::Lba(Lba(1))));
            bench.ask(&merge(3, Holder::Lba(Lba(2))));
            bench.ask(&merge(5, Holder::Lba(Lba(3))));
            bench.ask(&merge(11, Holder::Lba(Lba(14))));
            bench.discard(1);
            bench.ask(&merge(14, Holder::Lba(Lba(11))));
        },
    );
}

#[test]
fn parts_are_learned_again() {
    let contents = small_contents();
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.packing = 100;
    for (lba, &content) in (1..).zip(&contents) {
        bench.ask_write(lba, content);
    }
    bench.flush();
    bench.discard(1);
    // A part that was dropped, and one that was rewritten, have no owner any more.
    bench.0.packing = 0;
    bench.write(2, 40_000);
    bench.0.deduplicate(&deduplicating(), &[]).unwrap();
    bench.0.parts_of_all().unwrap();
    assert_eq!(bench.stats().index_entries, contents.len() as u64 - 2);
    for (lba, &content) in (101..).zip(&contents) {
        bench.write(lba, content);
    }
    assert_eq!(bench.stats().dedup_blocks, contents.len() as u64 - 2);
    assert_eq!(bench.stats().dedup_false_hints, 0);
    let reads: Vec<_> = (101..).zip(contents).collect();
    bench.assert_reads(&reads);
    bench.end();
}

/// The part itself decodes to the same bytes, but the rest of its page is damaged: a block that shared it could not be read.
#[test]
fn nothing_is_shared_with_a_part_of_a_damaged_page() {
    let content = small_contents()[0];
    for later in [0, 400] {
        let mut bench = Bench::new(1, volume(), deduplicating());
        bench.0.packing = 100;
        for other in 0..40 {
            bench.ask_write(100 + other, 30_000 + other as u32);
        }
        bench.write(1, content);
        // By now the checksums of that segment are not in memory any more.
        bench.0.packing = 0;
        for other in 0..later {
            bench.write(200 + other % 100, 50_000 + other as u32);
        }
        let places = places_of(&bench, content);
        assert_eq!(places.len(), 1);
        for at in places {
            bench.0.medium.rot.insert(at, Rot::Flip(32_767));
            bench.0.suspects.insert(at);
        }
        bench.write(2, content);
        assert_eq!(bench.stats().dedup_blocks, 0);
        // The hint was right, but the block it led to is not what was written.
        let (damaged, wrong) = (
            bench.stats().compared_damaged,
            bench.stats().dedup_false_hints,
        );
        assert_eq!((damaged, wrong), (1, 0));
        assert_eq!(bench.read(1), Seen::Unknown, "an error, and no data");
        bench.write(3, content);
        assert_eq!(bench.stats().dedup_blocks, 1);
        bench.assert_reads(&[(2, content), (3, content)]);
    }
}

/// The base of a delta reads as another page, which is whole. The page with the delta is as it was written, and the error does
/// not name it.
#[test]
fn an_error_names_the_base_that_reads_as_another_page() {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.packing = 100;
    bench.0.make_deltas(100).unwrap();
    bench.0.deltas = 0;
    for lba in 100..180 {
        bench.ask_write(lba, 30_000 + lba as u32);
    }
    bench.flush();
    let is_page = |at: &u64| !sim::driver::parts::directory(&bench.0.medium, *at).is_empty();
    let pages: Vec<u64> = (0..bench.0.medium.blocks()).filter(is_page).collect();
    // Other writes put the delta far from the bases, so that the test sees which page an error names.
    bench.0.packing = 0;
    for lba in 300..500 {
        bench.ask_write(lba, 50_000 + lba as u32);
    }
    bench.0.packing = 100;
    bench.0.deltas = 100;
    for lba in 100..180 {
        bench.ask_write(lba, 60_000 + lba as u32);
    }
    bench.flush();
    assert!(bench.stats().delta_blocks > 0);
    for pair in pages.windows(2) {
        bench.0.medium.rot.insert(pair[0], Rot::Other(pair[1]));
        bench.0.suspects.insert(pair[0]);
    }
    let refused = (100..180).filter(|&lba| bench.read(lba) == Seen::Unknown);
    assert!(refused.count() > 0);
}

/// Blocks whose parts, with the directory, fill a header exactly to its limit, or by `over` bytes more or fewer. There are `others`
/// blocks besides the last one.
fn filling(others: u16, over: i16) -> Vec<u32> {
    const LEN: u16 = 50;
    let of_len = |len: u16| {
        let is_it = |token: &u32| sim::driver::parts::packed(*token).len.get() == len;
        (20_000..).find(is_it).unwrap()
    };
    let here = Record::PackHere { vba: Vba(0) }.encoded_len();
    let records = here + usize::from(others) * OVERHEAD;
    let reserve = HEADER_RESERVE.saturating_sub(records).max(LEAST_RESERVE);
    // Nothing was written before, so the names in the first header take the least room.
    let room = RECORD_ROOM - NAMES_LEAST - records - reserve;
    let left = room - usize::from(others) * usize::from(LEN) - OVERHEAD;
    let last = (left as u16).checked_add_signed(over).unwrap();
    let mut contents = vec![of_len(LEN); others.into()];
    contents.push(of_len(last));
    contents
}

/// Writes them into one chunk.
fn fill(bench: &mut Bench, contents: &[u32]) {
    bench.0.packing = 100;
    for (lba, &content) in (100..).zip(contents) {
        bench.ask_write(lba, content);
    }
    bench.0.packing = 0;
}

/// Writes what else a chunk takes when its header is full of parts.
fn go_on(bench: &mut Bench) {
    for lba in 0..10 {
        bench.ask_write(200 + lba, 50_000 + lba as u32);
        bench.discard(300 + lba);
    }
}

#[test]
fn parts_fill_headers_to_the_last_byte() {
    // From the longest possible part up to as many parts as a page may have.
    for others in [1, 7, 20, 31] {
        for over in -2..=2 {
            let contents = filling(others, over);
            let mut bench = Bench::new(1, volume(), DedupPolicy::default());
            fill(&mut bench, &contents);
            bench.flush();
            let after = bench.stats();
            let pages = u64::from(over > 0);
            assert_eq!(after.medium_data, pages, "{others} and one, {over}");
            assert_eq!(after.medium_headers, 1);
            let blocks: Vec<_> = (100..).zip(contents.clone()).collect();
            bench.assert_reads(&blocks);
            for _ in 0..3 {
                fill(&mut bench, &contents);
                go_on(&mut bench);
                bench.flush();
                bench.assert_reads(&blocks);
            }
            bench.end();
        }
    }
}

#[test]
fn a_crash_at_any_effect_of_headers_that_parts_fill() {
    for (others, over) in [(31, 0), (20, 0), (20, 1)] {
        let contents = filling(others, over);
        crash_everywhere(
            &[DedupPolicy::default()],
            |bench| fill(bench, &contents),
            |bench| {
                fill(bench, &contents);
                go_on(bench);
                bench.ask(&Ask::Flush);
                fill(bench, &contents);
            },
        );
    }
}
