//! Submission queues: what a tenant sees that has one for itself, and what stays the same.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

use std::sync::Arc;
use vellum_lab::drives::{self, DriveFile};
use vellum_lab::fio_job::FioFile;
use vellum_lab::jobs::Jobs;
use vellum_lab::outcome::{OfTenant, Outcome};
use vellum_lab::queues::plan::Assigned;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, ScenarioError, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::workload;

/// A tenant with many requests beside one with a single request at a time.
const NOISY_AND_QUIET: &str = "[global]
ioengine=libaio
rw=randread
bs=4k
size=64m
time_based
runtime=1
[noisy]
iodepth=128
[quiet]
iodepth=1
";

/// Three jobs that read, write and flush, each in its own file.
const MIXED: &str = "[global]
ioengine=libaio
size=16m
loops=2
[a]
rw=randrw
rwmixread=60
bssplit=4k/60:64k/40
iodepth=24
fsync=50
[b]
rw=randwrite
bs=16k
iodepth=7
[c]
rw=read
bs=128k
iodepth=3
";

fn drive(name: &str, queues: &str) -> DriveFile {
    let text = drives::find(name).unwrap().written();
    DriveFile::read("mine", &(text + queues)).unwrap()
}

fn queues(count: u32, depth: u32, commands: u32, more: &str) -> String {
    format!("[queues]\ncount = {count}\ndepth = {depth}\ncommands = {commands}\n{more}\n")
}

fn jobs(text: &str) -> Arc<Jobs> {
    Arc::clone(FioFile::read(text).unwrap().jobs().unwrap())
}

fn scenario<'a>(drive: &DriveFile, load: Load<'a>) -> Scenario<'a> {
    Scenario {
        precondition: Precondition::Fill,
        seed: 11,
        ..Scenario::new(
            Device {
                capacity: Some(256 << 20),
                over_provisioning: Some(280),
                ..Device::new(drive.preset)
            },
            load,
        )
    }
}

/// What a run has besides its notes and its tenants' queues.
fn figures(outcome: Outcome) -> String {
    let tenants = outcome.tenants.into_iter().map(|tenant| OfTenant {
        queue: None,
        ..tenant
    });
    let plain = Outcome {
        notes: Vec::new(),
        tenants: tenants.collect(),
        ..outcome
    };
    serde_json::to_string(&plain).unwrap()
}

fn mixed() -> Load<'static> {
    Load::Synthetic(Synthetic {
        requests: 20_000,
        flush_every: 40,
        ..Synthetic::new(*workload::find("mixed").unwrap())
    })
}

#[test]
fn one_queue_that_is_never_full_gives_exactly_what_none_gives() {
    let jobs = jobs(MIXED);
    let wide = queues(1, 65_535, 65_536, "burst = 4");
    let closed = Pace::Closed { depth: 20 };
    let working = Pace::Working { depth: 4 };
    for (name, policy) in [("oftl", "base"), ("oftl", "vellum"), ("fast-ssd", "vellum")] {
        for (load, pace) in [
            (Load::Jobs(&jobs), closed),
            (mixed(), closed),
            (mixed(), working),
            (mixed(), Pace::Open),
        ] {
            let of = |queues: &str| {
                let drive = drive(name, queues);
                let scenario = Scenario {
                    pace,
                    ..scenario(&drive, load)
                };
                figures(scenario.run(&policy.parse().unwrap()).unwrap())
            };
            assert_eq!(of(""), of(&wide), "{name} {pace:?}");
        }
    }
}

#[test]
fn nothing_waits_while_nothing_takes_time() {
    let jobs = jobs(MIXED);
    let of = |queues: &str| {
        let drive = drive("oftl", queues);
        let scenario = Scenario {
            timed: false,
            ..scenario(&drive, Load::Jobs(&jobs))
        };
        scenario.run(&"base".parse().unwrap()).unwrap()
    };
    assert_eq!(of(""), of(&queues(2, 1, 1, "")));
}

