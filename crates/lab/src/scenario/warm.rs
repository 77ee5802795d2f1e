//! A warm-up by the load itself: until its write amplification stands still.
//!
//! Of all that the load wrote since the drive was filled, the last quarter is held against the two quarters before: parts that
//! grow with the time that it took, because what comes last comes slowly (blocks that are hardly ever written), and two of them,
//! because a curve is level where it turns. It must be so twice, a quarter more written: a curve that swings looks level now
//! and then. A trace is taken in whole passes, so that like is held against like.

use super::source::{Portion, Source};
use super::{Scenario, ScenarioError};
use crate::policy::{Layer, Policy};
use crate::sim::{Ftl, Sim};

/// The last quarter amplifies like the one before, to so much of 1, and like the one before that, to
const ALIKE: f64 = 0.005;
/// so much.
const ALIKE_BEFORE: f64 = 0.01;
/// Volumes that are written before anything is held against anything.
const VOLUMES_MIN: u64 = 4;
/// Volumes after which it ends, whether it stands still or not.
const VOLUMES_MAX: u64 = 48;
/// The same in blocks: 256 GiB. More takes minutes.
const BLOCKS_MAX: u64 = 64 << 20;
/// Requests for each block that may be written, at most: a load that hardly writes ends as well.
const REQUESTS_A_BLOCK: u64 = 2;
/// Parts of a volume that are counted one by one.
const PARTS: u64 = 4;
/// Parts from which on only whole quarters are held against each other.
const PARTS_MANY: usize = 16;

/// How a warm-up ended.
pub(super) struct Warm {
    /// By its rule.
    pub settled: bool,
    /// In words.
    pub told: String,
}

impl Scenario<'_> {
    /// Warms the drive up; none where nothing inside of it is known, or the load cannot go on.
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
        let most = BLOCKS_MAX.min(VOLUMES_MAX * volume);
        let mut requests = most * REQUESTS_A_BLOCK;
        let start = sim.moment();
        let mut curve = vec![(0, 0)];
        let mut level = Level::default();
        loop {
            let portion = Portion {
                blocks: (volume / PARTS).max(1),
                requests,
                skips_reads: !caches_map,
            };
            requests -= source.warm(self, sim, portion)?;
            let now = sim.moment();
            let written = now.host_written - start.host_written;
            curve.push((written, now.medium_written - start.medium_written));
            let enough = written >= VOLUMES_MIN * volume;
            let settled = enough && level.holds(&curve);
            if settled || written >= most || requests == 0 || self.stopped() {
                let volumes = written as f64 / volume as f64;
                return Ok(Some(Warm {
                    settled,
                    told: told(volumes, volume < logical, settled, changes(&curve)),
                }));
            }
        }
    }
}

/// Whether a curve has been level for long enough.
#[derive(Default)]
struct Level {
    /// Parts of the curve at which it is looked at again.
    again: Option<usize>,
}

impl Level {
    /// Looks at a curve that has grown by a part.
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

/// By how much, of 1, the last quarter amplifies more than the one before, and than the one before that; none where there
/// are no quarters.
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

    /// Quarters of a volume, of 1000 blocks each.
    fn curve(parts: u64, amplification: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let mut curve = vec![(0, 0)];
        for part in 0..parts {
            let (host, medium) = curve[part as usize];
            curve.push((host + 1000, medium + amplification(part)));
        }
        curve
    }

    #[test]
    fn quarters_are_held_against_those_before() {
        assert_eq!(changes(&curve(3, |_| 2000)), None);
        assert_eq!(changes(&curve(16, |_| 2000)), Some((0.0, 0.0)));
        // Level where it turns: the last two quarters say nothing, the one before does.
        let (last, both) = changes(&curve(16, |part| if part < 8 { 1000 } else { 2000 })).unwrap();
        assert_eq!((last, both), (0.0, 1.0));
        assert_eq!(changes(&curve(16, |_| 0)), None);
    }

    /// After how many parts a curve is level.
    fn level(amplification: impl Fn(u64) -> u64) -> Option<u64> {
        let mut level = Level::default();
        (16..=192).find(|&parts| level.holds(&curve(parts, &amplification)))
    }

    #[test]
    fn a_curve_must_be_level_twice() {
        assert_eq!(level(|_| 2000), Some(20));
        // It falls to 2000 by and by: not before it is near.
        let falls = level(|part| 2000 + 1000 / (part + 1));
        assert!(falls > Some(30), "{falls:?}");
        // It turns about where it is first looked at.
        let turns = |part: u64| 2000 + 10 * part.min(24 - part.min(24));
        assert!(level(turns) > Some(32));
        assert_eq!(level(|part| 1000 + 20 * part), None);
    }
}
