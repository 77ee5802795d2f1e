//! Latencies, in classes fine enough for percentiles and few enough to keep.

use serde::Serialize;

/// Classes of each power of two: an error of at most 1/64.
const STEPS: u64 = 64;
/// Between two points of a distribution lies at most one in this many of all requests,
const OF_ALL: u64 = 256;
/// and at most one in this many of the requests that took longer, so that rare latencies have points too.
const OF_LONGER: u64 = 4;

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Within {
    /// A latency in nanoseconds.
    pub ns: u64,
    /// The share of requests that did not exceed it.
    pub share: f64,
}

/// Latencies, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    classes: Vec<u64>,
    count: u64,
    sum: u128,
    most: u64,
}

fn class(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEPS.ilog2();
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// The greatest latency of a class.
fn upper(class: usize) -> u64 {
    let class = class as u64;
    if class < 2 * STEPS {
        return class;
    }
    let shift = class / STEPS - 1;
    ((class - shift * STEPS + 1) << shift) - 1
}

impl Latencies {
    /// Adds a latency.
    pub fn add(&mut self, nanos: u64) {
        let class = class(nanos);
        if class >= self.classes.len() {
            self.classes.resize(class + 1, 0);
        }
        self.classes[class] += 1;
        self.count += 1;
        self.sum += u128::from(nanos);
        self.most = self.most.max(nanos);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        u64::try_from(self.sum).unwrap_or(u64::MAX)
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> u64 {
        (self.sum / u128::from(self.count.max(1))) as u64
    }

    /// The longest.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The latency that `per_100_000` of 100,000 did not exceed.
    #[must_use]
    pub fn percentile(&self, per_100_000: u64) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(per_100_000)).div_ceil(100_000) as u64;
        let mut below = 0;
        for (class, &count) in self.classes.iter().enumerate() {
            below += count;
            if below >= wanted && below > 0 {
                return upper(class).min(self.most);
            }
        }
        self.most
    }

    /// The distribution, in at most 400 points: the shortest latency, the longest, and those between that add
    /// information.
    #[must_use]
    pub fn cumulative(&self) -> Vec<Within> {
        let (mut below, mut told) = (0, 0);
        let mut points = Vec::new();
        for (class, &count) in self.classes.iter().enumerate().filter(|(_, c)| **c > 0) {
            below += count;
            let (new, longer) = (below - told, self.count - told);
            if points.is_empty()
                || new >= self.count.div_ceil(OF_ALL).min(longer.div_ceil(OF_LONGER))
            {
                points.push(Within {
                    ns: upper(class).min(self.most),
                    share: below as f64 / self.count as f64,
                });
                told = below;
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_falls_into_it() {
        for nanos in (0..5000).chain((1..63).map(|s| (1u64 << s) + s)) {
            let class = class(nanos);
            let upper = upper(class);
            assert!(
                upper >= nanos && upper - nanos <= nanos / STEPS,
                "{nanos}: {upper}"
            );
            assert!(class == 0 || super::upper(class - 1) < nanos, "{nanos}");
        }
    }

    #[test]
    fn any_distribution_has_few_points() {
        let told = |classes: &dyn Fn(u64) -> u64| {
            let mut latencies = Latencies::default();
            (0..3700).for_each(|class| latencies.classes.push(classes(class)));
            latencies.count = latencies.classes.iter().sum();
            let longest = latencies.classes.iter().rposition(|&count| count > 0);
            latencies.most = upper(longest.unwrap());
            (latencies.cumulative(), latencies)
        };
        let shapes: [&dyn Fn(u64) -> u64; 4] = [
            &|_| 1,
            &|_| 1 << 40,
            // The rest of them, a few percent at a time: as many points as possible.
            &|class| (1e12 * 0.97f64.powi(class as i32)) as u64 + 1,
            &|class| u64::from(class % 1000 == 3),
        ];
        for shape in shapes {
            let (points, latencies) = told(shape);
            assert!(points.len() <= 400, "{}", points.len());
            let last = points.last().unwrap();
            assert_eq!((last.ns, last.share), (latencies.most, 1.0));
            for pair in points.windows(2) {
                assert!(pair[0].ns < pair[1].ns && pair[0].share < pair[1].share);
            }
            // Each point is exact.
            for point in &points {
                let within: u64 = latencies.classes[..=class(point.ns)].iter().sum();
                assert_eq!(point.share, within as f64 / latencies.count as f64);
            }
        }
        assert!(told(&|_| 1).0.len() > 200);
        assert_eq!(Latencies::default().cumulative(), []);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_list() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|i| latencies.add(i * 1000));
        let near = |a: u64, b: u64| assert!(a.abs_diff(b) <= b / 60, "{a} {b}");
        near(latencies.percentile(50_000), 500_000);
        near(latencies.percentile(99_000), 990_000);
        assert_eq!(latencies.percentile(100_000), 1_000_000);
        assert_eq!(latencies.mean(), 500_500);
        assert_eq!(Latencies::default().percentile(50_000), 0);
    }
}
