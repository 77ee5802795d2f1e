//! Which closed block is collected next.
//!
//! The block with the fewest valid pages is searched for when it is needed, which is far less often than pages die. The valid
//! pages of each block are kept in 4 bytes, and so is the minimum of each group of blocks, so that a search reads little and a
//! death writes two numbers.

use super::own::Own;
use crate::rng::Rng;
use std::collections::VecDeque;

/// How the victim is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The block with the fewest valid pages.
    #[default]
    Greedy,
    /// The block that was filled first.
    Fifo,
    /// The block with the fewest valid pages among that many drawn at random; 1 is a random block.
    Choices(u32),
    /// The block with the best ratio of what it frees, times the time since one of its pages last died, to its cost (Kawaguchi).
    CostBenefit,
}

/// A victim that is less worn may have this share of a block more valid pages than the best.
const SLACK: i32 = 16;
/// The most victims that are compared for that.
const LOOKED_AT: usize = 64;

/// Returns what a block frees times its age, over its cost.
fn worth(pages: u32, valid: u32, age: f64) -> f64 {
    let live = f64::from(valid);
    (f64::from(pages) - live) * age / (2.0 * live).max(0.5)
}

/// The value of a block that is not closed, and of a group without closed blocks.
const OPEN: i32 = i32::MAX;
/// Blocks in a group.
const GROUP: usize = 256;

/// The closed blocks of one die by their valid pages.
pub(super) struct Fewest {
    /// Valid pages of each block. Signed, because processors find the minimum of many signed numbers at once.
    valid: Vec<i32>,
    /// The minimum of each group.
    least: Vec<i32>,
    /// Pages of a block.
    full: i32,
}

/// Returns the first index of the minimum, and the minimum.
fn fewest(valid: &[i32]) -> Option<(usize, i32)> {
    let least = valid.iter().copied().min()?;
    let at = valid.iter().position(|&valid| valid == least)?;
    Some((at, least))
}

impl Fewest {
    fn new(blocks: u32, pages: u32) -> Self {
        let blocks = blocks as usize;
        Self {
            valid: vec![OPEN; blocks],
            least: vec![OPEN; blocks.div_ceil(GROUP)],
            full: i32::try_from(pages).unwrap_or(OPEN - 1),
        }
    }

    /// Sets the valid pages of a block that is closed, or has fewer than before.
    fn set(&mut self, block: u32, valid: u32) {
        let (block, valid) = (block as usize, valid as i32);
        self.valid[block] = valid;
        let least = &mut self.least[block / GROUP];
        *least = valid.min(*least);
    }

    fn remove(&mut self, block: u32) {
        let (block, group) = (block as usize, block as usize / GROUP);
        self.valid[block] = OPEN;
        let blocks = self.valid.chunks(GROUP).nth(group).unwrap_or_default();
        self.least[group] = blocks.iter().copied().min().unwrap_or(OPEN);
    }

    fn take(&mut self) -> Option<u32> {
        let (group, least) = fewest(&self.least)?;
        let blocks = self.valid.chunks(GROUP).nth(group)?;
        let at = blocks.iter().position(|&valid| valid == least)?;
        let block = (group * GROUP + at) as u32;
        self.remove(block);
        (least < OPEN).then_some(block)
    }

    /// Returns the first of the blocks that are nearly as good as the best, and their valid pages. A full block frees nothing,
    /// however little it is worn.
    fn near(&self) -> impl Iterator<Item = (u32, i32)> {
        let best = self.least.iter().copied().min().unwrap_or(OPEN);
        let most = best.saturating_add(self.full / SLACK).min(self.full - 1);
        let groups = self.valid.chunks(GROUP).zip(&self.least).enumerate();
        let groups = groups.filter(move |&(_, (_, &least))| least <= most);
        let blocks = groups.flat_map(move |(group, (blocks, _))| {
            let near = blocks.iter().enumerate();
            let near = near.filter(move |&(_, &valid)| valid <= most);
            near.map(move |(at, &valid)| ((group * GROUP + at) as u32, valid))
        });
        blocks.take(LOOKED_AT)
    }
}

/// The closed blocks of one die.
pub(super) enum Victims {
    Greedy(Fewest),
    Fifo(VecDeque<u32>),
    Choices {
        draws: u32,
        closed: Vec<u32>,
        rng: Rng,
    },
    CostBenefit {
        pages: u32,
        closed: Vec<u32>,
        /// When each block changed last, in pages that died since the start.
        changed: Vec<u64>,
        clock: u64,
    },
    Own(Own),
}

