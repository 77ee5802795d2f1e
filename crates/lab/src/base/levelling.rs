//! Wear levelling: which free block is filled next, which victims are passed over, and when what is cold has to move.
//!
//! *Dynamic*: of the free blocks the least worn is filled next, and of victims that are nearly as good the least worn is taken. So
//! blocks that take part wear alike; those that hold cold data do not take part.
//!
//! *Static*: when a free block has been erased a number of times more often than the least worn of the full ones, that one's
//! data move into it, and the young block is erased and filled with what comes next. Cold is what has lain still while as
//! many blocks were filled as there are, and is nearly all alive. Such moves are counted apart from the collector's.

use super::pagemap::{FlashOp, PageMap};
use crate::flash::{Die, EraseBlock};
use std::collections::{BTreeSet, VecDeque};

/// What is done about uneven wear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levelling {
    /// Worn blocks are passed over where others are free or as good.
    pub dynamic: bool,
    /// How many erasures apart blocks may be before what is cold is moved; none: it stays.
    pub threshold: Option<u32>,
}

/// Erasures that blocks may be apart when nobody says how many.
pub const THRESHOLD: u32 = 8;

/// As much of a cold block may be dead, as a share. Where more is, the worn block that takes its place is soon the collector's choice, and worn
/// more.
const WHOLE: u32 = 8;
/// Full blocks that are looked at for it, from the least worn on.
const LOOKED_AT: usize = 16;

/// Who keeps count. Blocks are by their number over all dies.
pub(super) struct Leveller {
    pub how: Levelling,
    per_die: u32,
    erases: Vec<u32>,
    /// Of each die, its full blocks by erasures.
    full: Vec<BTreeSet<(u32, u32)>>,
    /// Blocks filled since the start, and when each was.
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

    /// Another block stands for it: an unworn one.
    pub fn replaced(&mut self, block: u32) {
        let before = (self.erases(block), block);
        self.erases[block as usize] = 0;
        let full = &mut self.full[(block / self.per_die) as usize];
        if full.remove(&before) {
            full.insert((0, block));
        }
    }

    /// The place among a die's free blocks of the one to be filled next.
    pub fn next_free(&self, base: u32, free: &VecDeque<u32>) -> usize {
        if !self.how.dynamic {
            return 0;
        }
        let worn = free.iter().map(|block| self.erases(base + block));
        let least = worn.enumerate().min_by_key(|&(at, worn)| (worn, at));
        least.map_or(0, |(at, _)| at)
    }

