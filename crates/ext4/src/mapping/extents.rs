//! A file's extent tree, walked in the file's order, without holes. Each leaf must add blocks, so a tree with loops cannot cause
//! more steps than the file has blocks.

use super::runs::{Runs, read_block};
use crate::aside::{Part, StoodAside};
use crate::limits::EXTENT_DEPTH;
use crate::source::Reader;
use crate::tree::{ENTRY, EXTENT_MAGIC, LENGTH_MAX};
use crate::watch::Watches;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout};

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    magic: U16,
    entries: U16,
    max: U16,
    depth: U16,
    _generation: U32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Extent {
    block: U32,
    length: U16,
    start_high: U16,
    start: U32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Index {
    block: U32,
    leaf: U32,
    leaf_high: U16,
    _unused: U16,
}

const _: () = assert!(size_of::<Extent>() == ENTRY && size_of::<Index>() == ENTRY);

pub(super) fn walk(
    runs: &mut Runs<'_>,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<(), StoodAside> {
    let root = runs.inode.root;
    let node = Node {
        part: Part::JournalInode,
        at: runs.inode.at,
        bytes: &root,
    };
    let depth = node.header(EXTENT_DEPTH)?.depth.get();
    node.walk(depth, runs, reader, watches)
}

struct Node<'a> {
    part: Part,
    at: u64,
    bytes: &'a [u8],
}

impl Node<'_> {
    fn fault(&self, field: &'static str, found: u64) -> StoodAside {
        StoodAside::field(self.part, self.at, field, found)
    }

    fn header(&self, depth_max: u16) -> Result<&Header, StoodAside> {
        let Ok((header, rest)) = Header::ref_from_prefix(self.bytes) else {
            return Err(self.fault("eh_magic", 0));
        };
        let (entries, max) = (header.entries.get(), header.max.get());
        if header.magic.get() != EXTENT_MAGIC {
            return Err(self.fault("eh_magic", header.magic.get().into()));
        }
        if header.depth.get() > depth_max {
            return Err(self.fault("eh_depth", header.depth.get().into()));
        }
        if usize::from(max) > rest.len() / ENTRY {
            return Err(self.fault("eh_max", max.into()));
        }
        if entries == 0 || entries > max {
            return Err(self.fault("eh_entries", entries.into()));
        }
        Ok(header)
    }

    fn walk(
        &self,
        depth: u16,
        runs: &mut Runs<'_>,
        reader: &mut Reader<'_>,
        watches: &mut Watches,
    ) -> Result<(), StoodAside> {
        let header = self.header(depth)?;
        if header.depth.get() != depth {
            return Err(self.fault("eh_depth", header.depth.get().into()));
        }
        let count = usize::from(header.entries.get());
        for entry in self.bytes[ENTRY..].chunks_exact(ENTRY).take(count) {
            if runs.is_complete() {
                break;
            }
            if depth == 0 {
                self.extent(entry, runs)?;
            } else {
                self.child(entry, depth - 1, runs, reader, watches)?;
            }
        }
        Ok(())
    }

    fn extent(&self, entry: &[u8], runs: &mut Runs<'_>) -> Result<(), StoodAside> {
        let Ok((extent, _)) = Extent::ref_from_prefix(entry) else {
            return Err(self.fault("eh_entries", 0));
        };
        if u64::from(extent.block.get()) != runs.mapped {
            return Err(self.fault("ee_block", extent.block.get().into()));
        }
        let length = extent.length.get();
        if length == 0 || length > LENGTH_MAX {
            return Err(self.fault("ee_len", length.into()));
        }
        let start = u64::from(extent.start_high.get()) << 32 | u64::from(extent.start.get());
        runs.push(self.part, self.at, start, length.into())
    }

    fn child(
        &self,
        entry: &[u8],
        depth: u16,
        runs: &mut Runs<'_>,
        reader: &mut Reader<'_>,
        watches: &mut Watches,
    ) -> Result<(), StoodAside> {
        let Ok((index, _)) = Index::ref_from_prefix(entry) else {
            return Err(self.fault("eh_entries", 0));
        };
        if u64::from(index.block.get()) != runs.mapped {
            return Err(self.fault("ei_block", index.block.get().into()));
        }
        let leaf = u64::from(index.leaf_high.get()) << 32 | u64::from(index.leaf.get());
        let blame = self.fault("ei_leaf", leaf);
        let (span, bytes) = read_block(runs.sb, leaf, blame, reader, watches)?;
        let node = Node {
            part: Part::ExtentNode,
            at: span.start,
            bytes: &bytes,
        };
        if runs.sb.name.features.metadata_checksums() {
            // The checksum follows the last entry that there is room for.
            let tail = ENTRY + ENTRY * usize::from(node.header(depth)?.max.get());
            let inode = runs.inode;
            let sum = runs
                .sb
                .checksum(&[inode.number, inode.generation], &bytes[..tail], 0..0);
            let found = bytes.get(tail..tail + 4);
            if found != Some(&sum.to_le_bytes()[..]) {
                return Err(StoodAside::Checksum {
                    part: Part::ExtentNode,
                    at: span.start,
                });
            }
        }
        node.walk(depth, runs, reader, watches)
    }
}
