use super::super::leveller::Levelling;
use super::*;

const SHAPE: Shape = Shape {
    channels: 1,
    dies: 3,
    erase_blocks: 16,
    units: 8,
    unit_blocks: 4,
};

fn check(map: &PageMap, written: &[bool]) {
    let mut live = 0;
    for (lba, &wanted) in written.iter().enumerate() {
        let at = map.map[lba];
        assert_eq!(at != NONE, wanted, "block {lba}");
        if wanted {
            assert_eq!(map.owner[at as usize], lba as u32);
            assert_eq!(map.alive[at as usize / 64] >> (at % 64) & 1, 1);
            live += 1;
        }
    }
    assert_eq!(map.valid.iter().sum::<u32>(), live);
    assert_eq!(map.live(), u64::from(live));
    for (at, frontier) in map.frontiers.iter().enumerate() {
        let (die, stream) = (at / map.streams, at % map.streams);
        let blocks = map.filled_by.iter().enumerate().filter(|&(block, &by)| {
            let (of, block) = (block as u32 / map.per_die, block as u32 % map.per_die);
            of == die as u32 && usize::from(by) == stream && !map.free[die].contains(&block)
        });
        let valid = blocks.clone().map(|(block, _)| u64::from(map.valid[block]));
        assert_eq!(frontier.blocks as usize, blocks.clone().count());
        assert_eq!(frontier.live, valid.sum::<u64>());
    }
    let alive: u32 = map.alive.iter().map(|bits| bits.count_ones()).sum();
    assert_eq!(alive, live);
}

impl PageMap {
    /// Panics unless the map, the owners and the counts agree.
    pub(in crate::base) fn assert_sound(&self) {
        let written: Vec<bool> = self.map.iter().map(|&at| at != NONE).collect();
        check(self, &written);
    }
}

#[test]
fn every_block_stays_where_the_map_says() {
    for victim in [
        Victim::Greedy,
        Victim::Fifo,
        Victim::Choices(1),
        Victim::Choices(5),
    ] {
        let mut map = PageMap::new(&SHAPE, 3, (0, 16), 1200, victim).unwrap();
        let mut written = vec![false; 1200];
        let mut rng = Rng::new(3);
        for step in 0..30_000 {
            // The second half is skewed: no die may fill up under it.
            let lba = rng.below(if step < 15_000 { 1200 } else { 60 });
            if rng.below(10) == 0 {
                map.forget(lba);
                written[lba as usize] = false;
            } else {
                map.write(lba);
                written[lba as usize] = true;
            }
            if step % 1000 == 0 {
                check(&map, &written);
            }
        }
        check(&map, &written);
        let mut ops = Vec::new();
        map.take_ops(&mut ops);
        let programs = ops.iter().filter(|op| matches!(op, FlashOp::Program(..)));
        let counts = map.counts();
        let blocks = programs.count() as u64 * 4;
        // The missing blocks are in units that are not full.
        assert!(counts.host + counts.moved - blocks < 3 * 4);
    }
}

/// A block of 32768 pages is full when its count no longer fits 16 bits with a sign.
#[test]
fn a_full_block_of_many_pages_is_not_the_best_victim() {
    let shape = Shape {
        dies: 1,
        erase_blocks: 8,
        units: 2048,
        unit_blocks: 16,
        ..SHAPE
    };
    let logical = 150_000;
    for dynamic in [false, true] {
        let map = PageMap::new(&shape, 1, (0, 8), logical, Victim::Greedy).unwrap();
        let mut map = match dynamic {
            true => map.levelled(Levelling {
                dynamic,
                threshold: None,
            }),
            false => map,
        };
        (0..logical).for_each(|lba| map.write(lba));
        let mut rng = Rng::new(9);
        (0..2 * logical).for_each(|_| map.write(rng.below(logical)));
        map.assert_sound();
    }
}

#[test]
fn a_volume_that_does_not_fit_is_refused() {
    let error = PageMap::new(&SHAPE, 3, (0, 16), 1400, Victim::Greedy).err();
    let (logical, most) = (1400, 1344);
    assert_eq!(error, Some(TooSmall { logical, most }));
    let map = PageMap::new(&SHAPE, 3, (0, 16), 1200, Victim::Greedy).unwrap();
    let kept_free = 250;
    let how = PageMapping { kept_free, ..PLAIN };
    let (logical, most) = (1200, 1056);
    assert_eq!(map.mapped(how).err(), Some(TooSmall { logical, most }));
}

