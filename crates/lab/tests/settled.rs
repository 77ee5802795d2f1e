//! Runs that begin when the drive has settled under their own load, and that report their confidence.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/sized.rs"]
mod sized;

use sized::sized;
use std::fmt::Write;
use vellum_lab::drives;
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::replay::{Reading, RepeatedContents, TraceFile};
use vellum_lab::report;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::workload;

fn scenario(load: Load<'_>, precondition: Precondition) -> Scenario<'_> {
    Scenario {
        pace: Pace::Closed { depth: 8 },
        precondition,
        seed: 5,
        verify: false,
        timed: false,
        ..Scenario::new(
            Device {
                capacity: Some(512 << 20),
                over_provisioning: Some(150),
                ..Device::new(drives::own("oftl"))
            },
            load,
        )
    }
}

fn made(name: &str, requests: u64) -> Load<'static> {
    Load::Synthetic(Synthetic {
        requests,
        ..Synthetic::new(*workload::find(name).unwrap())
    })
}

fn run(load: Load<'_>, precondition: Precondition, policy: &str) -> Outcome {
    let policy: Policy = policy.parse().unwrap();
    scenario(load, precondition).run(&policy).unwrap()
}

/// The amplification of the second half of a run over that many volumes.
fn after_long(load: &str, policy: &str, volumes: u64) -> f64 {
    let logical = run(made(load, 1), Precondition::None, policy).logical_blocks;
    let outcome = run(made(load, volumes * logical), Precondition::Fill, policy);
    let (half, last) = (
        &outcome.steps[outcome.steps.len() / 2],
        outcome.steps.last().unwrap(),
    );
    (last.medium_written - half.medium_written) as f64
        / (last.host_written - half.host_written) as f64
}

/// Under any load, the figure is that of a run ten times as long as the one with its warm-up.
#[test]
fn a_settled_run_is_within_one_percent_of_a_run_ten_times_as_long() {
    let all = [
        ("zipf", "base"),
        ("uniform", "vellum:op=28"),
        ("zipf", "vellum:op=28"),
        ("hot-cold", "vellum:op=28,victim=cost-benefit"),
    ];
    for &(load, policy) in &all[..sized(1, all.len())] {
        let warm = run(made(load, 0), Precondition::Load, policy);
        assert_eq!(
            warm.sure.settled,
            Some(true),
            "{load}, {policy}: {:?}",
            warm.notes
        );
        let told = warm
            .notes
            .iter()
            .find(|note| note.contains("warmed up"))
            .unwrap();
        let volumes = told.split(": ").nth(1).unwrap().split(' ').next().unwrap();
        let volumes: f64 = volumes.parse().unwrap();
        let truth = after_long(load, policy, (10.0 * (volumes + 2.0)) as u64);
        let off = warm.write_amplification.unwrap() / truth - 1.0;
        assert!(off.abs() < 0.01, "{load}, {policy}: {off} after {volumes}");
        let filled = run(made(load, 0), Precondition::Fill, policy);
        assert_eq!(filled.sure.settled, Some(false), "{load}, {policy}");
        let table = report::table(std::slice::from_ref(&filled));
        assert!(table.contains("NOT SETTLED"), "{table}");
        let off = filled.write_amplification.unwrap() / truth - 1.0;
        assert!(off.abs() > 0.03, "nothing to mend: {load}, {policy}: {off}");
    }
}

#[test]
fn a_run_from_its_warm_up_gives_the_same_bytes_again() {
    let bytes = || {
        let outcome = run(
            made("varmail", 2000),
            Precondition::Load,
            "vellum:op=28,dedup",
        );
        serde_json::to_string(&outcome).unwrap()
    };
    assert_eq!(bytes(), bytes());
}

#[test]
fn a_load_that_hardly_writes_ends_its_warm_up_too() {
    let mut load = *workload::find("mixed").unwrap();
    load.reads = 100;
    let reads = Load::Synthetic(Synthetic {
        requests: 1000,
        ..Synthetic::new(load)
    });
    let outcome = run(reads, Precondition::Load, "base");
    assert_eq!((outcome.host_written, outcome.sure.settled), (0, None));
    assert_eq!(outcome.host_read, 1000);
}

/// A FIU trace: each content is written twice, to different places.
fn twice(folder: &std::path::Path) -> TraceFile {
    let mut text = String::new();
    for n in 0..4000u64 {
        let (lba, content) = (n * 8, n % 2000);
        writeln!(text, "{} 12 app {lba} 8 W 8 1 {content:032x}", 1000 + n).unwrap();
    }
    let path = folder.join("trace");
    std::fs::write(&path, text).unwrap();
    TraceFile::read(&path, &Reading::default()).unwrap()
}

#[test]
fn a_trace_warms_up_with_other_contents_than_it_measures() {
    let folder = tempfile::tempdir().unwrap();
    let trace = twice(folder.path());
    let load = |times, repeated| Load::Trace {
        trace: &trace,
        times,
        repeated,
    };
    let once = load(1, RepeatedContents::New);
    let filled = run(once, Precondition::Fill, "vellum:op=28,dedup");
    let warm = run(once, Precondition::Load, "vellum:op=28,dedup");
    assert_eq!(filled.counted("dedup_blocks"), 2000);
    assert_eq!(warm.counted("dedup_blocks"), 2000);
    assert_eq!((warm.requests, warm.host_written), (4000, 4000));
    let same = run(
        load(3, RepeatedContents::Same),
        Precondition::Load,
        "vellum:op=28,dedup",
    );
    assert_eq!(same.counted("dedup_blocks"), 2000 + 2 * 4000);
}

#[test]
fn the_last_step_has_the_counts_of_the_run() {
    let policies = ["base", "vellum:op=28", "base:level-static"];
    let outcomes = policies.map(|policy| run(made("mixed", 20_000), Precondition::Fill, policy));
    let text = vellum_lab::csv::steps(&outcomes);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|heading| *heading == name).unwrap();
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    for outcome in &outcomes {
        let name = outcome.policy.as_str();
        let of: Vec<_> = rows
            .iter()
            .filter(|row| row[0].trim_matches('"') == name)
            .collect();
        assert_eq!(of.len(), outcome.steps.len(), "{name}");
        let number = |row: &[&str], name| row[column(name)].parse::<u64>().unwrap();
        let causes = outcome
            .medium
            .iter()
            .map(|cause| format!("written_{}", cause.name.replace(' ', "_")));
        let causes: Vec<String> = causes.collect();
        for row in &of {
            let all: u64 = causes.iter().map(|cause| number(row, cause)).sum();
            assert_eq!(all, number(row, "medium_written_blocks"), "{name}");
        }
        // The run ends some blocks after its last step.
        let last = of.last().unwrap();
        let host = number(last, "host_written_blocks") as f64;
        assert!(
            (0.97..=1.0).contains(&(host / outcome.host_written as f64)),
            "{name}: {host}"
        );
        assert!(
            number(last, "erases") <= outcome.life.as_ref().unwrap().erases,
            "{name}"
        );
    }
}
