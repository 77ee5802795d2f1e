//! Sparse pages: what is left in them is stored anew, and the core gives them up (CSA-FS §3.3).
//!
//! How many parts a page was made with its directory tells, and the core how many owners it has. Who these are is looked for in the
//! map, of many pages at once. Only if all are found that there are, each of a part of its own, and none of them has to stay where it
//! is, is a page folded: one that would not be given up costs writes for nothing, and what several share would be stored several
//! times.
//!
//! What cannot be known before is whether all can be stored anew: a page of which one part cannot is left at the first that is not.
//!
//! Where it is nothing keeps. It begins anew, and what has been folded is not sparse any more.

use super::Sought;
use super::stored::{self, Found};
use super::turn::{Haste, Turn};
use crate::bases::Anew;
use crate::block::{BlockError, Op, Replies, Request};
use crate::frames::{Frames, Share};
use crate::limits::{FOLD_BELOW, FOLD_PAGES, FOLD_PATIENCE, SWEEP_PAUSE, SWEEP_TAGS};
use crate::requests::OneAnswer;
use crate::shared::Shared;
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::{Lba, Vba};
use vellum_core::entry::{MAX_PARTS, PartId};
use vellum_core::format::superblock::Superblock;
use vellum_core::limits::FOLD_BLOCKS;
use vellum_core::room::Room;
use vellum_core::seam::{Input, Payload, Service};

/// Whether there is so little room that it is worth it.
pub(super) fn is_wanted(room: Room) -> bool {
    (room.capacity - room.live.min(room.capacity)) * FOLD_BELOW < room.capacity
}

/// Folds all sparse pages; `false` when it was ended before.
pub(super) fn fold(shared: &Shared, superblock: &Superblock, haste: Haste) -> bool {
    let blocks = u64::from(superblock.segment_count()) * u64::from(superblock.usable_blocks());
    let mut seen = 0;
    let mut sparse: Vec<(Vba, u32)> = Vec::new();
    // They take turns, and each asks for its own.
    let (mut looks, mut stores) = (Turn::new(shared, haste), Turn::new(shared, haste));
    shared.sweeper.is_at(Sought::SparsePages, 0);
    let most_owners = MAX_PARTS as u32 / 2;
    let is_through =
        stored::stored(
            shared,
            superblock,
            &mut looks,
            most_owners,
            |at, found| match found {
                Found::Blocks(tags) => {
                    seen += tags.len() as u64;
                    shared
                        .sweeper
                        .is_at(Sought::SparsePages, seen * 1000 / blocks);
                    true
                }
                Found::Parts(parts) => {
                    let page =
                        shared.with_core(|_, inner, _| inner.engine.sparse_page(at, parts.len()));
                    let Some(page) = page else {
                        return false;
                    };
                    sparse.extend(page);
                    if sparse.len() < FOLD_PAGES {
                        return true;
                    }
                    let is_through = fold_pages(shared, &mut sparse, &mut stores);
                    sparse.clear();
                    is_through
                }
            },
        );
    is_through && fold_pages(shared, &mut sparse, &mut stores)
}

/// Folds pages, of which is known how many owners they have.
fn fold_pages(shared: &Shared, pages: &mut [(Vba, u32)], turn: &mut Turn) -> bool {
    if pages.is_empty() {
        return true;
    }
    pages.sort_unstable();
    let mut owners = Owners::new(pages);
    let mut found = Vec::with_capacity(SWEEP_TAGS);
    for from in (0..shared.blocks).step_by(SWEEP_TAGS) {
        if !turn.wait(shared) {
            return false;
        }
        let range = from..from + SWEEP_TAGS as u64;
        let asked = shared.with_core(|_, inner, _| {
            let wanted = |page| owners.place(page).is_some();
            inner.engine.foldable_in(range, wanted, &mut found);
        });
        if asked.is_none() {
            return false;
        }
        found
            .drain(..)
            .for_each(|(part, lba)| owners.add(part, lba));
    }
    owners
        .foldable()
        .all(|of_page| fold_page(shared, of_page, turn))
}

/// The owners of pages, as they are found.
struct Owners<'a> {
    /// In order, with how many owners were counted.
    pages: &'a [(Vba, u32)],
    /// Of each page, how many of them were found.
    found: Vec<u32>,
    of: Vec<(PartId, Lba)>,
}

impl<'a> Owners<'a> {
    fn new(pages: &'a [(Vba, u32)]) -> Self {
        let most = pages.iter().map(|(_, counted)| *counted as usize + 1).sum();
        Self {
            pages,
            found: vec![0; pages.len()],
            of: Vec::with_capacity(most),
        }
    }

    fn place(&self, page: Vba) -> Option<usize> {
        self.pages.binary_search_by_key(&page, |(vba, _)| *vba).ok()
    }

    /// More may have come to a page since its own were counted, as clients that share blocks, and there is no telling how many:
    /// one more than counted says enough.
    fn add(&mut self, part: PartId, lba: Lba) {
        let Some(place) = self.place(part.page) else {
            return;
        };
        if self.found[place] <= self.pages[place].1 {
            self.found[place] += 1;
            self.of.push((part, lba));
        }
    }

    /// The owners of each page that is worth it: all that were counted and no other, each of a part of its own.
    fn foldable(&mut self) -> impl Iterator<Item = &[(PartId, Lba)]> {
        self.of.sort_unstable();
        let counted = |page| self.place(page).map(|place| self.pages[place].1 as usize);
        self.of
            .chunk_by(|(one, _), (next, _)| one.page == next.page)
            .filter(move |of_page| {
                let page = of_page.first().map(|(part, _)| part.page);
                let is_shared = of_page.windows(2).any(|pair| pair[0].0 == pair[1].0);
                page.and_then(counted) == Some(of_page.len()) && !is_shared
            })
    }
}

