//! What may go wrong with a block that is already stored, case by case, on the simulated medium. The model checks every read, and
//! every volume is checked at its end. Random lives have all of these too (`crash.rs`); here they are certain to occur.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, crash_everywhere, volume};
use sim::driver::Ask;
use sim::medium::Rot;
use sim::model::Seen;
use sim::open::Volume;
use vellum_core::addr::{Lba, Pba};
use vellum_core::engine::Options;
use vellum_core::format::summary::{Owner, Tag};
use vellum_core::index::Holder;
use vellum_core::seam::{Decide, DedupPolicy, Effect, Region, WriteOnce};

/// Contents. Each has its own checksum.
const A: u32 = 1001;
const B: u32 = 1002;

const DECIDES: [Decide; 2] = [Decide::Compare, Decide::Fingerprint(0)];

fn comparisons(effect: &Effect) -> bool {
    matches!(effect, Effect::Compare { .. } | Effect::Fingerprint { .. })
}

fn policy(decide: Decide) -> DedupPolicy {
    DedupPolicy {
        index_bytes: 1 << 16,
        decide,
        ..DedupPolicy::default()
    }
}

fn deciding(decide: Decide) -> Bench {
    Bench::new(1, volume(), policy(decide))
}

/// A journal with the same content twice, for homes that are two copies on purpose: the journal must not make them share a page.
#[test]
fn deliberate_copies_do_not_share_a_page_through_a_journal() {
    for packing in [0, 100] {
        let mut bench = deciding(Decide::Compare);
        bench.0.packing = packing;
        let journal = Region {
            start: Lba(20),
            blocks: 10,
            homes: Lba(0),
            homes_blocks: 20,
            rule: WriteOnce::Hash,
        };
        bench.0.watch(&[journal]).unwrap();
        bench.0.protect(&[(Lba(1), 1), (Lba(5), 1)]).unwrap();
        bench.write(20, A);
        bench.write(21, A);
        bench.write(1, A);
        bench.write(5, A);
        bench.0.check_critical().unwrap();
        bench.assert_reads(&[(1, A), (5, A), (20, A)]);
        // Other blocks do.
        bench.write(6, A);
        bench.write(7, A);
        assert!(bench.stats().remapped_blocks + bench.stats().dedup_blocks >= 2);
        bench.end();
    }
}

#[test]
fn an_index_entry_of_a_discarded_block_leads_nowhere() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        bench.write(1, A);
        bench.discard(1);
        bench.write(2, A);
        assert_eq!(bench.stats().dedup_blocks, 0);
        bench.assert_reads(&[(1, 0), (2, A)]);
        bench.end();
    }
}

#[test]
fn an_index_entry_of_a_rewritten_block_is_detected() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        bench.write(1, A);
        bench.write(1, B);
        bench.write(2, A);
        assert_eq!(bench.stats().dedup_blocks, 0);
        assert_eq!(bench.stats().dedup_false_hints, 1);
        bench.assert_reads(&[(1, B), (2, A)]);
        bench.write(3, A);
        assert_eq!(bench.stats().dedup_blocks, 1);
        bench.end();
    }
}

#[test]
fn an_index_entry_follows_a_block_that_the_collector_moves() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        bench.write(1, A);
        let was = bench.places(A);
        let blocks = bench.0.model.blocks();
        for step in 0.. {
            assert!(step < 50_000, "the collector never came by");
            let lba = 2 + bench.0.rng.below(blocks - 2);
            bench.ask_write(lba, 10_000 + step as u32);
            bench.0.settle().unwrap();
            if bench.places(A).iter().any(|at| !was.contains(at)) {
                break;
            }
        }
        bench.write(2, A);
        assert_eq!(bench.stats().dedup_blocks, 1);
        bench.assert_reads(&[(1, A), (2, A)]);
        bench.end();
    }
}

#[test]
fn nothing_is_shared_with_a_damaged_block() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        bench.write(1, A);
        for at in bench.places(A) {
            bench.0.medium.rot.insert(at, Rot::Flip(77));
            bench.0.suspects.insert(at);
        }
        bench.write(2, A);
        assert_eq!(bench.stats().dedup_blocks, 0);
        bench.assert_reads(&[(2, A)]);
        assert_eq!(bench.read(1), Seen::Unknown, "an error, and no data");
        // It has left the index: the next write finds the whole copy.
        bench.write(3, A);
        assert_eq!(bench.stats().dedup_blocks, 1);
        bench.assert_reads(&[(3, A)]);
    }
}

/// Makes reads of a content return what is at `to`.
fn misdirect(bench: &mut Bench, content: u32, to: u64) {
    for at in bench.places(content) {
        bench.0.medium.rot.insert(at, Rot::Other(to));
        bench.0.suspects.insert(at);
    }
}

