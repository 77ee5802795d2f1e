//! A warm-up by the load itself, until its write amplification is stable.
//!
//! The last quarter of everything the load has written since the drive was filled is compared with the two quarters
//! before it. The quarters grow with the warm-up, because the last effects are slow (blocks that are hardly ever
//! written). Two quarters are compared, because a curve is level where it turns. The test must pass twice, with a
//! quarter more written in between, because a curve that swings looks level at times. A trace is taken in whole
//! passes, so that like is compared with like.

use super::portion::Portion;
use super::source::Source;
use super::{Scenario, ScenarioError};
use crate::policy::{Layer, Policy};
use crate::sim::{Ftl, Sim};

/// The most that the last quarter's amplification may differ from that of the quarter before, as a fraction.
const ALIKE: f64 = 0.005;
/// The same, from the quarter before that.
const ALIKE_BEFORE: f64 = 0.01;
/// Volumes written before the first comparison.
const VOLUMES_MIN: u64 = 4;
/// Volumes after which it ends, stable or not.
const VOLUMES_MAX: u64 = 48;
/// The same limit in blocks: 256 GiB. More takes minutes.
const BLOCKS_MAX: u64 = 64 << 20;
/// The most requests per block that may be written, so that a load that hardly writes ends as well.
const REQUESTS_A_BLOCK: u64 = 2;
/// Parts of a volume that are counted one by one.
const PARTS: u64 = 4;
/// From this many parts on only whole quarters are compared.
const PARTS_MANY: usize = 16;

/// How a warm-up ended.
pub(super) struct Warm {
    /// True if it ended by its rule.
    pub settled: bool,
    /// True if reads make the drive refresh blocks, and none was read often enough yet: later ones will be.
    pub is_unread: bool,
    /// Describes it.
    pub told: String,
}

impl Scenario<'_> {
    /// Warms the drive up; none if nothing is known of its inside, or if the load cannot continue.
    pub(super) fn warm(
        &self,
        policy: &Policy,
        sim: &mut Sim,
        source: &mut Source<'_>,
        logical: u64,
    ) -> Result<Option<Warm>, ScenarioError> {
        let volume = source.reach(logical, self.over(policy));
        if matches!(sim.ftl, Ftl::Raw(_)) || !source.goes_on() {
            return Ok(None);
        }
        let caches_map = matches!(policy.layer, Layer::Base(base) if base.map_cache.is_some());
        let refreshes = sim.flash.refresh().reads.is_some();
        let most = BLOCKS_MAX.min(VOLUMES_MAX * volume);
        let mut requests = most * REQUESTS_A_BLOCK;
        let start = sim.moment();
        let mut curve = vec![(0, 0)];
        let mut level = Level::default();
        loop {
            let portion = Portion {
                blocks: (volume / PARTS).max(1),
                requests,
                skips_reads: !caches_map && !refreshes,
            };
            requests -= source.warm(self, sim, portion)?;
            let now = sim.moment();
            let written = now.host_written - start.host_written;
            curve.push((written, now.medium_written - start.medium_written));
            let enough = written >= VOLUMES_MIN * volume;
            let settled = enough && level.holds(&curve);
            if settled || written >= most || requests == 0 || self.stopped() {
                let volumes = written as f64 / volume as f64;
                let is_unread = refreshes && sim.seen.blocks_read > 0 && !has_refreshed(sim);
                let mut told = told(volumes, volume < logical, settled, changes(&curve));
                if is_unread {
                    told += UNREAD;
                }
                return Ok(Some(Warm {
                    settled,
                    is_unread,
                    told,
                }));
            }
        }
    }
}

const UNREAD: &str = "; no block had been read often enough to be refreshed ([read-disturb]), so \
                      whether it had settled is not known";

/// True if a block was read so often that it was refreshed, or should have been.
fn has_refreshed(sim: &Sim) -> bool {
    sim.refreshed()
        .is_some_and(|all| all.for_reads + all.past_due.reads > 0)
}

