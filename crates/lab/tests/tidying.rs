//! Folds and sweeps in the lab: what they reclaim, and that every read returns what was written (each read is checked).
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/run.rs"]
mod run;

use run::run;
use vellum_lab::drives;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::sizes;
use vellum_lab::workload;

fn scenario(requests: u64) -> Scenario<'static> {
    Scenario {
        pace: Pace::Closed { depth: 16 },
        precondition: Precondition::Fill,
        seed: 11,
        sizes: sizes::find("source").copied(),
        ..Scenario::new(
            Device {
                capacity: Some(256 << 20),
                over_provisioning: Some(200),
                ..Device::new(drives::own("oftl"))
            },
            Load::Synthetic(Synthetic {
                requests,
                zeros: 10,
                duplicates: 15,
                flush_every: 100,
                ..Synthetic::new(*workload::find("mixed").unwrap())
            }),
        )
    }
}

#[test]
fn a_fold_gives_room_back() {
    let scenario = scenario(60_000);
    let plain = run(&scenario, "vellum:compress");
    for policy in ["vellum:compress,fold", "vellum:compress,fold=now"] {
        let folded = run(&scenario, policy);
        let (folds, pages) = (folded.counted("folds"), folded.counted("packed_pages"));
        assert!(folds > 100, "{policy}: {folds}");
        assert!(
            pages + folds / 2 < plain.counted("packed_pages"),
            "{policy}"
        );
        assert!(folded.live_blocks < plain.live_blocks, "{policy}");
        assert_eq!(folded.requests, plain.requests, "{policy}");
        // The folded data are written, and counted.
        let anew = folded.counted("folded_bytes") / 4096;
        assert!(
            folded.medium_blocks() > plain.medium_blocks() + anew / 2,
            "{policy}"
        );
    }
}

#[test]
fn a_sweep_stores_duplicates_once() {
    let scenario = scenario(60_000);
    // Whole blocks, and parts of pages.
    for policy in ["vellum", "vellum:compress"] {
        let plain = run(&scenario, policy);
        let sep = if policy.contains(':') { ',' } else { ':' };
        let swept = run(&scenario, &format!("{policy}{sep}sweep=now"));
        let merged = swept.counted("merged_blocks");
        assert!(merged > 1000, "{policy}: {merged}");
        assert!(swept.live_blocks < plain.live_blocks, "{policy}");
    }
}

#[test]
fn folded_data_read_as_written() {
    // Long enough for a fold followed by reads.
    let scenario = scenario(300_000);
    let folded = run(&scenario, "vellum:compress,fold=now");
    assert!(folded.counted("folds") > 100);
}
