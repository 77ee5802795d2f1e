//! Blocks that a simulated file system frees and the volume drops: what that saves, and that every read returns what was written
//! (each read is checked).
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/run.rs"]
mod run;

use run::run;
use vellum_lab::compare::{self, Known};
use vellum_lab::drives;
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, ScenarioError, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::workload;

fn scenario(mode: Mode, file: File) -> Scenario<'static> {
    Scenario {
        pace: Pace::Closed { depth: 16 },
        precondition: Precondition::Fill,
        seed: 5,
        verify: true,
        ..Scenario::new(
            Device {
                capacity: Some(512 << 20),
                over_provisioning: Some(150),
                ..Device::new(drives::own("oftl"))
            },
            Load::Synthetic(Synthetic {
                requests: 60_000,
                flush_every: 20,
                journal: Some(Journal {
                    mode,
                    blocks: 4096,
                    commit: Commit::TwoFlushes,
                    fsync_flushes: true,
                    write_back: 10,
                    file,
                }),
                ..Synthetic::new(*workload::find("fileserver").unwrap())
            }),
        )
    }
}

#[test]
fn dropping_freed_blocks_gives_room_back() {
    for mode in [Mode::Ordered, Mode::Data] {
        let scenario = scenario(mode, File::Growing);
        let plain = run(&scenario, "vellum:zero=off");
        let freed = run(&scenario, "vellum:zero=off,freed");
        let dropped = freed.counted("freed_blocks");
        assert!(dropped > 10_000, "{mode:?}: {dropped}");
        assert!(freed.live_blocks < plain.live_blocks, "{mode:?}");
        let wa = |outcome: &Outcome| outcome.write_amplification.unwrap();
        assert!(
            wa(&freed) < wa(&plain) * 0.9,
            "{mode:?}: {} {}",
            wa(&freed),
            wa(&plain)
        );
        let asked = |outcome: &Outcome| (outcome.requests, outcome.host_written);
        assert_eq!(asked(&freed), asked(&plain), "{mode:?}");
        assert_eq!(plain.counted("freed_blocks"), 0);
    }
}

#[test]
fn tables_in_place_drop_freed_blocks_too() {
    let scenario = scenario(Mode::Ordered, File::GrowingIndirect);
    let freed = run(&scenario, "vellum:layout=ordered,on-drive,freed");
    assert!(freed.counted("freed_blocks") > 10_000);
}

#[test]
fn freed_needs_a_load_that_frees_blocks() {
    let policy: Policy = "vellum:freed".parse().unwrap();
    for (file, frees) in [(File::Growing, true), (File::Overwritten, false)] {
        let scenario = scenario(Mode::Ordered, file);
        let policies = compare::policies(&scenario.device.preset, Known::of(&scenario));
        let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
        assert_eq!(names.iter().any(|name| name.contains("freed")), frees);
        if !frees {
            let refused = scenario.run(&policy);
            assert!(matches!(refused, Err(ScenarioError::Freed { .. })));
        }
    }
}
