use super::super::fake::{Fake, superblock};
use super::super::pace::PATIENCE as FOR_CLIENTS;
use super::*;
use crate::addr::Segment;
use crate::format::pack::PartTag;
use crate::format::summary::{Owner, Tag};
use alloc::vec;

/// Pages with two, one and two owners counted.
const PAGES: [(Vba, u32); 3] = [(Vba(3), 2), (Vba(5), 1), (Vba(9), 2)];

fn foldable(found: impl IntoIterator<Item = (u32, u8)>) -> (Vec<u32>, usize) {
    let mut owners = Owners {
        pages: PAGES.to_vec(),
        ..Owners::default()
    };
    owners.begin();
    let most = owners.of.capacity();
    for (lba, (page, slot)) in (0..).zip(found) {
        let page = Vba(page);
        owners.add(PartId { page, slot }, Lba(lba));
    }
    owners.of.sort_unstable();
    let (mut pages, mut from) = (Vec::new(), 0);
    while let Some(page) = owners.foldable(from) {
        pages.push(owners.of[page.start].0.page.0);
        from = page.end;
    }
    assert_eq!(owners.of.capacity(), most);
    (pages, owners.of.len())
}

#[test]
fn a_page_whose_owners_are_all_found_is_foldable() {
    let all = [(9, 0), (3, 1), (5, 0), (9, 4), (3, 0)];
    assert_eq!(foldable(all), (vec![3, 5, 9], 5));
    assert_eq!(foldable(all[1..].iter().copied()), (vec![3, 5], 4));
    let shared = [(9, 0), (9, 0), (5, 0)];
    assert_eq!(foldable(shared), (vec![5], 3));
}

#[test]
fn a_page_that_gains_owners_after_its_count_keeps_no_other_from_being_folded() {
    let joined = [(3, 0), (3, 1), (5, 0), (3, 2), (9, 0), (9, 1)];
    assert_eq!(foldable(joined), (vec![5, 9], 6));
    // However many new owners there are, they count as one.
    let many = (2..30).map(|slot| (3, slot));
    assert_eq!(foldable(joined.into_iter().chain(many)), (vec![5, 9], 6));
}

const MADE_WITH: usize = 8;

/// A volume with pages of parts in its first segment, each made with eight: the owners page by page.
fn volume_of(pages: &[&[u64]]) -> Fake {
    let start = superblock().segment_start(Segment(0));
    let mut volume = Fake {
        has_room: true,
        ..Fake::default()
    };
    let mut tags = Vec::new();
    for (page, lbas) in (0..).zip(pages) {
        let vba = Vba(page);
        tags.push(Tag {
            owner: Owner::Vba(vba),
            sum: 0,
        });
        volume.pages.insert(start.plus(page.into()), vba);
        let parts = lbas.iter().zip(0..);
        let parts = parts.map(|(lba, slot)| (*lba, PartId { page: vba, slot }));
        volume.parts.extend(parts);
    }
    volume.tags = Some(tags);
    volume
}

/// Runs a fold in these surroundings: returns what was folded, whether it finished, and when.
fn run(
    volume: &mut Fake,
    around: Around,
    fold: impl Fn(Lba) -> Folded,
) -> (Vec<(u64, u32)>, bool, Nanos) {
    let crc: Crc = |_| 0;
    let (mut now, mut rows) = (Nanos(0), Vec::new());
    let mut machine = Fold::new(superblock(), crc, Haste::Beside, now);
    loop {
        match machine.next(now, &around) {
            Step::Wait(until) => {
                assert!(until > now);
                now = until;
            }
            Step::Ask => machine.ask(volume),
            Step::Read { blocks, .. } => {
                let tag = PartTag {
                    lba: Lba(0),
                    slot: 0,
                    sum: 0,
                };
                let directories = vec![vec![tag; MADE_WITH]; blocks as usize];
                machine.read(Seen::Directories(&directories));
            }
            Step::Fold { lba, blocks } => {
                let row = fold(lba);
                if row == Folded::Told {
                    rows.push((lba.0, blocks));
                    volume
                        .parts
                        .retain(|at, _| !(lba.0..lba.0 + u64::from(blocks)).contains(at));
                }
                machine.folded(row);
            }
            Step::End(well) => return (rows, well, now),
            step => panic!("{step:?}"),
        }
        assert!(machine.permille() <= 1000);
    }
}

#[test]
fn blocks_left_in_sparse_pages_are_rewritten_row_by_row() {
    let full: Vec<u64> = (100..108).collect();
    let pages: [&[u64]; 4] = [&[7, 5, 6, 2000], &full, &[], &[9000, 9999]];
    let mut volume = volume_of(&pages);
    let told = |_| Folded::Told;
    let (rows, well, _) = run(&mut volume, Around::default(), told);
    assert_eq!(rows, [(5, 3), (2000, 1), (9000, 1), (9999, 1)]);
    assert!(well);
    // None of that page's parts is folded: it is not sparse.
    assert_eq!(volume.parts.len(), full.len());
    let (rows, well, _) = run(&mut volume, Around::default(), told);
    assert!(rows.is_empty() && well);
}

#[test]
fn a_page_that_could_not_be_given_up_is_not_folded() {
    let mut volume = volume_of(&[&[1, 3, 5], &[20]]);
    let row = |lba| match lba {
        Lba(3) => Folded::Stays,
        _ => Folded::Told,
    };
    let (rows, well, _) = run(&mut volume, Around::default(), row);
    assert_eq!(rows, [(1, 1), (20, 1)]);
    assert!(well);
    // Two owners of one part: the page cannot be given up with fewer blocks than it has owners.
    let mut volume = volume_of(&[&[1, 3, 5]]);
    volume.parts.insert(3, volume.parts[&1]);
    let (rows, well, _) = run(&mut volume, Around::default(), |_| Folded::Told);
    assert!(rows.is_empty() && well);
}

#[test]
fn a_fold_ends_early_if_there_is_no_room_for_long() {
    let mut volume = volume_of(&[&[1, 3]]);
    volume.has_room = false;
    let (rows, well, now) = run(&mut volume, Around::default(), |_| Folded::Told);
    assert!(rows.is_empty() && !well);
    assert_eq!(now, PATIENCE);
}

#[test]
fn a_fold_makes_way_for_clients_before_each_step() {
    let mut volume = volume_of(&[&[1, 3]]);
    let around = Around {
        busy: true,
        ..Around::default()
    };
    let (rows, well, now) = run(&mut volume, around, |_| Folded::Told);
    assert!(rows.len() == 2 && well);
    // Each segment's summary, the pages, the map in steps, and each row.
    let segments = u64::from(superblock().segment_count());
    let map = 10_000u64.div_ceil(AT_ONCE as u64);
    assert_eq!(now.0, (segments + 1 + map + 2) * FOR_CLIENTS.0);
}
