use super::super::fake::{Fake, superblock};
use super::super::pace::PATIENCE;
use super::*;
use crate::addr::Segment;
use crate::format::pack::PartTag;
use crate::format::summary::{Owner, Tag};
use alloc::vec;

/// The result of a pair.
enum Met {
    Merged,
    Unequal,
    Gone,
    PutOff,
}

/// Runs a sweep: returns the pairs that were given, the progress it reported, and when it ended.
fn run(
    volume: &Fake,
    from: u32,
    around: Around,
    mut met: impl FnMut(Lba, Holder) -> Met,
) -> (Vec<(u64, Holder)>, Vec<u32>, Nanos) {
    let (mut now, mut told, mut kept) = (Nanos(0), Vec::new(), Vec::new());
    let from = (Haste::Beside, from);
    let crc: Crc = |_| 0;
    let mut sweep = Sweep::new(superblock(), crc, from, 0, now);
    let mut done = 0;
    loop {
        match sweep.next(now, &around) {
            Step::Wait(until) => {
                assert!(until > now);
                now = until;
            }
            Step::Ask => sweep.ask(volume),
            Step::Read { .. } => {
                let part = PartTag {
                    lba: Lba(77),
                    slot: 0,
                    sum: 5,
                };
                let directories = [vec![part]];
                let is_page = !volume.pages.is_empty() && now.0 == 0;
                sweep.read(match is_page {
                    true => Seen::Directories(&directories),
                    false => Seen::Nothing,
                });
            }
            Step::Merge { lba, of } => {
                let before = Stats::default();
                let mut after = before;
                match met(lba, of) {
                    Met::Merged => (after.merge_reads, after.merged_blocks) = (1, 1),
                    Met::Unequal => after.merge_reads = 1,
                    Met::Gone => {}
                    Met::PutOff => after.merges_put_off = 1,
                }
                told.push((lba.0, of));
                sweep.merged(&before, &after);
            }
            Step::Keep { to, .. } => kept.push(to),
            Step::End(well) => {
                assert!(well);
                return (told, kept, now);
            }
            step => panic!("{step:?}"),
        }
        assert!(sweep.permille() >= done && sweep.permille() <= 1000);
        done = sweep.permille();
    }
}

fn volume(tags: &[(Owner, u32)]) -> Fake {
    let tags = tags.iter().map(|&(owner, sum)| Tag { owner, sum });
    Fake {
        tags: Some(tags.collect()),
        ..Fake::default()
    }
}

fn lba(lba: u64) -> Owner {
    Owner::Lba(Lba(lba))
}

fn of(lba: u64) -> Holder {
    Holder::Lba(Lba(lba))
}

#[test]
fn only_blocks_of_one_checksum_are_given_in_pairs() {
    let volume = volume(&[
        (lba(9), 1 << 20),
        (lba(3), 1 << 21),
        (lba(4), 1 << 20),
        (Owner::None, 1 << 21),
        (lba(8), 1 << 20),
    ]);
    let (told, kept, _) = run(&volume, 0, Around::default(), |_, _| Met::Merged);
    assert_eq!(told, [(8, of(4)), (9, of(4))]);
    // The sweep records its progress after a checksum, and at the end.
    assert_eq!(kept.last(), Some(&0));
    assert!(kept[0] > 1 << 20 && kept[0] <= 1 << 21);
    // A sweep that continues after the first checksum gives none of its pairs.
    let (told, ..) = run(&volume, kept[0], Around::default(), |_, _| Met::Merged);
    assert!(told.is_empty());
}

#[test]
fn unequal_blocks_of_one_checksum_are_told_apart() {
    let sum = 1 << 20;
    let volume = volume(&[(lba(1), sum), (lba(2), sum), (lba(3), sum), (lba(4), sum)]);
    let equal = |one: u64, other: Holder| other == of(one % 2) || other == of(one % 2 + 2);
    let met = |lba: Lba, other| match equal(lba.0, other) {
        true => Met::Merged,
        false => Met::Unequal,
    };
    let (told, ..) = run(&volume, 0, Around::default(), met);
    let expected = [(2, of(1)), (3, of(1)), (4, of(1)), (4, of(2))];
    assert_eq!(told, expected);
    // A block that is gone is compared with nothing else.
    let (told, ..) = run(&volume, 0, Around::default(), |_, _| Met::Gone);
    assert_eq!(told, [(2, of(1)), (3, of(1)), (4, of(1))]);
}

#[test]
fn a_pair_that_is_put_off_is_given_again_but_not_for_ever() {
    let volume = volume(&[(lba(1), 7), (lba(2), 7)]);
    let mut left = 3;
    let (told, _, now) = run(&volume, 0, Around::default(), |_, _| {
        left -= 1;
        if left > 0 { Met::PutOff } else { Met::Merged }
    });
    assert_eq!((told.len(), now.0), (3, 2 * PAUSE.0));
    let (told, _, now) = run(&volume, 0, Around::default(), |_, _| Met::PutOff);
    let tries = u64::from(TRIES);
    assert_eq!((told.len() as u64, now.0), (tries, (tries - 1) * PAUSE.0));
}

#[test]
fn all_owners_of_one_page_are_paired_with_the_other_page() {
    let page = |page| Owner::Vba(Vba(page));
    let mut volume = volume(&[(page(5), 7), (page(2), 7), (lba(1), 7)]);
    volume.shared = [(20, Vba(5)), (30, Vba(2)), (9999, Vba(5))].into();
    let (told, ..) = run(&volume, 0, Around::default(), |_, _| Met::Merged);
    let shared = Holder::Page(Vba(2));
    assert_eq!(told, [(1, shared), (20, shared), (9999, shared)]);
}

#[test]
fn parts_of_pages_are_paired_as_blocks_are() {
    let mut volume = volume(&[(Owner::Vba(Vba(8)), 1), (lba(6), 5)]);
    let at = superblock().segment_start(Segment(0));
    volume.pages = [(at, Vba(8))].into();
    let (told, ..) = run(&volume, 0, Around::default(), |_, _| Met::Merged);
    assert_eq!(told, [(77, of(6))]);
}

#[test]
fn a_sweep_makes_way_for_clients_before_each_pair() {
    let volume = volume(&[(lba(1), 7), (lba(2), 7), (lba(3), 7)]);
    let around = Around {
        busy: true,
        ..Around::default()
    };
    let (told, _, now) = run(&volume, 0, around, |_, _| Met::Merged);
    let segments = u64::from(superblock().segment_count());
    assert_eq!(told.len(), 2);
    assert_eq!(now.0, (segments + 2) * PATIENCE.0);
}