#[test]
fn no_request_is_lost_or_answered_twice_however_narrow_the_queues_are() {
    let jobs = jobs(MIXED);
    let counts = |outcome: &Outcome| {
        let of = |t: &OfTenant| (t.requests, t.host_written, t.host_read, t.reads.count);
        outcome.tenants.iter().map(of).collect::<Vec<_>>()
    };
    for policy in ["base", "vellum"] {
        let of = |queues: &str| {
            let drive = drive("oftl", queues);
            // Each read is compared with what was written.
            let scenario = scenario(&drive, Load::Jobs(&jobs));
            scenario.run(&policy.parse().unwrap()).unwrap()
        };
        let without = of("");
        for (count, depth, commands, more) in [
            (1, 1, 1, ""),
            (1, 5, 2, "burst = 64"),
            (2, 3, 4, ""),
            (3, 9, 1, "burst = 8"),
            (4, 2, 16, "high = 9\nmedium = 3\nlow = 1"),
        ] {
            let queues = queues(count, depth, commands, more);
            let with = of(&queues);
            assert_eq!(counts(&without), counts(&with), "{policy} {queues}");
            let waited = |t: &OfTenant| t.queue.as_ref().unwrap().waited.count;
            assert!(with.tenants.iter().all(|t| waited(t) == t.requests));
            // The same seed gives the same bytes.
            let json = |outcome: &Outcome| serde_json::to_string(outcome).unwrap();
            assert_eq!(json(&with), json(&of(&queues)), "{policy} {queues}");
        }
    }
}

/// Runs the two on a drive with these queues. Returns the noisy one's figures and the quiet one's.
fn noisy_and_quiet(queues: &str, assigned: &[&str]) -> [OfTenant; 2] {
    let jobs = jobs(NOISY_AND_QUIET);
    let drive = drive("oftl", queues);
    let assigned: Vec<Assigned> = assigned.iter().map(|text| text.parse().unwrap()).collect();
    let scenario = Scenario {
        queues: &assigned,
        ..scenario(&drive, Load::Jobs(&jobs))
    };
    let outcome = scenario.run(&"base".parse().unwrap()).unwrap();
    outcome.tenants.try_into().unwrap()
}

#[test]
fn a_quiet_tenant_waits_behind_a_noisy_one_unless_it_has_its_own_queue() {
    let classes = "high = 8\nmedium = 4\nlow = 1";
    let [noisy, shared] = noisy_and_quiet(&queues(1, 1024, 16, ""), &[]);
    let [_, apart] = noisy_and_quiet(&queues(2, 1024, 16, ""), &[]);
    let weighted = queues(2, 1024, 16, classes);
    let [_, urgent] = noisy_and_quiet(&weighted, &["quiet=1:urgent"]);
    let [_, burst] = noisy_and_quiet(&queues(2, 1024, 16, "burst = 64"), &[]);
    let p99 = |tenant: &OfTenant| tenant.reads.p99_ns as f64;
    assert!(p99(&shared) > 3.0 * p99(&apart), "{shared:?} {apart:?}");
    assert!(p99(&urgent) <= 1.01 * p99(&apart), "{urgent:?} {apart:?}");
    // A long burst of the noisy one comes before the quiet one's turn.
    assert!(p99(&burst) > 1.5 * p99(&apart), "{burst:?} {apart:?}");
    let rate = |tenant: &OfTenant| tenant.queue.as_ref().unwrap().requests_per_second;
    assert!(rate(&apart) > 3.0 * rate(&shared));
    assert!(rate(&noisy) > 20.0 * rate(&shared));
    // What waits is in the latency.
    let waited = shared.queue.as_ref().unwrap().waited;
    assert!(waited.mean_ns < shared.reads.mean_ns && waited.mean_ns > shared.reads.mean_ns / 2);
    assert_eq!(shared.queue.unwrap().number, 0);
    assert_eq!(apart.queue.unwrap().class, None);
    assert_eq!(urgent.queue.unwrap().class, Some("urgent"));
}

