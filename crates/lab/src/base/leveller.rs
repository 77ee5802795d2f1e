//! What wear levelling remembers: how often each block was erased, and when it was filled.

use std::collections::{BTreeSet, VecDeque};

/// How uneven wear is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levelling {
    /// Worn blocks are passed over if other blocks are free or nearly as good.
    pub dynamic: bool,
    /// How many erasures apart blocks may be before cold data move; `None`: cold data never move.
    pub threshold: Option<u32>,
}

/// The default of that threshold.
pub const THRESHOLD: u32 = 8;

/// Full blocks examined to find a cold one, from the least worn on.
const LOOKED_AT: usize = 16;

/// Keeps the counts. Blocks are numbered over all dies.
pub(super) struct Leveller {
    pub how: Levelling,
    per_die: u32,
    erases: Vec<u32>,
    /// Each die's full blocks, by erasures.
    full: Vec<BTreeSet<(u32, u32)>>,
    /// Blocks filled since the start, and when each was filled.
    clock: u64,
    filled_at: Vec<u64>,
}

impl Leveller {
    pub fn new(how: Levelling, dies: u32, per_die: u32) -> Self {
        Self {
            how,
            per_die,
            erases: vec![0; (dies * per_die) as usize],
            full: vec![BTreeSet::new(); dies as usize],
            clock: 0,
            filled_at: vec![0; (dies * per_die) as usize],
        }
    }

    /// Forgets the erasures so far, as the flash forgets its wear when preconditioning ends.
    pub fn begin_life(&mut self) {
        self.erases.fill(0);
        for full in &mut self.full {
            let blocks = std::mem::take(full).into_iter();
            *full = blocks.map(|(_, block)| (0, block)).collect();
        }
    }

    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }

    pub fn filled(&mut self, block: u32) {
        let key = (self.erases(block), block);
        self.full[(block / self.per_die) as usize].insert(key);
        self.clock += 1;
        self.filled_at[block as usize] = self.clock;
    }

    pub fn taken(&mut self, block: u32) {
        let key = (self.erases(block), block);
        self.full[(block / self.per_die) as usize].remove(&key);
    }

    pub fn erased(&mut self, block: u32) {
        self.erases[block as usize] += 1;
    }

    /// Records that an unworn block replaces one that was worn out.
    pub fn replaced(&mut self, block: u32) {
        let before = (self.erases(block), block);
        self.erases[block as usize] = 0;
        let full = &mut self.full[(block / self.per_die) as usize];
        if full.remove(&before) {
            full.insert((0, block));
        }
    }

    /// Its erasures in all, and its full blocks that are in order by them.
    #[cfg(test)]
    pub fn seen(&self) -> (u64, usize) {
        let erases = self.erases.iter().map(|&erases| u64::from(erases)).sum();
        let full = self.full.iter().flatten();
        let sorted = full.filter(|&&(erases, block)| erases == self.erases(block));
        (erases, sorted.count())
    }

    /// Returns the index, among a die's free blocks, of the one to fill next.
    pub fn next_free(&self, base: u32, free: &VecDeque<u32>) -> usize {
        if !self.how.dynamic {
            return 0;
        }
        let worn = free.iter().map(|block| self.erases(base + block));
        let least = worn.enumerate().min_by_key(|&(at, worn)| (worn, at));
        least.map_or(0, |(at, _)| at)
    }

    /// If a die's wear is too uneven, returns the index of the most worn free block, and the least worn full block that is cold.
    pub fn apart(
        &self,
        base: u32,
        free: &VecDeque<u32>,
        is_whole: impl Fn(u32) -> bool,
    ) -> Option<(usize, u32)> {
        let threshold = self.how.threshold?;
        let worn = free.iter().map(|block| self.erases(base + block));
        let (at, most) = worn.enumerate().max_by_key(|&(at, worn)| (worn, at))?;
        let young = self.full[(base / self.per_die) as usize].iter();
        let mut young = young
            .take(LOOKED_AT)
            .take_while(|&&(least, _)| most > least.saturating_add(threshold));
        let still = self.filled_at.len() as u64;
        let is_still = |block: u32| self.clock - self.filled_at[block as usize] > still;
        let &(_, block) = young.find(|&&(_, block)| is_still(block) && is_whole(block))?;
        Some((at, block))
    }
}
