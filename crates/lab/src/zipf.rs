//! Ranks by Zipf's law: the `n`th most popular has a probability proportional to `1 / n^skew`.

use crate::rng::Rng;

/// The largest skew.
pub const SKEW_MAX: f64 = 5.0;

/// Draws ranks, from 0.
pub enum Zipf {
    /// For skews below 1, as in YCSB.
    Below(Gray),
    /// By the exact law, for any skew.
    Exact(Exact),
}

impl Zipf {
    /// A source of `count` ranks, with a skew from 0 to [`SKEW_MAX`].
    #[must_use]
    pub fn new(count: u64, skew: f64) -> Self {
        match skew < 1.0 {
            true => Self::Below(Gray::new(count, skew)),
            false => Self::Exact(Exact::new(count, skew)),
        }
    }

    /// The next rank.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Below(gray) => gray.draw(rng),
            Self::Exact(exact) => exact.draw(rng),
        }
    }
}

/// Gray's method ("Quickly generating billion-record synthetic databases"): the first two ranks have exactly the
/// probability of the law, the others nearly.
pub struct Gray {
    count: f64,
    skew: f64,
    zeta: f64,
    eta: f64,
    /// The first two ranks' part of `zeta`.
    first_two: f64,
}

impl Gray {
    fn new(count: u64, skew: f64) -> Self {
        // The sum over this many terms; beyond a million, its integral.
        let sum = |n: u64| -> f64 {
            let exact = n.min(1 << 20);
            let head: f64 = (1..=exact).map(|i| (i as f64).powf(-skew)).sum();
            let tail = |x: f64| x.powf(1.0 - skew) / (1.0 - skew);
            head + tail(n as f64 + 0.5) - tail(exact as f64 + 0.5)
        };
        let zeta = sum(count);
        let n = count as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - skew)) / (1.0 - sum(2.min(count)) / zeta);
        Self {
            count: n,
            skew,
            zeta,
            eta,
            first_two: 1.0 + 0.5f64.powf(skew),
        }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 || self.count < 2.0 {
            return 0;
        }
        if scaled < self.first_two {
            return 1;
        }
        let rank = self.count * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - self.skew));
        (rank as u64).min(self.count as u64 - 1)
    }
}

/// Rejection and inversion (Hörmann and Derflinger, ACM TOMACS 1996): a rank is drawn from an invertible curve above
/// the law's, and kept if it is also below the law's.
pub struct Exact {
    count: f64,
    skew: f64,
    /// The curve's integral where the ranks begin and end.
    begin: f64,
    end: f64,
    /// A draw this near to its rank is kept without a check.
    near: f64,
}

impl Exact {
    /// A source of `count` ranks, with a skew of at least 0.
    #[must_use]
    pub fn new(count: u64, skew: f64) -> Self {
        let mut exact = Self {
            count: count.max(1) as f64,
            skew,
            begin: 0.0,
            end: 0.0,
            near: 0.0,
        };
        exact.begin = exact.integral(1.5) - 1.0;
        exact.end = exact.integral(exact.count + 0.5);
        exact.near = 2.0 - exact.inverted(exact.integral(2.5) - exact.law(2.0));
        exact
    }

    fn law(&self, rank: f64) -> f64 {
        rank.powf(-self.skew)
    }

    /// The law's integral from 1 on; as exact near a skew of 1 as elsewhere.
    fn integral(&self, to: f64) -> f64 {
        let log = to.ln();
        let t = (1.0 - self.skew) * log;
        let mean = if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 };
        mean * log
    }

    fn inverted(&self, integral: f64) -> f64 {
        let t = ((1.0 - self.skew) * integral).max(-1.0);
        let mean = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 };
        (mean * integral).exp()
    }

    /// The next rank, from 0.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let at = self.end + rng.unit() * (self.begin - self.end);
            let x = self.inverted(at);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.near || at >= self.integral(rank + 0.5) - self.law(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: u64 = 1000;
    const DRAWS: u32 = 1_000_000;

    fn hits(zipf: &Zipf) -> Vec<f64> {
        let mut rng = Rng::new(7);
        let mut hits = vec![0.0; COUNT as usize];
        (0..DRAWS).for_each(|_| hits[zipf.draw(&mut rng) as usize] += 1.0);
        hits
    }

    fn law(skew: f64) -> Vec<f64> {
        let shares: Vec<f64> = (1..=COUNT).map(|n| (n as f64).powf(-skew)).collect();
        let all: f64 = shares.iter().sum();
        shares
            .iter()
            .map(|share| share / all * f64::from(DRAWS))
            .collect()
    }

    #[test]
    fn ranks_follow_the_law_at_every_skew() {
        for skew in [0.0, 0.5, 0.8, 1.0, 1.2, 2.0, SKEW_MAX] {
            let hits = hits(&Zipf::Exact(Exact::new(COUNT, skew)));
            // Chi-square, over ranks that are expected often enough: its mean is their number.
            let wanted = law(skew);
            let often = hits
                .iter()
                .zip(&wanted)
                .filter(|(_, wanted)| **wanted > 20.0);
            let terms: Vec<f64> = often
                .map(|(hits, wanted)| (hits - wanted).powi(2) / wanted)
                .collect();
            let (square, freedom) = (terms.iter().sum::<f64>(), terms.len() as f64);
            let bound = freedom + 4.0 * (2.0 * freedom).sqrt() + 4.0;
            assert!(square < bound, "{skew}: {square} of {freedom}");
        }
    }

    #[test]
    fn below_a_skew_of_one_the_first_ranks_follow_the_law() {
        for skew in [0.1, 0.5, 0.8, 0.95] {
            let (hits, wanted) = (hits(&Zipf::new(COUNT, skew)), law(skew));
            let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 0.05, "{skew}: {a} {b}");
            near(hits[0], wanted[0]);
            near(hits[1], wanted[1]);
            for rank in [10, 100, 500] {
                near(hits[..rank].iter().sum(), wanted[..rank].iter().sum());
            }
        }
    }
}
