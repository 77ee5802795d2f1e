//! Replay: the map as the checkpoint has it, then chunk after chunk.

use super::{Recovered, RecoveryError, Replayed, SegmentState, Source, Unreadable};
use crate::addr::Segment;
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Life, Pba, Seq, Vba};
use crate::format::chunk::{self, ChunkHeader, Record};
use crate::format::leaf::Leaves;
use crate::format::names::Names;
use crate::format::root::{Cursor, LeafSlot, RootHeader};
use crate::format::summary::{Owner, Tag};
use crate::format::{Crc, superblock::Superblock};
use crate::map::{Entry, LEAF_ENTRIES, Map, PartId};
use crate::pledges::Pledges;
use crate::refs::Shared;
use alloc::{vec, vec::Vec};

/// A chunk's header, whole and at its place.
pub(super) struct Found {
    pub header: ChunkHeader,
    pub records: Vec<Record>,
    /// The tag of its own block, if that is a page of parts.
    own: Option<Tag>,
}

/// Where the records of a chunk have got to.
struct Place {
    chunk: Pba,
    /// The next data block that a record owns.
    block: u16,
    /// Pages of parts: which block of the chunk, and its number.
    pages: Vec<(u16, Vba)>,
}

pub(super) struct Replay<'a> {
    pub(super) source: &'a mut dyn Source,
    pub(super) superblock: Superblock,
    pub(super) crc: Crc,
    pub(super) root: RootHeader,
    pub(super) slots: Vec<LeafSlot>,
    pub(super) map: Map,
    pub(super) shared: Shared,
    pub(super) pledges: Pledges,
    pub(super) heads: [Cursor; 2],
    pub(super) last_seq: Seq,
    pub(super) last_life: Life,
    /// What the chunk applied last said something of.
    last_names: Names,
    /// The newest chunk that anything read so far knows to be durable.
    pub(super) durable: Seq,
    segments: Vec<SegmentState>,
    pub(super) tags: Vec<(Segment, Vec<Tag>)>,
    pub(super) unread: Option<Unreadable>,
    pub(super) replayed: Replayed,
    /// Each head's next chunk, read ahead of its turn; `Some(None)`: looked, and there is none.
    peeked: [Option<Option<Found>>; 2],
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        source: &'a mut dyn Source,
        superblock: Superblock,
        crc: Crc,
        root: RootHeader,
        slots: Vec<LeafSlot>,
    ) -> Result<Self, RecoveryError> {
        Ok(Self {
            map: Map::new(superblock.logical_blocks()),
            shared: Shared::new(superblock.shared_leaves(), superblock.delta_leaves()),
            pledges: Pledges::default(),
            heads: root.cursors,
            last_seq: root.seq,
            last_life: root.life,
            last_names: Names::default(),
            durable: root.durable,
            segments: vec![SegmentState::default(); superblock.segment_count() as usize],
            tags: Vec::new(),
            unread: None,
            replayed: Replayed::default(),
            peeked: [None, None],
            source,
            superblock,
            crc,
            root,
            slots,
        })
    }

    pub(super) fn load_leaves(&mut self) -> Result<(), RecoveryError> {
        (0..self.superblock.first_parity()).try_for_each(|leaf| self.load_leaf(Leaf(leaf)))
    }

    /// Loads a leaf, if there is anything in it. Nothing of one that is damaged is taken; it is as the others of its stripe tell.
    pub(super) fn load_leaf(&mut self, leaf: Leaf) -> Result<(), RecoveryError> {
        let leaves = Leaves {
            superblock: &self.superblock,
            slots: &self.slots,
            crc: self.crc,
        };
        let mut read = |at, block: &mut [u8; BLOCK_BYTES]| self.source.read(at, block).is_ok();
        let (at, block, rebuilt) = match leaves.read(leaf, &mut read) {
            Ok(None) => return Ok(()),
            Ok(Some((at, block))) => (at, block, false),
            Err(at) => match leaves.rebuild(leaf, &mut read) {
                Some(block) => (at, block, true),
                None => {
                    self.source.read(at, &mut [0; BLOCK_BYTES])?;
                    return Err(RecoveryError::Leaf { leaf, at });
                }
            },
        };
        self.replayed.from_copies += u64::from(rebuilt);
        self.replayed.leaves += 1;
        let behind_map = leaf.0.checked_sub(self.superblock.map_leaves());
        let behind_shared =
            behind_map.and_then(|index| index.checked_sub(self.superblock.shared_leaves()));
        let (taken, what) = match (behind_map, behind_shared) {
            (None, _) => {
                let taken = self.map.load_leaf(leaf, &block);
                if rebuilt {
                    self.map.mark_dirty(leaf);
                }
                (taken, "a leaf of the map")
            }
            (Some(shared), None) => return self.load_shared(shared, at, &block),
            (_, Some(deltas)) => {
                let deltas = Leaf(deltas);
                let taken = self.shared.deltas_mut().load_leaf(deltas, &block);
                if rebuilt {
                    self.shared.deltas_mut().write_anew(deltas);
                }
                (taken, "a leaf of deltas")
            }
        };
        match taken {
            true => Ok(()),
            false => Err(RecoveryError::Outside { what, at }),
        }
    }

    fn load_shared(
        &mut self,
        leaf: u32,
        at: Pba,
        block: &[u8; BLOCK_BYTES],
    ) -> Result<(), RecoveryError> {
        for (index, raw) in block.chunks_exact(4).enumerate() {
            let raw = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            if raw == 0 {
                continue;
            }
            let vba = Vba(leaf * LEAF_ENTRIES as u32 + index as u32);
            let place = self.shared.restore_entry(vba, raw);
            if place.is_none_or(|pba| self.superblock.segment_of(pba).is_none()) {
                return Err(RecoveryError::Outside {
                    what: "a leaf of shared pages",
                    at,
                });
            }
        }
        Ok(())
    }

    pub(super) fn fresh_tags(&self) -> Vec<Tag> {
        vec![
            Tag {
                owner: Owner::None,
                sum: 0
            };
            self.superblock.usable_blocks() as usize
        ]
    }

    pub(super) fn read_header(&mut self, head: usize) -> Result<Option<Found>, RecoveryError> {
        let found = self.found_at(self.heads[head])?;
        let is_next = |found: &Found| {
            usize::from(found.header.head) == head && found.header.seq > self.root.seq
        };
        Ok(found.filter(is_next))
    }

    /// The chunk at a place, if there is a header of ours.
    pub(super) fn found_at(&mut self, place: Cursor) -> Result<Option<Found>, RecoveryError> {
        let at = self
            .superblock
            .segment_start(place.segment)
            .plus(u64::from(place.offset));
        let mut block = [0; BLOCK_BYTES];
        self.source.read(at, &mut block)?;
        let Ok((header, records)) = chunk::decode(&block, self.crc) else {
            return Ok(None);
        };
        let fits = place.offset + 1 + header.data_blocks <= self.superblock.usable_blocks();
        let ours = header.signature == self.superblock.signature()
            && header.at == at
            && self.superblock.is_of_log(header.seq, header.life);
        let own = chunk::own_tag(&records, &block, self.superblock.sum(self.crc));
        Ok((ours && fits).then_some(Found {
            header,
            records,
            own,
        }))
    }

    /// Applies the next chunk in order; `false` when there is none.
    pub(super) fn step(&mut self) -> Result<bool, RecoveryError> {
        for head in 0..2 {
            if self.peeked[head].is_none() {
                let found = self.read_header(head)?;
                if let Some(Found { header, .. }) = &found {
                    // What it knows of itself does not count.
                    self.durable = self.durable.max(header.durable.min(Seq(header.seq.0 - 1)));
                }
                self.peeked[head] = Some(found);
            }
        }
        let expected = self.last_seq.next();
        let follows = |header: &ChunkHeader| {
            header.seq == expected
                && header.prev_life == self.last_life
                && header.life >= self.last_life
        };
        // Both heads may have one: the older is of a life whose log ended before it (it was torn, or
        // never known to be whole), for the newer life could not have begun at this number otherwise.
        let candidate = (0..2)
            .filter_map(|head| Some((self.peeked[head].as_ref()?.as_ref()?.header, head)))
            .filter(|(header, _)| follows(header))
            .max_by_key(|(header, _)| header.life);
        let Some((header, head)) = candidate else {
            return Ok(false);
        };
        if header.root_generation > self.root.generation {
            return Err(RecoveryError::RootLost {
                lost: header.root_generation,
            });
        }
        let Some(Some(found)) = self.peeked[head].take() else {
            return Ok(false);
        };
        if header.seq > self.durable && !self.data_is_whole(&header, &found.records) {
            self.look_ahead_for_durable(&header);
            // What was durable is damaged, not torn: the log goes on, and the damage is found again, and
            // told to a client, when the block is read.
            if header.seq > self.durable {
                return Ok(false);
            }
        }
        self.apply(head, &found)?;
        Ok(true)
    }

    pub(super) fn data_is_whole(&mut self, header: &ChunkHeader, records: &[Record]) -> bool {
        if let Some(through) = self.superblock.without_data() {
            return header.seq <= through;
        }
        let mut data = vec![0; header.data_blocks as usize * BLOCK_BYTES];
        if self.source.read(header.at.plus(1), &mut data).is_err() {
            return false;
        }
        self.replayed.verified += u64::from(header.data_blocks);
        let sum = self.superblock.sum(self.crc);
        let expected = records.iter().filter_map(Record::tag).map(|tag| tag.sum);
        data.chunks_exact(BLOCK_BYTES)
            .map(|block| sum.of(block))
            .eq(expected)
    }

    fn apply(&mut self, head: usize, found: &Found) -> Result<(), RecoveryError> {
        let header = &found.header;
        let outside = RecoveryError::Outside {
            what: "a chunk",
            at: header.at,
        };
        let cursor = self.heads[head];
        self.apply_records(cursor, found, &mut |_| Err(outside))?;
        (self.last_seq, self.last_life) = (header.seq, header.life);
        let offset = cursor.offset + 1 + header.data_blocks;
        match header.next {
            None if offset + 2 <= self.superblock.usable_blocks() => {
                self.heads[head].offset = offset
            }
            Some(next) if self.is_fresh(next) => {
                self.heads[head] = Cursor {
                    segment: next,
                    offset: 0,
                };
                self.open_tags(next);
            }
            _ => return Err(outside),
        }
        Ok(())
    }

    /// Applies what a chunk at `cursor` says; `wrong` is told of each record that names what the volume does not hold,
    /// and decides whether to go on.
    pub(super) fn apply_records(
        &mut self,
        cursor: Cursor,
        found: &Found,
        wrong: &mut dyn FnMut(&Record) -> Result<(), RecoveryError>,
    ) -> Result<(), RecoveryError> {
        if let Some(own) = found.own {
            self.tag(cursor, cursor.offset, own);
        }
        let mut place = Place {
            chunk: found.header.at,
            block: 1,
            pages: Vec::new(),
        };
        for record in &found.records {
            if let Some(tag) = record.tag() {
                self.tag(cursor, cursor.offset + u32::from(place.block), tag);
            }
            if self.apply_record(&mut place, record).is_none() {
                wrong(record)?;
            }
            place.block += u16::from(record.tag().is_some());
            self.pledges.apply(record);
        }
        self.segments[cursor.segment.0 as usize].last_seq = found.header.seq;
        self.replayed.chunks += 1;
        let names = found.records.iter().filter_map(Record::names);
        self.last_names.take(names);
        Ok(())
    }

    /// Applies one record; `None`: it names what the volume does not hold.
    fn apply_record(&mut self, place: &mut Place, record: &Record) -> Option<()> {
        let logical = self.superblock.logical_blocks();
        let in_map =
            |lba: Lba, blocks: u64| lba.0.checked_add(blocks).is_some_and(|end| end <= logical);
        let pba = place.chunk.plus(place.block.into());
        match *record {
            Record::Data { lba, .. } if in_map(lba, 1) => {
                self.map.set(lba, Entry::Plain(pba));
            }
            Record::Move { lba, from, .. } if in_map(lba, 1) => {
                // The entry may still be shared here although it had become plain when it was moved:
                // which pages have one owner left is settled when all is replayed.
                let leads_there = match self.map.get(lba) {
                    Entry::Plain(at) => at == from,
                    Entry::Shared(vba) => {
                        self.shared.is_placed(vba) && self.shared.pba(vba) == from
                    }
                    Entry::Unmapped | Entry::Zero | Entry::Packed(..) => false,
                };
                if leads_there {
                    self.map.set(lba, Entry::Plain(pba));
                }
            }
            // Unmapped either way: both read as zeros, and it costs what is mapped, not what is named.
            Record::Zero { lba, blocks } | Record::Discard { lba, blocks }
                if in_map(lba, blocks) =>
            {
                let mut at = lba;
                while let Some((mapped, _)) = self.map.next_mapped(at, lba.plus(blocks)) {
                    self.map.set(mapped, Entry::Unmapped);
                    at = mapped.plus(1);
                }
            }
            Record::Share { lba, vba, pba } if in_map(lba, 1) => {
                self.superblock.segment_of(pba)?;
                self.shared.restore(vba, pba, false).then_some(())?;
                self.map.set(lba, Entry::Shared(vba));
            }
            Record::Pledge { home, journal } if in_map(home, 1) && in_map(journal, 1) => {}
            Record::Pack { vba, .. } => {
                self.shared.restore(vba, pba, true).then_some(())?;
                place.pages.push((place.block, vba));
            }
            Record::PackHere { vba } => {
                self.shared.restore(vba, place.chunk, true).then_some(())?;
                place.pages.push((0, vba));
            }
            Record::Part { lba, part } | Record::Delta { lba, part, .. } if in_map(lba, 1) => {
                let mut pages = place.pages.iter();
                let &(_, vba) = pages.find(|(block, _)| *block == part.block)?;
                let slot = part.slot;
                if let Record::Delta { base, .. } = *record {
                    self.shared.restore_delta(PartId { page: vba, slot }, base);
                }
                self.map.set(lba, Entry::Packed(vba, slot));
            }
            Record::SharePart { lba, vba, slot } if in_map(lba, 1) => {
                self.map.set(lba, Entry::Packed(vba, slot));
            }
            Record::MoveShared { vba, from, .. } => {
                if self.shared.is_placed(vba) && self.shared.pba(vba) == from {
                    self.shared.restore_move(vba, pba);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// A head goes on in this segment: nothing is known of its blocks.
    pub(super) fn open_tags(&mut self, segment: Segment) {
        let tags = self.fresh_tags();
        self.tags.push((segment, tags));
    }

    /// Whether a head may go on in a segment: there it is, and nothing was written to it since the map checkpoint, for
    /// it is not erased before the next one.
    fn is_fresh(&self, next: Segment) -> bool {
        let state = self.segments.get(next.0 as usize);
        state.is_some_and(|state| state.last_seq == Seq(0))
            && self.heads.iter().all(|head| head.segment != next)
    }

    fn tag(&mut self, cursor: Cursor, offset: u32, tag: Tag) {
        let mut open = self.tags.iter_mut().rev();
        if let Some((_, tags)) = open.find(|(segment, _)| *segment == cursor.segment) {
            tags[offset as usize] = tag;
        }
    }

    pub(super) fn finish(mut self) -> Result<Recovered, RecoveryError> {
        // A block is live where the heads have been, and once: more of them than a segment has are not.
        let mut count = |pba: Pba| {
            let (segment, offset) = self.superblock.segment_of(pba)?;
            let ahead = |head: &Cursor| head.segment == segment && head.offset <= offset;
            let valid = &mut self.segments[segment.0 as usize].valid;
            *valid += 1;
            let fits = *valid <= self.superblock.usable_blocks();
            (fits && !self.heads.iter().any(ahead)).then_some(())
        };
        for (lba, entry) in self.map.iter() {
            let pba = match entry {
                Entry::Unmapped | Entry::Zero => continue,
                Entry::Plain(pba) => pba,
                Entry::Shared(vba) => {
                    let first = self.shared.owners(vba) == 0;
                    let is_one = self.shared.is_placed(vba) && !self.shared.has_parts(vba);
                    if is_one && !(self.shared.add(vba, lba) && first) {
                        continue;
                    }
                    match is_one {
                        true => self.shared.pba(vba),
                        false => Pba(0),
                    }
                }
                Entry::Packed(vba, _) if self.shared.has_parts(vba) => {
                    self.shared.add_part(vba);
                    if self.shared.owners(vba) > 1 {
                        continue;
                    }
                    self.shared.pba(vba)
                }
                Entry::Packed(..) => Pba(0),
            };
            let leaf = Leaf((lba.0 / LEAF_ENTRIES as u64) as u32);
            let at = self.superblock.leaf_slot(leaf, 0);
            count(pba).ok_or(outside_of("the map", at))?;
        }
        let last = self.superblock.leaves() - 1;
        // A table may have no leaf: volumes that are older than deltas have none for them.
        let outside = |what, first: u32| {
            outside_of(what, self.superblock.leaf_slot(Leaf(first.min(last)), 0))
        };
        let first = self.superblock.map_leaves();
        let of_shared = outside("the table of shared pages", first);
        let first = first + self.superblock.shared_leaves();
        let of_deltas = outside("the table of deltas", first);
        for pba in self.shared.settle_deltas().ok_or(of_deltas)? {
            count(pba).ok_or(of_deltas)?;
        }
        if !self.shared.has_numbers(self.pledges.len()) {
            return Err(of_shared);
        }
        let mut strays = Vec::new();
        for (lba, pba) in self.shared.settle().ok_or(of_shared)? {
            self.map.set(lba, Entry::Plain(pba));
            strays.push((pba, lba));
        }
        Ok(Recovered {
            superblock: self.superblock,
            map: self.map,
            shared: self.shared,
            heads: self.heads,
            last_seq: self.last_seq,
            last_life: self.last_life,
            last_names: self.last_names,
            root: self.root,
            slots: self.slots,
            segments: self.segments,
            tags: self.tags,
            strays,
            pledges: self.pledges.into_pairs(),
            unread: self.unread,
            is_rest: false,
            replayed: self.replayed,
        })
    }
}

/// Something that names what the volume does not hold.
fn outside_of(what: &'static str, at: Pba) -> RecoveryError {
    RecoveryError::Outside { what, at }
}
