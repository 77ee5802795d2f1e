use super::super::Victim;
use super::*;
use crate::base::{FlashOp, SHAPE};
use crate::flash::PLAIN;
use crate::rng::Rng;

const VICTIMS: [Victim; 4] = [
    Victim::Greedy,
    Victim::Fifo,
    Victim::Choices(5),
    Victim::CostBenefit,
];

fn placement(handles: u32, initially: bool) -> Placement {
    Placement { handles, initially }
}

fn plain(logical: u64, victim: Victim) -> PageMap {
    PageMap::new(&SHAPE, 2, (0, 64), logical, victim).unwrap()
}

fn map(logical: u64, victim: Victim, placement: Placement) -> PageMap {
    let map = plain(logical, victim).placed(victim, placement).unwrap();
    map.mapped(PLAIN).unwrap().drawing(7)
}

/// Each handle's part of the volume, of `of` parts, is overwritten in order; the first part the fastest.
fn in_order(map: &mut PageMap, logical: u64, of: u64) {
    let each = logical / of;
    let mut next = vec![0; of as usize];
    for step in 0..40 * logical {
        // Speeds of 1, 1/2, 1/3 and so on.
        for (part, next) in next.iter_mut().enumerate() {
            if step % (part as u64 + 1) == 0 {
                map.place(Stream::of(part as u8));
                map.write(part as u64 * each + *next % each);
                *next += 1;
            }
        }
    }
    map.assert_sound();
}

#[test]
fn every_block_stays_where_the_map_says_whatever_the_handles() {
    for placement in [placement(2, false), placement(5, false), placement(4, true)] {
        let most = plain(1, Victim::Greedy)
            .placed(Victim::Greedy, placement)
            .unwrap()
            .most();
        for (victim, logical) in VICTIMS.into_iter().flat_map(|v| [(v, most), (v, most / 2)]) {
            let (mut map, mut rng) = (map(logical, victim, placement), Rng::new(5));
            for step in 0..60_000 {
                // Half of the writes go to a tenth. Also handles that the drive does not have.
                let among = if rng.below(2) == 0 {
                    logical
                } else {
                    logical / 10
                };
                map.place(Stream {
                    handle: rng.below(7) as u8,
                    anew: rng.below(1000) == 0,
                });
                match rng.below(20) {
                    0 => map.forget(rng.below(among)),
                    _ => map.write(rng.below(among)),
                }
                if step % 5000 == 0 {
                    map.assert_sound();
                }
            }
            map.assert_sound();
        }
    }
}

#[test]
fn one_handle_gives_exactly_what_the_drive_gives_without() {
    let run = |mut map: PageMap, handles: u64| {
        let (mut rng, mut ops) = (Rng::new(3), Vec::<FlashOp>::new());
        for _ in 0..50_000 {
            map.place(Stream::of(rng.below(handles) as u8));
            map.write(rng.below(3000));
        }
        map.take_ops(&mut ops);
        (ops, map.counts())
    };
    for initially in [false, true] {
        for victim in VICTIMS {
            let of = || plain(3000, victim).mapped(PLAIN).unwrap().drawing(7);
            let one = map(3000, victim, placement(1, initially));
            assert_eq!(run(one, 4), run(of(), 4), "{victim:?}");
        }
    }
}

#[test]
fn loads_that_are_apart_move_nothing_and_together_they_do() {
    for initially in [false, true] {
        let logical = 3200;
        let mut apart = map(logical, Victim::Greedy, placement(4, initially));
        in_order(&mut apart, logical, 4);
        let mut together = map(logical, Victim::Greedy, placement(1, initially));
        in_order(&mut together, logical, 4);
        let share = |map: &PageMap| map.counts().moved as f64 / map.counts().host as f64;
        assert!(share(&apart) < 0.01, "{}", share(&apart));
        assert!(share(&together) > 0.1, "{}", share(&together));
    }
}

#[test]
fn what_is_moved_stays_with_its_handle_or_is_with_all_others() {
    let logical = 3200;
    let mixed = |initially| {
        let (mut map, mut rng) = (
            map(logical, Victim::Greedy, placement(2, initially)),
            Rng::new(5),
        );
        for _ in 0..60_000 {
            let lba = rng.below(logical);
            map.place(Stream::of(u8::from(lba >= logical / 2)));
            map.write(lba);
        }
        map.assert_sound();
        assert!(map.counts().moved > 10_000);
        let of_block = |block: usize| {
            let pages = block * map.pages as usize..(block + 1) * map.pages as usize;
            let alive = pages.filter(|&at| map.alive[at / 64] >> (at % 64) & 1 == 1);
            let first = alive.filter(|&at| u64::from(map.owner[at]) < logical / 2);
            let valid = map.valid[block];
            let first = first.count() as u32;
            first > 0 && first < valid
        };
        let mixed: Vec<usize> = (0..map.valid.len()).filter(|&b| of_block(b)).collect();
        let by_collector = mixed.iter().all(|&block| map.filled_by[block] == 2);
        (mixed.len(), by_collector)
    };
    assert_eq!(mixed(false), (0, true));
    let (blocks, by_collector) = mixed(true);
    assert!(blocks > 10 && by_collector, "{blocks} {by_collector}");
}

#[test]
fn handles_need_room_for_the_blocks_that_they_fill() {
    let most = plain(1, Victim::Greedy).most();
    let error = plain(most, Victim::Greedy).placed(Victim::Greedy, placement(4, false));
    let fewer = most - 2 * u64::from(SHAPE.block_blocks()) * 4;
    assert_eq!(
        error.err(),
        Some(TooSmall {
            logical: most,
            most: fewer
        })
    );
}

#[test]
fn a_unit_that_is_ended_takes_nothing_more() {
    let mut map = map(1000, Victim::Greedy, placement(2, false));
    let pages = u64::from(SHAPE.block_blocks());
    // Three quarters of the block on each die, and half a unit.
    (0..2 * pages * 3 / 4 + 1).for_each(|lba| map.write(lba));
    let anew = Stream {
        handle: 0,
        anew: true,
    };
    let mut ops = Vec::new();
    map.take_ops(&mut ops);
    ops.clear();
    map.place(anew);
    map.take_ops(&mut ops);
    let programs = |ops: &[FlashOp]| {
        let programs = ops.iter().filter(|op| matches!(op, FlashOp::Program(..)));
        programs.count()
    };
    assert_eq!(programs(&ops), 1);
    // Each die goes on in another block, and less than half of one is not ended.
    let block = |map: &PageMap, lba| map.find(lba).unwrap().at;
    map.write(900);
    map.write(901);
    let (old, new) = (block(&map, 0), block(&map, 900));
    assert_ne!(old.1, new.1);
    map.place(anew);
    map.write(902);
    map.write(903);
    map.write(904);
    assert!(
        [902, 903, 904]
            .map(|lba| block(&map, lba).1)
            .contains(&new.1)
    );
    map.assert_sound();
}
