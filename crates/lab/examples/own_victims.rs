//! A victim policy of one's own, beside those that are built in: `cargo run --release -p vellum-lab --example own_victims`.
//!
//! It lets a block rest after its last page died, since more may die soon, and then takes the one with the fewest valid pages.

use vellum_lab::base::{Choose, Chooser, Closed};
use vellum_lab::drives;
use vellum_lab::flash::Options;
use vellum_lab::policy::Policy;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario, Synthetic};
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = || Box::new(Rested) as Box<dyn Choose>;
    for (name, chooser) in [
        ("base", None),
        ("base:cost-benefit", None),
        ("base", Some(&own as Chooser<'_>)),
    ] {
        let policy: Policy = name.parse()?;
        let outcome = scenario(chooser).run(&policy)?;
        let amplification = outcome.write_amplification.unwrap_or(0.0);
        let whose = if chooser.is_some() { "own" } else { name };
        println!("{whose:<20}{amplification:.3}");
    }
    Ok(())
}

/// A skewed load on a small drive, warmed up by itself.
fn scenario(chooser: Option<Chooser<'_>>) -> Scenario<'_> {
    let load = workload::find("zipf").map(|zipf| Synthetic::new(*zipf));
    Scenario {
        device: Device {
            preset: drives::own("emmc"),
            capacity: Some(256 << 20),
            over_provisioning: None,
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
        chooser,
        watch: None,
    }
}