#[test]
fn a_short_queue_of_the_noisy_tenant_protects_the_quiet_one() {
    let [_, wide] = noisy_and_quiet(&queues(2, 128, 1024, ""), &[]);
    let [_, short] = noisy_and_quiet(&queues(2, 8, 1024, ""), &[]);
    assert!(
        wide.reads.p99_ns > 3 * short.reads.p99_ns,
        "{wide:?} {short:?}"
    );
}

#[test]
fn weights_share_the_drive_and_a_low_class_is_not_starved_but_by_urgent() {
    let text = NOISY_AND_QUIET.replace("iodepth=1\n", "iodepth=128\n");
    let jobs = jobs(&text);
    let rates = |assigned: [&str; 2]| {
        let drive = drive(
            "oftl",
            &queues(2, 1024, 16, "high = 6\nmedium = 4\nlow = 2"),
        );
        let assigned = assigned.map(|text| text.parse::<Assigned>().unwrap());
        let scenario = Scenario {
            queues: &assigned,
            ..scenario(&drive, Load::Jobs(&jobs))
        };
        let outcome = scenario.run(&"base".parse().unwrap()).unwrap();
        let requests: Vec<u64> = outcome
            .tenants
            .iter()
            .map(|tenant| tenant.requests)
            .collect();
        (requests[0] as f64, requests[1] as f64)
    };
    let (high, low) = rates(["noisy=0:high", "quiet=1:low"]);
    assert!((high / low - 3.0).abs() < 0.03, "{high} {low}");
    let (high, medium) = rates(["noisy=0:high", "quiet=1"]);
    assert!((high / medium - 1.5).abs() < 0.015, "{high} {medium}");
    let (urgent, high) = rates(["noisy=0:urgent", "quiet=1:high"]);
    // It gets what was in the host when the urgent one ended.
    assert!(urgent > 100.0 * high && high >= 128.0, "{urgent} {high}");
}

#[test]
fn what_waits_in_a_queue_is_open_to_its_host() {
    let drive = drive("oftl", &queues(1, 64, 2, ""));
    let scenario = Scenario {
        pace: Pace::Closed { depth: 8 },
        ..scenario(&drive, mixed())
    };
    let outcome = scenario.run(&"base".parse().unwrap()).unwrap();
    let kinds = [outcome.reads, outcome.writes, outcome.flushes];
    // Little's law: with at most eight open, their times together are at most eight times the run's.
    let all: u64 = kinds.iter().map(|kind| kind.mean_ns * kind.count).sum();
    let open = all as f64 / (outcome.seconds * 1e9);
    assert!((2.0..=8.0).contains(&open), "{open}");
}

#[test]
fn queues_that_tenants_cannot_have_are_refused() {
    let jobs = jobs(MIXED);
    let wrong = |queues: &str, assigned: &str, load: Load<'_>| {
        let drive = drive("oftl", queues);
        let assigned = [assigned.parse::<Assigned>().unwrap()];
        let scenario = Scenario {
            queues: &assigned,
            ..scenario(&drive, load)
        };
        match scenario.run(&"base".parse().unwrap()) {
            Err(ScenarioError::Queues(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let two = queues(2, 8, 8, "");
    assert!(wrong("", "a=0", Load::Jobs(&jobs)).contains("take one whose file has [queues]"));
    assert!(wrong(&two, "a=2", Load::Jobs(&jobs)).contains("its last one is 1"));
    assert!(wrong(&two, "d=0", Load::Jobs(&jobs)).contains("it has a, b, c"));
    assert!(wrong(&two, "a=0:low", Load::Jobs(&jobs)).contains("no classes"));
    assert!(wrong(&two, "a=0", mixed()).contains("it has none"));
}
