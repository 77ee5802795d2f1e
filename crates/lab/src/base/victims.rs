//! Which closed block is collected next.
//!
//! The one with the fewest valid pages is looked for when it is needed, which is far less often than pages die: of each block
//! its valid pages are kept, 2 bytes, and of each group of blocks the fewest of any, so that a search reads little and a death
//! writes two numbers.

use super::own::Own;
use crate::rng::Rng;
use std::collections::VecDeque;

/// How the victim is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The block with the fewest valid pages.
    #[default]
    Greedy,
    /// The one that was filled first.
    Fifo,
    /// The one with the fewest valid pages of so many drawn; 1 is a random one.
    Choices(u32),
    /// The best of what it frees times the time since a page of it died last, over what it costs (Kawaguchi).
    CostBenefit,
}

/// A victim may have so much of a block, as a share, more valid pages than the best when it is less worn.
const SLACK: i16 = 16;
/// Victims that are held against each other for that, at most.
const LOOKED_AT: usize = 64;

/// What a block frees times its age, over what it costs.
fn worth(pages: u32, valid: u32, age: f64) -> f64 {
    let live = f64::from(valid);
    (f64::from(pages) - live) * age / (2.0 * live).max(0.5)
}

/// A block that is not closed, and a group without any that is.
const OPEN: i16 = i16::MAX;
/// Blocks of a group.
const GROUP: usize = 256;

/// The closed blocks of one die by their valid pages.
pub(super) struct Fewest {
    /// Of each block. Signed, as that is what processors find the least of many at a time of.
    valid: Vec<i16>,
    /// The fewest of each group.
    least: Vec<i16>,
    /// Pages of a block.
    full: i16,
}

/// The first of the fewest, and how few.
fn fewest(valid: &[i16]) -> Option<(usize, i16)> {
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
            full: i16::try_from(pages).unwrap_or(OPEN - 1),
        }
    }

    /// A block is closed, or has fewer valid pages than it had.
    fn set(&mut self, block: u32, valid: u32) {
        let (block, valid) = (block as usize, valid as i16);
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

    /// The first of those that are nearly as good as the best, and their valid pages. What is full gives nothing, however young
    /// it is.
    fn near(&self) -> impl Iterator<Item = (u32, i16)> {
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
        /// When each block changed last, in pages that have died since the start.
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

    /// Where chance has a part in it, it follows from this.
    pub fn draw_by(&mut self, source: Rng) {
        if let Self::Choices { rng, .. } = self {
            *rng = source;
        }
    }

    /// A block is full.
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

    /// A page of a closed block has died; `valid` are left.
    pub fn died(&mut self, block: u32, valid: u32) {
        match self {
            Self::Greedy(fewest) => fewest.set(block, valid),
            Self::CostBenefit { changed, clock, .. } => {
                // Time is what dies: it passes as the load goes on, whatever the clock on the wall.
                *clock += 1;
                changed[block as usize] = *clock;
            }
            Self::Own(own) => own.died(block),
            Self::Fifo(_) | Self::Choices { .. } => {}
        }
    }

    /// Takes one out that is not the collector's choice.
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

    /// Takes the victim out, passing over worn blocks where others are nearly as good.
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
                // Benefit over cost, over how worn it is (cost, age and times: Chiang).
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

    /// Takes the victim out.
    pub fn take(&mut self, valid: impl Fn(u32) -> u32) -> Option<u32> {
        match self {
            Self::Greedy(fewest) => fewest.take(),
            Self::Fifo(queue) => queue.pop_front(),
            Self::Own(own) => own.take(valid),
            Self::Choices { draws, closed, rng } => {
                let best = (0..*draws)
                    .map(|_| rng.below(closed.len() as u64) as usize)
                    .min_by_key(|&i| closed.get(i).map_or(u32::MAX, |&block| valid(block)))?;
                (best < closed.len()).then(|| closed.swap_remove(best))
            }
            Self::CostBenefit {
                pages,
                closed,
                changed,
                clock,
            } => {
                let worths = closed.iter().map(|&block| {
                    let age = (*clock - changed[block as usize] + 1) as f64;
                    worth(*pages, valid(block), age)
                });
                let best = worths
                    .enumerate()
                    .max_by(|(_, a), (_, b)| a.total_cmp(b))?
                    .0;
                Some(closed.swap_remove(best))
            }
        }
    }
}
