//! The inodes of a file system, and where their blocks are.

use super::hits::{Hits, Use};
use crate::group;
use crate::inode::{self, Sketch};
use crate::limits::{EXTENT_DEPTH, FILES_DIRECTORIES};
use crate::source::Reader;
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use crate::tree::{ENTRY, EXTENT_MAGIC, extent_blocks, numbers, roots};
use crate::watch::Watches;

/// The result of a walk.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// The directories, in order.
    pub directories: Vec<u32>,
    pub passed_over: u64,
    pub cut_short: bool,
}

/// Walks all inodes in use.
pub(super) fn inodes(sb: &Superblock, reader: &mut Reader<'_>, hits: &mut Hits<'_>) -> Walked {
    let mut walked = Walked::default();
    for group in 0..sb.groups() {
        let Ok(found) = group::read(sb, group, reader, &mut Watches::default()) else {
            walked.passed_over += 1;
            if reader.budget() == 0 {
                break;
            }
            continue;
        };
        let first = group * u64::from(sb.inodes_per_group) + 1;
        let count = found.inodes.min(sb.inodes_per_group);
        table(
            sb,
            reader,
            found.inode_table,
            (first as u32, count),
            hits,
            &mut walked,
        );
        if walked.cut_short {
            break;
        }
    }
    walked
}

/// Walks `count` inodes of a group, from number `first` on.
fn table(
    sb: &Superblock,
    reader: &mut Reader<'_>,
    at: Span,
    (first, count): (u32, u32),
    hits: &mut Hits<'_>,
    walked: &mut Walked,
) {
    let per_block = sb.block_bytes / u32::from(sb.inode_bytes);
    for start in (0..count).step_by(per_block as usize) {
        let block_at = at.start + u64::from(start) * u64::from(sb.inode_bytes);
        let Ok(block) = reader.read(block_at, sb.block_bytes as usize) else {
            walked.passed_over += 1;
            walked.cut_short |= reader.budget() < u64::from(sb.block_bytes);
            if walked.cut_short {
                return;
            }
            continue;
        };
        let inodes = block.chunks_exact(sb.inode_bytes.into());
        for (bytes, index) in inodes.zip(start..count) {
            let Some(sketch) = inode::sketch(bytes) else {
                continue;
            };
            let number = first + index;
            if sketch.is_directory {
                if walked.directories.len() == FILES_DIRECTORIES {
                    walked.cut_short = true;
                    return;
                }
                walked.directories.push(number);
            }
            let mut look = |span: Span, piece| match piece {
                Piece::Attributes => hits.look(span, |_| Use::Attributes(number)),
                Piece::Tree => hits.look(span, |_| Use::Tree(number)),
                Piece::Content(from) => hits.look(span, |at| Use::Content(number, from + at)),
            };
            walked.passed_over += pieces(sb, &sketch, reader, &mut look);
        }
    }
}

/// A part of an inode's blocks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece {
    Attributes,
    Tree,
    /// Contents, from this byte of the file on.
    Content(u64),
}

/// Reports where all parts of an inode are. Returns how many are invalid or cannot be read.
pub(super) fn pieces(
    sb: &Superblock,
    sketch: &Sketch,
    reader: &mut Reader<'_>,
    look: &mut dyn FnMut(Span, Piece),
) -> u64 {
    let mut walk = Walk {
        sb,
        look,
        passed_over: 0,
    };
    if sketch.attributes != 0 {
        walk.tell(sketch.attributes, 1, Piece::Attributes);
    }
    match &sketch.root {
        Some(root) if sketch.has_extents => walk.extents(root, EXTENT_DEPTH + 1, reader),
        Some(root) => {
            let mut at = 0;
            for (depth, block) in roots(root) {
                walk.indirect(block, depth, &mut at, reader);
            }
        }
        None => {}
    }
    walk.passed_over
}

struct Walk<'a> {
    sb: &'a Superblock,
    look: &'a mut dyn FnMut(Span, Piece),
    passed_over: u64,
}

impl Walk<'_> {
    fn tell(&mut self, block: u64, count: u64, piece: Piece) -> Option<Span> {
        let span = self.sb.blocks_at(FsBlock(block), count);
        match span {
            Some(span) => (self.look)(span, piece),
            None => self.passed_over += 1,
        }
        span
    }

    /// A node of an extent tree. Its depth must be less than that of its parent.
    fn extents(&mut self, bytes: &[u8], above: u16, reader: &mut Reader<'_>) {
        let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (magic, entries, depth) = (field(0), usize::from(field(2)), field(6));
        if magic != EXTENT_MAGIC || entries > bytes.len() / ENTRY - 1 || depth >= above {
            self.passed_over += 1;
            return;
        }
        for entry in bytes[ENTRY..].chunks_exact(ENTRY).take(entries) {
            let half = |at: usize| u64::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
            if depth > 0 {
                let block = half(8) << 32 | half(6) << 16 | half(4);
                if let Some(span) = self.tell(block, 1, Piece::Tree) {
                    match reader.read(span.start, span.bytes as usize) {
                        Ok(bytes) => self.extents(&bytes, depth, reader),
                        Err(_) => self.passed_over += 1,
                    }
                }
                continue;
            }
            let length = extent_blocks(half(4) as u16);
            let in_file = (half(2) << 16 | half(0)) * u64::from(self.sb.block_bytes);
            let block = half(6) << 32 | half(10) << 16 | half(8);
            if length > 0 {
                self.tell(block, length.into(), Piece::Content(in_file));
            }
        }
    }

    /// A block of the file, or of block numbers. `at` is its position in the file, in blocks.
    fn indirect(&mut self, block: u64, depth: usize, at: &mut u64, reader: &mut Reader<'_>) {
        let unit = u64::from(self.sb.block_bytes);
        let covers = (unit / 4).pow(depth as u32);
        if block == 0 {
            *at += covers;
        } else if depth == 0 {
            self.tell(block, 1, Piece::Content(*at * unit));
            *at += 1;
        } else {
            let after = *at + covers;
            if let Some(span) = self.tell(block, 1, Piece::Tree) {
                match reader.read(span.start, span.bytes as usize) {
                    Ok(bytes) => {
                        for block in numbers(&bytes) {
                            self.indirect(block, depth - 1, at, reader);
                        }
                    }
                    Err(_) => self.passed_over += 1,
                }
            }
            *at = after;
        }
    }
}
