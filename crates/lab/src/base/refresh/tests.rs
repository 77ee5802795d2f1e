use super::super::leveller::Levelling;
use super::super::pagemap::FlashOp;
use super::super::victims::Victim;
use super::*;
use crate::flash::{Cell, PLAIN, PageMapping, Shape};
use crate::rng::Rng;

const SHAPE: Shape = Shape {
    channels: 1,
    dies: 2,
    erase_blocks: 16,
    units: 8,
    unit_blocks: 2,
};
const PAGES: u64 = 16;

fn map(logical: u64, victim: Victim) -> PageMap {
    PageMap::new(&SHAPE, 2, (0, 16), logical, victim).unwrap()
}

fn ops(map: &mut PageMap) -> Vec<FlashOp> {
    let mut ops = Vec::new();
    map.take_ops(&mut ops);
    ops
}

/// Fills both dies' first blocks: units go round the dies, so every other pair of blocks is on the second die.
fn two_full() -> PageMap {
    let mut map = map(300, Victim::Greedy);
    (0..2 * PAGES).for_each(|lba| map.write(lba));
    ops(&mut map);
    map
}

#[test]
fn a_closed_blocks_live_pages_are_moved_and_it_is_erased() {
    let mut map = two_full();
    // Two more units each close the first blocks; then five of the second die's pages die: one unit and one page more.
    (100..108).for_each(|lba| map.write(lba));
    let of_first = |map: &PageMap| {
        let on = (0..2 * PAGES).filter(|&lba| {
            let (die, block, _) = map.find(lba).unwrap().at;
            (die, block) == (Die(0), EraseBlock(0))
        });
        on.collect::<Vec<u64>>()
    };
    let first = of_first(&map);
    assert_eq!(first.len(), 16);
    first[..5].iter().for_each(|&lba| map.forget(lba));
    ops(&mut map);
    let before = map.counts();
    assert!(map.refresh(Die(0), EraseBlock(0)));
    let counts = map.counts();
    assert_eq!((counts.refreshed, counts.moved), (11, 0));
    assert_eq!(counts.erases, before.erases + 1);
    // Of eight units, two have nothing left and one has one page. The block that is being filled has no odd page, so eleven pages
    // fill five units.
    let ops = ops(&mut map);
    let read = |count| FlashOp::Read(Die(0), EraseBlock(0), Cell::FIRST, count);
    let count = |wanted: FlashOp| ops.iter().filter(|&&op| op == wanted).count();
    assert_eq!((count(read(1)), count(read(2))), (1, 5));
    assert_eq!(count(FlashOp::Program(Die(0), Cell::FIRST)), 5);
    assert_eq!(ops.last(), Some(&FlashOp::Erase(Die(0), EraseBlock(0))));
    assert_eq!(ops.len(), 6 + 5 + 1);
    for &lba in &first[5..] {
        let (die, block, _) = map.find(lba).unwrap().at;
        assert_eq!((die, block), (Die(0), EraseBlock(1)));
    }
    map.assert_sound();
}

#[test]
fn an_open_block_that_is_due_is_abandoned_for_the_next() {
    let mut map = map(300, Victim::Greedy);
    // Two units on each die, and one page of a third on the first.
    (0..9).for_each(|lba| map.write(lba));
    ops(&mut map);
    let (die, block, _) = map.find(8).unwrap().at;
    assert!(map.refresh(die, block));
    assert_eq!((map.counts().refreshed, map.counts().erases), (5, 1));
    let ops = ops(&mut map);
    // The fifth page begins a new unit, which is not full.
    let programs = ops.iter().filter(|op| matches!(op, FlashOp::Program(..)));
    assert_eq!(programs.count(), 2);
    assert_eq!(ops.last(), Some(&FlashOp::Erase(die, block)));
    assert_ne!(map.find(8).unwrap().at.1, block);
    map.write(9);
    assert_eq!(map.find(9).unwrap().unit, map.find(8).unwrap().unit);
    map.assert_sound();
}

#[test]
fn a_block_without_live_pages_is_left_to_the_collector_unless_it_is_being_filled() {
    let mut map = two_full();
    (100..104).for_each(|lba| map.write(lba));
    (0..2 * PAGES).for_each(|lba| map.forget(lba));
    ops(&mut map);
    assert!(!map.refresh(Die(1), EraseBlock(0)));
    assert_eq!((ops(&mut map), map.counts().erases), (vec![], 0));
    map.assert_sound();
    (100..104).for_each(|lba| map.forget(lba));
    assert!(map.refresh(Die(1), EraseBlock(1)));
    assert_eq!(map.counts().refreshed, 0);
    assert_eq!(ops(&mut map), [FlashOp::Erase(Die(1), EraseBlock(1))]);
    map.assert_sound();
}