/// A misdirected read returns just the bytes that are to be written. So the core checks what the page should hold before sharing
/// it.
#[test]
fn nothing_is_shared_with_a_block_whose_read_is_misdirected_to_its_like() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        let forget_sums = |bench: &mut Bench, from: u32| {
            (0..200).for_each(|i| bench.ask_write(20 + u64::from(i), from + i));
            bench.0.settle().unwrap();
        };
        bench.write(1, B);
        forget_sums(&mut bench, 10_000);
        let like = bench.places(B)[0];
        // The index entry of LBA 1 is stale from here on: the checksum of its old contents is not in memory.
        bench.write(1, A);
        forget_sums(&mut bench, 20_000);
        misdirect(&mut bench, A, like);
        bench.write(2, B);
        assert!(
            bench.stats().compare_reads > 0,
            "the twin was proposed and read"
        );
        assert_eq!(bench.stats().dedup_blocks, 0);
        bench.0.medium.rot.clear();
        bench.assert_reads(&[(1, A), (2, B)]);
        bench.end();
    }
}

/// The same for a pair that is merged: the one that stays is read where it is, and may read as the other.
#[test]
fn nothing_is_merged_with_a_block_whose_read_is_misdirected_to_its_like() {
    let mut bench = deciding(Decide::Compare);
    bench.write(1, A);
    bench.write(2, B);
    let like = bench.places(A)[0];
    misdirect(&mut bench, B, like);
    bench.ask(&Ask::Merge {
        lba: 1,
        of: Holder::Lba(Lba(2)),
    });
    bench.run();
    assert_eq!(bench.stats().merged_blocks, 0);
    bench.0.medium.rot.clear();
    bench.assert_reads(&[(1, A), (2, B)]);
    bench.end();
}

#[test]
fn nothing_is_shared_with_a_block_that_cannot_be_read() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        bench.write(1, A);
        bench.0.faults.unreadable = 10_000;
        bench.ask_write(2, A);
        bench.0.settle().unwrap();
        bench.0.faults.unreadable = 0;
        assert_eq!(bench.stats().unreadable_blocks, 1);
        bench.flush();
        assert_eq!(bench.stats().dedup_blocks, 0);
        bench.assert_reads(&[(1, A), (2, A)]);
        bench.end();
    }
}

/// A match by fingerprint reads nothing, so the first one that does read must be believed.
#[test]
fn a_page_that_was_found_damaged_has_no_fingerprint_any_more() {
    let mut bench = deciding(Decide::Fingerprint(0));
    for lba in 1..4 {
        bench.write(lba, A);
    }
    assert_eq!(bench.stats().dedup_decided, 1);
    for at in bench.places(A) {
        bench.0.medium.rot.insert(at, Rot::Zeroed);
        bench.0.suspects.insert(at);
    }
    assert_eq!(bench.read(1), Seen::Unknown, "an error, and no data");
    bench.write(5, A);
    assert_eq!(bench.stats().dedup_decided, 1);
    bench.assert_reads(&[(5, A)]);
}

#[test]
fn a_page_that_moves_while_it_is_compared_is_not_shared_where_it_was() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        let blocks = bench.0.model.blocks();
        let (mut moved, mut held) = (0, 0);
        bench.write(0, A);
        for round in 0..4000u64 {
            // Much work for the collector, and then a duplicate whose comparison takes long.
            for step in 0..24 {
                let lba = 2 + bench.0.rng.below(blocks - 2);
                bench.ask_write(lba, 10_000 + (round * 24 + step) as u32);
            }
            bench.0.holds = comparisons;
            let before = bench.places(A);
            bench.ask_write(1, A);
            bench.run();
            held += u64::from(bench.0.flights() > 0);
            let moves = bench.places(A) != before;
            bench.release();
            bench.assert_reads(&[(0, A), (1, A)]);
            moved += u64::from(moves);
            if moved == 3 {
                break;
            }
            // The next block gets a page of its own again.
            bench.discard(1);
            bench.0.settle().unwrap();
        }
        assert!(held > 0 && moved == 3, "{held} were held, {moved} moved");
        bench.end();
    }
}

