//! The structures of a log: roots, the leaves and parities that they name, chunk headers and summaries.

use super::parts::{Part, Put, give, is_blank};
use crate::addr::{BLOCK_BYTES, Generation, Leaf, Pba, Segment};
use crate::format::root::{self, LeafSlot, RootHeader};
use crate::format::{Crc, chunk, leaf, open_summary, summary, superblock::Superblock};
use crate::recovery::Source;
use alloc::{vec, vec::Vec};

pub(super) fn bare(
    source: &mut dyn Source,
    superblock: &Superblock,
    signature: [u8; 16],
    crc: Crc,
    put: Put<'_>,
) {
    // In the order of their places: on a volume that has grown, segments come first.
    let roots = superblock.root_place(Generation(0));
    if superblock.segments().first() < roots {
        give_segments(source, superblock, signature, crc, put);
        give_map(source, superblock, &signature, crc, put);
    } else {
        give_map(source, superblock, &signature, crc, put);
        give_segments(source, superblock, signature, crc, put);
    }
}

/// Roots, leaves, and the open summaries that follow a root's second copy.
fn give_map(
    source: &mut dyn Source,
    superblock: &Superblock,
    signature: &[u8; 16],
    crc: Crc,
    put: Put<'_>,
) {
    let copies = (0..2).flat_map(|place| superblock.root_copies(Generation(place)));
    let mut copies: Vec<Pba> = copies.collect();
    copies.sort_unstable();
    let mut bytes = vec![0; superblock.root_blocks() as usize * BLOCK_BYTES];
    let decode =
        |bytes: &[u8]| root::decode(bytes, &superblock.uuid(), superblock.leaves(), crc).ok();
    let is_whole = |bytes: &[u8]| decode(bytes).is_some();
    let mut roots: Vec<Vec<LeafSlot>> = Vec::new();
    for &at in &copies {
        if source.read(at, &mut bytes).is_ok() {
            roots.extend(decode(&bytes).map(|(_, slots)| slots));
        }
    }
    roots.dedup();
    let leaves = superblock.leaf_slot(Leaf(0), 0);
    let (before, behind) = copies.split_at(copies.partition_point(|at| *at < leaves));
    for &at in before {
        give(source, at, &mut bytes, put, &is_whole);
    }
    give_leaves(source, superblock, &roots, crc, put);
    for &at in behind {
        if give(source, at, &mut bytes, put, &is_whole)
            && let Some((root, _)) = decode(&bytes)
        {
            give_open_summaries(source, superblock, &root, signature, crc, put);
        }
    }
}

fn give_segments(
    source: &mut dyn Source,
    superblock: &Superblock,
    signature: [u8; 16],
    crc: Crc,
    put: Put<'_>,
) {
    let mut segments = Segments {
        source,
        superblock,
        signature,
        crc,
        put,
    };
    for segment in 0..superblock.segment_count() {
        segments.headers(Segment(segment));
        segments.summary(Segment(segment));
    }
}

/// The leaves that a root names, and nothing from other slots.
fn give_leaves(
    source: &mut dyn Source,
    superblock: &Superblock,
    roots: &[Vec<LeafSlot>],
    crc: Crc,
    put: Put<'_>,
) {
    let mut block = [0; BLOCK_BYTES];
    let slots = (0..superblock.leaves()).flat_map(|leaf| [(Leaf(leaf), 0), (Leaf(leaf), 1)]);
    for (leaf, slot) in slots {
        let named = roots.iter().map(|slots| slots[leaf.0 as usize]);
        let sums: Vec<u32> = named.filter_map(|leaf| leaf.sum_in(slot)).collect();
        if !sums.is_empty() {
            let at = superblock.leaf_slot(leaf, slot);
            give(source, at, &mut block, put, &|bytes| {
                sums.contains(&leaf::checksum(leaf, bytes, crc))
            });
        }
    }
}

/// The open summaries, which follow a root's second copy, for each head in turn.
fn give_open_summaries(
    source: &mut dyn Source,
    superblock: &Superblock,
    root: &RootHeader,
    signature: &[u8; 16],
    crc: Crc,
    put: Put<'_>,
) {
    let blocks = superblock.open_summary_blocks();
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    for (head, cursor) in (0..).zip(root.cursors) {
        let Some(at) = superblock.open_summary(root.generation, head) else {
            return;
        };
        if source.read(at, &mut bytes).is_err() {
            put(at, Part::Unread(blocks.into()));
            continue;
        }
        match open_summary::decode(superblock, root, head, &bytes, crc) {
            Ok(_) if cursor.offset == 0 => {}
            Ok(tags) => {
                let count = tags.map_or(0, |tags| tags.len());
                summary::sign(&mut bytes, signature, count, crc);
                put(at, Part::Whole(&bytes));
            }
            Err(_) if is_blank(&bytes) => {}
            Err(_) => put(at, Part::Damaged(blocks.into())),
        }
    }
}

struct Segments<'a> {
    source: &'a mut dyn Source,
    superblock: &'a Superblock,
    signature: [u8; 16],
    crc: Crc,
    put: Put<'a>,
}

impl Segments<'_> {
    /// Every chunk header, wherever it is, even if nothing needs it any more.
    fn headers(&mut self, segment: Segment) {
        let start = self.superblock.segment_start(segment);
        let usable = self.superblock.usable_blocks();
        let mut block = [0; BLOCK_BYTES];
        let mut offset = 0;
        while offset < usable {
            let at = start.plus(offset.into());
            offset += 1;
            if self.source.read(at, &mut block).is_err() {
                (self.put)(at, Part::Unread(1));
                continue;
            }
            match chunk::decode(&block, self.crc) {
                Ok((header, _)) => {
                    let is_ours = header.signature == self.superblock.signature();
                    if is_ours && header.at == at {
                        chunk::sign_without_parts(&mut block, &self.signature, self.crc);
                        (self.put)(at, Part::Whole(&block));
                        offset = (offset + header.data_blocks).min(usable);
                    }
                }
                Err(_) if chunk::looks_like_one(&block) => (self.put)(at, Part::Damaged(1)),
                Err(_) => {}
            }
        }
    }

    fn summary(&mut self, segment: Segment) {
        let usable = self.superblock.usable_blocks();
        let blocks = self.superblock.segment_blocks() - usable;
        let at = self.superblock.segment_start(segment).plus(usable.into());
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        if self.source.read(at, &mut bytes).is_err() {
            return (self.put)(at, Part::Unread(blocks.into()));
        }
        let signature = self.superblock.signature();
        let found = summary::decode(&signature, segment, usable as usize, &bytes, self.crc);
        match found {
            Ok(_) => {
                summary::sign(&mut bytes, &self.signature, usable as usize, self.crc);
                (self.put)(at, Part::Whole(&bytes));
            }
            // If no head ever left this segment, its summary's blocks hold older bytes, of whatever kind.
            Err(_) if is_blank(&bytes) || !summary::looks_like_one(&bytes) => {}
            Err(_) => (self.put)(at, Part::Damaged(blocks.into())),
        }
    }
}
