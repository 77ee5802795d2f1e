//! A fold: the blocks left in sparse pages are rewritten, and the core gives the pages up (CSA-FS §3.3).
//!
//! A page's directory says how many parts it was made with, and the core says how many owners it has. The fold searches the map for the
//! owners, for many pages at once. It folds a page only if all owners are found, each owns a different part, and none has to stay in
//! place. Otherwise the page would not be given up, and the writes would be for nothing; or a part that several owners share would be
//! stored several times.
//!
//! Only while it is being folded does it become known whether all of a page can be rewritten. At the first part that cannot, the rest of
//! the page is left.
//!
//! Progress is not recorded. After a restart a fold begins anew, and what was folded is no longer sparse.

use super::pace::{Around, Haste, PAUSE};
use super::walk::{AT_ONCE, Found, Walk};
use super::{Answers, Machine, Seen, Step};
use crate::addr::{Lba, Nanos, Vba};
use crate::entry::{MAX_PARTS, PartId};
use crate::format::Crc;
use crate::format::superblock::Superblock;
use crate::limits::FOLD_BLOCKS;
use crate::room::Room;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

/// The most sparse pages folded together: 17 MiB of their owners.
const PAGES: usize = 64 << 10;
/// How long a fold waits for spare room.
const PATIENCE: Nanos = Nanos(10_000_000_000);
/// The fraction of free room below which a volume folds by itself: one block in this many (CSA-FS §3.3: a fifth).
const BELOW: u64 = 5;

/// True if there is so little room that a fold is worthwhile.
#[must_use]
pub fn is_wanted(room: Room) -> bool {
    (room.capacity - room.live.min(room.capacity)) * BELOW < room.capacity
}

/// What happened to blocks that were to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The core has them; those that had not changed are rewritten.
    Told,
    /// Some cannot be read, or are not worth it: their page is not given up this time, and the rest of it stays.
    Stays,
}

#[derive(Clone, Debug)]
enum At {
    /// Looking for sparse pages.
    Look,
    /// Looking for their owners, in the map from this LBA on.
    Owners(u64),
    /// The owners of a page; those that have left it are to be sorted out.
    Page(Range<usize>),
    /// Blocks of a page, from this one on, that are rewritten when there is room.
    Row(usize),
    /// The fold has ended; true if it finished its work.
    End(bool),
}

/// A fold of a volume's sparse pages.
#[derive(Debug)]
pub struct Fold {
    walk: Walk,
    at: At,
    /// True if all sparse pages have been found.
    is_through: bool,
    owners: Owners,
    /// The end of the current page's owners.
    page_end: usize,
    lbas: Vec<Lba>,
    /// Whether there is room, if that was queried.
    room: Option<bool>,
    /// Since when there has been no room.
    waits_since: Option<Nanos>,
}

impl Fold {
    /// Folds all sparse pages of a volume.
    #[must_use]
    pub fn new(superblock: Superblock, crc: Crc, haste: Haste, now: Nanos) -> Self {
        let walk = Walk::new(superblock, crc, haste, now);
        Self {
            walk: walk.of_pages_with(MAX_PARTS as u32 / 2),
            at: At::Look,
            is_through: false,
            owners: Owners::default(),
            page_end: 0,
            lbas: Vec::new(),
            room: None,
            waits_since: None,
        }
    }

    /// Takes the result for the blocks of [`Step::Fold`].
    pub fn folded(&mut self, folded: Folded) {
        let At::Row(from) = self.at else {
            return;
        };
        let blocks = row_of(&self.lbas[from..]);
        self.walk.turn.spend(blocks as u64);
        match folded {
            Folded::Told if from + blocks < self.lbas.len() => self.at = At::Row(from + blocks),
            _ => self.next_page(),
        }
    }

    fn find_owners(&mut self) {
        self.at = match self.owners.pages.is_empty() {
            true => At::End(true),
            false => At::Owners(0),
        };
        self.owners.begin();
    }

    fn next_page(&mut self) {
        self.at = match self.owners.foldable(self.page_end) {
            Some(page) => At::Page(page),
            None if self.is_through => At::End(true),
            None => At::Look,
        };
        match &self.at {
            At::Page(page) => self.page_end = page.end,
            _ => self.owners.clear(),
        }
    }

    fn next_row(&mut self, now: Nanos, around: &Around, from: usize) -> Step {
        match self.room.take() {
            Some(true) => {
                self.waits_since = None;
                Step::Fold {
                    lba: self.lbas[from],
                    blocks: row_of(&self.lbas[from..]) as u32,
                }
            }
            Some(false) => {
                let since = *self.waits_since.get_or_insert(now);
                if now.0 - since.0 >= PATIENCE.0 {
                    self.at = At::End(false);
                    return Step::End(false);
                }
                Step::Wait(Nanos(now.0 + PAUSE.0))
            }
            None if self.waits_since.is_some() => Step::Ask,
            None => self.ask_at_turn(now, around),
        }
    }

    fn ask_at_turn(&mut self, now: Nanos, around: &Around) -> Step {
        let until = self.walk.turn.wait(now, around);
        until.map_or(Step::Ask, Step::Wait)
    }

