//! Several traces on one drive.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use vellum_lab::drives;
use vellum_lab::outcome::Outcome;
use vellum_lab::replay::{Reading, RepeatedContents, TraceFile};
use vellum_lab::scenario::{Device, Load, Scenario};
use vellum_lab::sim::Pace;
use vellum_lab::tenants::{Tenant, TenantError, Tenants};
use vellum_lab::trace::Columns;

fn scenario(load: Load<'_>, pace: Pace) -> Scenario<'_> {
    Scenario {
        pace,
        seed: 11,
        ..Scenario::new(
            Device {
                capacity: Some(256 << 20),
                over_provisioning: Some(280),
                flush_ns: 10_000_000,
                ..Device::new(drives::own("oftl"))
            },
            load,
        )
    }
}

fn run(load: Load<'_>, pace: Pace, policy: &str) -> Outcome {
    scenario(load, pace).run(&policy.parse().unwrap()).unwrap()
}

const COLUMNS: &str = "time=0:us,op=1,offset=2:byte,length=3:byte";

/// A trace as text lines: time in microseconds, operation, first block, number of blocks.
fn trace(
    folder: &Path,
    name: &str,
    lines: impl Iterator<Item = (u64, char, u64, u64)>,
) -> Arc<TraceFile> {
    let mut text = String::new();
    for (at, op, block, blocks) in lines {
        writeln!(text, "{at},{op},{},{}", block * 4096, blocks * 4096).unwrap();
    }
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    let reading = Reading {
        columns: Some(COLUMNS.parse::<Columns>().unwrap()),
        ..Reading::default()
    };
    Arc::new(TraceFile::read(&path, &reading).unwrap())
}

/// Writes and reads, all over 512 blocks.
fn busy(folder: &Path, name: &str, requests: u64, every_us: u64) -> Arc<TraceFile> {
    let line = |n: u64| {
        let op = if n % 3 == 2 { 'R' } else { 'W' };
        (n * every_us, op, n * 37 % 512, 1 + n % 4)
    };
    trace(folder, name, (0..requests).map(line))
}

fn tenants(each: &[(&str, &Arc<TraceFile>)]) -> Result<Tenants, TenantError> {
    let tenant = |&(name, trace): &(&str, &Arc<TraceFile>)| Tenant {
        name: name.to_owned(),
        trace: Arc::clone(trace),
    };
    Tenants::new(each.iter().map(tenant).collect())
}

fn beside(tenants: &Tenants) -> Load<'_> {
    Load::Tenants {
        tenants,
        times: 1,
        repeated: RepeatedContents::New,
    }
}

const PACES: [Pace; 2] = [Pace::Open, Pace::Closed { depth: 3 }];

#[test]
fn a_tenant_by_itself_is_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = busy(folder.path(), "one", 3000, 90);
    let alone = Load::Trace {
        trace: &trace,
        times: 2,
        repeated: RepeatedContents::New,
    };
    let one = tenants(&[("one", &trace)]).unwrap();
    let twice = Load::Tenants {
        tenants: &one,
        times: 2,
        repeated: RepeatedContents::New,
    };
    for pace in PACES {
        for policy in ["base", "vellum"] {
            let (alone, beside) = (run(alone, pace, policy), run(twice, pace, policy));
            let seen = |o: &Outcome| (o.reads, o.writes, o.medium.clone(), o.requests);
            assert_eq!(seen(&alone), seen(&beside));
            assert!((alone.seconds - beside.seconds).abs() < 1e-9);
            assert!(alone.tenants.is_empty());
            let of = &beside.tenants[0];
            assert_eq!((of.reads, of.writes), (beside.reads, beside.writes));
            assert_eq!(of.host_written, beside.host_written);
        }
    }
}

