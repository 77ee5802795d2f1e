//! Replay that goes on after damage: the steps of a rescue.

use super::super::Unreadable;
use super::super::headers::Found;
use super::super::replay::Replay;
use super::scan::Spot;
use crate::addr::{BLOCK_BYTES, Lba, Pba, Vba};
use crate::entry::Entry;
use crate::format::chunk::{self, ChunkHeader, Record};
use crate::format::names::Names;
use crate::format::root::Cursor;
use crate::format::summary::{Owner, Tag};
use crate::format::{pack, summary};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};
use core::ops::Range;

impl Replay<'_> {
    /// The chunk at a place, if it was durable or is whole. One whose data cannot be read may be whole: a read of a bad block finds that
    /// out.
    pub(super) fn chunk_at(&mut self, place: Cursor) -> Option<Found> {
        let found = self.found_at(place).ok()??;
        if found.header.seq <= self.durable {
            return Some(found);
        }
        let is_whole = self.data_is_whole(&found.header, &found.records);
        self.unread = self.unread.or(is_whole.err());
        (is_whole != Ok(false)).then_some(found)
    }

    /// The chunks that an older life's power cut has torn, each with those behind it of that life. A newer life wrote others with these
    /// numbers, and their headers are lost.
    pub(super) fn stale(&mut self, spots: &[Spot]) -> Vec<Range<usize>> {
        let ends = (1..spots.len()).filter(|&end| spots[end - 1].may_be_stale(&spots[end]));
        let stale = ends.filter_map(|end| {
            let life = spots[end - 1].life;
            let goes_on = |at: &usize| spots[*at].follows(spots[at - 1].seq, life);
            let first = (1..end).rev().find(|at| !goes_on(at)).unwrap_or(0);
            let durable = spots[first..end].iter().map(|spot| spot.durable).max();
            let is_durable = |at: usize| Some(spots[at].seq) <= durable;
            let torn = (first..end).find(|&at| !is_durable(at) && !self.is_in_force(&spots[at]))?;
            Some(torn..end)
        });
        stale.collect()
    }

    /// True if a chunk was part of the log when a later life began, or all of it is there.
    fn is_in_force(&mut self, spot: &Spot) -> bool {
        let end = self.superblock.log_end();
        if end.is_some_and(|end| end.life == spot.life && end.seq >= spot.seq) {
            return true;
        }
        let found = self.found_at(spot.place).ok().flatten();
        found.is_some_and(|found| self.data_is_whole(&found.header, &found.records) == Ok(true))
    }

    /// If a head has a chunk beyond the place where it was to go on: the block where the other head goes on.
    pub(super) fn other_head_of_jump(&self, place: Cursor, header: &ChunkHeader) -> Option<Pba> {
        let head = self.heads.get(usize::from(header.head))?;
        (*head != place).then(|| self.block_at(self.heads[usize::from(header.head ^ 1)]))
    }

    pub(super) fn block_at(&self, cursor: Cursor) -> Pba {
        let start = self.superblock.segment_start(cursor.segment);
        start.plus(cursor.offset.into())
    }

    /// Goes on after a chunk.
    pub(super) fn pass(&mut self, place: Cursor, header: &ChunkHeader) {
        if let Some(head) = (0..2).find(|head| *head == usize::from(header.head)) {
            self.heads[head] = self.after(place, header).unwrap_or(self.heads[head]);
        }
    }

    /// What the header at a place repeats of the previous chunk, on volumes whose headers do that.
    pub(super) fn names_at(&mut self, place: Cursor) -> Option<Names> {
        let mut block = [0; BLOCK_BYTES];
        self.source.read(self.block_at(place), &mut block).ok()?;
        chunk::decode(&block, self.crc).ok()?;
        let names = chunk::names_of_before(&block).ok()?;
        self.superblock.has_names().then_some(names)
    }

    /// True if any block behind this one in its segment cannot be read.
    pub(super) fn is_unread_behind(&mut self, cursor: Cursor) -> bool {
        let mut behind = cursor.offset + 1..self.superblock.usable_blocks();
        behind.any(|offset| {
            let at = self.block_at(Cursor { offset, ..cursor });
            self.source.read(at, &mut [0; BLOCK_BYTES]).is_err()
        })
    }

    /// Applies a chunk. Calls `wrong` for each record that names what the volume does not hold. `tags`: also notes the owners of
    /// its blocks.
    pub(super) fn apply_found(
        &mut self,
        place: Cursor,
        found: &Found,
        tags: bool,
        wrong: &mut dyn FnMut(&Record),
    ) {
        if tags && !self.tags.iter().rev().any(|(of, _)| *of == place.segment) {
            self.open_tags(place.segment);
        }
        let applied = self.apply_records(place, found, &mut |record| {
            wrong(record);
            Ok(())
        });
        debug_assert!(applied.is_ok(), "a rescue goes on after a wrong record");
        (self.last_seq, self.last_life) = (found.header.seq, found.header.life);
    }

    /// If it is not known where a moved block was, assumes that it was where the record moves it from. It is now at `to`.
    pub(super) fn follow(&mut self, record: &Record, to: Pba) {
        match *record {
            Record::Move { lba, from, .. }
                if lba.0 < self.state.map().blocks()
                    && self.superblock.segment_of(from).is_some()
                    && self.state.map().get(lba) == Entry::Unmapped =>
            {
                self.state.guess(lba, Entry::Plain(from));
            }
            Record::MoveShared { vba, from, .. } if !self.state.shared().is_at(vba, from) => {
                let parts = self.holds_parts(to);
                self.state.guess_page(vba, from, parts);
            }
            _ => {}
        }
    }

    /// True if a block looks like a page of parts.
    fn holds_parts(&mut self, at: Pba) -> bool {
        let mut block = [0; BLOCK_BYTES];
        let mut parts = Vec::new();
        let read = self.source.read(at, &mut block);
        read.is_ok() && pack::directory(&block, self.crc, &mut parts).is_ok()
    }

    /// Restores the tags of segments whose summary does not cover all their chunks.
    pub(super) fn restore_tags(&mut self, spots: &[Spot]) {
        let usable = self.superblock.usable_blocks();
        let blocks = self.superblock.segment_blocks() - usable;
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let segments: BTreeSet<_> = spots.iter().map(|spot| spot.place.segment).collect();
        for segment in segments {
            let of = |spot: &&Spot| spot.place.segment == segment;
            let newest = spots.iter().filter(of).map(|spot| spot.seq).max();
            let at = self.superblock.segment_start(segment).plus(usable.into());
            let signature = self.superblock.signature();
            let read = self.source.read(at, &mut bytes).ok();
            let told = read.and_then(|()| {
                summary::last_seq(&signature, segment, usable as usize, &bytes, self.crc).ok()
            });
            if told < newest {
                self.walk_segment(Cursor {
                    segment,
                    offset: usable - 1,
                });
            }
        }
        // Blocks that cannot be read now matter only to a volume that will be written.
        self.unread = None::<Unreadable>;
    }

    /// LBAs that lead to blocks overwritten since the root, in segments that were erased since. Leaves out pages in `placed`, whose place
    /// is certain.
    pub(super) fn overwritten(&self, placed: &BTreeSet<Vba>) -> Vec<Lba> {
        let was_open = self.root.cursors.map(|cursor| cursor.segment);
        let leads = self.state.map().iter().filter(|(lba, entry)| {
            let (pba, owner, is_told) = match *entry {
                Entry::Unmapped | Entry::Zero => return false,
                Entry::Plain(pba) => (pba, Owner::Lba(*lba), false),
                Entry::Shared(vba) | Entry::Packed(vba, _) => {
                    match self.state.shared().is_placed(vba) {
                        true => (
                            self.state.shared().pba(vba),
                            Owner::Vba(vba),
                            placed.contains(&vba),
                        ),
                        false => return false,
                    }
                }
            };
            let Some((segment, offset)) = self.superblock.segment_of(pba) else {
                return false;
            };
            let mut tags = self.tags.iter().rev();
            let tags = tags.find(|(of, _)| *of == segment && !was_open.contains(of));
            tags.is_some_and(|(_, tags)| !is_told && tags[offset as usize].owner != owner)
        });
        leads.map(|(lba, _)| lba).collect()
    }

    /// True if a block has been written since the root, in a segment that was erased since.
    pub(super) fn is_written_since(&self, pba: Pba) -> bool {
        let Some((segment, offset)) = self.superblock.segment_of(pba) else {
            return false;
        };
        let was_open = self.root.cursors.map(|cursor| cursor.segment);
        let tags = self.tags.iter().rev().find(|(of, _)| *of == segment);
        let is_there = |tags: &Vec<Tag>| tags[offset as usize].owner != Owner::None;
        !was_open.contains(&segment) && tags.is_some_and(|(_, tags)| is_there(tags))
    }

    /// LBAs that lead to a page with two numbers: only the guesses among them, or all if none is a guess.
    pub(super) fn in_conflict(&self, guessed: &dyn Fn(Lba) -> bool) -> Vec<Lba> {
        let mut numbers: BTreeMap<Pba, Vba> = BTreeMap::new();
        let mut twice = BTreeSet::new();
        for (_, pba, vba) in self.numbered() {
            if *numbers.entry(pba).or_insert(vba) != vba {
                twice.insert(pba);
            }
        }
        let leads = self.numbered().filter(|(_, pba, _)| twice.contains(pba));
        let leads: Vec<Lba> = leads.map(|(lba, ..)| lba).collect();
        let guesses: Vec<Lba> = leads.iter().copied().filter(|lba| guessed(*lba)).collect();
        match guesses.is_empty() {
            true => leads,
            false => guesses,
        }
    }

    /// LBAs that lead to a number whose page has a place, with the place and the number.
    fn numbered(&self) -> impl Iterator<Item = (Lba, Pba, Vba)> + '_ {
        self.state
            .map()
            .iter()
            .filter_map(|(lba, entry)| match entry {
                Entry::Shared(vba) | Entry::Packed(vba, _)
                    if self.state.shared().is_placed(vba) =>
                {
                    Some((lba, self.state.shared().pba(vba), vba))
                }
                _ => None,
            })
    }
}
