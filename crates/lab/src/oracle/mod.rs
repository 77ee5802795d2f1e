//! Write amplification under uniform random overwrites, and skewed ones, compared with what can be computed.
//!
//! The page map runs without time, and so does the engine. `T`, the physical blocks of `alpha = T / U`, leaves out
//! what is always free: the page map's reserve; for the engine, the segments that are free on average while it is
//! written to, and the headers and summary of each segment. The amplification of data is compared; the engine's is
//! higher with headers, summaries and the map, and that is reported too.

pub mod disksim;
pub mod log;
pub mod published;
pub mod skew;

use crate::base::{PageMap, TooSmall, Victim};
use crate::drives;
use crate::flash::{Placement, Shape, Stream};
use crate::outcome::Snapshot;
use crate::policy::{Engine, Layer, Policy};
use crate::rng::Rng;
use crate::scenario::{Device, Load, Precondition, Scenario, ScenarioError, Synthetic};
use crate::sim::{Ftl, Pace};
use crate::workload;
use log::Log;
use serde::Serialize;
use skew::Skew;

/// The load of a row without skew.
pub const UNIFORM: &str = "uniform";

/// A comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What ran.
    pub policy: String,
    /// The load.
    pub load: String,
    /// The name of the closed form, or the publisher of the figure.
    pub form: &'static str,
    /// Over-provisioning in thousandths, as requested.
    pub over_provisioning: u32,
    /// Pages of a block (or data blocks of a segment).
    pub pages: f64,
    /// T / U of the run.
    pub alpha: f64,
    /// Measured.
    pub measured: f64,
    /// Computed for this alpha, or published.
    pub computed: f64,
    /// How far the measured value is off, in percent.
    pub off_percent: f64,
    /// The amplification with everything written besides data.
    pub with_overhead: f64,
}

/// The size of the simulated drives, and the length of their runs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Blocks that the host sees.
    pub logical: u64,
    /// Volumes' worth of overwrites before the measurement.
    pub warm: u64,
    /// Volumes' worth of overwrites during the measurement.
    pub measure: u64,
    /// The seed.
    pub seed: u64,
}

/// Lambert's W0 on [-1/e, 0), by Newton's method from the branch needed.
fn lambert(x: f64) -> f64 {
    let mut w = if x < -0.3 {
        -1.0 + (2.0 * (1.0 + std::f64::consts::E * x)).max(0.0).sqrt()
    } else {
        x
    };
    for _ in 0..100 {
        let e = w.exp();
        let step = (w * e - x) / (e * (w + 1.0) + 1e-300);
        w -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    w
}

/// A random victim.
#[must_use]
pub fn random(alpha: f64) -> f64 {
    alpha / (alpha - 1.0)
}

/// The victim that was filled first (Desnoyers).
#[must_use]
pub fn fifo(alpha: f64) -> f64 {
    alpha / (alpha + lambert(-alpha * (-alpha).exp()))
}

/// The victim with the fewest valid pages (Desnoyers).
#[must_use]
pub fn greedy(alpha: f64, pages: f64) -> f64 {
    let k = 1.0 + 1.0 / (2.0 * pages);
    fifo(k * alpha) / k
}

/// The best of `draws` random blocks, by the mean field of many blocks (Van Houdt). 1 is [`random`]; many approach
/// [`greedy`].
///
/// Let `m(i)` be the share of blocks with `i` valid pages, and `M(i)` that with `i` or more. A victim has `i` or more
/// with probability `M(i)^draws`. In the steady state as many blocks fall below `i` valid pages by overwrites as
/// victims with fewer are taken: `c i m(i) = 1 - M(i)^draws`, with `c` = alpha over the amplification. A given `c`
/// determines `M` from the full blocks down, and the right `c` is the one with which all valid pages are present.
#[must_use]
pub fn choices(alpha: f64, pages: u32, draws: u32) -> f64 {
    let draws = draws.clamp(1, i32::MAX as u32) as i32;
    let valid = |c: f64| {
        let (mut above, mut sum) = (0.0, 0.0);
        for i in (1..=pages).rev() {
            // M(i) is between M(i + 1) and 1, and its two sides cross once.
            let (mut low, mut high) = (above, 1.0f64);
            for _ in 0..60 {
                let middle: f64 = f64::midpoint(low, high);
                match middle - above < (1.0 - middle.powi(draws)) / (c * f64::from(i)) {
                    true => low = middle,
                    false => high = middle,
                }
            }
            above = low;
            sum += above;
        }
        sum
    };
    let wanted = f64::from(pages) / alpha;
    let (mut low, mut high) = (1e-9, alpha);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match valid(middle) > wanted {
            true => low = middle,
            false => high = middle,
        }
    }
    alpha / low
}

