//! Group descriptors: where a group's bitmaps and inode table are.

use crate::aside::{Part, StoodAside};
use crate::checksum::crc16;
use crate::source::Reader;
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use crate::watch::Watches;
use core::mem::offset_of;
use core::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout};

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    _counts: [u8; 6],
    flags: U16,
    _exclude_and_checksums: [u8; 8],
    unused_inodes: U16,
    checksum: U16,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RawHigh {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    _counts: [u8; 6],
    unused_inodes: U16,
}

const _: () = assert!(offset_of!(Raw, checksum) == 0x1E);

/// Flags in `bg_flags`: the inodes, or the block bitmap, were never written.
const INODES_UNWRITTEN: u16 = 1;
const BLOCKS_UNWRITTEN: u16 = 2;
/// Including the flag that the inode table is all zeros.
const FLAGS_MAX: u16 = 7;

/// The halves of `bg_inode_table`. The rest changes with every file.
const TABLE_FIELDS: [Range<usize>; 2] = [0x08..0x0C, 0x28..0x2C];

/// True if a block looks like group descriptors. mke2fs writes the backup descriptors before the first superblock, so at that time their
/// place is not known. The caller must lose nothing if some other block is mistaken for descriptors.
#[must_use]
pub fn may_be_descriptors(block: &[u8]) -> bool {
    [32, 64].into_iter().any(|bytes| {
        let (first, rest) = block.split_at_checked(bytes).unwrap_or((block, &[]));
        match (plausible(first), plausible(rest)) {
            // Descriptors follow one another.
            (Some(first), Some(second)) => first.iter().zip(second).all(|(a, b)| *a < b),
            // The last group of the file system.
            (Some(_), None) => rest.iter().all(|&byte| byte == 0),
            (None, _) => false,
        }
    })
}

/// The block bitmap and inode table in a descriptor, if the bytes may be one.
fn plausible(bytes: &[u8]) -> Option<[u32; 2]> {
    let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
    let [blocks, inodes, table] =
        [raw.block_bitmap, raw.inode_bitmap, raw.inode_table].map(U32::get);
    let is_one = raw.flags.get() <= FLAGS_MAX
        && blocks != 0
        && inodes != 0
        && table > inodes
        && blocks != inodes;
    is_one.then_some([blocks, table])
}

/// A group's fixed places, verified to be inside the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub block_bitmap: Span,
    pub inode_bitmap: Span,
    pub inode_table: Span,
    /// True if the block bitmap was ever written. If not, its block means nothing.
    pub has_block_bitmap: bool,
    /// The inodes that may be in use: the first ones of the group.
    pub inodes: u32,
}

/// The block with the descriptor of `group` (the kernel's `descriptor_loc`), and the offset in it.
pub(crate) fn place(sb: &Superblock, group: u64) -> (FsBlock, usize) {
    let per_block = sb.descriptors_per_block();
    let (number, index) = (group / per_block, group % per_block);
    let offset = index as usize * usize::from(sb.descriptor_bytes);
    if !sb.name.features.meta_bg() || number < u64::from(sb.first_meta_group) {
        return (FsBlock(sb.own_block() + 1 + number), offset);
    }
    let first = number * per_block;
    let mut skipped = u64::from(sb.group_has_super(first));
    // With bigalloc and blocks of 1 KiB the superblock is in block 1 and the group begins at block 0.
    if sb.block_bytes == 1024 && sb.first_data_block == 0 && first == 0 {
        skipped += 1;
    }
    (FsBlock(sb.first_block_of(first) + skipped), offset)
}

/// The bytes of a block of descriptors.
pub(crate) fn span(sb: &Superblock, block: FsBlock) -> Result<Span, StoodAside> {
    sb.blocks_at(block, 1).ok_or(StoodAside::Field {
        part: Part::GroupDescriptor,
        at: sb.span.start,
        field: "s_first_meta_bg",
        found: block.0,
    })
}

