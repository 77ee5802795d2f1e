//! Blocks that wear out and the spare blocks that replace them, below any translation layer.
//!
//! Each block has its own limit, drawn around the rated one. The erasure that reaches the limit is the last: from then on a spare
//! block of the same die takes the block's address. (Its data were moved before.) When a die needs a spare and has none, the
//! drive is worn out.

use super::options::Endurance;
use super::shape::{Die, EraseBlock, Shape};
use super::wear::Wear;
use crate::rng::Rng;
use serde::Serialize;

/// How blocks wore out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Worn {
    /// Blocks bad when the drive was new.
    pub factory_bad: u64,
    /// Blocks that reached their limit.
    pub retired: u64,
    /// Spare blocks at first, over all dies.
    pub spares: u64,
    /// Spare blocks left on all dies.
    pub spares_left: u64,
    /// Spare blocks left on the die that has the fewest.
    pub spares_left_least: u32,
    /// The die that needed a spare block and had none, which ended the drive's life.
    pub ended_by: Option<u32>,
}

/// The error: a die has more bad blocks than spare ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "die {die} has {bad} bad blocks when new and {spares} spare ones: give it more (--spare) or fewer bad \
     ones (--factory-bad)"
)]
pub struct NoSpare {
    die: u32,
    bad: u32,
    spares: u32,
}

/// The blocks and their limits; see the module.
pub(super) struct Blocks {
    how: Endurance,
    rated: u32,
    rng: Rng,
    erase_blocks: u32,
    /// The block at each address.
    places: Vec<u32>,
    /// Erasures that each block endures.
    limits: Vec<u32>,
    spares: Vec<u32>,
    worn: Worn,
    /// False during preconditioning, which does not wear the drive out.
    counts: bool,
}

impl Blocks {
    pub fn new(how: Endurance, rated: u32, shape: &Shape, seed: u64) -> Result<Self, NoSpare> {
        let mut rng = Rng::new(seed ^ 0xbad_b10c);
        let all = shape.dies * shape.erase_blocks;
        let per_die = (u64::from(shape.erase_blocks) * u64::from(how.spare)).div_ceil(1000);
        let spares = per_die.max(1) as u32;
        let mut left = Vec::with_capacity(shape.dies as usize);
        let mut factory_bad = 0;
        for die in 0..shape.dies {
            let blocks = (0..shape.erase_blocks).map(|_| rng.below(1000));
            let bad = blocks.filter(|&n| n < u64::from(how.factory_bad)).count() as u32;
            if bad >= spares {
                return Err(NoSpare { die, bad, spares });
            }
            factory_bad += u64::from(bad);
            left.push(spares - bad);
        }
        let mut blocks = Self {
            how,
            rated,
            rng,
            erase_blocks: shape.erase_blocks,
            places: (0..all).collect(),
            limits: Vec::with_capacity(all as usize),
            worn: Worn {
                factory_bad,
                retired: 0,
                spares: u64::from(spares) * u64::from(shape.dies),
                spares_left: left.iter().map(|&n| u64::from(n)).sum(),
                spares_left_least: left.iter().copied().min().unwrap_or(0),
                ended_by: None,
            },
            spares: left,
            counts: false,
        };
        for _ in 0..all {
            let limit = blocks.limit();
            blocks.limits.push(limit);
        }
        Ok(blocks)
    }

    /// Draws a block's limit from an approximate normal distribution (the sum of twelve uniform ones).
    fn limit(&mut self) -> u32 {
        let normal = (0..12).map(|_| self.rng.unit()).sum::<f64>() - 6.0;
        let share = 1.0 + normal * f64::from(self.how.spread) / 1000.0;
        (f64::from(self.rated) * share).round().max(1.0) as u32
    }

    /// Begins the drive's life.
    pub fn begin(&mut self) {
        self.counts = true;
    }

    pub fn worn(&self) -> Worn {
        self.worn
    }

    pub fn is_over(&self) -> bool {
        self.worn.ended_by.is_some()
    }