/// Volumes' worth of overwrites needed to measure the amplification of random victims with this standard error, as a
/// share.
///
/// Whatever happened before, the expected valid share of a victim is 1 / alpha, so deviations add up like independent
/// draws. A block is taken after an exponential time, and its pages die exponentially: the mean square of the valid
/// share is 1 / (2 alpha - 1).
#[must_use]
pub fn volumes(over_permille: u32, pages: u32, logical: u64, error: f64) -> u64 {
    let alpha = 1.0 + f64::from(over_permille) / 1000.0;
    let variance = 1.0 / (2.0 * alpha - 1.0) - 1.0 / (alpha * alpha);
    let each = random(alpha) * variance * f64::from(pages) / logical as f64;
    (each / (error * error)).ceil() as u64
}

/// A kind of page map.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// How its collector chooses.
    pub victim: Victim,
    /// True if hot and cold data are kept apart.
    pub separated: bool,
    /// True if the host gives hot data one placement handle, and cold data another.
    pub placed: bool,
    /// Pages of a block.
    pub pages: u32,
}

impl Map {
    /// All data in the same blocks.
    #[must_use]
    pub fn mixed(victim: Victim, pages: u32) -> Self {
        Self {
            victim,
            separated: false,
            placed: false,
            pages,
        }
    }

    /// Hot and cold data kept apart.
    #[must_use]
    pub fn separated(victim: Victim, pages: u32) -> Self {
        Self {
            separated: true,
            ..Self::mixed(victim, pages)
        }
    }

    /// Hot and cold data, each by a placement handle of its own.
    #[must_use]
    pub fn placed(victim: Victim, pages: u32) -> Self {
        Self {
            placed: true,
            ..Self::mixed(victim, pages)
        }
    }

    /// An empty one on the die of a shape.
    fn on(self, shape: &Shape, logical: u64) -> Result<PageMap, TooSmall> {
        let map = PageMap::new(shape, 1, (0, shape.erase_blocks), logical, self.victim)?;
        let two = Placement {
            handles: 2,
            initially: false,
        };
        match (self.separated, self.placed) {
            (true, _) => map.separated(self.victim),
            (_, true) => map.placed(self.victim, two),
            _ => Ok(map),
        }
    }

    /// Its name as a policy.
    fn policy(self) -> String {
        let options = match self.victim {
            Victim::Greedy => None,
            Victim::Fifo => Some("fifo".to_string()),
            Victim::CostBenefit => Some("cost-benefit".to_string()),
            Victim::Choices(1) => Some("random".to_string()),
            Victim::Choices(draws) => Some(format!("d={draws}")),
        };
        let hot_cold = self.separated.then(|| "hot-cold".to_string());
        let handles = self.placed.then(|| "two handles".to_string());
        let options = options.into_iter().chain(hot_cold).chain(handles);
        let options: Vec<String> = options.collect();
        match options.is_empty() {
            true => "base".into(),
            false => format!("base:{}", options.join(",")),
        }
    }

    /// The closed form of its victims under a uniform load.
    fn form(self) -> &'static str {
        match self.victim {
            // Under a uniform load age carries no information; greedy's closed form is the nearest.
            Victim::Greedy | Victim::CostBenefit => "greedy",
            Victim::Fifo => "FIFO",
            Victim::Choices(1) => "random",
            Victim::Choices(_) => "d-choices",
        }
    }

    /// The value of that closed form.
    fn uniform(self, alpha: f64) -> f64 {
        match self.victim {
            Victim::Greedy | Victim::CostBenefit => greedy(alpha, f64::from(self.pages)),
            Victim::Fifo => fifo(alpha),
            Victim::Choices(1) => random(alpha),
            Victim::Choices(draws) => choices(alpha, self.pages, draws),
        }
    }
}

