//! Commit blocks of an asynchronous journal in the lab: they wait for the blocks they commit, and for nothing else.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

use vellum_lab::drives;
use vellum_lab::flash::{Kind, Preset, Speed};
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::workload;

const REQUESTS: u64 = 20_000;
const WINDOW: u64 = 20;

fn run(commit: Commit, policy: &str) -> Outcome {
    run_on(drives::own("oftl"), commit, policy)
}

fn run_on(preset: Preset, commit: Commit, policy: &str) -> Outcome {
    let scenario = Scenario {
        pace: Pace::Closed { depth: 32 },
        precondition: Precondition::None,
        seed: 7,
        verify: true,
        ..Scenario::new(
            Device {
                capacity: Some(512 << 20),
                over_provisioning: Some(200),
                ..Device::new(preset)
            },
            Load::Synthetic(Synthetic {
                requests: REQUESTS,
                flush_every: WINDOW,
                duplicates: 40,
                journal: Some(Journal {
                    mode: Mode::Data,
                    blocks: 4096,
                    commit,
                    fsync_flushes: true,
                    write_back: 0,
                    file: File::Growing,
                }),
                ..Synthetic::new(*workload::find("zipf").unwrap())
            }),
        )
    };
    let policy: Policy = policy.parse().unwrap();
    scenario
        .run(&policy)
        .unwrap_or_else(|e| panic!("{policy}: {e}"))
}

#[test]
fn a_commit_block_waits_for_comparisons() {
    let compared = run(Commit::Async, "vellum:dedup");
    let (waited, ns) = (
        compared.counted("commits_waited"),
        compared.counted("commits_wait_ns"),
    );
    assert!(waited > 100, "{waited}");
    assert!(ns > waited * 1000, "{ns}");
    // All of them are judged, and complete when they proceed.
    assert_eq!(compared.counted("commits_unjudged"), 0);
    let fsyncs = REQUESTS / (WINDOW + 1);
    assert!(compared.counted("commits_complete") >= fsyncs);
    // Nothing waits for blocks that take effect at once.
    let plain = run(Commit::Async, "vellum");
    assert_eq!(plain.counted("commits_waited"), 0);
    assert!(plain.counted("commits_complete") >= fsyncs);
}

#[test]
fn other_journals_are_not_ordered() {
    for commit in [Commit::TwoFlushes, Commit::DriveOrders] {
        let outcome = run(commit, "vellum:dedup");
        let has = |name: &str| outcome.engine.iter().any(|(known, _)| *known == name);
        assert!(!has("commits_waited") && !has("commits_complete"));
    }
}

/// A client need not wait for something it cannot send yet: after 5 ms without progress its commit block is answered, and waits
/// on.
#[test]
fn a_commit_block_is_answered_where_comparisons_take_long() {
    let mut preset = drives::own("moderate-ssd");
    if let Kind::Block(figures) = &mut preset.kind {
        figures.read = Speed::Flat {
            latency_ns: 20_000_000,
            bytes_per_s: 100_000_000,
        };
    }
    let slow = run_on(preset, Commit::Async, "vellum:dedup");
    let early = slow.counted("commits_answered_early");
    assert!(early > 100, "{early}");
    assert_eq!(slow.counted("commits_unjudged"), 0);
    let mean = slow.counted("commits_wait_ns") / slow.counted("commits_waited");
    assert!((5_000_000..100_000_000).contains(&mean), "{mean}");
}
