//! Replay: the map as of the checkpoint, then chunk after chunk.

use super::error::RecoveryError;
use super::found::{Recovered, Replayed};
use super::headers::{Found, Remembered};
use super::source::{Source, Unreadable};
use crate::addr::Segment;
use crate::addr::{BLOCK_BYTES, Leaf, Life, Pba, Seq, Vba};
use crate::format::chunk::{self, ChunkHeader, Record};
use crate::format::leaf::Leaves;
use crate::format::names::Names;
use crate::format::root::{Cursor, FreeSegments, LeafSlot, RootHeader};
use crate::format::slots::Slots;
use crate::format::summary::{Owner, Tag};
use crate::format::{Crc, superblock::Superblock};
use crate::state::{Origin, Paging, State, Unsound, Unwritten};
use alloc::{vec, vec::Vec};

/// How far the records of a chunk have been applied.
struct Place {
    chunk: Pba,
    /// The next data block that a record owns.
    block: u16,
    /// Pages of parts: which block of the chunk, and its number.
    pages: Vec<(u16, Vba)>,
}

impl Place {
    /// Returns the origin of a record at this place, and moves the place on to the next record.
    fn origin(&mut self, record: &Record) -> Origin {
        let block = match record {
            Record::PackHere { .. } => 0,
            _ => self.block,
        };
        if let Record::Pack { vba, .. } | Record::PackHere { vba } = *record {
            self.pages.push((block, vba));
        }
        let page = record.part().and_then(|(_, part)| {
            let mut pages = self.pages.iter();
            pages.find(|(block, _)| *block == part.block)
        });
        Origin {
            block: self.chunk.plus(block.into()),
            page: page.map(|&(_, vba)| vba),
        }
    }
}