impl Victims {
    pub fn new(victim: Victim, blocks: u32, pages: u32) -> Self {
        match victim {
            Victim::Greedy => Self::Greedy(Fewest::new(blocks, pages)),
            Victim::Fifo => Self::Fifo(VecDeque::new()),
            Victim::Choices(draws) => Self::Choices {
                draws,
                closed: Vec::new(),
                rng: Rng::new(0),
            },
            Victim::CostBenefit => Self::CostBenefit {
                pages,
                closed: Vec::new(),
                changed: vec![0; blocks as usize],
                clock: 0,
            },
        }
    }

    /// Sets the source of random numbers, if the policy draws any.
    pub fn draw_by(&mut self, source: Rng) {
        if let Self::Choices { rng, .. } = self {
            *rng = source;
        }
    }

    /// Adds a full block.
    pub fn close(&mut self, block: u32, valid: u32) {
        match self {
            Self::Greedy(fewest) => fewest.set(block, valid),
            Self::Fifo(queue) => queue.push_back(block),
            Self::Choices { closed, .. } => closed.push(block),
            Self::Own(own) => own.close(block),
            Self::CostBenefit {
                closed,
                changed,
                clock,
                ..
            } => {
                closed.push(block);
                changed[block as usize] = *clock;
            }
        }
    }

    /// Records that a page of a closed block died; `valid` remain.
    pub fn died(&mut self, block: u32, valid: u32) {
        match self {
            Self::Greedy(fewest) => fewest.set(block, valid),
            Self::CostBenefit { changed, clock, .. } => {
                // Time is counted in dead pages: it passes as the load proceeds, whatever the real time.
                *clock += 1;
                changed[block as usize] = *clock;
            }
            Self::Own(own) => own.died(block),
            Self::Fifo(_) | Self::Choices { .. } => {}
        }
    }

    /// Removes a block that was not the collector's choice.
    pub fn remove(&mut self, block: u32) {
        match self {
            Self::Greedy(fewest) => fewest.remove(block),
            Self::Fifo(queue) => queue.retain(|&other| other != block),
            Self::Own(own) => own.remove(block),
            Self::Choices { closed, .. } | Self::CostBenefit { closed, .. } => {
                closed.retain(|&other| other != block);
            }
        }
    }

    /// Takes the victim, passing over worn blocks if others are nearly as good.
    pub fn take_unworn(
        &mut self,
        valid: impl Fn(u32) -> u32,
        worn: impl Fn(u32) -> u32,
    ) -> Option<u32> {
        match self {
            Self::Greedy(fewest) => {
                let near = fewest.near();
                let (block, _) = near.min_by_key(|&(block, valid)| (worn(block), valid))?;
                fewest.remove(block);
                Some(block)
            }
            Self::Fifo(queue) => queue.pop_front(),
            Self::Own(own) => own.take(valid),
            Self::Choices { draws, closed, rng } => {
                let best = (0..*draws)
                    .map(|_| rng.below(closed.len() as u64) as usize)
                    .min_by_key(|&i| {
                        let block = closed.get(i);
                        block.map_or((u32::MAX, 0), |&block| (valid(block), worn(block)))
                    })?;
                (best < closed.len()).then(|| closed.swap_remove(best))
            }
            Self::CostBenefit {
                pages,
                closed,
                changed,
                clock,
            } => {
                let least = closed.iter().map(|&block| worn(block)).min()?;
                // Benefit over cost, over its wear (cost, age and times: Chiang).
                let worths = closed.iter().map(|&block| {
                    let age = (*clock - changed[block as usize] + 1) as f64;
                    worth(*pages, valid(block), age) / f64::from(worn(block) - least + 1)
                });
                let best = worths
                    .enumerate()
                    .max_by(|(_, a), (_, b)| a.total_cmp(b))?
                    .0;
                Some(closed.swap_remove(best))
            }
        }
    }

    /// Takes the victim.
    pub fn take(&mut self, valid: impl Fn(u32) -> u32) -> Option<u32> {
        match self {
            Self::Greedy(fewest) => fewest.take(),
            _ => self.take_unworn(valid, |_| 0),
        }
    }
}
