//! Placement handles: what a drive writes when its host says what belongs together, and when it does not.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

use std::sync::Arc;
use vellum_lab::drives::{self, DriveFile};
use vellum_lab::fio_job::FioFile;
use vellum_lab::jobs::Jobs;
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, ScenarioError, Synthetic};
use vellum_lab::workload;

/// Four writers that overwrite their files in order, each at its own speed.
const WRITERS: &str = "[global]
ioengine=libaio
iodepth=4
rw=write
bs=16k
size=180m
loops=30
[a]
rate_iops=4000
[b]
rate_iops=2000
[c]
rate_iops=1000
[d]
rate_iops=500
";

fn drive(placement: &str) -> DriveFile {
    let text = drives::find("oftl").unwrap().written() + placement;
    DriveFile::read("mine", &text).unwrap()
}

fn handles(count: u32, initially: bool) -> DriveFile {
    drive(&format!(
        "[placement]\nhandles = {count}\ninitially-isolated = {initially}\n"
    ))
}

fn scenario<'a>(drive: &DriveFile, load: Load<'a>) -> Scenario<'a> {
    Scenario {
        precondition: Precondition::Fill,
        seed: 11,
        timed: false,
        verify: false,
        ..Scenario::new(
            Device {
                capacity: Some(1 << 30),
                over_provisioning: Some(250),
                ..Device::new(drive.preset)
            },
            load,
        )
    }
}

fn run(drive: &DriveFile, load: Load<'_>, policy: &str) -> Result<Outcome, ScenarioError> {
    scenario(drive, load).run(&policy.parse().unwrap())
}

fn jobs() -> Arc<Jobs> {
    Arc::clone(FioFile::read(WRITERS).unwrap().jobs().unwrap())
}

fn skewed() -> Load<'static> {
    let hot_cold = workload::find("hot-cold").unwrap();
    Load::Synthetic(Synthetic {
        requests: 600_000,
        ..Synthetic::new(*hot_cold)
    })
}

fn amplification(outcome: &Outcome) -> f64 {
    outcome.write_amplification.unwrap()
}

#[test]
fn one_handle_gives_exactly_what_the_same_drive_gives_without() {
    let jobs = jobs();
    let plain = drives::find("oftl").unwrap();
    for initially in [false, true] {
        let one = handles(1, initially);
        for (load, policy, without) in [
            (skewed(), "base:handles=heat", "base"),
            (Load::Jobs(&jobs), "base:handles=tenants", "base"),
            (skewed(), "base:fifo,handles=heat", "base:fifo"),
        ] {
            let policy = Outcome {
                policy: String::new(),
                ..run(&one, load, policy).unwrap()
            };
            let without = Outcome {
                policy: String::new(),
                ..run(plain, load, without).unwrap()
            };
            assert_eq!(policy, without);
        }
    }
}

#[test]
fn a_host_that_names_no_handle_gets_the_drive_without_them() {
    let (plain, four) = (drives::find("oftl").unwrap(), handles(4, false));
    for policy in ["base", "vellum", "vellum:on-drive"] {
        let of = |drive| run(drive, skewed(), policy).unwrap();
        assert_eq!(of(plain), of(&four), "{policy}");
    }
}

#[test]
fn writers_with_a_handle_each_amplify_nothing() {
    let jobs = jobs();
    for initially in [false, true] {
        let of = |count| {
            let drive = handles(count, initially);
            amplification(&run(&drive, Load::Jobs(&jobs), "base:handles=tenants").unwrap())
        };
        let (one, two, four) = (of(1), of(2), of(4));
        assert!(four < 1.01, "{one} {two} {four}");
        assert!(one > 1.3 && two < one, "{one} {two} {four}");
    }
}

#[test]
fn hot_data_apart_from_cold_amplifies_less() {
    let drive = handles(2, false);
    let mixed = amplification(&run(&drive, skewed(), "base").unwrap());
    let apart = amplification(&run(&drive, skewed(), "base:handles=heat").unwrap());
    assert!(apart < 0.95 * mixed, "{apart} {mixed}");
}

#[test]
fn the_logs_heads_apart_leave_the_drive_little_to_move() {
    let of = |count, policy| {
        let outcome = run(&handles(count, false), skewed(), policy).unwrap();
        outcome.stacked.unwrap().drive
    };
    let (none, three) = (of(3, "vellum:on-drive"), of(3, "vellum:on-drive,handles"));
    assert!(three < 1.02, "{none} {three}");
    assert!(none > 1.1, "{none} {three}");
}

#[test]
fn handles_that_are_not_there_are_an_error() {
    let plain = drives::find("oftl").unwrap();
    for policy in ["base:handles=heat", "vellum:on-drive,handles"] {
        let error = run(plain, skewed(), policy).unwrap_err();
        assert!(matches!(error, ScenarioError::Handles { .. }), "{error}");
    }
    let flat = drives::find("fast-ssd").unwrap();
    let error = run(flat, skewed(), "base:handles=heat").unwrap_err();
    assert!(matches!(error, ScenarioError::Handles { .. }), "{error}");
    let error = run(&handles(4, false), skewed(), "base:handles=tenants").unwrap_err();
    assert!(matches!(error, ScenarioError::NoTenants { .. }), "{error}");
}
