//! Which closed block is collected next.

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
const SLACK: usize = 16;
/// Victims that are held against each other for that, at most.
const LOOKED_AT: usize = 64;

/// What a block frees times its age, over what it costs.
fn worth(pages: u32, valid: u32, age: f64) -> f64 {
    let live = f64::from(valid);
    (f64::from(pages) - live) * age / (2.0 * live).max(0.5)
}

/// The closed blocks of one die.
pub(super) enum Victims {
    Greedy {
        /// By valid pages.
        buckets: Vec<Vec<u32>>,
        /// Every closed block's place in its bucket.
        places: Vec<u32>,
    },
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
}

impl Victims {
    pub fn new(victim: Victim, blocks: u32, pages: u32, seed: u64) -> Self {
        match victim {
            Victim::Greedy => Self::Greedy {
                buckets: vec![Vec::new(); pages as usize + 1],
                places: vec![0; blocks as usize],
            },
            Victim::Fifo => Self::Fifo(VecDeque::new()),
            Victim::Choices(draws) => Self::Choices {
                draws,
                closed: Vec::new(),
                rng: Rng::new(seed),
            },
            Victim::CostBenefit => Self::CostBenefit {
                pages,
                closed: Vec::new(),
                changed: vec![0; blocks as usize],
                clock: 0,
            },
        }
    }

    /// A block is full.
    pub fn close(&mut self, block: u32, valid: u32) {
        match self {
            Self::Greedy { buckets, places } => {
                places[block as usize] = buckets[valid as usize].len() as u32;
                buckets[valid as usize].push(block);
            }
            Self::Fifo(queue) => queue.push_back(block),
            Self::Choices { closed, .. } => closed.push(block),
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
        if let Self::CostBenefit { changed, clock, .. } = self {
            // Time is what dies: it passes as the load goes on, whatever the clock on the wall.
            *clock += 1;
            changed[block as usize] = *clock;
        }
        if let Self::Greedy { buckets, places } = self {
            let place = places[block as usize] as usize;
            let bucket = &mut buckets[valid as usize + 1];
            bucket.swap_remove(place);
            if let Some(&moved) = bucket.get(place) {
                places[moved as usize] = place as u32;
            }
            self.close(block, valid);
        }
    }

    /// Takes one out that is not the collector's choice; `valid` of its pages are alive.
    pub fn remove(&mut self, block: u32, valid: u32) {
        match self {
            Self::Greedy { buckets, places } => {
                let place = places[block as usize] as usize;
                let bucket = &mut buckets[valid as usize];
                bucket.swap_remove(place);
                if let Some(&moved) = bucket.get(place) {
                    places[moved as usize] = place as u32;
                }
            }
            Self::Fifo(queue) => queue.retain(|&other| other != block),
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
            Self::Greedy { buckets, .. } => {
                let best = buckets.iter().position(|bucket| !bucket.is_empty())?;
                let slack = buckets.len() / SLACK;
                let near = buckets.iter().skip(best).take(slack + 1).flatten();
                // What is full gives nothing, however young it is.
                let full = buckets.len() as u32 - 1;
                let near = near.copied().filter(|&block| valid(block) < full);
                let block = near.take(LOOKED_AT).min_by_key(|&block| worn(block))?;
                self.remove(block, valid(block));
                Some(block)
            }
            Self::Fifo(queue) => queue.pop_front(),
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
            Self::Greedy { buckets, .. } => buckets.iter_mut().find_map(Vec::pop),
            Self::Fifo(queue) => queue.pop_front(),
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
