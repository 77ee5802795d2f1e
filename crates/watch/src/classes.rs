//! The role of each block in its file system, according to the last scan. It is a hint, used for counters and to decide whether a content
//! is worth an entry in the index. It may be wrong.

use crate::limits::METADATA_RANGES;
use crate::ranges::{Range, blocks_of, join};
use std::iter;
use vellum_core::seam::{Class, Digest};
use vellum_ext4::journal::OWN;
use vellum_ext4::{Allowance, Dynamic, Metadata, Scan, Source, Span, StoodAside};

/// True if a block in a journal is one of jbd2's own, not a copy.
#[must_use]
pub fn is_own(digest: &Digest) -> bool {
    digest.first.to_le_bytes() == OWN
}

/// True if a block, wherever it is, may be one of a journal's own, by its first bytes.
#[inline]
#[must_use]
pub fn may_be_own(block: &[u8]) -> bool {
    block.starts_with(&OWN)
}

/// Blocks of metadata outside of journals.
#[derive(Debug, Default)]
pub struct Classes {
    /// In order, with gaps between them.
    metadata: Vec<Range>,
    /// For each file system of the scan, why not all of its metadata is known.
    pub(crate) asides: Vec<Option<String>>,
}

impl Classes {
    /// Walks what mke2fs puts at fixed places, and also the inodes if `follow` is set, which reads all inode tables. `stop` is
    /// called between places: if it returns true, the walk ends early with what it has.
    pub fn new(
        scan: &Scan,
        source: &mut dyn Source,
        blocks: u64,
        follow: bool,
        stop: &dyn Fn() -> bool,
    ) -> Self {
        let mut found = MetadataFound {
            metadata: Vec::new(),
            is_full: false,
            stop,
        };
        let mut allowance = Allowance::default();
        let mut asides = Vec::new();
        for file_system in &scan.file_systems {
            let mut aside = None;
            if let Some(mut fixed) = Metadata::new(file_system, blocks, &mut allowance) {
                let spans = iter::from_fn(|| fixed.next(source));
                aside = found.take(spans.map(|next| next.map(|next| next.span)));
            }
            if follow
                && aside.is_none()
                && let Some(mut dynamic) = Dynamic::new(file_system, blocks, &mut allowance)
            {
                let spans = iter::from_fn(|| dynamic.next(source));
                aside = found.take(spans.map(|next| next.map(|next| next.span)));
            }
            asides.push(aside);
        }
        join(&mut found.metadata);
        if let Some(&(behind, _)) = found.metadata.get(METADATA_RANGES) {
            let homes = scan.file_systems.iter().map(|found| blocks_of(found.home));
            for (aside, (_, after)) in asides.iter_mut().zip(homes) {
                if behind < after {
                    aside.get_or_insert_with(too_many_places);
                }
            }
            found.metadata.truncate(METADATA_RANGES);
        }
        Self {
            metadata: found.metadata,
            asides,
        }
    }

    /// True if a block is in a place of metadata.
    #[must_use]
    pub fn is_metadata(&self, block: u64) -> bool {
        let near = self.metadata.partition_point(|(_, after)| *after <= block);
        self.metadata
            .get(near)
            .is_some_and(|(first, _)| *first <= block)
    }

    /// The class of a block being written. `in_journal`: whether it is in a journal.
    #[must_use]
    pub fn of(&self, block: u64, digest: &Digest, in_journal: bool) -> Class {
        match in_journal {
            true if is_own(digest) => Class::Journal,
            true => Class::Copy,
            false if self.is_metadata(block) => Class::Metadata,
            false => Class::Data,
        }
    }
}

fn too_many_places() -> String {
    format!("it is in more than {METADATA_RANGES} places of the volume")
}

/// Metadata found by a walk.
struct MetadataFound<'a> {
    metadata: Vec<Range>,
    /// There is more than can be kept.
    is_full: bool,
    stop: &'a dyn Fn() -> bool,
}

