//! The effect of each log record.

use super::{Event, Origin, State};
use crate::addr::{Lba, Pba, Vba};
use crate::entry::{Entry, PartId};
use crate::format::chunk::Record;
use crate::state::shared::Left;

impl State {
    /// Applies a record. `None`: it names something outside the volume, and nothing was changed.
    #[inline]
    pub fn apply(&mut self, origin: Origin, record: &Record) -> Option<()> {
        self.watched.note(record);
        let is_known = self.carry_out(origin, record);
        let makes = matches!(record, Record::Pledge { .. }) && is_known.is_some();
        if makes || !self.pledges.is_empty() || !self.ending.is_empty() {
            self.pledge_with(record, is_known.is_some());
        }
        is_known
    }

    /// Applies a record to the pledges. A record that names something outside the volume ends pledges too.
    fn pledge_with(&mut self, record: &Record, is_known: bool) {
        match is_known {
            true => self.pledges.apply(record),
            false => self.pledges.end_with(record),
        }
        self.ending.end_with(record);
    }

    #[inline]
    pub(super) fn carry_out(&mut self, origin: Origin, record: &Record) -> Option<()> {
        let block = origin.block;
        match *record {
            Record::Data { lba, .. } => {
                self.holds(lba, 1)?;
                self.born(block);
                self.remap(lba, Entry::Plain(block));
            }
            Record::Move { lba, from, .. } => {
                self.holds(lba, 1)?;
                self.catch_up(lba, lba);
                if self.leads_to(lba, from) {
                    self.born(block);
                    self.remap(lba, Entry::Plain(block));
                }
            }
            Record::Zero { lba, blocks } => self.zero(lba, blocks)?,
            Record::Discard { lba, blocks } => self.unmap(lba, blocks)?,
            Record::Share { lba, vba, pba } => self.share(lba, vba, pba)?,
            Record::Pledge { home, journal } => {
                self.holds(home, 1)?;
                self.holds(journal, 1)?;
            }
            Record::Pack { vba, .. } | Record::PackHere { vba } => {
                self.place(vba, block, true)?;
                self.born(block);
            }
            Record::Part { lba, part } => {
                self.holds(lba, 1)?;
                self.lead_to_part(lba, origin.page?, part.slot);
            }
            Record::Delta { lba, part, base } => {
                self.holds(lba, 1)?;
                let page = origin.page?;
                let slot = part.slot;
                // The base is counted first: the block's old page, released next, may be the page of the base.
                self.need(PartId { page, slot }, base);
                self.lead_to_part(lba, page, slot);
            }
            Record::SharePart { lba, vba, slot } => {
                self.holds(lba, 1)?;
                self.lead_to_part(lba, vba, slot);
            }
            Record::MoveShared { vba, from, .. } => {
                if self.shared.is_at(vba, from) {
                    self.relocate(vba, from, block);
                }
            }
        }
        Some(())
    }

    #[inline]
    fn holds(&self, lba: Lba, blocks: u64) -> Option<()> {
        let end = lba.0.checked_add(blocks)?;
        (end <= self.map.blocks()).then_some(())
    }

    /// True if the moved block is still at the place it is moved from. In a replay the entry may still be shared, although it had become
    /// plain by the time of the move: a replay settles pages with one owner left only at its end.
    fn leads_to(&self, lba: Lba, from: Pba) -> bool {
        match self.map.get(lba) {
            Entry::Plain(at) => at == from,
            Entry::Shared(vba) => self.shared.is_at(vba, from),
            Entry::Unmapped | Entry::Zero | Entry::Packed(..) => false,
        }
    }

    fn zero(&mut self, lba: Lba, blocks: u64) -> Option<()> {
        // Replay unmaps the blocks instead, because both read as zeros: then it costs time for the mapped blocks only, not for all that a
        // record names.
        if !self.is_counted && !self.is_in_census() {
            return self.unmap(lba, blocks);
        }
        self.holds(lba, blocks)?;
        for index in 0..blocks {
            self.remap(lba.plus(index), Entry::Zero);
        }
        Some(())
    }

    pub(super) fn unmap(&mut self, lba: Lba, blocks: u64) -> Option<()> {
        self.holds(lba, blocks)?;
        let (mut at, end) = (lba, lba.plus(blocks));
        self.catch_up(lba, end);
        while let Some((mapped, _)) = self.map.next_mapped(at, end) {
            self.remap(mapped, Entry::Unmapped);
            at = mapped.plus(1);
        }
        Some(())
    }

