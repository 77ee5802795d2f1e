//! The journal's inode.

use crate::aside::{Part, StoodAside};
use crate::group;
use crate::limits::{JOURNAL_BLOCKS, JOURNAL_BLOCKS_MIN};
use crate::source::Reader;
use crate::superblock::Superblock;
use crate::watch::{Watches, read_watched};
use core::mem::offset_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes as _, KnownLayout};

/// The journal's inode, as mke2fs and tune2fs make it.
pub const JOURNAL_INODE: u32 = 8;

const MODE_TYPE: u16 = 0xF000;
const MODE_FILE: u16 = 0x8000;
const MODE_DIRECTORY: u16 = 0x4000;
const MODE_LINK: u16 = 0xA000;
/// Its contents are in the inode.
const FLAG_INLINE: u32 = 0x1000_0000;
const FLAG_EXTENTS: u32 = 0x8_0000;
/// Compressed, encrypted, contents in the inode, or an attribute's value: a journal can be none of these.
const FLAGS_REFUSED: u32 = 0x4 | 0x800 | 0x1000_0000 | 0x20_0000;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    mode: U16,
    _uid: U16,
    size: U32,
    _times: [u8; 12],
    _deleted: U32,
    _gid: U16,
    links: U16,
    _blocks: U32,
    flags: U32,
    _version: U32,
    block: [u8; 60],
    generation: U32,
    attributes: U32,
    size_high: U32,
    _fragments: U32,
    _blocks_high: U16,
    attributes_high: U16,
    _owner_high: [u8; 4],
    checksum: U16,
    _reserved: U16,
}

const _: () = assert!(size_of::<Raw>() == 128);
const _: () = assert!(offset_of!(Raw, block) == 0x28);
const _: () = assert!(offset_of!(Raw, checksum) == 0x7C);

/// The offsets of `i_extra_isize` and `i_checksum_hi`, in inodes of more than 128 bytes.
const EXTRA_SIZE: usize = 0x80;
const CHECKSUM_HIGH: usize = 0x82;

/// The places of an inode's blocks according to the inode, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sketch {
    pub is_directory: bool,
    pub has_extents: bool,
    /// `i_block`, if the inode has blocks.
    pub root: Option<[u8; 60]>,
    /// The block with its extended attributes, or 0.
    pub attributes: u64,
}

/// Examines an inode; `None` if it is not in use.
pub(crate) fn sketch(bytes: &[u8]) -> Option<Sketch> {
    let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
    let mode = raw.mode.get() & MODE_TYPE;
    if mode == 0 || raw.links.get() == 0 {
        return None;
    }
    let flags = raw.flags.get();
    let size = u64::from(raw.size_high.get()) << 32 | u64::from(raw.size.get());
    let has_extents = flags & FLAG_EXTENTS != 0;
    let has_blocks = match mode {
        MODE_FILE | MODE_DIRECTORY => true,
        // The target of a short link is in the inode.
        MODE_LINK => has_extents || size >= 60,
        _ => false,
    };
    Some(Sketch {
        is_directory: mode == MODE_DIRECTORY,
        has_extents,
        root: (has_blocks && flags & FLAG_INLINE == 0).then_some(raw.block),
        attributes: u64::from(raw.attributes_high.get()) << 32 | u64::from(raw.attributes.get()),
    })
}

/// The checked journal inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub number: u32,
    pub generation: u32,
    pub has_extents: bool,
    /// `i_block`: the root of the extent tree, or 15 block numbers.
    pub root: [u8; 60],
    /// The byte of the volume where the inode begins.
    pub at: u64,
    /// Its length in blocks of the file system.
    pub blocks: u64,
}

/// Finds and checks inode `number`.
pub(crate) fn read(
    sb: &Superblock,
    number: u32,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<Inode, StoodAside> {
    let index = number - 1;
    let group = (index / sb.inodes_per_group).into();
    let table = group::read(sb, group, reader, watches)?.inode_table;
    let within = u64::from(index % sb.inodes_per_group) * u64::from(sb.inode_bytes);
    let at = table.start + within;
    let bytes = read_watched(reader, watches, at, sb.inode_bytes.into())?;
    let fault = |field, found| StoodAside::Field {
        part: Part::JournalInode,
        at,
        field,
        found,
    };
    let Ok((raw, _)) = Raw::ref_from_prefix(&bytes) else {
        return Err(fault("s_inode_size", bytes.len() as u64));
    };
    if sb.name.features.metadata_checksums() && !checksum_fits(sb, number, raw, &bytes) {
        return Err(StoodAside::Checksum {
            part: Part::JournalInode,
            at,
        });
    }
    let mode = raw.mode.get();
    if mode & MODE_TYPE != MODE_FILE {
        return Err(fault("i_mode", mode.into()));
    }
    if raw.links.get() == 0 {
        return Err(fault("i_links_count", 0));
    }
    let flags = raw.flags.get();
    if flags & FLAGS_REFUSED != 0 {
        return Err(fault("i_flags", flags.into()));
    }
    let size = u64::from(raw.size_high.get()) << 32 | u64::from(raw.size.get());
    let block_bytes = u64::from(sb.block_bytes);
    let blocks = size / block_bytes;
    if !size.is_multiple_of(block_bytes) || blocks < JOURNAL_BLOCKS_MIN || blocks > sb.blocks {
        return Err(fault("i_size", size));
    }
    if blocks > JOURNAL_BLOCKS {
        return Err(StoodAside::Limit {
            what: "the length of the journal in blocks",
            limit: JOURNAL_BLOCKS,
        });
    }
    if !backup_agrees(sb, raw) {
        return Err(StoodAside::BackupDisagrees {
            at: sb.span.start + crate::superblock::OFFSET,
        });
    }
    Ok(Inode {
        number,
        generation: raw.generation.get(),
        has_extents: flags & FLAG_EXTENTS != 0,
        root: raw.block,
        at,
        blocks,
    })
}

/// True if the superblock has no copy of the inode, or one that says the same. e2fsck keeps this copy in case the inode is lost, and
/// every tool that moves the journal updates it. The check is stricter than the kernel's: the kernel does not check the copy.
fn backup_agrees(sb: &Superblock, raw: &Raw) -> bool {
    sb.journal_backup.as_ref().is_none_or(|backup| {
        backup[..60] == raw.block
            && backup[60..64] == *raw.size_high.as_bytes()
            && backup[64..] == *raw.size.as_bytes()
    })
}

fn checksum_fits(sb: &Superblock, number: u32, raw: &Raw, bytes: &[u8]) -> bool {
    let low = offset_of!(Raw, checksum);
    let field = |at: usize| {
        bytes
            .get(at..at + 2)
            .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
    };
    let mut covered = bytes.to_vec();
    covered[low..low + 2].fill(0);
    let has_high = usize::from(field(EXTRA_SIZE)) >= 4 && bytes.len() >= CHECKSUM_HIGH + 2;
    if has_high {
        covered[CHECKSUM_HIGH..CHECKSUM_HIGH + 2].fill(0);
    }
    let sum = sb.checksum(&[number, raw.generation.get()], &covered, 0..0);
    sum as u16 == raw.checksum.get() && (!has_high || (sum >> 16) as u16 == field(CHECKSUM_HIGH))
}
