//! The places that the requests of a pattern go to.

use crate::applications::Application;
use crate::rng::{Rng, mix};
use crate::zipf::Zipf;
use crate::zones::Zones;

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// One after the other, then again from the start.
    Sequential,
    /// Anywhere, with equal probability.
    Uniform,
    /// The `n`th most popular place with a probability proportional to `1 / n^skew`, scattered over the volume.
    Zipf {
        /// From 0 to [`SKEW_MAX`](crate::zipf::SKEW_MAX).
        skew: f64,
    },
    /// Each place once, in random order, and then again in another order.
    Shuffled,
    /// `1 - share` of the requests go to `share` of the places, and so on within those: Pareto's law, as in fio.
    Pareto {
        /// Between 0 and 1.
        share: f64,
    },
    /// `share` of the requests go to `space` of the volume.
    HotCold {
        /// Percent of the requests.
        share: u32,
        /// Percent of the volume.
        space: u32,
    },
    /// Each zone of the volume gets its share.
    Zones(Zones),
    /// As an application does, with its own request sizes and flushes.
    Application(Application),
}

/// Draws places without end.
pub(crate) struct Places {
    pattern: Pattern,
    count: u64,
    seed: u64,
    zipf: Option<Zipf>,
    next: u64,
}

impl Places {
    /// Places of a pattern; there must be at least one.
    pub fn new(pattern: Pattern, count: u64, seed: u64) -> Self {
        let zipf = match pattern {
            Pattern::Zipf { skew } => Some(Zipf::new(count, skew)),
            _ => None,
        };
        Self {
            pattern,
            count,
            seed,
            zipf,
            next: 0,
        }
    }

    /// How many places there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next place, for a read or another request.
    pub fn draw(&mut self, rng: &mut Rng, read: bool) -> u64 {
        let places = self.count;
        match (self.pattern, &self.zipf) {
            (Pattern::Sequential, _) => {
                self.next = (self.next + 1) % places;
                (self.next + places - 1) % places
            }
            (Pattern::Zipf { .. }, Some(zipf)) => {
                let rank = zipf.draw(rng);
                scattered(rank, places)
            }
            (Pattern::Pareto { share }, _) => {
                let power = share.ln() / (1.0 - share).ln();
                let rank = places as f64 * rng.unit().powf(power);
                scattered((rank as u64).min(places - 1), places)
            }
            (Pattern::Shuffled, _) => {
                self.next += 1;
                let (pass, at) = ((self.next - 1) / places, (self.next - 1) % places);
                shuffled(at, places, mix(self.seed ^ mix(pass)))
            }
            (Pattern::HotCold { share, space }, _) => {
                let hot = (places * u64::from(space) / 100).max(1);
                match rng.below(100) < u64::from(share) || hot == places {
                    true => rng.below(hot),
                    false => hot + rng.below(places - hot),
                }
            }
            (Pattern::Zones(zones), _) => zones.draw(rng, places, read),
            _ => rng.below(places),
        }
    }
}

/// The first number from `n` on that shares no factor with `m`.
fn coprime(n: u64, m: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n..).find(|&n| gcd(n, m) == 1).unwrap_or(1)
}

/// Scatters popular places: steps of the golden ratio visit every place.
fn scattered(rank: u64, places: u64) -> u64 {
    let step = (places as f64 * 0.618_033_988_75) as u64 | 1;
    (u128::from(rank) * u128::from(coprime(step, places)) % u128::from(places)) as u64
}

/// Permutes the places: four rounds of a Feistel network over the next power of 4, repeated until the result is a
/// place.
fn shuffled(mut at: u64, places: u64, seed: u64) -> u64 {
    let half = (64 - (places - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    loop {
        for round in 0..4 {
            let (left, right) = (at >> half, at & mask);
            at = right << half | (left ^ (mix(seed ^ mix(right << 3 | round)) & mask));
        }
        if at < places {
            return at;
        }
    }
}