    /// Returns the place of a block in the table of wear.
    pub fn place(&self, die: Die, block: EraseBlock) -> usize {
        self.places[(die.0 * self.erase_blocks + block.0) as usize] as usize
    }

    /// Handles the erasure of a block. Returns true if a spare one replaces it.
    pub fn erased(&mut self, wear: &mut Wear, die: Die, block: EraseBlock) -> bool {
        let place = self.place(die, block);
        if !self.counts || wear.count(place) < self.limits[place] || self.is_over() {
            return false;
        }
        self.worn.retired += 1;
        let spares = &mut self.spares[die.0 as usize];
        if *spares == 0 {
            self.worn.ended_by = Some(die.0);
            return false;
        }
        *spares -= 1;
        self.worn.spares_left -= 1;
        self.worn.spares_left_least = self.worn.spares_left_least.min(*spares);
        let limit = self.limit();
        self.limits.push(limit);
        self.places[(die.0 * self.erase_blocks + block.0) as usize] = wear.add();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        channels: 1,
        dies: 2,
        erase_blocks: 100,
        units: 4,
        unit_blocks: 1,
    };

    fn blocks(how: Endurance, seed: u64) -> (Blocks, Wear) {
        let mut blocks = Blocks::new(how, 50, &SHAPE, seed).unwrap();
        blocks.begin();
        (blocks, Wear::new(&SHAPE))
    }

    #[test]
    fn a_block_is_retired_at_its_limit_and_the_drive_ends_with_its_spares() {
        let how = Endurance {
            spread: 0,
            spare: 30,
            factory_bad: 0,
        };
        let (mut blocks, mut wear) = blocks(how, 1);
        let (die, block) = (Die(1), EraseBlock(7));
        for round in 0..4u64 {
            for erasure in 1..=50 {
                wear.erased_at(blocks.place(die, block));
                let replaced = blocks.erased(&mut wear, die, block);
                assert_eq!(replaced, erasure == 50 && round < 3);
            }
            let worn = blocks.worn();
            assert_eq!(worn.retired, round + 1);
            assert_eq!(worn.ended_by, (round == 3).then_some(1));
        }
        let worn = blocks.worn();
        assert_eq!((worn.spares, worn.spares_left), (6, 3));
        assert_eq!(worn.spares_left_least, 0);
        assert_eq!(wear.total(), 200);
        assert_eq!(wear.most(), 50);
    }

    #[test]
    fn limits_spread_by_the_seed_and_bad_blocks_take_spares() {
        let how = Endurance {
            spread: 100,
            spare: 100,
            factory_bad: 20,
        };
        let limits = |seed| blocks(how, seed).0.limits;
        assert_eq!(limits(1), limits(1));
        assert_ne!(limits(1), limits(2));
        let of_one = limits(1);
        let mean = of_one.iter().map(|&l| f64::from(l)).sum::<f64>() / 200.0;
        assert!((mean - 50.0).abs() < 2.0, "{mean}");
        let squares = of_one.iter().map(|&l| (f64::from(l) - mean).powi(2));
        let deviation = (squares.sum::<f64>() / 200.0).sqrt();
        assert!((deviation - 5.0).abs() < 1.0, "{deviation}");
        let worn = blocks(how, 1).0.worn();
        assert!(worn.factory_bad > 0);
        assert_eq!(worn.spares_left, worn.spares - worn.factory_bad);
        let none = Endurance { spare: 1, ..how };
        let error = Blocks::new(none, 50, &SHAPE, 1).err().unwrap().to_string();
        assert!(error.contains("--spare"), "{error}");
    }

    #[test]
    fn preparing_a_drive_does_not_wear_it_out() {
        let how = Endurance {
            spread: 0,
            spare: 10,
            factory_bad: 0,
        };
        let mut blocks = Blocks::new(how, 1, &SHAPE, 1).unwrap();
        let mut wear = Wear::new(&SHAPE);
        for _ in 0..10 {
            wear.erased(Die(0), EraseBlock(0));
            assert!(!blocks.erased(&mut wear, Die(0), EraseBlock(0)));
        }
        assert!(!blocks.is_over());
    }
}
