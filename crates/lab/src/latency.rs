//! How long requests took, in classes fine enough for percentiles and few enough to keep.

/// Classes of each power of two: an error of at most 1/64.
const STEPS: u64 = 64;

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

/// The greatest that falls into a class.
fn upper(class: usize) -> u64 {
    let class = class as u64;
    if class < 2 * STEPS {
        return class;
    }
    let shift = class / STEPS - 1;
    ((class - shift * STEPS + 1) << shift) - 1
}

impl Latencies {
    /// One more.
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

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
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

    /// What so many per 100,000 of them did not exceed.
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

    /// The distribution: latencies, each with the share of requests that did not exceed it.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(u64, f64)> {
        let mut below = 0;
        let mut points = Vec::new();
        for (class, &count) in self.classes.iter().enumerate().filter(|(_, c)| **c > 0) {
            below += count;
            points.push((
                upper(class).min(self.most),
                below as f64 / self.count as f64,
            ));
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