/// What the flash was told to do.
#[derive(Default)]
struct Told {
    /// Blocks that received data since they were erased.
    filled: Vec<(Die, EraseBlock)>,
    erases: u64,
    programs: u64,
}

impl Told {
    fn take(&mut self, map: &mut PageMap) {
        for op in ops(map) {
            match op {
                FlashOp::Program(..) => self.programs += 1,
                FlashOp::Erase(die, block) => {
                    self.filled.retain(|&other| other != (die, block));
                    self.erases += 1;
                }
                _ => {}
            }
        }
        map.tell_filled(|die, block| self.filled.push((die, block)));
    }

    /// Checks that each block with data was reported once, and no other.
    fn check(&self, map: &PageMap) {
        let mut filled = self.filled.clone();
        filled.sort_unstable();
        let blocks = (0..2).flat_map(|die| (0..16).map(move |block| (die, block)));
        let has_data = |&(die, block): &(u32, u32)| {
            let mut fronts = map.frontiers(die as usize).iter();
            let is_new = fronts.any(|of| of.active == block && of.offset == 0);
            !is_new && !map.free[die as usize].contains(&block)
        };
        let wanted = blocks.filter(has_data);
        let wanted: Vec<_> = wanted.map(|(d, b)| (Die(d), EraseBlock(b))).collect();
        assert_eq!(filled, wanted);
    }
}

fn maps(logical: u64, victim: Victim) -> Vec<PageMap> {
    let plain = || map(logical, victim).drawing(3);
    let level = Levelling {
        dynamic: true,
        threshold: Some(2),
    };
    let striped = PageMapping {
        striped: true,
        ..PLAIN
    };
    let mut all = vec![plain(), plain().levelled(level), plain().typed(3)];
    all.extend(plain().separated(victim).ok());
    all.extend(
        plain()
            .separated(victim)
            .ok()
            .map(|map| map.levelled(level)),
    );
    all.extend(plain().mapped(striped).ok());
    all
}

#[test]
fn nothing_is_lost_whatever_is_refreshed_when() {
    let most = map(1, Victim::Greedy).most();
    let victims = [
        Victim::Greedy,
        Victim::Fifo,
        Victim::CostBenefit,
        Victim::Choices(3),
    ];
    for (victim, logical) in victims.into_iter().flat_map(|v| [(v, most), (v, most / 2)]) {
        // Two streams need room for two more blocks.
        let maps = [maps(logical, victim), maps(logical - 4 * PAGES, victim)];
        for (at, map) in maps.into_iter().flatten().enumerate() {
            let mut map = map.telling_filled();
            let logical = map.logical();
            let (mut rng, mut told) = (Rng::new(at as u64), Told::default());
            let mut model = vec![false; logical as usize];
            let mut refreshed = 0;
            for step in 0..12_000 {
                let lba = rng.below(if step % 4000 < 2000 { logical } else { 40 });
                match rng.below(12) {
                    0 => map.forget(lba),
                    _ => map.write(lba),
                }
                model[lba as usize] = map.find(lba).is_some();
                if rng.below(20) == 0 {
                    let (die, block) = (rng.below(2) as u32, rng.below(16) as u32);
                    if !map.free[die as usize].contains(&block) {
                        let live = u64::from(map.valid[(die * 16 + block) as usize]);
                        let done = map.refresh(Die(die), EraseBlock(block));
                        refreshed += live;
                        assert_eq!(map.counts().refreshed, refreshed);
                        assert_eq!(map.free[die as usize].contains(&block), done);
                        assert!(done || live == 0);
                    }
                }
                told.take(&mut map);
                if step % 100 == 0 {
                    map.assert_sound();
                    told.check(&map);
                    for (lba, &written) in model.iter().enumerate() {
                        assert_eq!(map.find(lba as u64).is_some(), written, "{lba}");
                    }
                }
            }
            map.assert_sound();
            assert!(refreshed > 1000);
            let counts = map.counts();
            assert_eq!(told.erases, counts.erases);
            let written = counts.host + counts.moved + counts.levelled + counts.refreshed;
            // A unit that was abandoned with one page, and the open units.
            assert!(
                told.programs * 2 <= written + 2 * counts.levelled,
                "{counts:?}"
            );
        }
    }
}