/// Checks that a curve has been level for long enough.
#[derive(Default)]
struct Level {
    /// The length of the curve, in parts, at which it is checked again.
    again: Option<usize>,
}

impl Level {
    /// Checks a curve that has grown by a part.
    fn holds(&mut self, curve: &[(u64, u64)]) -> bool {
        let parts = curve.len() - 1;
        if (parts > PARTS_MANY && !parts.is_multiple_of(4)) || self.again > Some(parts) {
            return false;
        }
        let level = changes(curve)
            .is_some_and(|(last, both)| last.abs() <= ALIKE && both.abs() <= ALIKE_BEFORE);
        let before = self.again.take();
        if level && before.is_none() {
            self.again = Some(parts + parts.div_ceil(4));
        }
        level && before.is_some()
    }
}

fn told(times: f64, in_part: bool, settled: bool, changes: Option<(f64, f64)>) -> String {
    let what = match in_part {
        true => "times what it touches and the spare space",
        false => "volumes",
    };
    let why = match (settled, changes) {
        (true, _) => format!(
            "until twice the last quarter of that amplified like the two before, to {}% and {}%",
            ALIKE * 100.0,
            ALIKE_BEFORE * 100.0
        ),
        (false, Some((last, both))) => format!(
            "and the last quarter of that amplified by {:+.1}% and {:+.1}% more than the two before",
            last * 100.0,
            both * 100.0
        ),
        (false, None) => "too little to tell whether its amplification stands still".into(),
    };
    format!("filled, then warmed up by the load itself: {times:.1} {what} written, {why}")
}

/// The growth of write amplification, as fractions: of the last quarter over the third, and over the second. `None` if the curve is too
/// short for quarters.
fn changes(curve: &[(u64, u64)]) -> Option<(f64, f64)> {
    let last = curve.len() - 1;
    let quarter = last / 4;
    let slope = |end: usize| {
        let (from, to) = (curve[end - quarter], curve[end]);
        (to.0 > from.0).then(|| (to.1 - from.1) as f64 / (to.0 - from.0) as f64)
    };
    let now = slope(last)?;
    let more_than = |before: f64| now / before - 1.0;
    let changes = (
        more_than(slope(last - quarter)?),
        more_than(slope(last - 2 * quarter)?),
    );
    (changes.0.is_finite() && changes.1.is_finite()).then_some(changes)
}

#[cfg(test)]
mod tests {
    use super::{Level, changes};

    /// A curve in quarters of a volume of 1000 blocks.
    fn curve(parts: u64, amplification: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let mut curve = vec![(0, 0)];
        for part in 0..parts {
            let (host, medium) = curve[part as usize];
            curve.push((host + 1000, medium + amplification(part)));
        }
        curve
    }

    #[test]
    fn a_quarter_is_compared_with_the_two_before() {
        assert_eq!(changes(&curve(3, |_| 2000)), None);
        assert_eq!(changes(&curve(16, |_| 2000)), Some((0.0, 0.0)));
        // Level where it turns: the last two quarters are alike, the one before is not.
        let (last, both) = changes(&curve(16, |part| if part < 8 { 1000 } else { 2000 })).unwrap();
        assert_eq!((last, both), (0.0, 1.0));
        assert_eq!(changes(&curve(16, |_| 0)), None);
    }

    /// The number of parts after which a curve is level.
    fn level(amplification: impl Fn(u64) -> u64) -> Option<u64> {
        let mut level = Level::default();
        (16..=192).find(|&parts| level.holds(&curve(parts, &amplification)))
    }

    #[test]
    fn a_curve_must_be_level_twice() {
        assert_eq!(level(|_| 2000), Some(20));
        // It falls to 2000 gradually: not level before it is near.
        let falls = level(|part| 2000 + 1000 / (part + 1));
        assert!(falls > Some(30), "{falls:?}");
        // It turns about where it is first checked.
        let turns = |part: u64| 2000 + 10 * part.min(24 - part.min(24));
        assert!(level(turns) > Some(32));
        assert_eq!(level(|part| 1000 + 20 * part), None);
    }
}
