//! Finds every whole chunk header, wherever it is, without a map checkpoint.

use super::super::{Source, Unreadable};
use crate::addr::{BLOCK_BYTES, Generation, Life, Pba, Segment, Seq};
use crate::format::chunk::{self, ChunkHeader};
use crate::format::root::Cursor;
use crate::format::{Crc, superblock::Superblock};
use crate::limits::CHUNK_DATA_BLOCKS;
use alloc::vec::Vec;

/// A whole header, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub seq: Seq,
    pub life: Life,
    prev_life: Life,
    /// The newest chunk that its header reports as durable.
    pub durable: Seq,
    pub place: Cursor,
    /// The chunk's length, with its header.
    pub blocks: u32,
}

impl Spot {
    fn of(header: &ChunkHeader, place: Cursor) -> Self {
        Self {
            seq: header.seq,
            life: header.life,
            prev_life: header.prev_life,
            durable: header.durable.min(Seq(header.seq.0 - 1)),
            place,
            blocks: 1 + header.data_blocks,
        }
    }

    /// True if this chunk follows the chunk of that number and life.
    pub fn follows(&self, seq: Seq, life: Life) -> bool {
        self.seq == seq.next() && self.prev_life == life
    }

    /// True if chunks are missing before `next`, and a newer life wrote the last of them. It may have written one with this chunk's number,
    /// too: then a power cut of the older life has torn this chunk, or one before it.
    pub fn may_be_stale(&self, next: &Self) -> bool {
        next.seq > self.seq.next() && next.prev_life != self.life
    }
}

/// The result of a scan of all headers.
pub(super) struct Scan {
    /// The headers that are part of the log, in log order. Chunk numbers may be missing; none appears twice.
    pub spots: Vec<Spot>,
    /// All headers by place, including those that are no longer, or never were, part of the log.
    headers: Vec<Spot>,
    /// The newest chunk that any header reports as durable. A header that is no longer part of the log vouches for the chunks before it,
    /// too.
    pub durable: Seq,
    /// The newest map checkpoint that any header reports as durable.
    pub root_generation: Generation,
    /// The first two segments' starts that cannot be read.
    unread_starts: [Option<Pba>; 2],
}

impl Scan {
    /// The headers whose chunks contain a block.
    pub fn over(&self, segment: Segment, offset: u32) -> impl Iterator<Item = &Spot> {
        let place = |spot: &Spot| (spot.place.segment, spot.place.offset);
        let end = self
            .headers
            .partition_point(|spot| place(spot) <= (segment, offset));
        let before = self.headers[..end].iter().rev();
        let near = before.take_while(move |spot| {
            spot.place.segment == segment && offset - spot.place.offset <= CHUNK_DATA_BLOCKS as u32
        });
        near.filter(move |spot| offset < spot.place.offset + spot.blocks)
    }

    /// Scans again, and looks at every block of each segment.
    pub fn closely(self, source: &mut dyn Source, superblock: &Superblock, crc: Crc) -> Self {
        let mut scan = Self::of(source, superblock, crc, true);
        scan.durable = scan.durable.max(self.durable);
        scan
    }

    /// True if durable chunks after this one are missing.
    pub fn lacks_any(&self, after: Seq) -> bool {
        let behind = |spot: &&Spot| spot.seq > after && spot.seq <= self.durable;
        let found = self.spots.iter().filter(behind).count() as u64;
        after.0 + found < self.durable.0
    }

    fn note_unread_start(&mut self, at: Pba) {
        let unnoted = self.unread_starts.iter_mut().find(|start| start.is_none());
        unnoted.into_iter().for_each(|start| *start = Some(at));
    }

    /// True if the first block of any segment cannot be read, except for the one at `at`. The headers of a segment begin there.
    pub fn is_unread_at_another_start(&self, at: Pba) -> bool {
        self.unread_starts
            .iter()
            .flatten()
            .any(|start| *start != at)
    }

