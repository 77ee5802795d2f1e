//! User-defined admission: if nothing is admitted, a run costs the same as without deduplication, command for command.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/run.rs"]
mod run;

use run::run;
use std::sync::{Arc, Mutex};
use vellum_lab::admission::{Admission, Admit, Admitted, Arrived};
use vellum_lab::content::Content;
use vellum_lab::drives;
use vellum_lab::flash::Kind;
use vellum_lab::outcome::Outcome;
use vellum_lab::scenario::{Device, Load, Own, Precondition, Scenario, ScenarioError, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::sizes;
use vellum_lab::vellum::Hashing;
use vellum_lab::workload;

struct By<F>(F);

impl<F: FnMut(&Arrived<'_>) -> Admitted> Admit for By<F> {
    fn admit(&mut self, write: &Arrived<'_>) -> Admitted {
        (self.0)(write)
    }
}

fn always(said: Admitted) -> Box<dyn Admit> {
    Box::new(By(move |_: &Arrived<'_>| said))
}

fn all() -> Box<dyn Admit> {
    always(Admitted::ALL)
}

fn nothing() -> Box<dyn Admit> {
    always(Admitted::NOTHING)
}

fn scenario(admission: Option<Admission<'_>>) -> Scenario<'_> {
    Scenario {
        pace: Pace::Closed { depth: 16 },
        precondition: Precondition::Fill,
        seed: 11,
        daily_bytes: Some(10 << 30),
        sizes: sizes::find("database").copied(),
        hashing: Some(Hashing {
            check_ns: 9000,
            print_ns: 9000,
            switch: false,
        }),
        own: Own {
            admission,
            ..Own::default()
        },
        ..Scenario::new(
            Device {
                capacity: Some(256 << 20),
                over_provisioning: Some(200),
                ..Device::new(drives::own("oftl"))
            },
            Load::Synthetic(Synthetic {
                requests: 40_000,
                request_blocks: 3,
                zeros: 10,
                duplicates: 25,
                flush_every: 100,
                ..Synthetic::new(*workload::find("mixed").unwrap())
            }),
        )
    }
}

/// The flash commands and their times, without names and counts.
fn commands(mut outcome: Outcome) -> String {
    outcome.policy.clear();
    outcome.notes.clear();
    outcome.memory.clear();
    outcome.engine.clear();
    for step in &mut outcome.steps {
        step.engine.clear();
    }
    (outcome.lookups, outcome.hash_ns) = (None, None);
    serde_json::to_string(&outcome).unwrap()
}

#[test]
fn admitting_everything_changes_nothing() {
    for policy in ["base", "vellum:dedup", "vellum:compress,delta,dedup"] {
        let (own, plain) = (
            run(&scenario(Some(&all)), policy),
            run(&scenario(None), policy),
        );
        assert!(commands(own) == commands(plain), "{policy}");
    }
}

#[test]
fn a_write_buffer_that_admits_nothing_has_no_effect() {
    let own = run(&scenario(Some(&nothing)), "base");
    let mut without = scenario(None);
    let Kind::Nand(nand) = &mut without.device.preset.kind else {
        panic!("a drive of flash")
    };
    nand.buffer_bytes = 0;
    let without = run(&without, "base");
    let with = run(&scenario(None), "base");
    assert!(own.writes.p50_ns > with.writes.p50_ns);
    assert!(commands(own) == commands(without));
}

#[test]
fn admitting_nothing_turns_the_engines_savings_off() {
    for (policy, off) in [
        ("vellum:dedup", "vellum"),
        ("vellum:compress,delta", "vellum"),
        ("vellum:compress,delta,dedup", "vellum"),
    ] {
        let own = run(&scenario(Some(&nothing)), policy);
        let (off, on) = (run(&scenario(None), off), run(&scenario(None), policy));
        assert_eq!(own.hash_ns.unwrap_or(0), 0, "{policy}");
        assert!(on.medium_blocks() < own.medium_blocks(), "{policy}");
        assert!(commands(own) == commands(off), "{policy}");
    }
}

#[test]
fn each_write_is_asked_for_once_and_gets_the_answer() {
    let asked = Arc::new(Mutex::new((0, 0, Vec::new())));
    let first_half = || {
        let asked = Arc::clone(&asked);
        Box::new(By(move |write: &Arrived<'_>| {
            let mut asked = asked.lock().unwrap();
            let dedup = write.lba < 20_000;
            asked.0 += write.contents.len() as u64;
            if write.now > 0 {
                asked.2.push(write.now);
            }
            asked.1 += match dedup {
                true => count_of_others(write.contents),
                false => 0,
            };
            Admitted {
                dedup,
                ..Admitted::ALL
            }
        })) as Box<dyn Admit>
    };
    let of_own = own(&first_half);
    assert!(of_own.is_ok());
    let outcome = of_own.unwrap();
    let (blocks, looked, times) = &*asked.lock().unwrap();
    assert_eq!(*blocks, outcome.logical_blocks + outcome.host_written);
    assert!(outcome.counted("dedup_lookups") <= *looked);
    assert!(outcome.counted("dedup_passed_over") > 1000);
    assert!(times.is_sorted() && times.last() > times.first());
}

fn count_of_others(contents: &[Content]) -> u64 {
    let others = contents.iter().filter(|&&content| content != Content::ZERO);
    others.count() as u64
}

fn own(admission: Admission<'_>) -> Result<Outcome, ScenarioError> {
    scenario(Some(admission)).run(&"vellum:dedup".parse().unwrap())
}

#[test]
fn admission_without_anything_to_admit_to_is_an_error() {
    let refused = |scenario: &Scenario<'_>, policy: &str| {
        let ran = scenario.run(&policy.parse().unwrap());
        assert!(
            matches!(ran, Err(ScenarioError::Admission { .. })),
            "{policy}"
        );
    };
    let scenario = scenario(Some(&nothing));
    for policy in ["vellum", "vellum:write-once", "base:oftl"] {
        refused(&scenario, policy);
    }
    let mut without = scenario;
    without.device.preset = drives::own("disksim");
    refused(&without, "base");
}
