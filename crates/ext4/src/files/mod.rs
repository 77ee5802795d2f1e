//! Which files blocks of a volume belong to: what `debugfs icheck` and `ncheck` tell, of a file system that may be damaged,
//! mounted, or hostile.
//!
//! [`Files::of`] walks a file system's fixed metadata, then its inodes, then its directories, each once. It keeps what concerns
//! the blocks that were asked for, 4 bytes a directory, and 8 a name that it looks for; [`limits`](crate::limits) bounds all of
//! it. What cannot be read is counted and passed over: the answer is then of the rest. Checksums are not looked at: this tells
//! people where to look, and nobody acts on it.

mod names;
mod walk;

use crate::allowance::Allowance;
use crate::limits::{FILES_HITS, FILES_READ_BYTES};
use crate::metadata::{Metadata, MetadataKind};
use crate::scan::FileSystem;
use crate::source::{Reader, Source};
use crate::span::Span;
use core::fmt;
use std::collections::BTreeMap;

const PAGE: u64 = crate::limits::PAGE_BYTES as u64;

/// What a block is to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// What mke2fs put there, for a group of blocks.
    Fixed(MetadataKind, u64),
    /// A file's content, from this byte of the file on. A directory's own blocks are that of it.
    Content(u32, u64),
    /// It says where an inode's blocks are.
    Tree(u32),
    /// An inode's extended attributes; of several, where they have the same.
    Attributes(u32),
}

impl Use {
    /// The inode, if it is one's.
    #[must_use]
    pub fn inode(self) -> Option<u32> {
        match self {
            Self::Fixed(..) => None,
            Self::Content(inode, _) | Self::Tree(inode) | Self::Attributes(inode) => Some(inode),
        }
    }
}

/// A block of the volume, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hit {
    /// The block of 4096 bytes, counted from the volume's start.
    pub block: u64,
    /// What it is.
    pub is: Use,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// What each block is, in order. A block of 4096 bytes that holds several of the file system's may be several things. One that
    /// is not here is free, or was not reached.
    pub hits: Vec<Hit>,
    /// The paths of the inodes among these, from the file system's root, as the bytes that they are. An inode may have several,
    /// of which some are told; one that has none here was not reached from the root.
    pub paths: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Structures that could not be read, or make no sense: what they lead to is not here.
    pub passed_over: u64,
    /// Whether a limit ended the walk before its end.
    pub cut_short: bool,
}

impl Files {
    /// Looks for blocks of 4096 bytes of the volume (in order, none twice) in a file system on it.
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

    /// What a block is, for people: the paths of its files, or what else it is.
    #[must_use]
    pub fn tell(&self, block: u64) -> Vec<String> {
        let from = self.hits.partition_point(|hit| hit.block < block);
        let here = self.hits[from..]
            .iter()
            .take_while(|hit| hit.block == block);
        here.map(|hit| Told(self, hit.is).to_string()).collect()
    }

    /// What has any of the blocks, for people, and how many: a file by its paths, or what else they are.
    #[must_use]
    pub fn owners(&self) -> BTreeMap<String, u64> {
        let mut owners = BTreeMap::new();
        for hit in &self.hits {
            *owners.entry(Named(self, hit.is).to_string()).or_default() += 1;
        }
        owners
    }
}

/// What was found so far.
struct Hits<'a> {
    wanted: &'a [u64],
    found: Vec<Hit>,
    cut_short: bool,
}

impl Hits<'_> {
    /// Whatever is wanted of a span is that; `what` is told how far into the span it begins.
    fn look(&mut self, span: Span, what: impl Fn(u64) -> Use) {
        let first = self
            .wanted
            .partition_point(|block| (block + 1) * PAGE <= span.start);
        for &block in &self.wanted[first..] {
            if block * PAGE >= span.end() {
                return;
            }
            if self.found.len() == FILES_HITS {
                self.cut_short = true;
                return;
            }
            let is = what((block * PAGE).saturating_sub(span.start));
            self.found.push(Hit { block, is });
        }
    }
}

/// A path that may hold anything, on one line.
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

/// What a block is of.
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

/// The same, and where in it.
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
    fn a_span_is_what_is_wanted_of_it() {
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
