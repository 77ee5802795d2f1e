//! The lengths of a job's requests.

use crate::rng::Rng;
use std::fmt;

/// The most lengths of one job's requests.
pub const LENGTHS_MAX: usize = 8;

/// Blocks of a request: one length, or several with their shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Blocks, and the percentage of requests with that length.
    each: [(u32, u32); LENGTHS_MAX],
    count: usize,
}

impl Lengths {
    /// One length for all requests.
    #[must_use]
    pub fn one(blocks: u32) -> Self {
        let mut each = [(0, 0); LENGTHS_MAX];
        each[0] = (blocks.max(1), 100);
        Self { each, count: 1 }
    }

    /// Lengths by shares in percent; none if these do not add up to 100, or there are too many.
    #[must_use]
    pub fn split(shares: &[(u32, u32)]) -> Option<Self> {
        let all: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
        let fits = (1..=LENGTHS_MAX).contains(&shares.len());
        if !fits || all != 100 || shares.iter().any(|(blocks, _)| *blocks == 0) {
            return None;
        }
        let mut each = [(0, 0); LENGTHS_MAX];
        each[..shares.len()].copy_from_slice(shares);
        let count = shares.len();
        Some(Self { each, count })
    }

    fn all(&self) -> &[(u32, u32)] {
        &self.each[..self.count]
    }

    /// The length, if all requests have the same.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.all() {
            [(blocks, _)] => Some(*blocks),
            _ => None,
        }
    }

    /// The shortest: requests begin at a multiple of it.
    #[must_use]
    pub fn least(&self) -> u32 {
        let each = self.all().iter().map(|(blocks, _)| *blocks);
        each.min().unwrap_or(1)
    }

    /// The longest.
    #[must_use]
    pub fn most(&self) -> u32 {
        let each = self.all().iter().map(|(blocks, _)| *blocks);
        each.max().unwrap_or(1)
    }

    /// The mean length.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let each = self.all().iter();
        let sum: u64 = each
            .map(|(blocks, share)| u64::from(*blocks) * u64::from(*share))
            .sum();
        sum as f64 / 100.0
    }

    /// Draws the length of the next request.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        if let [(blocks, _)] = self.all() {
            return *blocks;
        }
        let mut drawn = rng.below(100) as u32;
        for (blocks, share) in self.all() {
            if drawn < *share {
                return *blocks;
            }
            drawn -= share;
        }
        self.least()
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(blocks) = self.only() {
            return write!(f, "{}k", u64::from(blocks) * 4);
        }
        for (at, (blocks, share)) in self.all().iter().enumerate() {
            let colon = if at > 0 { ":" } else { "" };
            write!(f, "{colon}{}k/{share}", u64::from(*blocks) * 4)?;
        }
        Ok(())
    }
}