/// Measures a page map.
///
/// # Errors
/// When the over-provisioning is too little for it.
pub fn page_map(
    kind: Map,
    skew: Option<Skew>,
    over_permille: u32,
    effort: Effort,
) -> Result<Comparison, TooSmall> {
    let pages = kind.pages;
    // One die, so that it is the single pool of the closed forms, with the reserve beyond T.
    let wanted = effort.logical * u64::from(1000 + over_permille) / 1000;
    let reserve = 1 + u32::from(kind.separated || kind.placed);
    let blocks = wanted.div_ceil(u64::from(pages)) as u32 + reserve;
    let shape = Shape {
        channels: 1,
        dies: 1,
        erase_blocks: blocks,
        units: pages,
        unit_blocks: 1,
    };
    let map = kind.on(&shape, effort.logical)?;
    let mut map = map.drawing(effort.seed);
    let mut rng = Rng::new(effort.seed);
    let mut ops = Vec::new();
    let hot = skew.map_or(0, |skew| skew.hot(effort.logical));
    let mut write = |map: &mut PageMap, lba| {
        map.place(Stream::of(u8::from(lba < hot)));
        map.write(lba);
        map.take_ops(&mut ops);
        ops.clear();
    };
    let mut next = || match skew {
        None => rng.below(effort.logical),
        Some(skew) => skew.draw(&mut rng, effort.logical),
    };
    (0..effort.logical).for_each(|lba| write(&mut map, lba));
    for _ in 0..effort.warm * effort.logical {
        write(&mut map, next());
    }
    let before = map.counts();
    for _ in 0..effort.measure * effort.logical {
        write(&mut map, next());
    }
    let after = map.counts();
    let host = (after.host - before.host) as f64;
    let measured = 1.0 + (after.moved - before.moved) as f64 / host;
    let alpha = map.physical() as f64 / effort.logical as f64;
    let uniform = |alpha| kind.uniform(alpha);
    let computed = match skew {
        None => uniform(alpha),
        Some(skew) if kind.separated => skew.apart(alpha, uniform),
        // Victims of all handles have the same number of valid pages. So each handle gets spare space in proportion to its pages, and acts
        // like a separate drive with that share: all of them amplify alike.
        Some(_) if kind.placed => uniform(alpha),
        Some(skew) => skew.fifo(alpha),
    };
    Ok(Comparison {
        policy: kind.policy(),
        load: skew.map_or(UNIFORM.into(), |skew| skew.to_string()),
        form: kind.form(),
        over_provisioning: over_permille,
        pages: f64::from(pages),
        alpha,
        measured,
        computed,
        off_percent: (measured / computed - 1.0) * 100.0,
        with_overhead: measured,
    })
}

/// The engine with all savings off but zeros.
fn plain_engine() -> Policy {
    Policy {
        layer: Layer::Vellum(Engine::default()),
        over_provisioning: None,
    }
}

/// Flash for the engine, of 256 pages a block, with this over-provisioning.
fn on_flash(over_permille: u32, effort: Effort) -> Scenario<'static> {
    let Some(uniform) = workload::find("uniform") else {
        unreachable!("this crate's own")
    };
    // The over-provisioning here is for the segments: the map area and the engine's reserve are added to it.
    let bytes = effort.logical * 4096 * u64::from(1000 + over_permille) / 1000;
    let reserve = bytes / 50 + (96 << 20);
    let over = (bytes + reserve) / 4096 * 1000 / effort.logical - 1000;
    Scenario {
        precondition: Precondition::Fill,
        seed: effort.seed,
        verify: false,
        ..Scenario::new(
            Device {
                capacity: Some(bytes + reserve),
                over_provisioning: Some(over as u32),
                read_priority: false,
                ..Device::new(drives::own("oftl"))
            },
            Load::Synthetic(Synthetic::new(*uniform)),
        )
    }
}

/// Measures the engine with the greedy collector, against a [log] of as many segments.
///
/// # Errors
/// When it cannot be run.
pub fn engine(over_permille: u32, effort: Effort) -> Result<Comparison, ScenarioError> {
    let scenario = on_flash(over_permille, effort);
    let (mut sim, logical) = scenario.prepared(&plain_engine())?;
    sim.time.set_instant(true);
    let mut rng = Rng::new(effort.seed);
    let pace = Pace::Closed { depth: 1 };
    let mut version = 0;
    let mut overwrite = |sim: &mut crate::sim::Sim, count: u64| {
        let mut requests = (0..count).map(|_| {
            version += 1;
            let lba = rng.below(logical);
            workload::Request::write_one(lba, effort.seed, version)
        });
        sim.run(&mut requests, pace)
    };
    overwrite(&mut sim, effort.warm * logical)?;
    let before = Snapshot::begin(&mut sim);
    let stats = |sim: &crate::sim::Sim| match &sim.ftl {
        Ftl::Vellum(vellum) => (vellum.stats(), vellum.superblock().usable_blocks()),
        _ => unreachable!("the engine was asked for"),
    };
    overwrite(&mut sim, effort.measure * logical)?;
    let outcome = before.until_now(&sim);
    let blocks = |name: &str| {
        let found = outcome.medium.iter().find(|cause| cause.name == name);
        found.map_or(0.0, |cause| cause.blocks as f64)
    };
    let (data, moved, headers) = (blocks("data"), blocks("moved"), blocks("headers"));
    let (stats, usable) = stats(&sim);
    // While it writes: between two runs it would catch up.
    let at = outcome
        .engine
        .iter()
        .position(|&(name, _)| name == "free_segments");
    let free = outcome
        .steps
        .iter()
        .map(|step| at.map_or(0, |at| step.engine[at]));
    let free = free.sum::<u64>() as f64 / outcome.steps.len() as f64;
    // The blocks of a segment that hold data.
    let pages = f64::from(usable) * (data + moved) / (data + moved + headers);
    let alpha = (stats.segments as f64 - free) * pages / logical as f64;
    let measured = (data + moved) / data;
    let computed = two_heads(stats.segments, free, (alpha, pages), logical, effort);
    Ok(Comparison {
        policy: "vellum".into(),
        load: UNIFORM.into(),
        form: "greedy, two heads",
        over_provisioning: over_permille,
        pages,
        alpha,
        measured,
        computed,
        off_percent: (measured / computed - 1.0) * 100.0,
        with_overhead: outcome.medium_blocks() as f64 / data,
    })
}

