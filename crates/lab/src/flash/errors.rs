//! Bit errors of reads, and their correction.
//!
//! Each codeword of 1 KiB has a number of wrong bits drawn from a Poisson distribution whose mean grows with the block's
//! erasures. A read of a codeword with more wrong bits than can be corrected is retried at shifted thresholds: each try finds
//! half as many wrong bits (assumed). If the last try fails too, the data are lost: a read error.

use super::options::BitErrors;
use crate::rng::Rng;
use serde::Serialize;

/// Codewords of a block of 4 KiB.
const CODEWORDS: i32 = 4;
const CODEWORD_BITS: f64 = 8192.0;
/// Classes of wear up to the rated number of erasures; as many beyond it.
const CLASSES: usize = 128;
/// The share of wrong bits that remains at each retry.
const BETTER: f64 = 0.5;

/// Reads, and how they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reads {
    /// Units read.
    pub reads: u64,
    /// Units of those that were retried.
    pub retried: u64,
    /// Retries in sum.
    pub retries: u64,
    /// Units that could not be corrected at the last try: data lost.
    pub uncorrectable: u64,
}

/// The error model; see the module.
pub(super) struct Errors {
    rng: Rng,
    rated: u32,
    retries: u32,
    /// The probability that a codeword cannot be corrected, by class of wear and by try.
    fails: Vec<f64>,
    counts: Reads,
}

impl Errors {
    pub fn new(how: BitErrors, rated: u32, seed: u64) -> Self {
        let growth = how.worn / how.fresh;
        let tries = how.retries + 1;
        let mut fails = Vec::with_capacity(2 * CLASSES * tries as usize);
        for class in 0..2 * CLASSES {
            let rate = how.fresh * growth.powf(class as f64 / CLASSES as f64);
            for again in 0..tries {
                let mean = rate.min(0.5) * CODEWORD_BITS * BETTER.powi(again as i32);
                fails.push(beyond(mean, how.correctable));
            }
        }
        Self {
            rng: Rng::new(seed ^ 0xb17_e44),
            rated: rated.max(1),
            retries: how.retries,
            fails,
            counts: Reads::default(),
        }
    }

    pub fn counts(&self) -> Reads {
        self.counts
    }

    pub fn reset(&mut self) {
        self.counts = Reads::default();
    }

    /// Reads `blocks` blocks of a unit in an erase block with `erasures` erasures. Returns the number of retries.
    pub fn read(&mut self, erasures: u32, blocks: u32) -> u32 {
        self.counts.reads += 1;
        let class = u64::from(erasures) * CLASSES as u64 / u64::from(self.rated);
        let class = (class as usize).min(2 * CLASSES - 1);
        let tries = self.retries as usize + 1;
        let fails = &self.fails[class * tries..(class + 1) * tries];
        let codewords = CODEWORDS * blocks as i32;
        let mut again = 0;
        for &fails in fails {
            if self.rng.unit() >= 1.0 - (1.0 - fails).powi(codewords) {
                break;
            }
            again += 1;
        }
        if again > self.retries {
            self.counts.uncorrectable += 1;
            again = self.retries;
        }
        self.counts.retried += u64::from(again > 0);
        self.counts.retries += u64::from(again);
        again
    }
}

/// Returns the probability that a Poisson variable of this mean exceeds `most`.
fn beyond(mean: f64, most: u32) -> f64 {
    // In logarithms: if the mean is large the terms underflow.
    let mut log = -mean;
    let mut within = log.exp();
    for n in 1..=most {
        log += (mean / f64::from(n)).ln();
        within += log.exp();
    }
    (1.0 - within).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: BitErrors = BitErrors {
        fresh: 1e-4,
        worn: 1e-2,
        correctable: 40,
        retries: 3,
    };

    #[test]
    fn the_tail_is_that_of_a_poisson_distribution() {
        // P(X > 2) for a mean of 1: 1 - e^-1 (1 + 1 + 1/2).
        assert!((beyond(1.0, 2) - 0.080_301).abs() < 1e-6);
        assert!((beyond(80.0, 0) - 1.0).abs() < 1e-12);
        assert!(beyond(0.8, 40) < 1e-12);
        assert!(beyond(4000.0, 40) > 0.999_999);
    }

    #[test]
    fn worn_blocks_are_read_more_often_and_some_reads_are_lost() {
        let tried = |erasures| {
            let mut errors = Errors::new(HOW, 1000, 5);
            (0..10_000).for_each(|_| {
                errors.read(erasures, 4);
            });
            errors.counts()
        };
        let new = tried(0);
        assert_eq!((new.reads, new.retries), (10_000, 0));
        let (worn, beyond) = (tried(1000), tried(2000));
        // 82 wrong bits a codeword at the limit: one retry halves them to about what can be corrected.
        assert!(worn.retries > 9000 && worn.uncorrectable == 0, "{worn:?}");
        assert!(beyond.uncorrectable > 9000, "{beyond:?}");
        assert_eq!(tried(1000), worn);
    }
}
