//! The requests of the simulated client.

use super::driver::Ask;
use super::rng::Rng;
use std::collections::VecDeque;
use vellum_core::addr::{Lba, Vba};
use vellum_core::index::Holder;
use vellum_core::seam::{
    CaftlSearch, Commits, Decide, DedupPolicy, EntryOrder, IndexKind, Region, WriteOnce,
};

/// A client's habits during one life.
#[derive(Clone, Debug)]
pub struct Client {
    blocks: u64,
    hot: (u64, u64),
    hot_percent: u64,
    longest: u64,
    next: u64,
    weights: [u64; 10],
    /// The journal's place and length, and the next place in it to be written.
    journal: (u64, u64),
    journal_next: u64,
    /// Blocks that were journaled and not yet written home: home, journal place, token.
    journaled: VecDeque<(u64, u64, u32)>,
    pairs: Vec<(Lba, Lba)>,
    /// Contents that were written several times, and where.
    twins: Vec<(u32, u64)>,
    fua_percent: u64,
    zero_percent: u64,
    twin_percent: u64,
    /// The most requests in flight.
    pub depth: usize,
}

const WRITE: usize = 0;
const READ: usize = 1;
const FLUSH: usize = 2;
const DISCARD: usize = 3;
const ZEROES: usize = 4;
const SEQUENTIAL: usize = 5;
const BIG_DISCARD: usize = 6;
const JOURNAL: usize = 7;
const CHECKPOINT: usize = 8;
const MERGE: usize = 9;

