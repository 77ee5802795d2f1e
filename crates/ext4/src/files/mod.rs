//! Finds the files that blocks of a volume belong to, as `debugfs icheck` and `ncheck` do, in a file system that may
//! be damaged, mounted or hostile.
//!
//! [`Files::of`] walks a file system's fixed metadata, then its inodes, then its directories, each once. It keeps the roles of the
//! requested blocks, 4 bytes for each directory, and 8 for each name that it searches for; [`limits`](crate::limits) bounds all of it.
//! What cannot be read is counted and skipped; the answer then covers the rest. Checksums are not verified: the result tells people where
//! to look, and nothing acts on it.

mod hits;
mod names;
mod walk;

use crate::allowance::Allowance;
use crate::limits::FILES_READ_BYTES;
use crate::metadata::{Metadata, MetadataKind};
use crate::scan::FileSystem;
use crate::source::{Reader, Source};
use crate::span::Span;
use core::fmt;
pub use hits::{Hit, Use};
use hits::{Hits, PAGE};
use std::collections::BTreeMap;

/// The result of a search; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The role of each block, in order. A block of 4096 bytes that contains several file system blocks may have several roles. A
    /// block that is missing here is free, or was not reached.
    pub hits: Vec<Hit>,
    /// The paths of the inodes among these, from the file system's root, as raw bytes. An inode may have several, some of which
    /// are reported. An inode without any was not reached from the root.
    pub paths: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Structures that could not be read, or are invalid. What they lead to is missing here.
    pub passed_over: u64,
    /// True if a limit ended the walk early.
    pub cut_short: bool,
}

impl Files {
    /// Searches a file system on the volume for blocks of 4096 bytes (in order, without duplicates).
    #[must_use]
    pub fn of(
        found: &FileSystem,
        volume_blocks: u64,
        blocks: &[u64],
        source: &mut dyn Source,
    ) -> Self {
        debug_assert!(blocks.is_sorted());
        let mut files = Self::default();
        let Some(sb) = found.superblock.as_ref() else {
            return files;
        };
        let inside = |block: &u64| found.home.overlaps(Span::new(*block * PAGE, PAGE));
        let wanted: Vec<u64> = blocks.iter().copied().filter(inside).collect();
        if wanted.is_empty() {
            return files;
        }
        let mut hits = Hits {
            wanted: &wanted,
            found: Vec::new(),
            cut_short: false,
        };
        files.fixed(found, volume_blocks, source, &mut hits);
        let bytes = volume_blocks.saturating_mul(PAGE);
        let mut reader = Reader::with_budget(source, bytes, FILES_READ_BYTES);
        let walked = walk::inodes(sb, &mut reader, &mut hits);
        files.passed_over += walked.passed_over;
        files.cut_short |= walked.cut_short | hits.cut_short;
        files.hits = hits.found;
        files.hits.sort_unstable();
        files.hits.dedup();
        let mut inodes: Vec<u32> = files.hits.iter().filter_map(|hit| hit.is.inode()).collect();
        inodes.sort_unstable();
        inodes.dedup();
        if !inodes.is_empty() {
            let named = names::of(sb, &mut reader, &walked.directories, &inodes);
            files.paths = named.paths;
            files.passed_over += named.passed_over;
            files.cut_short |= named.cut_short;
        }
        files
    }

    fn fixed(
        &mut self,
        found: &FileSystem,
        volume_blocks: u64,
        source: &mut dyn Source,
        hits: &mut Hits<'_>,
    ) {
        let mut allowance = Allowance::default();
        let Some(mut metadata) = Metadata::new(found, volume_blocks, &mut allowance) else {
            return;
        };
        while let Some(next) = metadata.next(source) {
            match next {
                Ok(next) => hits.look(next.span, |_| Use::Fixed(next.kind, next.group)),
                Err(_) => self.passed_over += 1,
            }
        }
    }

    /// Describes a block for people: the paths of its files, or its other role.
    #[must_use]
    pub fn tell(&self, block: u64) -> Vec<String> {
        let from = self.hits.partition_point(|hit| hit.block < block);
        let here = self.hits[from..]
            .iter()
            .take_while(|hit| hit.block == block);
        here.map(|hit| Told(self, hit.is).to_string()).collect()
    }

    /// Describes the owners of all blocks for people, with the number of blocks for each: a file by its paths, or another role.
    #[must_use]
    pub fn owners(&self) -> BTreeMap<String, u64> {
        let mut owners = BTreeMap::new();
        for hit in &self.hits {
            *owners.entry(Named(self, hit.is).to_string()).or_default() += 1;
        }
        owners
    }
}

/// Prints a path that may contain anything, on one line.
struct Path<'a>(&'a [u8]);

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.utf8_chunks() {
            for c in part.valid().chars() {
                match c {
                    c if c.is_control() || c == '\\' => write!(f, "{}", c.escape_default())?,
                    c => write!(f, "{c}")?,
                }
            }
            for byte in part.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Prints the owner of a block.
struct Named<'a>(&'a Files, Use);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(files, is) = *self;
        if let Use::Fixed(kind, group) = is {
            let kind = match kind {
                MetadataKind::Superblock => "superblock",
                MetadataKind::GroupDescriptors => "group descriptors",
                MetadataKind::BlockBitmap => "block bitmap",
                MetadataKind::InodeBitmap => "inode bitmap",
                MetadataKind::InodeTable => "inode table",
            };
            return write!(f, "{kind} of group {group}");
        }
        let inode = is.inode().unwrap_or_default();
        match files.paths.get(&inode) {
            Some(paths) => {
                for (index, path) in paths.iter().enumerate() {
                    let and = if index > 0 { " = " } else { "" };
                    write!(f, "{and}{}", Path(path))?;
                }
            }
            None if inode == crate::JOURNAL_INODE => write!(f, "the journal")?,
            None => write!(f, "a file without a name")?,
        }
        write!(f, " (inode {inode}")?;
        match f.alternate() {
            true => Ok(()),
            false => write!(f, ")"),
        }
    }
}

/// Prints the owner of a block, and where in it the block is.
struct Told<'a>(&'a Files, Use);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(files, is) = *self;
        match is {
            Use::Fixed(..) => write!(f, "{}", Named(files, is)),
            Use::Content(_, at) => write!(f, "{:#}, byte {at})", Named(files, is)),
            Use::Attributes(_) => write!(f, "{:#}, attributes)", Named(files, is)),
            Use::Tree(_) => write!(f, "{:#}, where its blocks are)", Named(files, is)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_on_its_line() {
        assert_eq!(
            Path(b"/a b/\xc3\xa9\n\\\xff").to_string(),
            "/a b/\u{e9}\\n\\\\\\xff"
        );
    }

    #[test]
    fn only_the_wanted_blocks_of_a_span_are_recorded() {
        let mut hits = Hits {
            wanted: &[1, 2, 5, 9],
            found: Vec::new(),
            cut_short: false,
        };
        // From the middle of block 2 to the first byte of block 5.
        hits.look(Span::new(2 * PAGE + 1024, 3 * PAGE - 1023), |at| {
            Use::Content(7, at)
        });
        let hit = |block, at| Hit {
            block,
            is: Use::Content(7, at),
        };
        assert_eq!(hits.found, [hit(2, 0), hit(5, 3 * PAGE - 1024)]);
    }
}