pub(super) struct Replay<'a> {
    pub(super) source: &'a mut dyn Source,
    pub(super) superblock: Superblock,
    pub(super) crc: Crc,
    pub(super) root: RootHeader,
    pub(super) slots: Slots,
    /// The segments that were free according to the root.
    pub(super) free: FreeSegments,
    /// True if a census counts after recovery.
    counts_later: bool,
    pub(super) state: State,
    pub(super) heads: [Cursor; 2],
    pub(super) last_seq: Seq,
    pub(super) last_life: Life,
    /// What the last applied chunk names.
    last_names: Names,
    /// The newest chunk that is durable according to anything read so far.
    pub(super) durable: Seq,
    /// The newest chunk in each segment, as far as replay has seen.
    newest: Vec<Seq>,
    pub(super) tags: Vec<(Segment, Vec<Tag>)>,
    pub(super) unread: Option<Unreadable>,
    pub(super) replayed: Replayed,
    /// Each head's next chunk, read ahead of its turn; `Some(None)` if there is none.
    peeked: [Option<Option<Found>>; 2],
    pub(super) remembered: [Remembered; 2],
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
            state: State::new(&superblock),
            heads: root.cursors,
            last_seq: root.seq,
            last_life: root.life,
            last_names: Names::default(),
            // The last opening for writing read the log past any cache, so its end at that time was durable. Blocks that only an older
            // state needs have been overwritten since. So if the log ends earlier now, it is damaged.
            durable: root
                .durable
                .max(superblock.log_end().map_or(Seq(0), |end| end.seq)),
            newest: vec![Seq(0); superblock.segment_count() as usize],
            tags: Vec::new(),
            unread: None,
            replayed: Replayed::default(),
            peeked: [None, None],
            remembered: Default::default(),
            source,
            superblock,
            crc,
            root,
            slots: slots.into(),
            free: FreeSegments::default(),
            counts_later: false,
        })
    }

    /// Bounds the map's memory, if there is a bound.
    pub(super) fn page(&mut self, paging: Option<Paging>) {
        if let Some(paging) = paging {
            self.state
                .page(&paging, &self.superblock, &self.slots, self.crc);
            // Without counts, only the root tells which segments are free.
            self.counts_later = paging.counts_later() && self.superblock.tells_free_segments();
        }
    }

    /// Loads the tables, or, if a census is to count, only what cannot be read later.
    pub(super) fn begin_map(&mut self) -> Result<(), RecoveryError> {
        self.counts_later = self.counts_later && self.state.leave_on_medium(&self.slots);
        if !self.counts_later {
            return self.load_leaves();
        }
        let paged = self.superblock.map_leaves() + self.superblock.shared_leaves();
        (paged..self.superblock.first_parity()).try_for_each(|leaf| self.load_leaf(Leaf(leaf)))
    }

    pub(super) fn load_leaves(&mut self) -> Result<(), RecoveryError> {
        (0..self.superblock.first_parity()).try_for_each(|leaf| self.load_leaf(Leaf(leaf)))
    }

    /// Loads a leaf, if there is anything in it. Nothing of a damaged leaf is used; it is restored from the others of its stripe.
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
        self.state
            .load_leaf(leaf, &block)
            .map_err(|what| outside_of(what, at))?;
        if rebuilt {
            self.state.write_anew(leaf);
        }
        self.state.trim();
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
        let place = self.heads[head];
        let found = match self.remembered[head].take(place) {
            None => self.found_at(place)?,
            found => found,
        };
        let is_next = |found: &Found| {
            usize::from(found.header.head) == head && found.header.seq > self.root.seq
        };
        Ok(found.filter(is_next))
    }

    /// The chunk at a place, if this volume has a header there.
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
                    // A chunk's header is no evidence that the chunk itself is durable.
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
        // Both heads may have a chunk of this number. Then the older life's log ended before its own chunk, which was torn or never known
        // to be whole. Otherwise the newer life could not have begun at this number.
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
        if header.seq > self.durable {
            let is_whole = self.data_is_whole(&header, &found.records);
            if is_whole != Ok(true) {
                self.look_ahead_for_durable(&header);
            }
            // If a durable chunk's data is bad, it is damaged, not torn. So the log goes on, and a read of the block finds the damage
            // again and reports it to the client.
            if is_whole != Ok(true) && header.seq > self.durable {
                // A chunk that cannot be read may be whole, and flushed. So nobody may write after the one before it.
                self.unread = self.unread.or(is_whole.err());
                return Ok(false);
            }
        }
        self.apply(head, &found)?;
        Ok(true)
    }

    /// True if a chunk's data is what its header says. If it is not, the next header may say that it was durable, so that has to be
    /// readable.
    pub(super) fn data_is_whole(
        &mut self,
        header: &ChunkHeader,
        records: &[Record],
    ) -> Result<bool, Unreadable> {
        if let Some(through) = self.superblock.without_data() {
            return Ok(header.seq <= through);
        }
        let mut data = vec![0; header.data_blocks as usize * BLOCK_BYTES];
        let mut read = || self.source.read(header.at.plus(1), &mut data);
        read().or_else(|_| read())?;
        self.replayed.verified += u64::from(header.data_blocks);
        let sum = self.superblock.sum(self.crc);
        let expected = records.iter().filter_map(Record::tag).map(|tag| tag.sum);
        let sums = data.chunks_exact(BLOCK_BYTES).map(|block| sum.of(block));
        if sums.eq(expected) {
            return Ok(true);
        }
        let segment = self.superblock.segment_of(header.at);
        let place = segment.map(|(segment, offset)| Cursor { segment, offset });
        if let Some(next) = place.and_then(|place| self.after(place, header)) {
            let start = self.superblock.segment_start(next.segment);
            let at = start.plus(next.offset.into());
            self.source.read(at, &mut [0; BLOCK_BYTES])?;
        }
        Ok(false)
    }

    /// Where a head continues after a chunk.
    pub(super) fn after(&self, cursor: Cursor, header: &ChunkHeader) -> Option<Cursor> {
        let offset = cursor.offset + 1 + header.data_blocks;
        match header.next {
            None => (offset + 2 <= self.superblock.usable_blocks())
                .then_some(Cursor { offset, ..cursor }),
            Some(segment) => (segment.0 < self.superblock.segment_count())
                .then_some(Cursor { segment, offset: 0 }),
        }
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

    /// Applies the records of a chunk at `cursor`. Calls `wrong` for each record that names what the volume does not hold; its
    /// result decides whether to go on.
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
            if self.state.apply(place.origin(record), record).is_none() {
                wrong(record)?;
            }
            place.block += u16::from(record.tag().is_some());
            self.state.trim();
        }
        self.newest[cursor.segment.0 as usize] = found.header.seq;
        self.replayed.chunks += 1;
        let names = found.records.iter().filter_map(Record::names);
        self.last_names.take(names);
        Ok(())
    }

    /// Notes that a head goes on in this segment, of whose blocks nothing is known yet.
    pub(super) fn open_tags(&mut self, segment: Segment) {
        let tags = self.fresh_tags();
        self.tags.push((segment, tags));
    }

    /// True if a head may go on in a segment: it exists, and nothing was written to it since the map checkpoint. It is not erased
    /// before the next checkpoint.
    fn is_fresh(&self, next: Segment) -> bool {
        let newest = self.newest.get(next.0 as usize);
        newest.is_some_and(|&newest| newest == Seq(0))
            && self.heads.iter().all(|head| head.segment != next)
    }

    fn tag(&mut self, cursor: Cursor, offset: u32, tag: Tag) {
        let mut open = self.tags.iter_mut().rev();
        if let Some((_, tags)) = open.find(|(segment, _)| *segment == cursor.segment) {
            tags[offset as usize] = tag;
        }
    }

    pub(super) fn finish(mut self) -> Result<Recovered, RecoveryError> {
        let counts_later = self.counts_later && self.state.begin_census(&self.unwritten());
        if !counts_later {
            let ahead = Unwritten::new(&self.heads, FreeSegments::default());
            let settled = self.state.settle(&ahead);
            settled.map_err(|unsound| self.unsound(unsound))?;
        }
        if let Some(leaf) = self.state.lost_leaf() {
            let place = self.state.place_of_leaf(leaf);
            let at = place.unwrap_or(self.superblock.leaf_slot(leaf, 0));
            return Err(RecoveryError::Leaf { leaf, at });
        }
        Ok(Recovered {
            superblock: self.superblock,
            state: self.state,
            heads: self.heads,
            last_seq: self.last_seq,
            last_life: self.last_life,
            last_names: self.last_names,
            root: self.root,
            has_passed_over: false,
            slots: self.slots,
            free: self.free,
            newest: self.newest,
            tags: self.tags,
            unread: self.unread,
            is_rest: false,
            is_read_alone: false,
            replayed: self.replayed,
        })
    }

    /// What the log goes on into. A segment that the root calls free may have been written to since.
    fn unwritten(&self) -> Unwritten {
        let mut free = self.free.clone();
        for (segment, &newest) in (0..).map(Segment).zip(&self.newest) {
            if newest != Seq(0) || self.heads.iter().any(|head| head.segment == segment) {
                free.remove(segment);
            }
        }
        Unwritten::new(&self.heads, free)
    }

    fn unsound(&self, unsound: Unsound) -> RecoveryError {
        let root = self.superblock.root_place(self.root.generation);
        let (what, at) = unsound.place(&self.superblock, root);
        outside_of(what, at)
    }
}

/// The error for a structure that names something outside the volume.
fn outside_of(what: &'static str, at: Pba) -> RecoveryError {
    RecoveryError::Outside { what, at }
}