/// A write takes the segment that its twin has left, and is placed where the twin was.
#[test]
fn a_twin_that_has_moved_is_not_taken_for_what_the_same_write_puts_in_its_place() {
    let tight = Volume {
        over_provisioning: 100,
        ..volume()
    };
    // It happens in round 199.
    let mut bench = Bench::new(5, tight, policy(Decide::Compare));
    let blocks = bench.0.model.blocks();
    let mut contents: Vec<u32> = vec![0; blocks as usize];
    let mut fresh = 10_000..;
    for _ in 0..400 {
        // Makes segments of which little is left.
        for _ in 0..100 {
            let lba = bench.0.rng.below(blocks);
            contents[lba as usize] = fresh.next().unwrap();
            bench.ask_write(lba, contents[lba as usize]);
            bench.0.settle().unwrap();
        }
        bench.flush();
        // Each second block gets the contents of the one before it, which is rewritten.
        let length = blocks * 2 / 3 - bench.0.rng.below(150);
        let first = bench.0.rng.below(blocks - length);
        let (from, to) = (first as usize, (first + length) as usize);
        let mut tokens = contents[from..to].to_vec();
        for pair in tokens.chunks_exact_mut(2) {
            pair[1] = core::mem::replace(&mut pair[0], fresh.next().unwrap());
        }
        contents[from..to].copy_from_slice(&tokens);
        let write = Ask::Write {
            lba: first,
            tokens,
            fua: false,
        };
        bench.ask(&write);
        bench.0.settle().unwrap();
        bench.ask(&Ask::Read {
            lba: first,
            blocks: length as u32,
        });
        bench.0.settle().unwrap();
    }
    bench.end();
}

#[test]
fn a_discard_of_the_last_owner_waits_for_the_hit_or_comes_before_it() {
    for decide in DECIDES {
        // The discard comes after the hit: the page lives on with its second owner.
        let mut bench = deciding(decide);
        bench.write(1, A);
        bench.0.holds = comparisons;
        bench.ask_write(2, A);
        bench.discard(1);
        bench.run();
        assert_eq!(bench.0.open_requests(), 2);
        bench.release();
        assert_eq!(bench.stats().dedup_blocks, 1);
        assert_eq!(bench.stats().live_blocks, 1);
        bench.assert_reads(&[(1, 0), (2, A)]);
        bench.end();
        // The discard is before the write in the queue, but arrives after the index was consulted.
        let mut bench = deciding(decide);
        bench.write(1, A);
        bench.write(3, B);
        bench.0.holds = comparisons;
        bench.ask_write(4, B);
        bench.discard(1);
        bench.ask_write(2, A);
        bench.run();
        bench.release();
        assert_eq!(bench.stats().dedup_blocks, 1, "that of B");
        bench.assert_reads(&[(1, 0), (2, A), (3, B), (4, B)]);
        bench.end();
    }
}

#[test]
fn a_full_volume_still_shares() {
    for decide in DECIDES {
        let thin = Volume {
            logical_blocks: Some(3000),
            ..volume()
        };
        let mut bench = Bench::new(1, thin, policy(decide));
        let mut lba = 0;
        while bench.0.counts.full == 0 {
            bench.ask_write(lba, 10_000 + lba as u32);
            bench.0.settle().unwrap();
            lba += 1;
        }
        let (full, live) = (bench.0.counts.full, bench.stats().live_blocks);
        for copy in 0..20 {
            bench.write(2500 + copy, 10_000);
        }
        assert_eq!(bench.0.counts.full, full);
        assert_eq!(bench.stats().live_blocks, live);
        assert_eq!(bench.stats().dedup_blocks, 20);
        // A proposal that turns out wrong has no place to go.
        bench.write(1, 10_000);
        let hint = bench.places(10_002)[0];
        let tag = Tag {
            owner: Owner::Lba(Lba(2)),
            sum: bench.0.medium.tokens.sum(A),
        };
        bench.0.tell(Pba(hint), &[tag]).unwrap();
        bench.write(2501, A);
        bench.ask_write(2600, B);
        bench.ask_write(2601, B);
        bench.0.settle().unwrap();
        assert!(bench.0.counts.full > full);
        bench.assert_reads(&[(2500, 10_000), (0, 10_000), (2, 10_002)]);
        bench.end();
    }
}

#[test]
fn a_colliding_hint_is_no_proof() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        // B is shared, and its fingerprint is known.
        for lba in 1..4 {
            bench.write(lba, B);
        }
        // By now B's real checksum is not in memory any more.
        for lba in 100..500 {
            bench.ask_write(lba, 10_000 + lba as u32);
            bench.0.settle().unwrap();
        }
        bench.flush();
        let tag = Tag {
            owner: Owner::Lba(Lba(1)),
            sum: bench.0.medium.tokens.sum(A),
        };
        let at = bench.places(B)[0];
        bench.0.tell(Pba(at), &[tag]).unwrap();
        let before = bench.stats().dedup_false_hints;
        bench.write(9, A);
        assert_eq!(bench.stats().dedup_false_hints, before + 1);
        bench.assert_reads(&[(1, B), (2, B), (3, B), (9, A)]);
        bench.end();
    }
}