#[test]
fn a_striped_map_keeps_blocks_on_their_dies_and_room_on_each() {
    let how = PageMapping {
        striped: true,
        kept_free: 250,
        copy_back: false,
        summary: false,
    };
    let map = PageMap::new(&SHAPE, 3, (0, 16), 1050, Victim::Greedy).unwrap();
    let mut map = map.mapped(how).unwrap();
    let mut rng = Rng::new(4);
    for _ in 0..30_000 {
        let lba = rng.below(1050);
        map.write(lba);
        assert_eq!(map.find(lba).unwrap().at.0, Die((lba / 4 % 3) as u32));
        assert!(map.free.iter().all(|free| free.len() >= 4));
    }
    for lba in (0..1050).filter(|&lba| map.map[lba as usize] != NONE) {
        assert_eq!(map.find(lba).unwrap().at.0, Die((lba / 4 % 3) as u32));
    }
    assert!(map.counts().moved > 0);
    map.assert_sound();
}

#[test]
fn copy_back_changes_no_moves() {
    let shape = Shape {
        unit_blocks: 1,
        ..SHAPE
    };
    let run = |copy_back| {
        let map = PageMap::new(&shape, 3, (0, 16), 300, Victim::Greedy).unwrap();
        let mut map = map.mapped(PageMapping { copy_back, ..PLAIN }).unwrap();
        let mut rng = Rng::new(5);
        (0..20_000).for_each(|_| map.write(rng.below(300)));
        let mut ops = Vec::new();
        map.take_ops(&mut ops);
        let of = |wanted: fn(&FlashOp) -> bool| ops.iter().filter(|op| wanted(op)).count();
        let reads = of(|op| matches!(op, FlashOp::Read(..)));
        let copies = of(|op| matches!(op, FlashOp::Copy(_)));
        let programs = of(|op| matches!(op, FlashOp::Program(..)));
        (map.counts(), [reads, copies, programs].map(|n| n as u64))
    };
    let ((across, [reads, none, programs]), (within, [crossing, copies, host])) =
        (run(false), run(true));
    assert_eq!(across, within);
    assert!(across.moved > 1000);
    assert_eq!((reads, none, programs), (across.moved, 0, 20_000 + reads));
    assert_eq!((crossing, copies, host), (0, across.moved, 20_000));
}

#[test]
fn page_types_follow_each_other_within_a_block() {
    for separated in [false, true] {
        let map = PageMap::new(&SHAPE, 3, (0, 16), 900, Victim::Greedy).unwrap();
        let mut map = match separated {
            true => map.separated(Victim::Greedy).unwrap(),
            false => map,
        }
        .typed(3);
        let mut rng = Rng::new(5);
        (0..20_000).for_each(|_| map.write(rng.below(900)));
        assert!(map.counts().moved > 1000);
        let mut ops = Vec::new();
        map.take_ops(&mut ops);
        let mut all = [0; 3];
        for die in (0..3).map(Die) {
            let cells = ops.iter().filter_map(|op| match *op {
                FlashOp::Program(of, cell) if of == die => Some(cell),
                _ => None,
            });
            for (unit, cell) in (0..).zip(cells) {
                let types = [0, 1, 2].map(|unit| Cell::of_unit(unit, 3));
                all[types.iter().position(|&of| of == cell).unwrap()] += 1;
                // Two streams fill their blocks in turn.
                assert!(separated || cell == Cell::of_unit(unit % SHAPE.units, 3));
            }
        }
        // Of eight units, each of the first two types has three.
        let [a, b, c] = all;
        assert!(
            a + b + c > 8000 / 2 && 2 * a < 3 * c + 50 && 3 * c < 2 * a + 50 && b <= a,
            "{all:?}"
        );
    }
}

#[test]
fn a_summary_follows_the_last_page_of_each_block() {
    for separated in [false, true] {
        let map = PageMap::new(&SHAPE, 3, (0, 16), 900, Victim::Greedy).unwrap();
        let map = match separated {
            true => map.separated(Victim::Greedy).unwrap(),
            false => map,
        };
        let how = PageMapping {
            summary: true,
            ..PLAIN
        };
        let mut map = map.mapped(how).unwrap();
        let mut rng = Rng::new(5);
        (0..20_000).for_each(|_| map.write(rng.below(900)));
        let mut ops = Vec::new();
        map.take_ops(&mut ops);
        for die in (0..3).map(Die) {
            let count = |wanted| ops.iter().filter(|&&op| op == wanted).count();
            let (programs, summaries) = (
                count(FlashOp::Program(die, Cell::FIRST)),
                count(FlashOp::Summary(die)),
            );
            // One block of each stream is not full.
            let open = programs - summaries * 8;
            assert!(summaries > 100 && open < 8 * map.streams, "{open}");
        }
        map.assert_sound();
    }
}
