//! How much of a load is taken at a time.

use crate::rng::mix;
use crate::trace::Op;
use crate::workload::Request;

/// Repetitions of a trace are numbered, and the number determines the contents that are written. Those that warm a drive up are numbered
/// from here on, so they write other contents than those that are measured.
const WARM_REPETITIONS: u32 = 1 << 31;

/// A portion of a load.
#[derive(Clone, Copy)]
pub(super) struct Portion {
    /// The fewest blocks to write.
    pub blocks: u64,
    /// The most requests to take.
    pub requests: u64,
    /// True if reads are left out: on most drives they change nothing that is counted.
    pub skips_reads: bool,
}

impl Portion {
    /// The whole load.
    pub const ALL: Self = Self {
        blocks: u64::MAX,
        requests: u64::MAX,
        skips_reads: false,
    };

    /// A whole pass, with or without reads.
    pub fn whole(self) -> Self {
        Self {
            skips_reads: self.skips_reads,
            ..Self::ALL
        }
    }

    pub fn goes_on(self) -> bool {
        self.blocks > 0 && self.requests > 0
    }

    /// Subtracts what was taken.
    pub fn take(&mut self, blocks: u64, requests: u64) {
        self.blocks = self.blocks.saturating_sub(blocks);
        self.requests = self.requests.saturating_sub(requests);
    }
}

/// Takes a portion of a load; its times begin at 0.
pub(super) struct Part<'a, I> {
    from: &'a mut I,
    /// What is left of the portion.
    pub portion: Portion,
    start: Option<u64>,
}

impl<'a, I> Part<'a, I> {
    pub fn new(from: &'a mut I, portion: Portion) -> Self {
        Self {
            from,
            portion,
            start: None,
        }
    }
}

impl<I: Iterator<Item = Request>> Iterator for Part<'_, I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        while self.portion.blocks > 0 && self.portion.requests > 0 {
            let mut request = self.from.next()?;
            self.portion.requests -= 1;
            request.at = request
                .at
                .saturating_sub(*self.start.get_or_insert(request.at));
            match request.op {
                Op::Read if self.portion.skips_reads => continue,
                Op::Write { .. } => {
                    let blocks = u64::from(request.blocks);
                    self.portion.blocks = self.portion.blocks.saturating_sub(blocks);
                }
                _ => {}
            }
            return Some(request);
        }
        None
    }
}

/// The seed and the number of the warm-up's next pass.
pub(super) fn repetition(seed: u64, passes: &mut u32) -> (u64, u32) {
    let repetition = WARM_REPETITIONS + *passes;
    *passes += 1;
    (mix(seed ^ mix(u64::from(repetition))), repetition)
}