    fn share(&mut self, lba: Lba, vba: Vba, pba: Pba) -> Option<()> {
        self.holds(lba, 1)?;
        self.segments.segment_of(pba)?;
        if !self.is_counted {
            self.place(vba, pba, false)?;
            self.remap(lba, Entry::Shared(vba));
            return Some(());
        }
        if self.shared.owners(vba) == 0 {
            self.place(vba, pba, false)?;
        }
        let has_room = self.shared.add(vba, lba);
        assert!(has_room, "the count of shared page {vba} has room");
        let old = self.map.set(lba, Entry::Shared(vba));
        // If this LBA's own page has become a shared one, it is not released.
        if old != Entry::Plain(pba) {
            self.let_go(lba, old);
        }
        Some(())
    }

    /// Makes a number name a page. `None`: the number is past the end of the table.
    fn place(&mut self, vba: Vba, pba: Pba, parts: bool) -> Option<()> {
        match self.is_counted {
            true => self.shared.begin(vba, pba, parts),
            false => {
                let is_one = self.change_place(vba, |shared| shared.restore(vba, pba, parts));
                return is_one.then_some(());
            }
        }
        Some(())
    }

    fn relocate(&mut self, vba: Vba, from: Pba, to: Pba) {
        match self.is_counted {
            true => {
                self.born(to);
                self.shared.relocate(vba, to);
                self.died(from);
            }
            false => self.change_place(vba, |shared| shared.restore_move(vba, to)),
        }
    }

    fn need(&mut self, part: PartId, base: PartId) {
        match self.is_counted {
            true => self.shared.add_delta(part, base),
            false => self.need_uncounted(part, base),
        }
    }

    fn lead_to_part(&mut self, lba: Lba, page: Vba, slot: u8) {
        if self.is_counted {
            self.shared.add_part(page);
        }
        self.remap(lba, Entry::Packed(page, slot));
    }

    /// Maps `lba` anew and releases what it was mapped to.
    #[inline]
    pub(super) fn remap(&mut self, lba: Lba, entry: Entry) {
        if !self.is_counted {
            return self.remap_uncounted(lba, entry);
        }
        let old = self.map.set(lba, entry);
        self.let_go(lba, old);
    }

    #[inline]
    fn let_go(&mut self, lba: Lba, old: Entry) {
        match old {
            Entry::Unmapped | Entry::Zero => {}
            Entry::Plain(pba) => self.died(pba),
            Entry::Shared(vba) => self.leave(vba, lba),
            Entry::Packed(vba, _) => self.leave_part(vba),
        }
    }

    fn leave(&mut self, vba: Vba, lba: Lba) {
        let hash = self.shared.hash(vba);
        if let Left::One(owner, pba) = self.shared.remove(vba, lba) {
            if pba == Pba::NOWHERE {
                // The leaf with its place is lost. The volume ends, and answers nothing more from this state.
                self.map.set(owner, Entry::Unmapped);
                return;
            }
            self.map.set(owner, Entry::Plain(pba));
            self.strays.insert(pba, owner);
            self.events.push_back(Event::Unshared { hash, owner });
        }
    }

    /// Removes one owner of a part of the page.
    fn leave_part(&mut self, vba: Vba) {
        let mut died = core::mem::take(&mut self.died);
        self.shared.remove_part(vba, &mut died);
        for (vba, pba) in died.drain(..) {
            self.events.push_back(Event::GivenUp(vba));
            self.died(pba);
        }
        self.died = died;
    }

    #[inline]
    fn born(&mut self, pba: Pba) {
        if self.is_counted
            && let Some((segment, _)) = self.segments.segment_of(pba)
        {
            self.live.born(segment);
        }
    }

    #[inline]
    fn died(&mut self, pba: Pba) {
        if !self.strays.is_empty() {
            self.strays.remove(pba);
        }
        let segment = match self.segments.segment_of(pba) {
            Some((segment, _)) => segment,
            None if pba == Pba::NOWHERE => return,
            None => unreachable!("recovery admits only addresses inside segments; {pba} is not"),
        };
        if self.live.died(segment) {
            self.events.push_back(Event::Emptied(segment));
        }
    }
}