impl MetadataFound<'_> {
    /// Collects the results of one walk, and returns why they are incomplete. Damaged parts are skipped.
    fn take(&mut self, spans: impl Iterator<Item = Result<Span, StoodAside>>) -> Option<String> {
        for span in spans {
            if (self.stop)() {
                return None;
            }
            match span {
                Ok(_) if self.is_full => {
                    return Some(too_many_places());
                }
                Ok(span) => self.add(span),
                Err(aside @ StoodAside::Limit { .. }) => return Some(aside.to_string()),
                Err(_) => {}
            }
        }
        None
    }

    fn add(&mut self, span: Span) {
        self.metadata.push(blocks_of(span));
        if self.metadata.len() == 2 * METADATA_RANGES {
            join(&mut self.metadata);
            self.is_full = self.metadata.len() > METADATA_RANGES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use vellum_ext4::Unreadable;

    #[test]
    fn ranges_are_joined_and_found() {
        let mut ranges = vec![(7, 9), (1, 3), (3, 4), (8, 12), (20, 21)];
        join(&mut ranges);
        assert_eq!(ranges, [(1, 4), (7, 12), (20, 21)]);
        let classes = Classes {
            metadata: ranges,
            ..Classes::default()
        };
        let found: Vec<u64> = (0..25)
            .filter(|block| classes.is_metadata(*block))
            .collect();
        assert_eq!(found, [1, 2, 3, 7, 8, 9, 10, 11, 20]);
        let plain = Digest::default();
        let own = Digest {
            first: u32::from_le_bytes(OWN),
            ..plain
        };
        assert_eq!(classes.of(8, &own, true), Class::Journal);
        assert_eq!(classes.of(8, &plain, true), Class::Copy);
        assert_eq!(classes.of(8, &own, false), Class::Metadata);
        assert_eq!(classes.of(5, &own, false), Class::Data);
    }

    const GROUPS: u32 = 20_000;

    /// A file system with this many groups of four blocks, in which `place` decides where each group has its bitmaps and inodes.
    struct Forged {
        place: fn(u32) -> u32,
        reads: Cell<u32>,
        /// Set after this many reads.
        stop: Cell<bool>,
        stops_at: u32,
    }

    impl Source for &Forged {
        fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
            out.fill(0);
            let fields = [
                (0x00, GROUPS * 16),
                (0x04, GROUPS * 4),
                (0x18, 2),
                (0x1C, 2),
                (0x20, 4),
                (0x24, 4),
                (0x28, 16),
                (0x38, 0xEF53),
                (0x4C, 1),
                (0x58, 256),
                // Few groups have backups.
                (0x64, 1),
            ];
            let superblock = fields.map(|(at, value)| (1024 + at, value)).to_vec();
            let per_block = out.len() as u32 / 32;
            let first = (offset / 4096).saturating_sub(1) as u32 * per_block;
            let group = |index: u32| {
                let place = (self.place)((first + index).min(GROUPS - 1));
                [0, 1, 2].map(|i| ((index * 32 + i * 4) as usize, place + i))
            };
            let words = match offset {
                0 => superblock,
                _ => (0..per_block).flat_map(group).collect(),
            };
            for (at, word) in words {
                out[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            self.reads.set(self.reads.get() + 1);
            let is_over = self.reads.get() >= self.stops_at;
            self.stop.set(is_over);
            Ok(())
        }
    }

    fn classes(place: fn(u32) -> u32, stops_at: u32) -> (Classes, u32) {
        let blocks = u64::from(GROUPS) * 4;
        let forged = Forged {
            place,
            reads: Cell::new(0),
            stop: Cell::new(false),
            stops_at,
        };
        let scan = vellum_ext4::scan(&mut &forged, blocks);
        assert_eq!(scan.file_systems.len(), 1);
        forged.reads.set(0);
        let stop = || forged.stop.get();
        let classes = Classes::new(&scan, &mut &forged, blocks, false, &stop);
        (classes, forged.reads.get())
    }

    #[test]
    fn adjacent_metadata_is_one_range_however_large_the_file_system_is() {
        let place = |group| if group + 1 < GROUPS { 1000 } else { 70_000 };
        let (classes, reads) = classes(place, u32::MAX);
        assert_eq!(reads, GROUPS.div_ceil(128));
        assert_eq!(classes.asides, [None]);
        assert!(classes.is_metadata(1000) && classes.is_metadata(70_002));
        assert!(!classes.is_metadata(69_999));
    }

    #[test]
    fn metadata_in_too_many_places_is_reported() {
        let (classes, _) = classes(|group| group * 4, u32::MAX);
        assert_eq!(classes.metadata.len(), METADATA_RANGES);
        let [Some(aside)] = &classes.asides[..] else {
            panic!("{:?}", classes.asides);
        };
        assert!(aside.contains("16384"), "{aside}");
    }

    /// Too few to overflow during the walk, and too many at the end. Metadata placed outside the file system is skipped.
    #[test]
    fn metadata_in_a_few_places_too_many_is_reported() {
        let place = |group| {
            if group < 17_000 {
                group * 4
            } else {
                u32::MAX / 2
            }
        };
        let (classes, _) = classes(place, u32::MAX);
        assert_eq!(classes.metadata.len(), METADATA_RANGES);
        assert!(classes.asides[0].is_some());
    }

    #[test]
    fn a_walk_ends_when_the_volume_stops() {
        let (_, reads) = classes(|_| 1000, 5);
        assert_eq!(reads, 5);
    }
}
