//! The on-disk format: one file per structure, each with its encoder and its decoder. `docs/FORMAT.md` is rendered from the
//! `FIELDS` of these structs.
//!
//! Everything is little endian. Every structure carries its own checksum and the volume's UUID or signature, so bytes from elsewhere are
//! refused. All bytes read from the medium count as hostile until they are decoded here.

pub mod archive;
pub mod areas;
pub mod chunk;
mod crc;
mod error;
mod field;
pub mod frames;
pub mod geometry;
pub mod grown;
pub mod history;
mod kind;
pub mod leaf;
pub mod names;
pub mod open_summary;
pub mod pack;
pub mod properties;
pub mod record;
pub mod root;
pub mod root_image;
pub mod shortened;
pub mod shrunk;
pub mod slots;
pub mod stream;
pub mod sum;
pub mod summary;
pub mod superblock;
pub mod table;

use crate::addr::{BLOCK_BYTES, Generation, Pba};
use alloc::{vec, vec::Vec};

pub use error::{FormatError, NUMBER_MAX};
pub use field::{Crc, Field, VERSION};
pub use sum::{BlockSum, SumKind};

/// The fields of all structures, for the documents.
#[must_use]
pub fn tables() -> Vec<(&'static str, &'static [Field])> {
    vec![
        ("Superblock", superblock::FIELDS),
        ("Property", properties::FIELDS),
        ("Root header", root::FIELDS),
        ("Chunk header", chunk::FIELDS),
        ("Page of parts", pack::FIELDS),
        ("Summary header", summary::FIELDS),
        ("Sector of a table", table::FIELDS),
        ("Head of an archive", archive::HEAD_FIELDS),
        ("Head of a stream", stream::FIELDS),
        ("Frame of an archive, and of a stream", frames::FIELDS),
        ("Snapshot in the list", history::FIELDS),
    ]
}

/// Writes an empty volume: the first root, then both superblocks. The superblocks are last, so that an interrupted creation
/// leaves no volume.
pub fn blank(superblock: &superblock::Superblock, crc: Crc, write: &mut dyn FnMut(Pba, &[u8])) {
    if superblock.layout() != areas::Layout::Log {
        return table::blank(superblock, crc, write);
    }
    let mut root = vec![0; superblock.root_blocks() as usize * BLOCK_BYTES];
    // Clears the other place, so that no root of a volume that was here before passes for this volume's.
    for at in superblock.root_copies(Generation(0)) {
        write(at, &root);
    }
    let header = root::RootHeader {
        uuid: superblock.uuid(),
        generation: Generation(1),
        seq: crate::addr::Seq(0),
        life: crate::addr::Life(0),
        durable: crate::addr::Seq(0),
        cursors: [0, 1].map(|n| root::Cursor {
            segment: crate::addr::Segment(n),
            offset: 0,
        }),
        swept: 0,
        scrubbed: 0,
    };
    let slots = vec![root::LeafSlot::Absent; superblock.leaves() as usize];
    root::encode(&header, &slots, crc, &mut root);
    for at in superblock.root_copies(Generation(1)) {
        write(at, &root);
    }
    let mut block = [0; BLOCK_BYTES];
    superblock.encode(crc, &mut block);
    for mirror in superblock.mirrors().into_iter().rev() {
        write(mirror, &block);
    }
}