/// Stores anew what all owners of a page have there.
fn fold_page(shared: &Shared, owners: &[(PartId, Lba)], turn: &mut Turn) -> bool {
    let Some(lbas) = still_there(shared, owners) else {
        return false;
    };
    let in_rows = lbas.chunk_by(|one, next| one.plus(1) == *next);
    for row in in_rows.flat_map(|row| row.chunks(FOLD_BLOCKS as usize)) {
        if !(turn.wait(shared) && has_room(shared)) {
            return false;
        }
        match fold_row(shared, row, turn) {
            Row::Told => {}
            Row::Stays => return true,
            Row::Ended => return false,
        }
    }
    true
}

/// Which of a page's owners have not left it since they were found, in order: others may be in pages that are not sparse.
fn still_there(shared: &Shared, owners: &[(PartId, Lba)]) -> Option<Vec<Lba>> {
    let mut there = Vec::with_capacity(owners.len());
    shared.with_core(|_, inner, _| {
        for (part, lba) in owners {
            let is_it = |page| page == part.page;
            inner
                .engine
                .foldable_in(lba.0..lba.0 + 1, is_it, &mut there);
        }
    })?;
    let mut lbas: Vec<Lba> = there.into_iter().map(|(_, lba)| lba).collect();
    lbas.sort_unstable();
    Some(lbas)
}

/// What has become of blocks in a row.
enum Row {
    /// The core has them; what had not changed is stored anew.
    Told,
    /// Some are not to be had, or not worth it: their page is not given up this time, and the rest of it stays.
    Stays,
    /// The volume stops.
    Ended,
}

/// Waits until nobody needs the room that a fold takes; `false` when that takes too long.
fn has_room(shared: &Shared) -> bool {
    let began = Instant::now();
    loop {
        match shared.with_core(|_, inner, _| inner.engine.has_room_to_fold()) {
            Some(true) => return true,
            Some(false) if began.elapsed() < FOLD_PATIENCE && !shared.sweeper.is_to_end() => {
                shared.sweeper.pause(SWEEP_PAUSE);
            }
            _ => return false,
        }
    }
}

/// Reads blocks in a row, encodes them and hands them to the core, which stores what has not changed.
fn fold_row(shared: &Shared, row: &[Lba], turn: &mut Turn) -> Row {
    let (Some(&lba), Some(frames)) = (row.first(), shared.frames.try_take(Share::Write, row.len()))
    else {
        // Clients have them all.
        return Row::Stays;
    };
    turn.spend(row.len() as u64);
    let mut frames = match read(shared, lba, frames) {
        Ok(frames) => frames,
        Err(BlockError::Stopping) => return Row::Ended,
        // Told as damage when it was read.
        Err(_) => return Row::Stays,
    };
    let how = shared.digester.how();
    let Some(anew) = shared.with_core(|_, inner, _| Anew::new(inner, row)) else {
        return Row::Ended;
    };
    let mut payloads: Vec<Payload> = Vec::with_capacity(row.len());
    for (index, buf) in frames.bufs().enumerate().collect::<Vec<_>>() {
        let mut digest = how.digest(frames.block(index));
        digest.packed = anew.pack(&mut frames, index, how);
        if digest.packed.is_none() {
            // It was made by an encoding that was better at it than today's, or against what is not here.
            return Row::Stays;
        }
        payloads.push(Payload { buf, digest });
    }
    let told = shared.with_core(|now, inner, batch| {
        anew.settle(inner, &mut payloads);
        inner.fold(now, lba, frames, &payloads, batch);
    });
    told.map_or(Row::Ended, |()| Row::Told)
}

/// What these blocks hold.
fn read(shared: &Shared, lba: Lba, frames: Frames) -> Result<Frames, BlockError> {
    let answer = Arc::new(OneAnswer::default());
    let replies: Arc<dyn Replies> = answer.clone();
    let blocks = frames.len() as u32;
    let request = Request {
        tag: 0,
        op: Op::Read,
        lba,
        blocks: u64::from(blocks),
        frames,
    };
    shared.ask(request, &replies, |now, inner, pending, batch| {
        let id = inner.requests.insert(pending);
        inner.feed(
            now,
            Input::Service(Service::ReadToFold { id, lba, blocks }),
            batch,
        );
    });
    let (request, result) = answer.wait();
    result.map(|()| request.frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of which two, one and two owners were counted.
    const PAGES: [(Vba, u32); 3] = [(Vba(3), 2), (Vba(5), 1), (Vba(9), 2)];

    fn foldable(found: impl IntoIterator<Item = (u32, u8)>) -> (Vec<u32>, usize) {
        let mut owners = Owners::new(&PAGES);
        let most = owners.of.capacity();
        for (lba, (page, slot)) in (0..).zip(found) {
            let page = Vba(page);
            owners.add(PartId { page, slot }, Lba(lba));
        }
        let pages = owners.foldable().map(|of_page| of_page[0].0.page.0);
        let pages = pages.collect();
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
    fn who_joins_a_page_after_its_count_keeps_no_other_from_being_folded() {
        let joined = [(3, 0), (3, 1), (5, 0), (3, 2), (9, 0), (9, 1)];
        assert_eq!(foldable(joined), (vec![5, 9], 6));
        // However many they are, they take the place of one.
        let many = (2..30).map(|slot| (3, slot));
        assert_eq!(foldable(joined.into_iter().chain(many)), (vec![5, 9], 6));
    }
}
