//! Writes whose clients are answered before the core gets them (`Ack::Given`), case by case, on the simulated medium. The model checks
//! every read, and the contents after a crash. Random lives have all of these cases as well (`crash.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, crash_everywhere, volume};
use sim::driver::Ask;
use vellum_core::seam::{DedupPolicy, Effect, Refusal};

const A: u32 = 1001;
const B: u32 = 1002;
const C: u32 = 1003;

const POLICY: DedupPolicy = DedupPolicy {
    index_bytes: 1 << 16,
    sample_blocks: 0,
    store: vellum_core::seam::IndexKind::Compact,
    decide: vellum_core::seam::Decide::Compare,
    semantics: false,
};

fn compares(effect: &Effect) -> bool {
    matches!(effect, Effect::Compare { .. })
}

/// Content `A` is durable at LBA 1, and each write from here on is answered before the core gets it.
fn answering() -> Bench {
    let mut bench = Bench::new(1, volume(), POLICY);
    bench.0.early = 100;
    bench.write(1, A);
    assert_eq!(
        bench.0.counts.early, 0,
        "a write is answered early only after a look at the room"
    );
    bench
}

#[test]
fn a_flush_and_a_read_wait_for_an_answered_write_that_is_being_compared() {
    let mut bench = answering();
    bench.0.holds = compares;
    bench.ask_write(2, A);
    assert_eq!(bench.0.counts.early, 1);
    bench.ask(&Ask::Flush);
    bench.ask(&Ask::Read { lba: 2, blocks: 1 });
    bench.run();
    assert_eq!(bench.0.open_requests(), 3, "all of them wait");
    bench.release();
    assert_eq!(bench.stats().dedup_blocks, 1);
    bench.assert_reads(&[(1, A), (2, A)]);
    bench.end();
}

#[test]
fn an_answered_write_is_accepted_while_the_medium_is_full() {
    let mut bench = answering();
    bench.ask_write(2, B);
    bench.0.faults.full = Some((0, u64::MAX));
    bench.ask(&Ask::Flush);
    bench.run();
    let refusal = Some(Refusal::NoRoom);
    assert_eq!(bench.0.core.refuses_writes(), refusal);
    // This write was answered while there was room.
    bench.ask_write(3, C);
    assert_eq!(bench.0.answered_at_once(), Some(Ok(())));
    bench.0.early = 0;
    bench.ask_write(4, B);
    assert_eq!(bench.0.answered_at_once().map(Result::err), Some(refusal));
    assert_eq!(bench.0.counts.early, 2);
    bench.0.faults.full = None;
    while bench.0.core.refuses_writes().is_some() {
        bench.run();
        bench.0.wait().unwrap();
    }
    bench.flush();
    bench.assert_reads(&[(1, A), (2, B), (3, C), (4, 0)]);
    bench.end();
}

#[test]
fn an_answered_write_waits_and_can_be_read_when_the_medium_fills_up_during_its_comparison() {
    let mut bench = answering();
    bench.ask_write(5, B);
    bench.0.holds = compares;
    bench.ask_write(2, A);
    bench.ask(&Ask::Read { lba: 2, blocks: 1 });
    bench.0.early = 0;
    bench.ask_write(3, A);
    bench.0.early = 100;
    assert_eq!(bench.0.open_requests(), 3);
    bench.0.faults.full = Some((0, u64::MAX));
    bench.0.wait().unwrap();
    bench.run();
    assert_eq!(bench.0.core.refuses_writes(), Some(Refusal::NoRoom));
    assert_eq!(
        bench.0.counts.full, 0,
        "a write that is being compared is not refused"
    );
    bench.0.holds = |_| false;
    bench.run();
    assert_eq!(
        bench.0.counts.full, 1,
        "a write that was not answered early is refused"
    );
    bench.0.faults.full = None;
    while bench.0.core.refuses_writes().is_some() {
        bench.0.wait().unwrap();
        bench.run();
    }
    bench.flush();
    bench.assert_reads(&[(1, A), (2, A), (3, 0), (5, B)]);
    bench.end();
}

#[test]
fn a_crash_at_any_instant_leaves_a_prefix_of_the_answered_writes() {
    crash_everywhere(
        &[POLICY, DedupPolicy::default()],
        |bench| {
            bench.0.early = 100;
            bench.write(1, A);
            bench.write(9, C);
        },
        |bench| {
            for (lba, token) in [
                (2, A),
                (3, B),
                (2, C),
                (4, A),
                (3, A),
                (1, B),
                (5, C),
                (2, B),
            ] {
                bench.ask_write(lba, token);
            }
        },
    );
}
