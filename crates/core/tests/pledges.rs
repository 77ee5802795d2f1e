//! The effects of pledges, and their ends, case by case. The model checks every read, after a crash too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, COLLECTOR_BUFS, engine_on, volume};
use sim::driver::{Ask, Driver};
use sim::model::Seen;
use sim::rng::Rng;
use vellum_core::addr::Lba;
use vellum_core::engine::Engine;
use vellum_core::format::SumKind;
use vellum_core::index::Holder;
use vellum_core::seam::{DedupPolicy, Effect, Region, WriteOnce};

const HOME: u64 = 7;
const JOURNAL: u64 = 500;
const OLD: u32 = 1001;
const NEW: u32 = 1002;

fn region() -> Region {
    Region {
        start: Lba(JOURNAL),
        blocks: 32,
        homes: Lba(0),
        homes_blocks: 1 << 30,
        rule: WriteOnce::Hash,
    }
}

fn index() -> DedupPolicy {
    DedupPolicy {
        index_bytes: 1 << 16,
        ..DedupPolicy::default()
    }
}

/// A volume whose home block has an old content, and whose journal has committed a new one, durably.
fn committed(packing: u64, dedup: DedupPolicy) -> Bench {
    let mut bench = Bench::new(1, volume(), dedup);
    bench.0.packing = packing;
    bench.0.watch(&[region()]).unwrap();
    commit(bench)
}

fn commit(mut bench: Bench) -> Bench {
    bench.write(HOME, OLD);
    bench.ask_write(JOURNAL, NEW);
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
    bench.flush();
    assert_eq!(bench.stats().pledges, 1);
    bench
}

/// Cuts the power, opens the volume again, reads it, and checks that the contents are as promised.
fn crash(bench: Bench) -> (Engine, Seen) {
    let (mut medium, model, _, _) = bench.0.crash(true).unwrap();
    let engine = engine_on(&mut medium.clone(), &mut Rng::new(2), 1);
    let redeemed = engine.stats().redeemed_blocks;
    let mut after = sim::model::Model::new(model.blocks());
    after.believe_all();
    let again = engine_on(&mut medium, &mut Rng::new(2), 1);
    assert_eq!(again.stats().redeemed_blocks, redeemed, "the same again");
    let mut driver = Driver::new(again, medium, after, Rng::new(3), COLLECTOR_BUFS);
    driver.start().unwrap();
    let mut seen = Vec::new();
    for lba in 0..model.blocks() {
        driver.ask(&Ask::Read { lba, blocks: 1 }).unwrap();
        driver.settle().unwrap();
        seen.push(driver.last_read[0]);
    }
    model.judge(&seen).unwrap();
    (engine, seen[HOME as usize])
}

fn written(bench: &Bench) -> u64 {
    let stats = bench.stats();
    stats.medium_data + stats.medium_headers
}

#[test]
fn the_flush_after_home_writes_is_free_and_loses_nothing() {
    for packing in [0, 100] {
        let mut bench = committed(packing, DedupPolicy::default());
        let (before, free) = (written(&bench), bench.stats().flushes_free);
        bench.write(HOME, NEW);
        assert_eq!(
            (written(&bench), bench.stats().remapped_blocks),
            (before, 1)
        );
        assert_eq!(bench.stats().flushes_free, free + 1);
        bench.assert_reads(&[(HOME, NEW), (JOURNAL, NEW)]);
        let (engine, seen) = crash(bench);
        assert_eq!(engine.stats().redeemed_blocks, 1);
        assert_eq!(seen, Seen::Token(NEW));
    }
}