    fn look(&mut self, volume: &impl Answers) {
        if !self.walk.has_found() {
            return self.walk.ask(volume);
        }
        let sparse = &mut self.owners.pages;
        self.walk.found(|at, found| {
            if let Found::Parts(page, parts) = found {
                let owners = volume.sparse_page(page, at, parts.len());
                sparse.extend(owners.map(|owners| (page, owners)));
            }
        });
        if sparse.len() >= PAGES {
            self.find_owners();
        }
    }

    fn find_owners_from(&mut self, from: u64, volume: &impl Answers) {
        let mut found = mem::take(&mut self.owners.asked);
        let to = from + AT_ONCE as u64;
        let wanted = |page| self.owners.place(page).is_some();
        volume.foldable_in(from..to, wanted, &mut found);
        for (part, lba) in found.drain(..) {
            self.owners.add(part, lba);
        }
        self.owners.asked = found;
        self.at = At::Owners(to);
        if to >= self.walk.superblock().logical_blocks() {
            self.owners.of.sort_unstable();
            self.page_end = 0;
            self.next_page();
        }
    }

    /// Lists the owners that have not left a page since they were found, in order. The others may now be in pages that are not sparse.
    fn are_there(&mut self, owners: Range<usize>, volume: &impl Answers) {
        let mut there = mem::take(&mut self.owners.asked);
        for (part, lba) in &self.owners.of[owners] {
            let is_it = |page| page == part.page;
            volume.foldable_in(lba.0..lba.0 + 1, is_it, &mut there);
        }
        self.lbas.clear();
        self.lbas.extend(there.drain(..).map(|(_, lba)| lba));
        self.lbas.sort_unstable();
        self.owners.asked = there;
        match self.lbas.is_empty() {
            true => self.next_page(),
            false => self.at = At::Row(0),
        }
    }
}

impl Machine for Fold {
    fn next(&mut self, now: Nanos, around: &Around) -> Step {
        if let At::Look = self.at {
            match self.walk.next(now, around) {
                Step::Found => return Step::Ask,
                Step::End(_) => {
                    self.is_through = true;
                    self.find_owners();
                }
                step => return step,
            }
        }
        match self.at {
            At::End(well) => Step::End(well),
            At::Owners(_) => self.ask_at_turn(now, around),
            At::Row(from) => self.next_row(now, around, from),
            At::Look | At::Page(_) => Step::Ask,
        }
    }

    fn ask(&mut self, volume: &impl Answers) {
        match self.at.clone() {
            At::Look => self.look(volume),
            At::Owners(from) => self.find_owners_from(from, volume),
            At::Page(owners) => self.are_there(owners, volume),
            At::Row(_) => self.room = Some(volume.has_room_to_fold()),
            At::End(_) => {}
        }
    }

    fn read(&mut self, seen: Seen<'_>) {
        self.walk.read(seen);
    }

    fn permille(&self) -> u64 {
        self.walk.permille()
    }
}

/// Counts the leading LBAs that are consecutive, and read at once.
fn row_of(lbas: &[Lba]) -> usize {
    let mut rows = lbas.chunk_by(|one, next| one.plus(1) == *next);
    let row = rows.next().map_or(0, <[Lba]>::len);
    row.min(FOLD_BLOCKS as usize)
}

/// Sparse pages, and their owners as they are found.
#[derive(Debug, Default)]
struct Owners {
    /// The pages in order, with their numbers of owners as counted by the core.
    pages: Vec<(Vba, u32)>,
    /// For each page, how many of its owners were found.
    found: Vec<u32>,
    of: Vec<(PartId, Lba)>,
    /// Reused memory for the volume's answers.
    asked: Vec<(PartId, Lba)>,
}

impl Owners {
    fn begin(&mut self) {
        self.pages.sort_unstable();
        let most = self
            .pages
            .iter()
            .map(|(_, counted)| *counted as usize + 1)
            .sum();
        self.found.resize(self.pages.len(), 0);
        self.of.reserve_exact(most);
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    fn place(&self, page: Vba) -> Option<usize> {
        self.pages.binary_search_by_key(&page, |(vba, _)| *vba).ok()
    }

    /// Adds an owner. A page may have gained owners since they were counted, because clients share blocks. Their number has no bound, so
    /// at most one more than counted is kept: that is enough to detect a gain.
    fn add(&mut self, part: PartId, lba: Lba) {
        let Some(place) = self.place(part.page) else {
            return;
        };
        if self.found[place] <= self.pages[place].1 {
            self.found[place] += 1;
            self.of.push((part, lba));
        }
    }

    /// Returns the owners of the next page, from `from` on, that is worth folding: exactly as many owners as were counted, each of a
    /// different part.
    fn foldable(&self, from: usize) -> Option<Range<usize>> {
        let counted = |page| self.place(page).map(|place| self.pages[place].1 as usize);
        let mut from = from;
        let pages = self.of[from..].chunk_by(|(one, _), (next, _)| one.page == next.page);
        for of_page in pages {
            let page = from..from + of_page.len();
            let is_shared = of_page.windows(2).any(|pair| pair[0].0 == pair[1].0);
            if counted(of_page[0].0.page) == Some(of_page.len()) && !is_shared {
                return Some(page);
            }
            from = page.end;
        }
        None
    }
}

#[cfg(test)]
mod tests;