#[test]
fn each_tenant_has_its_own_part_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (fast, slow) = (
        busy(folder.path(), "fast", 4000, 50),
        busy(folder.path(), "slow", 1000, 200),
    );
    let both = tenants(&[("fast", &fast), ("slow", &slow)]).unwrap();
    for pace in PACES {
        for policy in ["base", "vellum", "vellum:dedup"] {
            let outcome = run(beside(&both), pace, policy);
            let [a, b] = &outcome.tenants[..] else {
                panic!("two")
            };
            assert_eq!((a.name.as_str(), b.name.as_str()), ("fast", "slow"));
            assert_eq!((a.requests, b.requests), (4000, 1000));
            assert_eq!((a.first_block, a.blocks), (0, fast.blocks()));
            assert_eq!((b.first_block, b.blocks), (fast.blocks(), slow.blocks()));
            for (tenant, trace) in [(a, &fast), (b, &slow)] {
                assert_eq!(tenant.host_written, trace.summary().blocks_written);
                assert_eq!(tenant.reads.count, trace.summary().reads);
            }
            assert_eq!(a.host_written + b.host_written, outcome.host_written);
            assert_eq!(a.host_read + b.host_read, outcome.host_read);
            assert_eq!(a.reads.count + b.reads.count, outcome.reads.count);
            // Each tenant writes all of its 512 blocks and up to three after them; none writes the other's blocks or contents.
            let live = outcome.live_blocks.unwrap();
            assert!((1024..=1030).contains(&live), "{policy}: {live}");
        }
    }
}

#[test]
fn a_tenant_that_waits_for_flushes_does_not_delay_others() {
    let folder = tempfile::tempdir().unwrap();
    let flushes = (0..200u64).map(|n| match n % 2 {
        0 => (n, 'W', 5, 1),
        _ => (n, 'F', 0, 0),
    });
    let reads = std::iter::once((0, 'W', 7, 1)).chain((1..12_000).map(|n| (n, 'R', 7, 1)));
    let flushing = trace(folder.path(), "flushing", flushes);
    let reading = trace(folder.path(), "reading", reads);
    let seconds = |each: &[(&str, &Arc<TraceFile>)]| {
        let tenants = tenants(each).unwrap();
        let outcome = run(beside(&tenants), Pace::Closed { depth: 1 }, "base");
        (outcome.seconds, outcome.tenants)
    };
    let (flushed, _) = seconds(&[("a", &flushing)]);
    let (read, _) = seconds(&[("b", &reading)]);
    let (both, seen) = seconds(&[("a", &flushing), ("b", &reading)]);
    assert!(flushed > 1.0 && read > 0.5, "{flushed} {read}");
    assert!(both < 1.2 * flushed.max(read), "{both}");
    assert_eq!((seen[0].flushes.count, seen[1].flushes.count), (100, 0));
    assert!(seen[0].flushes.mean_ns >= 10_000_000);
}

#[test]
fn tenants_that_do_not_fit_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let one = busy(folder.path(), "one", 10, 1);
    let wrong = |each: &[(&str, &Arc<TraceFile>)]| tenants(each).err().unwrap().to_string();
    assert!(wrong(&[]).contains("from 1 to 16"));
    let many = [("x", &one); 17];
    assert!(wrong(&many).contains("not 17"));
    assert!(wrong(&[("x", &one), ("x", &one)]).contains("two tenants are called x"));
    for name in ["", "a b", "a,b", "é", &"x".repeat(33), "a\n"] {
        assert!(
            wrong(&[(name, &one)]).contains("no tenant's name"),
            "{name}"
        );
    }
    // A disk keeps its size if its last block is used.
    let far = trace(
        folder.path(),
        "far",
        [(0, 'W', (700 << 18) - 1, 1)].into_iter(),
    );
    assert_eq!(far.blocks(), 256);
    let reading = Reading {
        columns: Some(COLUMNS.parse().unwrap()),
        in_place: true,
        ..Reading::default()
    };
    let far = Arc::new(TraceFile::read(&folder.path().join("far"), &reading).unwrap());
    assert!(wrong(&[("x", &far), ("y", &far)]).contains("1400 GiB together"));
}