#[test]
fn the_same_block_on_several_queues_is_stored_once() {
    for decide in DECIDES {
        let mut bench = deciding(decide);
        for lba in 0..30 {
            bench.ask_write(lba, A);
        }
        for _ in 0..5 {
            bench.ask_write(3, A);
            bench.ask_write(3, B);
        }
        bench.flush();
        assert_eq!(bench.stats().live_blocks, 2);
        let all: Vec<_> = (0..30)
            .map(|lba| (lba, if lba == 3 { B } else { A }))
            .collect();
        bench.assert_reads(&all);
        bench.end();
    }
}

/// CAFTL's switch is for a deduplication that cannot keep up. If it is the medium that cannot, fewer writes help.
#[test]
fn a_write_buffer_full_of_comparisons_switches_off_deduplication() {
    for (holds, is_off) in [
        (comparisons as fn(&Effect) -> bool, true),
        (|effect| matches!(effect, Effect::WriteChunk { .. }), false),
    ] {
        let options = Options {
            write_buffers: 40,
            ..Options::default()
        };
        let mut bench = Bench::with(1, volume(), policy(Decide::Compare), options);
        bench.write(1, A);
        bench.0.holds = holds;
        for lba in 0..45 {
            let token = if is_off { A } else { 2000 + lba as u32 };
            bench.ask_write(100 + lba, token);
            if lba % 15 == 14 {
                bench.ask(&Ask::Flush);
                bench.run();
            }
        }
        let before = bench.stats().dedup_lookups;
        bench.ask_write(200, A);
        let stats = bench.stats();
        assert_eq!(stats.dedup_switched_off, u64::from(is_off));
        assert_eq!(stats.dedup_lookups - before, u64::from(!is_off));
        bench.release();
        bench.assert_reads(&[(144, if is_off { A } else { 2044 }), (200, A)]);
        // The buffer has emptied.
        bench.write(201, A);
        assert!(bench.stats().dedup_blocks > 0);
        bench.end();
    }
}

#[test]
fn a_crash_at_any_effect_of_a_hit() {
    crash_everywhere(
        &DECIDES.map(policy),
        |bench| {
            bench.write(1, A);
            bench.write(5, B);
            bench.write(6, B);
        },
        |bench| {
            bench.ask_write(2, A);
            bench.ask_write(7, B);
        },
    );
}

/// Two home blocks are mapped to their journal copies. Then one copy's space is reused, and the other home block is rewritten.
#[test]
fn a_crash_at_any_effect_of_a_remap() {
    const JOURNAL: u64 = 500;
    let journaled = |bench: &mut Bench| {
        let region = Region {
            start: Lba(JOURNAL),
            blocks: 16,
            homes: Lba(0),
            homes_blocks: JOURNAL,
            rule: WriteOnce::Hash,
        };
        bench.0.watch(&[region]).unwrap();
        bench.write(1, 2001);
        bench.write(JOURNAL, A);
        bench.write(JOURNAL + 1, B);
    };
    let come_home = |bench: &mut Bench| {
        bench.ask_write(1, A);
        bench.ask_write(2, B);
    };
    crash_everywhere(&[DedupPolicy::default()], journaled, come_home);
    let mapped = |bench: &mut Bench| {
        journaled(bench);
        come_home(bench);
        bench.flush();
        assert_eq!(bench.stats().remapped_blocks, 2);
    };
    let part = |bench: &mut Bench| {
        bench.ask_write(JOURNAL, 2002);
        bench.ask(&Ask::Flush);
        bench.ask_write(2, 2003);
        bench.discard(1);
    };
    crash_everywhere(&[DedupPolicy::default()], mapped, part);
}

#[test]
fn a_crash_at_any_effect_of_a_collapse() {
    crash_everywhere(
        &DECIDES.map(policy),
        |bench| {
            for lba in 1..4 {
                bench.write(lba, A);
            }
            assert_eq!(bench.stats().shared_owners, 3);
        },
        |bench| {
            bench.ask_write(1, B);
            bench.discard(2);
            bench.ask_write(4, A);
            bench.discard(3);
        },
    );
}

#[test]
fn a_crash_at_any_effect_of_a_merge() {
    let merge = |lba, of| Ask::Merge { lba, of };
    crash_everywhere(
        &DECIDES.map(policy),
        |bench| {
            let off = DedupPolicy::default();
            bench.0.deduplicate(&off, &[]).unwrap();
            for lba in 1..5 {
                bench.write(lba, A);
            }
            assert_eq!(bench.stats().live_blocks, 4);
        },
        |bench| {
            bench.ask(&merge(2, Holder::Lba(Lba(1))));
            bench.ask(&merge(4, Holder::Lba(Lba(3))));
            bench.ask(&merge(3, Holder::Lba(Lba(1))));
            bench.discard(1);
        },
    );
}