    /// Scans all segments. Skips the data of a whole chunk, unless `closely`: if writes were lost, a stale header may seem to have data
    /// there, and hide a header that is part of the log.
    pub fn of(source: &mut dyn Source, superblock: &Superblock, crc: Crc, closely: bool) -> Self {
        let mut scan = Self {
            spots: Vec::new(),
            headers: Vec::new(),
            durable: Seq(0),
            root_generation: Generation(0),
            unread_starts: [None; 2],
        };
        for segment in 0..superblock.segment_count() {
            scan.walk(source, superblock, crc, Segment(segment), closely);
        }
        scan.spots = in_force(scan.spots);
        scan
    }

    /// Walks the chunks of one segment. Older chunks, of the segment's previous use, may follow the chunks of its last use. If a write
    /// was lost, a stale header remains, and hides the headers behind it. So if no chunk follows a chunk, its data is searched for
    /// headers.
    fn walk(
        &mut self,
        source: &mut dyn Source,
        superblock: &Superblock,
        crc: Crc,
        segment: Segment,
        closely: bool,
    ) {
        let (mut newest, mut life) = (Seq(0), Life(0));
        let mut offset = 0;
        // The data of the last chunk.
        let mut inside = 0..0;
        while offset < superblock.usable_blocks() - 1 || !inside.is_empty() {
            let place = Cursor { segment, offset };
            let header = header_at(source, superblock, crc, place);
            if header.is_err() && offset == 0 {
                self.note_unread_start(superblock.segment_start(segment));
            }
            let header = header.ok().flatten();
            let is_end = offset >= inside.end;
            offset += 1;
            if let Some(header) = &header {
                self.durable = self.durable.max(header.durable.min(Seq(header.seq.0 - 1)));
                self.root_generation = self.root_generation.max(header.root_generation);
                self.headers.push(Spot::of(header, place));
            }
            // If the previous header has a higher number but an older life, the previous one is stale.
            let is_next = |header: &ChunkHeader| {
                let is_newer = header.seq > newest || header.life > life;
                is_newer && superblock.is_of_log(header.seq, header.life)
            };
            let Some(header) = header.filter(is_next) else {
                if is_end {
                    offset = match inside.is_empty() {
                        true => offset,
                        false => inside.start,
                    };
                    inside = 0..0;
                }
                continue;
            };
            (newest, life) = (header.seq, header.life);
            if !closely {
                inside = offset..offset + header.data_blocks;
                offset = inside.end;
            }
            self.spots.push(Spot::of(&header, place));
        }
    }
}

/// This volume's header at a place, if there is one whose chunk fits in its segment.
fn header_at(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
    place: Cursor,
) -> Result<Option<ChunkHeader>, Unreadable> {
    let mut block = [0; BLOCK_BYTES];
    let usable = superblock.usable_blocks();
    let start = superblock.segment_start(place.segment);
    let at = start.plus(place.offset.into());
    if place.offset + 1 >= usable {
        return Ok(None);
    }
    source.read(at, &mut block)?;
    let Ok((header, _)) = chunk::decode(&block, crc) else {
        return Ok(None);
    };
    let is_ours = header.signature == superblock.signature() && header.at == at;
    let fits = header.data_blocks < usable - place.offset && header.seq > Seq(0);
    Ok((is_ours && fits).then_some(header))
}

/// Leaves out chunks that are not part of the log: an older life wrote them past the point where a newer one went on, or the next chunk
/// does not follow them.
fn in_force(mut spots: Vec<Spot>) -> Vec<Spot> {
    spots.sort_unstable_by_key(|spot| (spot.seq, core::cmp::Reverse(spot.life)));
    let mut newest = Life(0);
    spots.retain(|spot| {
        let is_newest = spot.life >= newest;
        newest = newest.max(spot.life);
        is_newest
    });
    spots.dedup_by_key(|spot| spot.seq);
    let mut after: Option<Spot> = None;
    let mut kept: Vec<Spot> = Vec::with_capacity(spots.len());
    for spot in spots.into_iter().rev() {
        let is_another = after.is_some_and(|after| {
            after.seq == spot.seq.next() && !after.follows(spot.seq, spot.life)
        });
        if !is_another {
            kept.push(spot);
            after = Some(spot);
        }
    }
    kept.reverse();
    kept
}