    /// If a die's blocks are too far apart: the place of the most worn free block, and the least worn full one that is cold.
    fn apart(
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

impl PageMap {
    /// The same with wear levelling, before anything is written.
    #[must_use]
    pub fn levelled(mut self, how: Levelling) -> Self {
        if how != Levelling::default() {
            let leveller = Leveller::new(how, self.free.len() as u32, self.per_die);
            self.leveller = Some(Box::new(leveller));
        }
        self
    }

    /// Whether wear is levelled.
    #[must_use]
    pub fn is_levelled(&self) -> bool {
        self.leveller.is_some()
    }

    /// Another block stands for one that was worn out.
    pub fn replaced(&mut self, die: Die, block: EraseBlock) {
        if let Some(leveller) = &mut self.leveller {
            leveller.replaced(die.0 * self.per_die + block.0 - self.first);
        }
    }

    /// Moves cold data into a worn block, if a die's blocks are too far apart. As many are free after it as before.
    pub(super) fn level(&mut self, die: usize) {
        let base = die as u32 * self.per_die;
        let free = &mut self.free[die];
        let apart = self.leveller.as_ref().and_then(|leveller| {
            let whole = self.pages - self.pages / WHOLE;
            let is_whole = |block: u32| self.valid[block as usize] >= whole;
            let (at, young) = leveller.apart(base, free, is_whole)?;
            Some((free.remove(at)?, young - base))
        });
        let (Some((old, young)), Some(leveller)) = (apart, &mut self.leveller) else {
            return;
        };
        let stream = self.filled_by[(base + young) as usize];
        self.filled_by[(base + old) as usize] = stream;
        let frontier = &mut self.frontiers[die * self.streams + usize::from(stream)];
        frontier.victims.remove(young);
        leveller.taken(base + young);
        let mut moving = std::mem::take(&mut self.moving);
        self.take_alive(base + young, &mut moving);
        let units = moving.chunk_by(|(a, _), (b, _)| a / self.unit_blocks == b / self.unit_blocks);
        let (from, on) = (EraseBlock(self.first + young), Die(die as u32));
        match self.how.copy_back {
            true => self.ops.extend(units.map(|_| FlashOp::Copy(on))),
            false => {
                let reads = units.map(|unit| FlashOp::Read(on, from, unit.len() as u32));
                self.ops.extend(reads);
                let programs = (moving.len() as u32).div_ceil(self.unit_blocks);
                self.ops.extend((0..programs).map(|_| FlashOp::Program(on)));
            }
        }
        self.summarize(die, self.pages);
        for (offset, &(_, lba)) in moving.iter().enumerate() {
            self.put(lba, (base + old) * self.pages + offset as u32);
        }
        self.valid[(base + young) as usize] = 0;
        self.valid[(base + old) as usize] = moving.len() as u32;
        let frontier = self.frontier(die, usize::from(stream));
        frontier.victims.close(old, moving.len() as u32);
        self.counts.levelled += moving.len() as u64;
        self.note_moved(&moving);
        self.moving = moving;
        if let Some(leveller) = &mut self.leveller {
            leveller.filled(base + old);
        }
        self.erased(die, young);
    }
}

#[cfg(test)]
mod tests {
    use super::super::victims::Victim;
    use super::*;
    use crate::flash::Shape;
    use crate::rng::Rng;

    const SHAPE: Shape = Shape {
        channels: 1,
        dies: 2,
        erase_blocks: 64,
        units: 16,
        unit_blocks: 2,
    };
    const LOGICAL: u64 = 3200;

    struct Ran {
        deviation: f64,
        spread: u32,
        amplification: f64,
        levelled: u64,
    }

    /// A tenth of the volume takes all writes but `others` in a thousand.
    fn ran(how: Levelling, victim: Victim, others: u64) -> Ran {
        let map = PageMap::new(&SHAPE, 2, (0, 64), LOGICAL, victim).unwrap();
        let mut map = map.levelled(how);
        (0..LOGICAL).for_each(|lba| map.write(lba));
        let mut rng = Rng::new(9);
        let mut erases = vec![0u32; 128];
        let mut ops = Vec::new();
        map.take_ops(&mut ops);
        ops.clear();
        for _ in 0..400_000 {
            let hot = rng.below(1000) >= others;
            let lba = rng.below(if hot { LOGICAL / 10 } else { LOGICAL });
            map.write(lba);
            map.take_ops(&mut ops);
            for op in ops.drain(..) {
                if let FlashOp::Erase(die, block) = op {
                    erases[(die.0 * 64 + block.0) as usize] += 1;
                }
            }
        }
        map.assert_sound();
        let mean = erases.iter().sum::<u32>() as f64 / 128.0;
        let squares = erases.iter().map(|&e| (f64::from(e) - mean).powi(2));
        let counts = map.counts();
        let all = counts.host + counts.moved + counts.levelled;
        Ran {
            deviation: (squares.sum::<f64>() / 128.0).sqrt() / mean,
            spread: erases.iter().max().unwrap() - erases.iter().min().unwrap(),
            amplification: all as f64 / counts.host as f64,
            levelled: counts.levelled,
        }
    }

    /// Without levelling, dynamic, static, and both.
    fn four(victim: Victim, others: u64) -> [Ran; 4] {
        let kinds = [
            (false, None),
            (true, None),
            (false, Some(8)),
            (true, Some(8)),
        ];
        kinds.map(|(dynamic, threshold)| ran(Levelling { dynamic, threshold }, victim, others))
    }

    #[test]
    fn what_is_cold_for_ever_is_moved_and_blocks_wear_alike() {
        let [none, dynamic, fixed, both] = four(Victim::Greedy, 0);
        assert_eq!(none.levelled + dynamic.levelled, 0);
        for levelled in [&fixed, &both] {
            assert!(levelled.deviation < none.deviation / 10.0);
            assert!(levelled.spread < none.spread / 10);
            // That is not for nothing.
            assert!(levelled.levelled > 0);
            assert!(levelled.amplification > none.amplification);
            assert!(levelled.amplification < none.amplification * 1.1);
        }
    }

    #[test]
    fn levelling_does_no_harm_where_little_is_cold() {
        for victim in [Victim::Greedy, Victim::CostBenefit, Victim::Choices(5)] {
            for others in [5, 100] {
                let [none, dynamic, fixed, both] = four(victim, others);
                for levelled in [&dynamic, &fixed, &both] {
                    assert!(levelled.deviation < none.deviation * 1.1, "{victim:?}");
                    assert!(
                        levelled.amplification < none.amplification * 1.05,
                        "{victim:?}"
                    );
                }
                assert!(dynamic.deviation < none.deviation, "{victim:?}");
            }
        }
    }
}