/// The amplification of a log with this many segments, this many of them free, of this many pages.
fn two_heads(
    segments: u64,
    free: f64,
    (alpha, pages): (f64, f64),
    logical: u64,
    effort: Effort,
) -> f64 {
    let whole = Log {
        segments: segments as u32,
        pages: pages.round() as u32,
        kept_free: free.round() as u32,
        logical: logical as u32,
    };
    // The difference to whole numbers is small, so the closed form is good enough for it.
    let between = greedy(alpha, pages) / greedy(whole.alpha(), f64::from(whole.pages));
    whole.amplification(effort.warm, effort.measure, effort.seed) * between
}

/// The rows as a table.
#[must_use]
pub fn table(rows: &[Comparison]) -> String {
    let mut out = String::from(
        "| policy | load | closed form, or source | OP | pages | alpha | measured | computed, or published | \
         off | with all overhead |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        out.push_str(&format!(
            "| {} | {} | {} | {:.1}% | {:.0} | {:.4} | {:.3} | {:.3} | {:+.2}% | {:.3} |\n",
            row.policy,
            row.load,
            row.form,
            f64::from(row.over_provisioning) / 10.0,
            row.pages,
            row.alpha,
            row.measured,
            row.computed,
            row.off_percent,
            row.with_overhead
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_forms_give_their_published_values() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 0.0006, "{a} {b}");
        for (over, f, g64, g256, r) in [
            (1.07, 7.817, 7.001, 7.596, 15.286),
            (8.0 / 7.0, 4.182, 3.946, 4.120, 8.000),
            (1.15, 4.016, 3.799, 3.959, 7.667),
            (1.28, 2.481, 2.402, 2.461, 4.571),
        ] {
            near(fifo(over), f);
            near(greedy(over, 64.0), g64);
            near(greedy(over, 256.0), g256);
            assert!((random(over) - r).abs() < 0.003);
        }
        for (over, values) in [
            (1.07, [10.584, 8.327, 7.828, 7.669]),
            (8.0 / 7.0, [5.622, 4.482, 4.232, 4.154]),
            (1.15, [5.394, 4.305, 4.066, 3.991]),
            (1.28, [3.274, 2.655, 2.520, 2.478]),
        ] {
            for (draws, value) in [2, 5, 10, 20].into_iter().zip(values) {
                near(choices(over, 256, draws), value);
            }
            assert!((choices(over, 256, 1) / random(over) - 1.0).abs() < 0.005);
        }
    }

    #[test]
    fn random_victims_are_measured_with_the_stated_error() {
        let (logical, error) = (16 << 10, 0.005);
        let measure = volumes(150, 64, logical, error);
        let offs = (1..=32).map(|seed| {
            let effort = Effort {
                logical,
                warm: 6,
                measure,
                seed,
            };
            page_map(Map::mixed(Victim::Choices(1), 64), None, 150, effort)
                .unwrap()
                .off_percent
                / 100.0
        });
        let offs: Vec<f64> = offs.collect();
        let deviation = (offs.iter().map(|off| off * off).sum::<f64>() / 32.0).sqrt();
        assert!((0.7..1.3).contains(&(deviation / error)), "{offs:?}");
        let mean = offs.iter().sum::<f64>() / 32.0;
        assert!(mean.abs() < 3.0 * error / 32.0f64.sqrt(), "{mean}");
    }

    #[test]
    fn a_small_page_map_meets_the_closed_forms() {
        let effort = Effort {
            logical: 64 << 10,
            warm: 4,
            measure: 2,
            seed: 1,
        };
        for victim in [Victim::Greedy, Victim::Fifo, Victim::Choices(1)] {
            let row = page_map(Map::mixed(victim, 64), None, 280, effort).unwrap();
            assert!(row.off_percent.abs() < 1.0, "{row:?}");
        }
    }
}
