//! The share of a load's writes whose contents it wrote before.

use crate::content::Content;
use crate::trace::Op;
use crate::workload::Request;
use serde::Serialize;
use std::collections::HashSet;

/// The shares of a load; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// Requests.
    pub requests: u64,
    /// Of these, flushes.
    pub flushes: u64,
    /// Blocks written.
    pub written: u64,
    /// Of these: blocks whose content had been written before, anywhere.
    pub duplicates: u64,
    /// Of the blocks written: zeros.
    pub zeros: u64,
    /// Distinct blocks that were written to.
    pub touched: u64,
}

impl Shares {
    /// The shares of these requests.
    pub fn of(requests: impl Iterator<Item = Request>) -> Self {
        // Never iterated: the order would be random.
        let mut contents: HashSet<Content> = HashSet::new();
        let mut places: HashSet<u64> = HashSet::new();
        let mut shares = Self::default();
        for request in requests {
            shares.requests += 1;
            match request.op {
                Op::Flush => shares.flushes += 1,
                Op::Write { .. } => {
                    for (lba, &content) in (request.lba..).zip(&request.contents) {
                        shares.written += 1;
                        shares.zeros += u64::from(content == Content::ZERO);
                        shares.duplicates += u64::from(!contents.insert(content));
                        places.insert(lba);
                    }
                }
                Op::Read | Op::Discard { .. } => {}
            }
        }
        shares.touched = places.len() as u64;
        shares
    }

    /// The share of duplicates, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        self.duplicates as f64 * 100.0 / self.written.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{self, Again, Generator, Shape};

    #[test]
    fn a_load_has_the_share_that_it_was_given() {
        let shape = Shape {
            blocks: 10_000,
            request_blocks: 4,
            zeros: 10,
            duplicates: 0,
            again: Again::Soon,
            flush_every: 9,
            drift: 0,
            bursts: None,
            seed: 3,
        };
        let load = Generator::new(*workload::find("uniform").unwrap(), shape).take(10_000);
        let shares = Shares::of(load);
        assert_eq!((shares.requests, shares.flushes), (10_000, 1000));
        assert_eq!(shares.written, 36_000);
        assert_eq!(shares.duplicates, shares.zeros - 1);
        assert!((9.0..11.0).contains(&shares.percent()), "{shares:?}");
        assert!(shares.touched <= 10_000);
    }
}
