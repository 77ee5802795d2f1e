//! Every chunk header that is whole, wherever it lies: found without a map checkpoint.

use super::super::Source;
use crate::addr::{BLOCK_BYTES, Generation, Life, Segment, Seq};
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
    pub place: Cursor,
    /// How long it is, its header included.
    pub blocks: u32,
}

impl Spot {
    fn of(header: &ChunkHeader, place: Cursor) -> Self {
        Self {
            seq: header.seq,
            life: header.life,
            prev_life: header.prev_life,
            place,
            blocks: 1 + header.data_blocks,
        }
    }

    /// Whether this is what follows a chunk of that number and life.
    pub fn follows(&self, seq: Seq, life: Life) -> bool {
        self.seq == seq.next() && self.prev_life == life
    }
}

/// What the headers tell together.
pub(super) struct Scan {
    /// Those that are of the log, in its order: a number may be missing, and none is there twice.
    pub spots: Vec<Spot>,
    /// All, by their places: also those that are of the log no more, or never were.
    headers: Vec<Spot>,
    /// The newest chunk that any header knew to be durable: one that is no part of the log any more tells of those before it.
    pub durable: Seq,
    /// The newest map checkpoint that any knew to be durable.
    pub root_generation: Generation,
}

impl Scan {
    /// The headers whose chunks have a block.
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

    /// The same, of every block of each segment.
    pub fn closely(self, source: &mut dyn Source, superblock: &Superblock, crc: Crc) -> Self {
        let mut scan = Self::of(source, superblock, crc, true);
        scan.durable = scan.durable.max(self.durable);
        scan
    }

    /// Whether chunks are missing of those behind this one that were durable.
    pub fn lacks_any(&self, after: Seq) -> bool {
        let behind = |spot: &&Spot| spot.seq > after && spot.seq <= self.durable;
        let found = self.spots.iter().filter(behind).count() as u64;
        after.0 + found < self.durable.0
    }

    /// A whole chunk is passed over, `closely` not even that: a header of before, of which a lost write has left more than itself,
    /// may hide one that is of the log.
    pub fn of(source: &mut dyn Source, superblock: &Superblock, crc: Crc, closely: bool) -> Self {
        let mut scan = Self {
            spots: Vec::new(),
            headers: Vec::new(),
            durable: Seq(0),
            root_generation: Generation(0),
        };
        for segment in 0..superblock.segment_count() {
            scan.walk(source, superblock, crc, Segment(segment), closely);
        }
        scan.spots = in_force(scan.spots);
        scan
    }

    /// The chunks of one segment. Behind those of its last use may lie some of the one before: of older chunks. A header of before
    /// that a lost write has left in its place hides what is behind it: where no chunk follows, that is looked into.
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
            let is_end = offset >= inside.end;
            offset += 1;
            if let Some(header) = &header {
                self.durable = self.durable.max(header.durable.min(Seq(header.seq.0 - 1)));
                self.root_generation = self.root_generation.max(header.root_generation);
                self.headers.push(Spot::of(header, place));
            }
            // What lies behind one of a higher number and an older life tells that this one is of before.
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

/// The header of ours at a place, if there is one whose chunk its segment has room for.
fn header_at(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
    place: Cursor,
) -> Option<ChunkHeader> {
    let mut block = [0; BLOCK_BYTES];
    let usable = superblock.usable_blocks();
    let start = superblock.segment_start(place.segment);
    let at = start.plus(place.offset.into());
    if place.offset + 1 >= usable || source.read(at, &mut block).is_err() {
        return None;
    }
    let (header, _) = chunk::decode(&block, crc).ok()?;
    let is_ours = header.signature == superblock.signature() && header.at == at;
    let fits = header.data_blocks < usable - place.offset && header.seq > Seq(0);
    (is_ours && fits).then_some(header)
}

/// Leaves out what is no part of the log: what an older life wrote behind the place at which a newer one went on, and
/// what is not what the chunk after it followed.
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
