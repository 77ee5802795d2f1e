//! What the simulated client asks for.

use super::driver::Ask;
use super::rng::Rng;

/// A life's habits.
#[derive(Clone, Debug)]
pub struct Client {
    blocks: u64,
    hot: (u64, u64),
    hot_percent: u64,
    longest: u64,
    next: u64,
    weights: [u64; 7],
    fua_percent: u64,
    zero_percent: u64,
    twin_percent: u64,
    /// Requests in flight, at most.
    pub depth: usize,
}

const WRITE: usize = 0;
const READ: usize = 1;
const FLUSH: usize = 2;
const DISCARD: usize = 3;
const ZEROES: usize = 4;
const SEQUENTIAL: usize = 5;
const BIG_DISCARD: usize = 6;

impl Client {
    pub fn new(blocks: u64, rng: &mut Rng) -> Self {
        let hot_length = rng.range(1, blocks.min(64));
        Self {
            blocks,
            hot: (rng.below(blocks - hot_length + 1), hot_length),
            hot_percent: rng.pick(&[0, 20, 80, 95]),
            longest: rng.pick(&[1, 1, 4, 8, 40]).min(blocks),
            next: rng.below(blocks),
            weights: [
                rng.pick(&[20, 60, 60, 90]),
                rng.pick(&[0, 10, 30]),
                rng.pick(&[0, 1, 5, 20]),
                rng.pick(&[0, 1, 10]),
                rng.pick(&[0, 0, 5]),
                rng.pick(&[0, 5, 40]),
                rng.pick(&[0, 0, 1]),
            ],
            fua_percent: rng.pick(&[0, 0, 3, 30]),
            zero_percent: rng.pick(&[0, 0, 10]),
            twin_percent: rng.pick(&[0, 0, 10]),
            depth: rng.pick(&[1, 2, 8, 32, 64]),
        }
    }

    /// The next request. `fresh` numbers tokens: unique, but for the twins.
    pub fn ask(&mut self, rng: &mut Rng, fresh: &mut u32) -> Ask {
        let mut choice = rng.below(self.weights.iter().sum());
        let kind = self.weights.iter().position(|&w| {
            let here = choice < w;
            choice = choice.saturating_sub(w);
            here
        });
        let kind = kind.unwrap_or(WRITE);
        let blocks = rng.range(1, self.longest);
        let lba = if rng.percent(self.hot_percent) {
            self.hot.0 + rng.below(self.hot.1)
        } else {
            rng.below(self.blocks)
        };
        let lba = lba.min(self.blocks - blocks);
        let fua = rng.percent(self.fua_percent);
        match kind {
            READ => Ask::Read {
                lba,
                blocks: blocks as u32,
            },
            FLUSH => Ask::Flush,
            DISCARD => Ask::Discard { lba, blocks, fua },
            ZEROES => Ask::WriteZeroes { lba, blocks, fua },
            BIG_DISCARD => {
                let blocks = rng.range(1, self.blocks / 2);
                Ask::Discard {
                    lba: rng.below(self.blocks - blocks + 1),
                    blocks,
                    fua,
                }
            }
            SEQUENTIAL => {
                let blocks = self.longest.max(8).min(self.blocks);
                let lba = if self.next + blocks <= self.blocks {
                    self.next
                } else {
                    0
                };
                self.next = lba + blocks;
                Ask::Write {
                    lba,
                    tokens: self.tokens(blocks, rng, fresh),
                    fua,
                }
            }
            _ => Ask::Write {
                lba,
                tokens: self.tokens(blocks, rng, fresh),
                fua,
            },
        }
    }

    fn tokens(&self, blocks: u64, rng: &mut Rng, fresh: &mut u32) -> Vec<u32> {
        (0..blocks)
            .map(|_| {
                if rng.percent(self.zero_percent) {
                    0
                } else if rng.percent(self.twin_percent) {
                    rng.range(1, 50) as u32
                } else {
                    *fresh += 1;
                    *fresh
                }
            })
            .collect()
    }
}