/// A commit's writes are in flight before its FLUSH arrives. A commit written with FUA is not written twice.
#[test]
fn a_commit_is_being_written_before_its_flush() {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.watch(&[region()]).unwrap();
    bench.ask_write(JOURNAL, NEW);
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
    let stats = bench.stats();
    assert_eq!((stats.host_chunks, stats.durable_chunks), (1, 1));
    assert_eq!(stats.flushes_begun_before, 1);
    bench.flush();
    assert_eq!(bench.stats().host_chunks, 1, "the same chunk");

    bench.ask(&Ask::Write {
        lba: JOURNAL + 1,
        tokens: vec![OLD],
        fua: true,
    });
    bench.run();
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL + 1))]).unwrap();
    let stats = bench.stats();
    assert_eq!((stats.pledges, stats.flushes_begun_before), (1, 1));
    assert_eq!(stats.host_chunks, 2, "the pledges wait for what comes next");
}

/// Statistics distinguish what a FLUSH waits for: a commit, home blocks that were not pledged, or nothing.
#[test]
fn a_flush_that_waits_for_home_blocks_alone_is_counted() {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.watch(&[region()]).unwrap();
    let flushed = |bench: &mut Bench, writes: &[(u64, u32)]| {
        let before = bench.stats();
        writes
            .iter()
            .for_each(|&(lba, token)| bench.ask_write(lba, token));
        bench.flush();
        let after = bench.stats();
        (
            after.flushes_free - before.flushes_free,
            after.flushes_of_homes - before.flushes_of_homes,
        )
    };
    assert_eq!(flushed(&mut bench, &[(JOURNAL, NEW)]), (0, 0));
    assert_eq!(flushed(&mut bench, &[(HOME, NEW)]), (0, 1));
    assert_eq!(bench.stats().remapped_blocks, 1);
    assert_eq!(flushed(&mut bench, &[]), (1, 0));
    assert_eq!(flushed(&mut bench, &[(HOME, OLD), (JOURNAL, OLD)]), (0, 0));
}

/// A transaction with more links than fit one header: full chunks are written, and no flush waits for them.
#[test]
fn a_long_transaction_is_flushed_once_as_well() {
    const BLOCKS: u64 = 200;
    const LONG: u64 = 250;
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    let long = Region {
        start: Lba(LONG),
        blocks: BLOCKS,
        ..region()
    };
    bench.0.watch(&[long]).unwrap();
    for n in 0..BLOCKS {
        bench.ask_write(LONG + n, NEW + n as u32);
    }
    let pairs = (0..BLOCKS).map(|n| (Lba(HOME + n), Lba(LONG + n)));
    bench.0.committed(&pairs.collect::<Vec<_>>()).unwrap();
    bench.flush();
    assert_eq!(bench.stats().pledges, BLOCKS);
    let free = bench.stats().flushes_free;
    bench.0.holds = |effect| matches!(effect, Effect::WriteChunk { .. });
    for n in 0..BLOCKS {
        bench.ask_write(HOME + n, NEW + n as u32);
        bench.run();
    }
    bench.ask(&Ask::Flush);
    bench.run();
    assert_eq!(bench.stats().remapped_blocks, BLOCKS);
    assert_eq!(bench.stats().flushes_free, free + 1);
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(NEW));
}

#[test]
fn a_running_volume_shows_nothing_that_was_not_written() {
    let mut bench = committed(0, DedupPolicy::default());
    bench.assert_reads(&[(HOME, OLD)]);
    bench.0.settle_shutdown().unwrap();
    let (engine, seen) = crash(bench);
    assert_eq!(engine.stats().redeemed_blocks, 0);
    assert_eq!(seen, Seen::Token(OLD));
}

#[test]
fn a_later_write_ends_a_pledge() {
    type Step = fn(&mut Bench);
    let steps: [(Step, u32); 4] = [
        (|bench| bench.write(HOME, 5000), 5000),
        (|bench| bench.write(JOURNAL, 5000), OLD),
        (
            |bench| {
                bench.discard(HOME);
                bench.flush();
            },
            0,
        ),
        (
            |bench| {
                bench.discard(JOURNAL);
                bench.flush();
            },
            OLD,
        ),
    ];
    for (step, expected) in steps {
        let mut bench = committed(0, DedupPolicy::default());
        step(&mut bench);
        assert_eq!(bench.stats().pledges, 0);
        let (engine, seen) = crash(bench);
        assert_eq!(engine.stats().redeemed_blocks, 0);
        assert_eq!(seen, Seen::Token(expected));
    }
}

