//! The bytes of the volume that a scan depends on.

use crate::aside::StoodAside;
use crate::limits::PAGE_BYTES;
use crate::source::Reader;
use crate::span::Span;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

const PAGE: u64 = PAGE_BYTES as u64;

/// A range that a scan depends on; it never crosses a page of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Watch {
    /// The range.
    pub span: Span,
    /// Hash of what the scan read there; `None` if it could not be read.
    seen: Option<u64>,
}

/// Not a CRC32C: data that ends with its own CRC32C, such as extent blocks and superblocks, has the same one for all contents.
fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The ranges that a scan depends on.
///
/// An inode shares its block with inodes that change all the time, and the superblocks of file systems and journals contain
/// counters. So only the bytes that matter are watched, and a write that leaves them unchanged does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    watches: Vec<Watch>,
}

impl Watches {
    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.watches.iter()
    }

    /// True if a write of `bytes` at byte `offset` changes what the scan read.
    #[must_use]
    pub fn touched(&self, offset: u64, bytes: &[u8]) -> bool {
        let write = Span::new(offset, bytes.len() as u64);
        self.near(write).any(|watch| {
            if !write.contains(watch.span) {
                return true;
            }
            let from = (watch.span.start - offset) as usize;
            watch.seen != Some(hash_of(&bytes[from..from + watch.span.bytes as usize]))
        })
    }

    /// True if a range to be discarded, or rewritten with unknown contents, is watched.
    #[must_use]
    pub fn overlaps(&self, span: Span) -> bool {
        self.near(span).next().is_some()
    }

    fn near(&self, span: Span) -> impl Iterator<Item = &Watch> {
        let first = span.start / PAGE * PAGE;
        let from = self.watches.partition_point(|w| w.span.start < first);
        self.watches[from..]
            .iter()
            .take_while(move |w| w.span.start < span.end())
            .filter(move |w| w.span.overlaps(span))
    }

    /// Watches the bytes at `start`.
    pub(crate) fn add(&mut self, start: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let offset = start + at as u64;
            let length = ((PAGE - offset % PAGE) as usize).min(bytes.len() - at);
            self.watches.push(Watch {
                span: Span::new(offset, length as u64),
                seen: Some(hash_of(&bytes[at..at + length])),
            });
            at += length;
        }
    }

    /// Watches a structure at `start`: if it was fine, only the parts that do not change by themselves; otherwise all of it.
    pub(crate) fn add_steady(
        &mut self,
        start: u64,
        bytes: &[u8],
        fine: bool,
        parts: &[Range<usize>],
    ) {
        if !fine {
            return self.add(start, bytes);
        }
        for part in parts {
            self.add(start + part.start as u64, &bytes[part.clone()]);
        }
    }

    /// Watches a range that could not be read: any write to it counts.
    pub(crate) fn add_unread(&mut self, span: Span) {
        let mut start = span.start;
        while start < span.end() {
            let length = (PAGE - start % PAGE).min(span.end() - start);
            self.watches.push(Watch {
                span: Span::new(start, length),
                seen: None,
            });
            start += length;
        }
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.watches.extend_from_slice(&other.watches);
    }

    pub(crate) fn sort(&mut self) {
        self.watches.sort_unstable();
        self.watches.dedup();
    }
}

/// Reads a range and watches it. If it cannot be read, watches for the write that repairs it.
pub(crate) fn read_watched(
    reader: &mut Reader<'_>,
    watches: &mut Watches,
    at: u64,
    bytes: usize,
) -> Result<Vec<u8>, StoodAside> {
    match reader.read(at, bytes) {
        Ok(bytes) => {
            watches.add(at, &bytes);
            Ok(bytes)
        }
        Err(aside) => {
            watches.add_unread(Span::new(at, bytes as u64));
            Err(aside)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_leaves_watched_bytes_unchanged_does_not_count() {
        let mut volume = vec![7u8; 4 * PAGE_BYTES];
        let mut watches = Watches::default();
        watches.add(PAGE + 100, &volume[PAGE_BYTES + 100..3 * PAGE_BYTES + 5]);
        watches.add(10, &volume[10..20]);
        watches.sort();
        assert_eq!(watches.iter().count(), 4);
        assert!(!watches.touched(0, &volume));
        volume[9] = 0;
        volume[3 * PAGE_BYTES + 5] = 0;
        assert!(!watches.touched(0, &volume));
        assert!(!watches.overlaps(Span::new(20, PAGE + 80)));
        assert!(watches.overlaps(Span::new(20, PAGE + 81)));
        assert!(watches.touched(12, &volume[12..20]), "a part of a watch");
        volume[3 * PAGE_BYTES + 4] = 0;
        assert!(watches.touched(0, &volume));
        assert!(watches.touched(3 * PAGE, &volume[3 * PAGE_BYTES..]));
        assert!(!watches.touched(0, &volume[..3 * PAGE_BYTES]));
    }

    #[test]
    fn a_change_of_bytes_that_end_with_their_own_checksum_counts() {
        let extents = |first: u8| {
            let mut block = vec![first; PAGE_BYTES - 4];
            let sum = crate::checksum::crc32c(0x1234_5678, &block);
            block.extend(sum.to_le_bytes());
            block
        };
        let mut watches = Watches::default();
        watches.add(PAGE, &extents(1));
        assert!(!watches.touched(PAGE, &extents(1)));
        assert!(watches.touched(PAGE, &extents(2)));
    }
}