impl Client {
    pub fn new(blocks: u64, rng: &mut Rng) -> Self {
        let hot_length = rng.range(1, blocks.min(64));
        let journal_length = rng.range(4, (blocks / 2).clamp(5, 100));
        let journal = (rng.below(blocks - journal_length), journal_length);
        let journals = rng.pick(&[0, 0, 20, 60]);
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
                journals,
                journals,
                rng.pick(&[0, 0, 10]),
            ],
            journal,
            journal_next: 0,
            journaled: VecDeque::new(),
            pairs: Vec::new(),
            twins: Vec::new(),
            fua_percent: rng.pick(&[0, 0, 3, 30]),
            zero_percent: rng.pick(&[0, 0, 10]),
            twin_percent: rng.pick(&[0, 0, 10, 60]),
            depth: rng.pick(&[1, 2, 8, 32, 64]),
        }
    }

    /// The regions of journals that the core is told: the right one, none, one that has moved, or one that overlaps other blocks.
    pub fn regions(&self, rng: &mut Rng) -> Vec<Region> {
        let rule = rng.pick(&[
            WriteOnce::Off,
            WriteOnce::Hash,
            WriteOnce::Hash,
            WriteOnce::HashUnlessCollided,
            WriteOnce::Descriptor,
        ]);
        let (start, blocks) = self.journal;
        let region = |start, blocks| Region {
            start: Lba(start),
            blocks,
            homes: Lba(0),
            homes_blocks: self.blocks,
            rule,
        };
        match rng.below(5) {
            0 => vec![],
            1 => vec![
                region(start, blocks / 2),
                region(start + blocks / 2, blocks),
            ],
            2 => vec![region(start / 2, u64::MAX / 2)],
            _ => vec![region(start, blocks)],
        }
    }

    pub fn commits(&self, rng: &mut Rng) -> Commits {
        Commits {
            requests: rng.pick(&[0, 0, 1, 7]) as u32,
            merging: rng.percent(50),
            anticipation: rng.percent(50),
        }
    }

    /// How contents are deduplicated, if they are.
    pub fn dedup(&self, rng: &mut Rng) -> DedupPolicy {
        let index_bytes = rng.pick(&[0, 0, 64, 512, 1 << 16]);
        DedupPolicy {
            index_bytes,
            sample_blocks: rng.pick(&[0, 2, 8]),
            decide: rng.pick(&[
                Decide::Compare,
                Decide::Fingerprint(0),
                Decide::Fingerprint(1),
            ]),
            store: match rng.below(4) {
                0 => IndexKind::Caftl(CaftlSearch {
                    range_check: rng.percent(50),
                    order: rng.pick(&[EntryOrder::Arrival, EntryOrder::Hotness, EntryOrder::Value]),
                }),
                _ => IndexKind::Compact,
            },
            semantics: index_bytes == 512,
        }
    }

    /// Makes the client write blocks that share checksums with others. Only their fingerprints, which it trusts, distinguish
    /// them.
    pub fn rely_on_fingerprints(&mut self) -> DedupPolicy {
        self.twin_percent = 60;
        DedupPolicy {
            index_bytes: 1 << 16,
            decide: Decide::Fingerprint(0),
            ..DedupPolicy::default()
        }
    }

    /// The ranges that must not be deduplicated.
    pub fn critical(&self, rng: &mut Rng) -> Vec<(Lba, u64)> {
        let start = rng.below(self.blocks);
        let ranges = [(Lba(start), 3), (Lba(start / 2), 1)];
        ranges[..rng.pick(&[0, 2])].to_vec()
    }

    /// The pairs in the descriptor blocks written since the last call.
    pub fn take_pairs(&mut self) -> Vec<(Lba, Lba)> {
        std::mem::take(&mut self.pairs)
    }

    fn journal_write(&mut self, rng: &mut Rng, fresh: &mut u32) -> Ask {
        let (start, length) = self.journal;
        let at = self.journal_next % length;
        let blocks = rng.range(1, 8).min(length - at);
        self.journal_next = at + blocks;
        let tokens = self.tokens(blocks, rng, fresh);
        for (place, &token) in (start + at..).zip(&tokens) {
            let home = rng.below(self.blocks);
            self.journaled.push_back((home, place, token));
            self.pairs.push((Lba(home), Lba(place)));
        }
        Ask::Write {
            lba: start + at,
            tokens,
            fua: rng.percent(self.fua_percent),
        }
    }

    /// Writes home what was journaled: mostly unchanged, and sometimes after its journal space was reused.
    fn checkpoint(&mut self, rng: &mut Rng, fresh: &mut u32) -> Option<Ask> {
        let (home, _, token) = if rng.percent(80) {
            self.journaled.pop_front()?
        } else {
            self.journaled.pop_back()?
        };
        let mut tokens = vec![token];
        while home + (tokens.len() as u64) < self.blocks && rng.percent(40) {
            let Some((_, _, token)) = self.journaled.pop_front() else {
                break;
            };
            tokens.push(token);
        }
        if rng.percent(5) {
            *fresh += 1;
            tokens[0] = *fresh;
        }
        Some(Ask::Write {
            lba: home,
            tokens,
            fua: rng.percent(self.fua_percent),
        })
    }

    /// The next request. `fresh` numbers tokens: they are unique, except for twins.
    pub fn ask(&mut self, rng: &mut Rng, fresh: &mut u32) -> Ask {
        let ask = self.choose(rng, fresh);
        if let Ask::Write { lba, tokens, .. } = &ask {
            let twins = (*lba..).zip(tokens).filter(|(_, token)| **token < 100);
            self.twins.extend(twins.map(|(lba, token)| (*token, lba)));
            let surplus = self.twins.len().saturating_sub(200);
            self.twins.drain(..surplus);
        }
        ask
    }

    /// Two places with the same contents, or any two.
    fn pair(&self, rng: &mut Rng) -> Ask {
        let any = rng.below(self.blocks);
        let mut pair = (any, rng.below(self.blocks));
        if !self.twins.is_empty() && rng.percent(90) {
            let (token, lba) = self.twins[rng.below(self.twins.len() as u64) as usize];
            let alike = self
                .twins
                .iter()
                .find(|(of, at)| *of == token && *at != lba);
            pair = (lba, alike.map_or(any, |(_, at)| *at));
        }
        Ask::Merge {
            lba: pair.0,
            of: match rng.percent(20) {
                true => Holder::Page(Vba(rng.below(20) as u32)),
                false => Holder::Lba(Lba(pair.1)),
            },
        }
    }

    fn choose(&mut self, rng: &mut Rng, fresh: &mut u32) -> Ask {
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
        if kind == CHECKPOINT
            && let Some(ask) = self.checkpoint(rng, fresh)
        {
            return ask;
        }
        match kind {
            JOURNAL => self.journal_write(rng, fresh),
            MERGE => self.pair(rng),
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
