//! A package manager that unpacks: files one after the other, each flushed before the next (dpkg's fsync).
//!
//! Sizes are lognormal, like those in the file systems of Agrawal and others ("A five-year study of file-system
//! metadata", FAST 2007), with the median found there each year. The mean is that of a compiler, Python and git as
//! Debian installs them.

use super::spread::lognormal;
use super::steps::NextRequests;
use crate::rng::Rng;
use crate::trace::Op;
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

const MEDIAN_BYTES: f64 = 4096.0;
/// With that median, a mean of 52,000 bytes.
const SIGMA: f64 = 2.255;

/// The installed files.
pub struct Install {
    blocks: u64,
    at: u64,
    /// The beginning and the blocks of each file, oldest first.
    files: VecDeque<(u64, u64)>,
}

impl Install {
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks,
            at: 0,
            files: VecDeque::new(),
        }
    }

    pub fn file(&mut self, rng: &mut Rng, steps: &mut NextRequests) {
        let bytes = lognormal(rng, MEDIAN_BYTES, SIGMA);
        let most = (self.blocks / 16).max(1);
        let blocks = ((bytes / BLOCK_BYTES as f64).ceil() as u64).clamp(1, most);
        if self.at + blocks > self.blocks {
            let at = self.at;
            self.give_up(steps, |from, _| from >= at);
            self.at = 0;
        }
        let (at, end) = (self.at, self.at + blocks);
        self.give_up(steps, |from, to| from < end && to > at);
        steps.write(at, blocks);
        steps.flush();
        self.files.push_back((at, blocks));
        self.at = end;
    }

    /// Deletes the oldest files while `such` holds for them.
    fn give_up(&mut self, steps: &mut NextRequests, such: impl Fn(u64, u64) -> bool) {
        while let Some((from, blocks)) = self
            .files
            .pop_front_if(|file| such(file.0, file.0 + file.1))
        {
            steps.pieces(Op::DISCARD, from, blocks);
        }
    }
}