/// Everything is in one chunk, where an absorbed overwrite would replace a record that comes before the pledge.
#[test]
fn a_block_that_a_pledge_concerns_is_not_absorbed() {
    for packing in [0, 100] {
        for (overwritten, expected) in [(HOME, 5000), (JOURNAL, OLD)] {
            let mut bench = Bench::new(1, volume(), DedupPolicy::default());
            bench.0.packing = packing;
            bench.0.watch(&[region()]).unwrap();
            bench.ask_write(HOME, OLD);
            bench.ask_write(JOURNAL, NEW);
            bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
            assert_eq!(bench.stats().pledges, 1);
            bench.ask_write(overwritten, 5000);
            bench.flush();
            assert_eq!(bench.stats().pledges, 0);
            let (_, seen) = crash(bench);
            assert_eq!(seen, Seen::Token(expected), "packing {packing}");
        }
    }
}

#[test]
fn a_home_block_written_again_as_it_was_is_not_found_as_pledged() {
    let mut bench = committed(0, index());
    // The journal is not consulted any more: the index finds the content where it already is.
    bench.0.watch(&[]).unwrap();
    bench.write(HOME, OLD);
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(OLD));
}

/// The journal's content is already stored elsewhere, and is still being compared when the transaction is complete.
fn committed_while_comparing() -> Bench {
    let mut bench = Bench::new(1, volume(), index());
    bench.0.watch(&[region()]).unwrap();
    bench.write(HOME, OLD);
    bench.write(300, NEW);
    bench.0.holds = |effect| matches!(effect, Effect::Compare { .. });
    bench.ask_write(JOURNAL, NEW);
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
    bench.run();
    assert_eq!(bench.stats().waiting_requests, 1);
    bench
}

#[test]
fn a_transaction_is_pledged_behind_its_blocks_that_wait_for_a_comparison() {
    let mut bench = committed_while_comparing();
    assert_eq!(bench.stats().pledges, 0);
    bench.release();
    bench.flush();
    assert_eq!((bench.stats().pledges, bench.stats().dedup_blocks), (1, 1));
    let (before, free) = (written(&bench), bench.stats().flushes_free);
    bench.write(HOME, NEW);
    assert_eq!(
        (written(&bench), bench.stats().flushes_free),
        (before, free + 1)
    );
    let (engine, seen) = crash(bench);
    assert_eq!(engine.stats().redeemed_blocks, 1);
    assert_eq!(seen, Seen::Token(NEW));
}

#[test]
fn a_write_behind_a_waiting_transaction_ends_its_pledge() {
    for (overwritten, expected) in [(HOME, 5000), (JOURNAL, OLD)] {
        let mut bench = committed_while_comparing();
        bench.ask_write(overwritten, 5000);
        bench.release();
        bench.flush();
        assert_eq!(
            (bench.stats().pledged_blocks, bench.stats().pledges),
            (1, 0)
        );
        let (_, seen) = crash(bench);
        assert_eq!(seen, Seen::Token(expected));
    }
}