/// Reads a group's descriptor, and watches the fields that say where the inodes are.
pub(crate) fn read(
    sb: &Superblock,
    group: u64,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<Group, StoodAside> {
    let (block, offset) = place(sb, group);
    let at = span(sb, block)?.start + offset as u64;
    let bytes = reader.read(at, sb.descriptor_bytes.into())?;
    let parsed = parse(sb, group, at, &bytes);
    match &parsed {
        Ok(_) => {
            for part in TABLE_FIELDS {
                if let Some(field) = bytes.get(part.clone()) {
                    watches.add(at + part.start as u64, field);
                }
            }
        }
        Err(_) => watches.add(at, &bytes),
    }
    parsed
}

/// Checks the descriptor of `group`, found at byte `at`.
pub(crate) fn parse(
    sb: &Superblock,
    group: u64,
    at: u64,
    bytes: &[u8],
) -> Result<Group, StoodAside> {
    let part = Part::GroupDescriptor;
    let fault = |field, found| StoodAside::Field {
        part,
        at,
        field,
        found,
    };
    let Ok((raw, rest)) = Raw::ref_from_prefix(bytes) else {
        return Err(fault("s_desc_size", bytes.len() as u64));
    };
    let checksum = checksum(sb, group as u32, bytes);
    if checksum.is_some_and(|sum| sum != raw.checksum.get()) {
        return Err(StoodAside::Checksum { part, at });
    }
    let high = RawHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
    let wide = |low: U32, high: Option<U32>| {
        FsBlock(u64::from(high.map_or(0, U32::get)) << 32 | u64::from(low.get()))
    };
    let table_bytes = u64::from(sb.inodes_per_group) * u64::from(sb.inode_bytes);
    let table_blocks = table_bytes / u64::from(sb.block_bytes);
    let within = |block: FsBlock, count, field| {
        sb.blocks_at(block, count)
            .ok_or_else(|| fault(field, block.0))
    };
    // The kernel trusts these fields only if a checksum covers them.
    let (flags, unused) = match checksum {
        Some(_) => (raw.flags.get(), unused_inodes(raw, high)),
        None => (0, 0),
    };
    let inodes = match flags & INODES_UNWRITTEN {
        0 => sb.inodes_per_group.saturating_sub(unused),
        _ => 0,
    };
    Ok(Group {
        has_block_bitmap: flags & BLOCKS_UNWRITTEN == 0,
        inodes,
        block_bitmap: within(
            wide(raw.block_bitmap, high.map(|h| h.block_bitmap)),
            1,
            "bg_block_bitmap",
        )?,
        inode_bitmap: within(
            wide(raw.inode_bitmap, high.map(|h| h.inode_bitmap)),
            1,
            "bg_inode_bitmap",
        )?,
        inode_table: within(
            wide(raw.inode_table, high.map(|h| h.inode_table)),
            table_blocks,
            "bg_inode_table",
        )?,
    })
}

/// What the checksum of a descriptor must be, if the file system has checksums of descriptors.
fn checksum(sb: &Superblock, group: u32, bytes: &[u8]) -> Option<u16> {
    let hole = offset_of!(Raw, checksum)..offset_of!(Raw, checksum) + 2;
    let features = sb.name.features;
    if features.metadata_checksums() {
        return Some(sb.checksum(&[group], bytes, hole) as u16);
    }
    if !features.group_checksums() {
        return None;
    }
    let seed = crc16(!0, &sb.name.uuid.0);
    let seed = crc16(seed, &group.to_le_bytes());
    let seed = crc16(seed, &bytes[..hole.start]);
    // The kernel covers the rest only if there is one.
    Some(crc16(seed, &bytes[hole.end..]))
}

fn unused_inodes(raw: &Raw, high: Option<&RawHigh>) -> u32 {
    let high = high.map_or(0, |high| u32::from(high.unused_inodes.get()));
    high << 16 | u32::from(raw.unused_inodes.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize, groups: u32) -> Vec<u8> {
        let mut block = vec![0; 4096];
        for (group, at) in (0..groups).zip(block.chunks_exact_mut(bytes)) {
            for (place, first) in [(0, 40), (4, 60), (8, 80)] {
                at[place..place + 4].copy_from_slice(&(first + group * 3).to_le_bytes());
            }
            at[0x12] = 7;
        }
        block
    }

    #[test]
    fn group_descriptors_are_recognised_by_their_look() {
        for bytes in [32, 64] {
            for groups in [1, 2, 3, 64] {
                assert!(may_be_descriptors(&block(bytes, groups)));
            }
        }
        assert!(!may_be_descriptors(&block(64, 0)));
        for no in [b"text as it is in a file".as_slice(), &[7; 4096], &[1], &[]] {
            assert!(!may_be_descriptors(no));
        }
        // One descriptor followed by something else; two in the wrong order; flags that do not exist.
        let one = block(64, 1);
        for (at, byte) in [(100, 1), (4095, 1), (0x13, 1)] {
            let mut block = one.clone();
            block[at] = byte;
            assert!(!may_be_descriptors(&block), "{at}");
        }
        let mut two = block(64, 2);
        two.copy_within(0..64, 64);
        assert!(!may_be_descriptors(&two));
    }
}
