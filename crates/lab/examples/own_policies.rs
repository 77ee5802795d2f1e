//! User-defined policies, next to the built-in ones: `cargo run --release -p vellum-lab --example own_policies`.
//!
//! The victim policy lets a block rest after its last page died, since more may die soon, and then takes the block with the
//! fewest valid pages. The separation policy calls a page hot if it is rewritten soon after it was written. The admission policy
//! admits only writes of several blocks to deduplication, like iDedup, so that data that were adjacent stay adjacent.

use std::error::Error;
use vellum_lab::admission::{Admit, Admitted, Arrived};
use vellum_lab::base::{Choose, Closed, Separate};
use vellum_lab::drives;
use vellum_lab::flash::Options;
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::scenario::{Device, Load, Own, Precondition, Scenario, Synthetic};
use vellum_lab::sim::Pace;
use vellum_lab::workload;

/// Pages that die elsewhere while a block rests.
const REST: u64 = 2000;

struct Rested;

impl Choose for Rested {
    fn choose(&mut self, closed: &[Closed]) -> usize {
        let cost = |block: &Closed| (block.age < REST, block.valid);
        let blocks = closed.iter().enumerate();
        let best = blocks.min_by_key(|(_, block)| cost(block));
        best.map_or(0, |(place, _)| place)
    }
}

/// A page is hot if it is rewritten within this many host writes.
const SOON: u64 = 10_000;

#[derive(Default)]
struct Recent {
    /// When each page was written last, in host writes.
    last: Vec<u64>,
    hot: Vec<bool>,
    now: u64,
}

impl Separate for Recent {
    fn written(&mut self, page: u64) -> bool {
        let page = page as usize;
        if page >= self.last.len() {
            self.last.resize(page + 1, 0);
            self.hot.resize(page + 1, false);
        }
        self.now += 1;
        let before = std::mem::replace(&mut self.last[page], self.now);
        self.hot[page] = before > 0 && self.now - before < SOON;
        self.hot[page]
    }

    fn moved(&mut self, page: u64, _hot: bool) -> bool {
        self.hot[page as usize]
    }
}

/// The fewest blocks of an admitted write.
const LONG: usize = 3;

struct Long;

impl Admit for Long {
    fn admit(&mut self, write: &Arrived<'_>) -> Admitted {
        Admitted {
            dedup: write.contents.len() >= LONG,
            ..Admitted::ALL
        }
    }
}

/// Bytes of flash.
const CAPACITY: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    for (load, policy, outcome) in runs(CAPACITY)? {
        let amplification = outcome.write_amplification.unwrap_or(0.0);
        let looked_for = outcome.counted("dedup_lookups");
        println!("{load:<9}{policy:<42}{amplification:.3}{looked_for:>9}");
    }
    Ok(())
}

/// A load, a policy, and what came of it.
type Run = (&'static str, String, Outcome);

fn runs(capacity: u64) -> Result<Vec<Run>, Box<dyn Error>> {
    let rested = || Box::new(Rested) as Box<dyn Choose>;
    let recent = || Box::<Recent>::default() as Box<dyn Separate>;
    let long = || Box::new(Long) as Box<dyn Admit>;
    let none = Own::default();
    let victims = Own {
        victims: Some(&rested),
        ..none
    };
    let separation = Own {
        separation: Some(&recent),
        ..none
    };
    let admission = Own {
        admission: Some(&long),
        ..none
    };
    let all = [
        ("zipf", "base", "", none),
        ("zipf", "base:cost-benefit", "", none),
        ("zipf", "base", ", own victims", victims),
        ("zipf", "base:hot-cold", "", none),
        (
            "zipf",
            "base:hot-cold",
            ", own word on what is hot",
            separation,
        ),
        ("varmail", "vellum", "", none),
        ("varmail", "vellum:dedup", "", none),
        ("varmail", "vellum:dedup", ", own admission", admission),
    ];
    let run = |(load, policy, whose, own): (&'static str, &str, &str, Own<'_>)| {
        let outcome = scenario(load, own, capacity).run(&policy.parse::<Policy>()?)?;
        Ok((load, format!("{policy}{whose}"), outcome))
    };
    all.map(run).into_iter().collect()
}

/// A load on a small drive, warmed up with the same load.
fn scenario<'a>(load: &str, own: Own<'a>, capacity: u64) -> Scenario<'a> {
    let load = workload::find(load).map(|load| Synthetic {
        duplicates: if load.name == "varmail" { 30 } else { 0 },
        ..Synthetic::new(*load)
    });
    Scenario {
        device: Device {
            preset: drives::own("oftl"),
            capacity: Some(capacity),
            over_provisioning: Some(200),
            erase_limit: None,
            flush_ns: 0,
            read_priority: true,
            options: Options::default(),
        },
        load: load.map_or(Load::Requests(&[]), Load::Synthetic),
        pace: Pace::Closed { depth: 32 },
        precondition: Precondition::Load,
        seed: 1,
        daily_bytes: None,
        verify: false,
        timed: false,
        sizes: None,
        hashing: None,
        own,
        queues: &[],
        watch: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Outcome, runs};

    #[test]
    fn own_policies_decide() {
        // Half of the drive, which takes half of the time.
        let runs = runs(CAPACITY / 2).unwrap();
        let of = |wanted: &str| -> &Outcome {
            let found = runs.iter().find(|(_, policy, _)| policy == wanted);
            &found.unwrap().2
        };
        let amplification = |policy: &str| of(policy).write_amplification.unwrap();
        assert_ne!(amplification("base, own victims"), amplification("base"));
        // The load is skewed, so knowing what is hot saves moves.
        let knows = amplification("base:hot-cold, own word on what is hot");
        assert!(knows < amplification("base"));
        let looked_for = |policy: &str| of(policy).counted("dedup_lookups");
        let (own, all) = (
            looked_for("vellum:dedup, own admission"),
            looked_for("vellum:dedup"),
        );
        assert!(0 < own && own < all);
        assert_eq!(looked_for("vellum"), 0);
    }
}