#[test]
fn zeros_are_pledged_like_all_else() {
    let zeros_committed = || {
        let mut bench = Bench::new(1, volume(), DedupPolicy::default());
        bench.0.watch(&[region()]).unwrap();
        bench.write(HOME, OLD);
        bench.ask_write(JOURNAL, 0);
        bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
        bench.flush();
        assert_eq!(bench.stats().pledges, 1);
        bench.assert_reads(&[(HOME, OLD)]);
        bench
    };
    let (engine, seen) = crash(zeros_committed());
    assert_eq!(engine.stats().redeemed_blocks, 1);
    assert_eq!(seen, Seen::Token(0));

    let mut bench = zeros_committed();
    let (before, free) = (written(&bench), bench.stats().flushes_free);
    bench.write(HOME, 0);
    assert_eq!(
        (written(&bench), bench.stats().flushes_free),
        (before, free + 1)
    );
    // A write of zeros that is not pledged joins the record, and has to be durable.
    bench.write(HOME + 1, 0);
    assert_eq!(
        (written(&bench), bench.stats().flushes_free),
        (before + 1, free + 1)
    );
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(0));
}

/// The second of two transactions pledges zeros, and then the first one's contents are written home.
#[test]
fn pledged_zeros_hide_no_other_copy() {
    let mut bench = committed(0, DedupPolicy::default());
    bench.ask_write(JOURNAL + 1, 0);
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL + 1))]).unwrap();
    bench.flush();
    bench.write(HOME, NEW);
    assert_eq!(bench.stats().remapped_blocks, 1);
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(NEW));
}

/// Older programs can open a volume with such sums, and would ignore the pledge.
#[test]
fn zeros_are_not_pledged_on_a_volume_with_older_sums() {
    let before = sim::open::Volume {
        sums: SumKind::Crc32c,
        ..volume()
    };
    let mut bench = Bench::new(1, before, DedupPolicy::default());
    bench.0.watch(&[region()]).unwrap();
    bench.ask_write(JOURNAL, 0);
    bench.ask_write(JOURNAL + 1, NEW);
    let pairs = [HOME, HOME + 1].map(Lba).into_iter();
    let pairs = pairs.zip([JOURNAL, JOURNAL + 1].map(Lba));
    bench.0.committed(&pairs.collect::<Vec<_>>()).unwrap();
    assert_eq!(bench.stats().pledges, 1);
    bench.end();
}

#[test]
fn an_unmapped_home_block_that_is_discarded_stays_so() {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.watch(&[region()]).unwrap();
    bench.ask_write(JOURNAL, NEW);
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
    bench.flush();
    bench.discard(HOME);
    bench.flush();
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(0));
}

/// Adjacent zeros are one record: the second write ends a pledge as well.
#[test]
fn zeros_that_join_a_record_end_a_pledge() {
    let mut bench = committed(0, DedupPolicy::default());
    bench.ask_write(HOME - 1, 0);
    bench.ask_write(HOME, 0);
    bench.flush();
    assert_eq!(bench.stats().pledges, 0);
    bench.write(HOME, NEW);
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(NEW));
}

/// Writes until a map checkpoint begins.
fn until_a_checkpoint(bench: &mut Bench) {
    let checkpoints = bench.stats().map_checkpoints;
    let mut token = 10_000;
    while bench.stats().map_checkpoints == checkpoints {
        for lba in 100..140 {
            token += 1;
            bench.ask_write(lba, token);
        }
        bench.flush();
    }
}

#[test]
fn a_map_checkpoint_ends_pledges_and_flushes_cost_again() {
    let mut bench = committed(0, DedupPolicy::default());
    until_a_checkpoint(&mut bench);
    bench.flush();
    assert_eq!(bench.stats().pledges, 0);
    let before = written(&bench);
    bench.write(HOME, NEW);
    assert!(written(&bench) > before);
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(NEW));
}

/// A map checkpoint has begun, and its root is held back.
#[test]
fn journals_announced_again_end_their_pledges() {
    let mut bench = committed(0, DedupPolicy::default());
    let before = bench.stats().map_checkpoints;
    bench.0.watch(&[region()]).unwrap();
    bench.0.settle().unwrap();
    assert_eq!(bench.stats().map_checkpoints, before + 1);
    assert_eq!(bench.stats().pledges, 0);
    let (engine, seen) = crash(bench);
    assert_eq!(engine.stats().redeemed_blocks, 0);
    assert_eq!(seen, Seen::Token(OLD));
}

