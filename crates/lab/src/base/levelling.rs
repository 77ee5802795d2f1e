//! Wear levelling: which free block is filled next, which victims are passed over, and when cold data must move.
//!
//! *Dynamic*: the least worn free block is filled next, and among victims that are nearly as good the least worn is collected. So
//! blocks in use wear evenly; those that hold cold data do not take part.
//!
//! *Static*: if a free block has been erased a given number of times more often than the least worn full block, the data of that
//! full block move into the worn one. The less worn block is erased and filled with new data. A block is cold if, since it was
//! filled, as many blocks were filled as the drive has, and nearly all of its data are valid. Such moves are counted separately
//! from the collector's.

use super::leveller::{Leveller, Levelling};
use super::pagemap::{FlashOp, PageMap};
use crate::flash::{Cell, Die, EraseBlock};

/// The largest share of a cold block that may be dead. With more dead data, the collector would soon choose the worn block that
/// takes its place, and wear it further.
const WHOLE: u32 = 8;

impl PageMap {
    /// Adds wear levelling, before anything is written.
    #[must_use]
    pub fn levelled(mut self, how: Levelling) -> Self {
        if how != Levelling::default() {
            let leveller = Leveller::new(how, self.free.len() as u32, self.per_die);
            self.leveller = Some(Box::new(leveller));
        }
        self
    }

    /// True if wear is levelled.
    #[must_use]
    pub fn is_levelled(&self) -> bool {
        self.leveller.is_some()
    }

    /// Ends preconditioning: wear is levelled from here on.
    pub fn begin_life(&mut self) {
        if let Some(leveller) = &mut self.leveller {
            leveller.begin_life();
        }
    }

    /// Records that a new block replaces one that was worn out.
    pub fn replaced(&mut self, die: Die, block: EraseBlock) {
        if let Some(leveller) = &mut self.leveller {
            leveller.replaced(die.0 * self.per_die + block.0 - self.first);
        }
    }

    /// Moves cold data into a worn block, if a die's wear is too uneven. Frees as many blocks as it takes.
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
        if let Some(opened) = &mut self.opened {
            opened.push(base + old);
        }
        leveller.taken(base + young);
        self.victims(die, usize::from(stream)).remove(young);
        let mut moving = std::mem::take(&mut self.moving);
        self.take_alive(base + young, &mut moving);
        let units = moving.chunk_by(|(a, _), (b, _)| a / self.unit_blocks == b / self.unit_blocks);
        let (from, on) = (EraseBlock(self.first + young), Die(die as u32));
        match self.how.copy_back {
            true => self.ops.extend(units.map(|_| FlashOp::Copy(on))),
            false => {
                let first = (base + young) * self.pages;
                for unit in units {
                    let cell = self.cell(unit[0].0 - first);
                    self.ops
                        .push(FlashOp::Read(on, from, cell, unit.len() as u32));
                }
                let programs = (moving.len() as u32).div_ceil(self.unit_blocks);
                for unit in 0..programs {
                    let cell = Cell::of_unit(unit, self.types);
                    self.ops.push(FlashOp::Program(on, cell));
                }
            }
        }
        self.summarize(die, self.pages);
        for (offset, &(_, lba)) in moving.iter().enumerate() {
            self.put(lba, (base + old) * self.pages + offset as u32);
        }
        self.valid[(base + young) as usize] = 0;
        self.valid[(base + old) as usize] = moving.len() as u32;
        let victims = self.victims(die, usize::from(stream));
        victims.close(old, moving.len() as u32);
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
    use crate::base::SHAPE;
    use crate::drives;
    use crate::rng::Rng;
    use crate::scenario::{Device, Load, Precondition, Scenario, Synthetic};
    use crate::workload;

    const LOGICAL: u64 = 3200;

    struct Ran {
        deviation: f64,
        spread: u32,
        amplification: f64,
        levelled: u64,
    }

    /// A tenth of the volume receives all writes except `others` in a thousand.
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
    fn cold_data_are_moved_and_blocks_wear_alike() {
        let [none, dynamic, fixed, both] = four(Victim::Greedy, 0);
        assert_eq!(none.levelled + dynamic.levelled, 0);
        for levelled in [&fixed, &both] {
            assert!(levelled.deviation < none.deviation / 10.0);
            assert!(levelled.spread < none.spread / 10);
            // Levelling has a cost.
            assert!(levelled.levelled > 0);
            assert!(levelled.amplification > none.amplification);
            assert!(levelled.amplification < none.amplification * 1.1);
        }
    }

    #[test]
    fn wear_from_before_the_run_is_not_levelled() {
        let device = Device {
            capacity: Some(256 << 20),
            over_provisioning: Some(250),
            ..Device::new(drives::own("oftl"))
        };
        let load = Synthetic::new(*workload::find("uniform").unwrap());
        let scenario = Scenario {
            precondition: Precondition::Steady,
            verify: false,
            ..Scenario::new(device, Load::Synthetic(load))
        };
        for policy in ["base:level-static", "vellum:on-drive,level-static"] {
            let (mut sim, _) = scenario.prepared(&policy.parse().unwrap()).unwrap();
            let seen = |sim: &crate::sim::Sim| {
                let leveller = sim.ftl.drive().unwrap().map().leveller.as_ref().unwrap();
                leveller.seen()
            };
            let (before, full) = seen(&sim);
            assert!(before > 0 && full > 0, "{policy}");
            sim.begin_life();
            assert_eq!(seen(&sim), (0, full), "{policy}");
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
