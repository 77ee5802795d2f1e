//! What can be computed for a skewed load: a share of the writes goes to a share of the volume, uniformly within each
//! part.

use crate::rng::Rng;
use std::fmt;

/// This percentage of the writes goes to this percentage of the volume, the rest to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Percent of the writes.
    pub writes: u32,
    /// Percent of the volume.
    pub space: u32,
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}% to {}%", self.writes, self.space)
    }
}

impl Skew {
    /// The blocks of the hot part, which lies first.
    pub(super) fn hot(self, logical: u64) -> u64 {
        logical * u64::from(self.space) / 100
    }

    /// The next block to write.
    pub(super) fn draw(self, rng: &mut Rng, logical: u64) -> u64 {
        let hot = self.hot(logical);
        match rng.below(100) < u64::from(self.writes) {
            true => rng.below(hot),
            false => hot + rng.below(logical - hot),
        }
    }

    /// For the hot part and the cold part: its share of the writes, and of the volume.
    fn parts(self) -> [(f64, f64); 2] {
        let share = |percent: u32| f64::from(percent) / 100.0;
        let (writes, space) = (share(self.writes), share(self.space));
        [(writes, space), (1.0 - writes, 1.0 - space)]
    }

    /// The amplification when the victim is the block that was filled first, and hot and cold pages share blocks
    /// (Desnoyers 2014, nonuniform traffic).
    ///
    /// Each block becomes a victim once all others have: after alpha over the amplification of writes, as a share of
    /// the volume. A page is still valid, and moved, with the probability that none of these writes was to it.
    #[must_use]
    pub fn fifo(self, alpha: f64) -> f64 {
        let after = |amplification: f64| {
            let parts = self.parts().map(|(writes, space)| {
                let died = 1.0 - (-writes / space * alpha / amplification).exp();
                writes / died
            });
            parts.iter().sum::<f64>()
        };
        // The larger the assumed amplification, the larger the result, but it grows more slowly.
        let (mut low, mut high) = (1.0, 1e6);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            match after(middle) > middle {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// The amplification when each part has its own blocks, with spare ones in proportion to the square root of writes
    /// times pages. Within a part it is that of a uniform load.
    #[must_use]
    pub fn apart(self, alpha: f64, uniform: impl Fn(f64) -> f64) -> f64 {
        let parts = self.parts();
        let weights = parts.map(|(writes, space)| (writes * space).sqrt());
        let all: f64 = weights.iter().sum();
        let parts = parts.iter().zip(weights).map(|(&(writes, space), weight)| {
            let spare = (alpha - 1.0) * weight / all;
            writes * uniform(1.0 + spare / space)
        });
        parts.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Effort, Map, fifo, page_map};
    use super::*;
    use crate::base::Victim;

    const MOST: Skew = Skew {
        writes: 80,
        space: 20,
    };
    const EFFORT: Effort = Effort {
        logical: 64 << 10,
        warm: 8,
        measure: 4,
        seed: 1,
    };

    #[test]
    fn no_skew_is_computed_as_a_uniform_load() {
        let none = Skew {
            writes: 40,
            space: 40,
        };
        for alpha in [1.07, 1.15, 1.28] {
            assert!((none.fifo(alpha) / fifo(alpha) - 1.0).abs() < 1e-9);
            assert!((none.apart(alpha, fifo) / fifo(alpha) - 1.0).abs() < 1e-9);
            // Skew costs where all data is mixed, and pays where it is not.
            assert!(MOST.fifo(alpha) > fifo(alpha));
            assert!(MOST.apart(alpha, fifo) < fifo(alpha));
        }
    }

    #[test]
    fn a_page_map_meets_the_computed_amplification_of_hot_and_cold_data() {
        for over in [150, 280] {
            let mixed = Map::mixed(Victim::Fifo, 64);
            let row = page_map(mixed, Some(MOST), over, EFFORT).unwrap();
            assert!(row.off_percent.abs() < 0.5, "{row:?}");
            for victim in [Victim::Greedy, Victim::Fifo, Victim::Choices(5)] {
                let apart = Map::separated(victim, 64);
                let row = page_map(apart, Some(MOST), over, EFFORT).unwrap();
                assert!(row.off_percent.abs() < 1.5, "{row:?}");
            }
        }
    }

    #[test]
    fn separation_saves_moves_under_a_skewed_load_and_costs_few_under_a_uniform_one() {
        for victim in [Victim::Greedy, Victim::Fifo, Victim::CostBenefit] {
            let measured = |kind, skew| page_map(kind, skew, 150, EFFORT).unwrap().measured;
            let [mixed, apart] = [Map::mixed(victim, 64), Map::separated(victim, 64)];
            let (before, after) = (measured(mixed, Some(MOST)), measured(apart, Some(MOST)));
            assert!(after < before * 0.7, "{victim:?}: {before} {after}");
            let (before, after) = (measured(mixed, None), measured(apart, None));
            assert!(after < before * 1.02, "{victim:?}: {before} {after}");
        }
    }
}