fn checkpointing(bench: &mut Bench) {
    bench.0.holds = |effect| matches!(effect, Effect::WriteMeta { durable: true, .. });
    until_a_checkpoint(bench);
    bench.run();
}

#[test]
fn until_a_map_checkpoint_is_durable_a_crash_finds_no_pledge_that_was_overwritten() {
    let mut bench = committed(0, index());
    checkpointing(&mut bench);
    bench.0.watch(&[]).unwrap();
    bench.write(HOME, OLD);
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(OLD));

    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    bench.0.watch(&[region()]).unwrap();
    bench.ask_write(JOURNAL, NEW);
    bench.0.committed(&[(Lba(HOME), Lba(JOURNAL))]).unwrap();
    bench.flush();
    checkpointing(&mut bench);
    bench.discard(HOME);
    bench.flush();
    let (_, seen) = crash(bench);
    assert_eq!(seen, Seen::Token(0));
}

#[test]
fn nothing_is_pledged_outside_of_journals_and_their_homes() {
    let mut bench = Bench::new(1, volume(), DedupPolicy::default());
    let narrow = Region {
        homes_blocks: 100,
        ..region()
    };
    bench.0.watch(&[narrow]).unwrap();
    bench.write(JOURNAL, NEW);
    for (home, journal) in [
        (HOME, JOURNAL - 1),
        (HOME, JOURNAL + 32),
        (HOME, JOURNAL + 1),
        (100, JOURNAL),
        (JOURNAL + 2, JOURNAL),
        (JOURNAL, JOURNAL),
    ] {
        bench.0.committed(&[(Lba(home), Lba(journal))]).unwrap();
        assert_eq!(bench.stats().pledges, 0, "{home} of {journal}");
    }
    bench.end();
}

/// Blocks that recovery has put home have no records (`pledge.rs`, rule 4). Whatever requests come before a map checkpoint includes them,
/// a second crash finds them at home again.
#[test]
fn blocks_that_recovery_put_home_stay_there_over_a_second_crash() {
    const TWIN: u64 = 200;
    type Step = fn(&mut Driver);
    let ask = |driver: &mut Driver, ask: Ask| assert!(driver.ask(&ask).unwrap());
    let steps: [Step; 3] = [
        |driver| {
            let (lba, blocks, fua) = (JOURNAL, 1, false);
            assert!(driver.ask(&Ask::Discard { lba, blocks, fua }).unwrap());
        },
        |driver| {
            let (lba, tokens, fua) = (JOURNAL, vec![5000], false);
            assert!(driver.ask(&Ask::Write { lba, tokens, fua }).unwrap());
        },
        |driver| {
            let of = Holder::Lba(Lba(TWIN));
            assert!(driver.ask(&Ask::Merge { lba: JOURNAL, of }).unwrap());
        },
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let mut bench = Bench::new(1, volume(), DedupPolicy::default());
        bench.write(TWIN, NEW);
        bench.0.watch(&[region()]).unwrap();
        let bench = commit(bench);
        let (mut medium, mut model, _, _) = bench.0.crash(true).unwrap();
        model.believe_all();
        let engine = engine_on(&mut medium, &mut Rng::new(2), 8);
        assert_eq!(engine.stats().redeemed_blocks, 1);
        let mut driver = Driver::new(engine, medium, model, Rng::new(5), COLLECTOR_BUFS);
        driver.holds = |effect| matches!(effect, Effect::WriteMeta { durable: true, .. });
        driver.start().unwrap();
        step(&mut driver);
        while driver.advance().unwrap() {}
        ask(&mut driver, Ask::Flush);
        while driver.advance().unwrap() {}
        let (mut medium, ..) = driver.crash(true).unwrap();
        let engine = engine_on(&mut medium, &mut Rng::new(4), 8);
        assert_eq!(engine.stats().redeemed_blocks, 1, "step {number}");
    }
}
