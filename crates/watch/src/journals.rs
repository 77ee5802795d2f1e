//! The known journals, and the hints about them for the core.

use crate::limits::{COMMIT_EXTENTS, COMMIT_JOURNALS, JOURNAL_EXTENTS, JOURNAL_GAP_BLOCKS};
use crate::ranges::BLOCK;
use crate::wants::Wants;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::seam::{Hint, Region, WriteOnce};
use vellum_ext4::journal::{Alignment, Commits, Follower, Journal, Reader, Unaligned};
use vellum_ext4::{FileSystem, Scan, Span};

/// A range of a volume's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Its first byte.
    pub start: u64,
    /// How many.
    pub bytes: u64,
}

impl Extent {
    fn of(first: u64, blocks: u64) -> Self {
        Self {
            start: first * BLOCK,
            bytes: blocks * BLOCK,
        }
    }

    fn end(self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    fn span(self) -> Span {
        Span::new(self.start, self.bytes)
    }

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// A file system that was found on the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemStats {
    /// Its partition's first byte.
    pub start: u64,
    /// Bytes that it uses.
    pub bytes: u64,
    /// Its UUID.
    pub uuid: String,
    /// Its label, as its owner wrote it.
    pub label: String,
    /// Bytes in a block.
    pub block_bytes: u32,
    /// Whether its journal is a partition of its own.
    pub external_journal: bool,
    /// Where its journal is watched; none if it is not.
    pub journal: Vec<Extent>,
    /// Why not, or why not all of it.
    pub stood_aside: Option<String>,
    /// Why commit blocks of its journal do not wait for what they commit; none if they do.
    pub commits_do_not_wait: Option<String>,
    /// Why the volume does not replay this journal, although `replay` is on; none if it does.
    pub not_replayed: Option<String>,
    /// Why blocks of its metadata are counted as data, and by `semantics=on` taken for such.
    pub metadata_in_part: Option<String>,
    /// Why nothing of it is shared by its content.
    pub not_shared: Option<String>,
}

/// Why a journal cannot be set by hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It is not whole blocks.
    #[error("{start}+{bytes} is not of whole blocks: start and length must be multiples of 4096")]
    Unaligned {
        /// Its first byte.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// It ends past the volume.
    #[error("{start}+{bytes} is empty, or ends past the volume's {size} bytes")]
    OutOfRange {
        /// Its first byte.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The volume's size.
        size: u64,
    },
    /// It overlaps one that is already set.
    #[error(
        "{start}+{bytes} lies over a journal that was set before: clear the journals set by hand first"
    )]
    Overlap {
        /// Its first byte.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// There are too many.
    #[error("{max} journals are set already: clear them first")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The volume is read-only, so nothing is ever written to it.
    #[error("the volume is served read-only: no journal of it is watched")]
    ReadOnly,
}

/// Adds a journal to those set by hand.
///
/// # Errors
/// If it is not whole blocks of the volume, overlaps another one, or exceeds the limit.
pub fn set(
    known: &mut Vec<Extent>,
    start: u64,
    bytes: u64,
    volume_blocks: u64,
) -> Result<(), JournalError> {
    let size = volume_blocks * BLOCK;
    let new = Extent { start, bytes };
    if !start.is_multiple_of(BLOCK) || !bytes.is_multiple_of(BLOCK) {
        return Err(JournalError::Unaligned { start, bytes });
    }
    if bytes == 0 || start.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(JournalError::OutOfRange { start, bytes, size });
    }
    if known.contains(&new) {
        return Ok(());
    }
    if known.iter().any(|extent| extent.overlaps(new)) {
        return Err(JournalError::Overlap { start, bytes });
    }
    if known.len() == JOURNAL_EXTENTS {
        return Err(JournalError::TooMany {
            max: JOURNAL_EXTENTS,
        });
    }
    known.push(new);
    Ok(())
}

/// Sets several journals by hand at once.
///
/// # Errors
/// As [`set`].
pub fn all(wanted: &[Extent], volume_blocks: u64) -> Result<Vec<Extent>, JournalError> {
    let mut known = Vec::new();
    for journal in wanted {
        set(&mut known, journal.start, journal.bytes, volume_blocks)?;
    }
    Ok(known)
}

/// The consequences of a scan, of the journals set by hand, and of what is wanted.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The regions for the core.
    pub(crate) regions: Vec<Region>,
    /// All known journals, used or not, in address order: the first block, and the one after the last.
    pub(crate) journals: Vec<(u64, u64)>,
    /// The sources of home addresses, and the block size of each.
    pub(crate) followers: Vec<(Follower, u32)>,
    /// Journals whose complete transactions are reported.
    pub(crate) readers: Vec<Arc<Reader>>,
    /// Journals whose commit blocks wait for the blocks they commit.
    pub(crate) commits: Vec<Commits>,
    /// What is reported to the user.
    pub(crate) found: Vec<FileSystemStats>,
}

impl Plan {
    /// True if a weak hash of blocks must be computed.
    #[must_use]
    pub fn needs_hash(&self) -> bool {
        let hashes = |rule| matches!(rule, WriteOnce::Hash | WriteOnce::HashUnlessCollided);
        self.regions.iter().any(|region| hashes(region.rule))
    }

    /// The hint for the core.
    #[must_use]
    pub fn hint(&self) -> Hint<'_> {
        let regions = &self.regions;
        Hint::Journals { regions }
    }

    /// Makes the plan for a volume with this many blocks.
    #[must_use]
    pub fn new(scan: &Scan, set: &[Extent], wants: &Wants, volume_blocks: u64) -> Self {
        let mut plan = Self::default();
        // A journal set by hand is extents alone: nobody knows its file system, or how to read its descriptors.
        let by_hand = match wants.write_once {
            WriteOnce::Descriptor => WriteOnce::Hash,
            rule => rule,
        };
        for extent in set {
            plan.journals
                .push((extent.start / BLOCK, extent.end() / BLOCK));
            plan.regions.push(Region {
                start: Lba(extent.start / BLOCK),
                blocks: extent.bytes / BLOCK,
                homes: Lba(0),
                homes_blocks: volume_blocks,
                rule: by_hand,
            });
        }
        let pieces = |journal: &Journal| journal.extents.len();
        let of_files = scan.file_systems.iter().enumerate().map(|(number, found)| {
            let pieces = found.journal.as_ref().map_or(0, pieces);
            (pieces, Ok((number, found)))
        });
        let others = scan.journals_of_others.iter();
        let others = others.map(|journal| (pieces(journal), Err(journal)));
        let mut all: Vec<_> = of_files.chain(others).collect();
        // A journal of many pieces does not take the room of those of other file systems.
        all.sort_by_key(|(pieces, _)| *pieces);
        let mut told = Vec::new();
        for (_, one) in all {
            match one {
                Ok((number, found)) => {
                    told.push((number, plan.add(found, set, wants, volume_blocks)));
                }
                Err(journal) if is_set(&journal.extents, set) => {}
                // If the file system is elsewhere, there is nothing to report about it here.
                Err(journal) => drop(plan.order(journal, volume_blocks)),
            }
        }
        told.sort_by_key(|(number, _)| *number);
        plan.found = told.into_iter().map(|(_, stats)| stats).collect();
        plan.journals.sort_unstable();
        if wants.write_once == WriteOnce::Off {
            plan.regions.clear();
        }
        plan
    }

    /// Keeps following journals that were known `before`, if this scan could not read their blocks. An unreadable block must not end the
    /// wait of a mounted file system's commit blocks.
    pub fn keep(&mut self, before: &[Commits], scan: &Scan, set: &[Extent]) {
        for known in before {
            let extents: Vec<Span> = known.layout().extents().collect();
            let (Some(first), Some(last)) = (extents.first(), extents.last()) else {
                continue;
            };
            let all = Span::new(first.start, last.end() - first.start);
            let is_there = |commits: &Commits| commits.layout().runs(all).next().is_some();
            let is_gone = self.commits.iter().any(is_there) || is_set(&extents, set);
            if scan.is_unread(all) && !is_gone && self.has_room(extents.len()) {
                let mut known = known.clone();
                // What a scan has found of its log may be long over.
                known.set_empty(false);
                self.commits.push(known);
                let has_it = |found: &&mut FileSystemStats| {
                    Span::new(found.start, found.bytes).contains(all)
                };
                for found in self.found.iter_mut().filter(has_it) {
                    found.commits_do_not_wait = None;
                }
            }
        }
    }

    /// True if the commit blocks of one more journal can wait.
    fn has_room(&self, pieces: usize) -> bool {
        let followed = self.commits.iter();
        let followed = followed.map(|known| known.layout().extents().count());
        self.commits.len() < COMMIT_JOURNALS && followed.sum::<usize>() + pieces <= COMMIT_EXTENTS
    }

    fn add(
        &mut self,
        found: &FileSystem,
        set: &[Extent],
        wants: &Wants,
        volume_blocks: u64,
    ) -> FileSystemStats {
        let mut stats = FileSystemStats {
            start: found.partition.start,
            bytes: found.home.bytes,
            uuid: found.uuid.to_string(),
            label: found.label.clone(),
            block_bytes: found.block_bytes,
            ..FileSystemStats::default()
        };
        match usable(found, set, volume_blocks) {
            Err(reason) => {
                stats.commits_do_not_wait = Some(reason.clone());
                stats.not_replayed = wants.replay.then(|| reason.clone());
                stats.stood_aside = Some(reason);
            }
            Ok((journal, mut extents)) => {
                stats.commits_do_not_wait = self.order(journal, volume_blocks).err();
                stats.external_journal = journal.is_external;
                let room = JOURNAL_EXTENTS.saturating_sub(self.journals.len());
                if extents.len() > room {
                    stats.stood_aside = Some(format!(
                        "{} of its journal's {} extents are not watched: there is room for \
                         {JOURNAL_EXTENTS} on a volume",
                        extents.len() - room,
                        extents.len()
                    ));
                    extents.truncate(room);
                }
                for &(start, end) in &extents {
                    stats.journal.push(Extent::of(start, end - start));
                    self.journals.push((start, end));
                    self.regions.push(Region {
                        start: Lba(start),
                        blocks: end - start,
                        homes: Lba(found.home.start / BLOCK),
                        homes_blocks: found.home.bytes / BLOCK,
                        rule: wants.write_once,
                    });
                }
                let is_watched = !extents.is_empty();
                if wants.write_once == WriteOnce::Descriptor && is_watched {
                    let follower = Follower::new(journal, found.home);
                    self.followers.push((follower, journal.format.block_bytes));
                }
                let unwatched = || stats.stood_aside.clone().filter(|_| !is_watched);
                let why = not_replayed(journal).or_else(unwatched);
                let why = why.filter(|_| wants.replay);
                let is_whole = journal.format.block_bytes as usize == BLOCK_BYTES;
                let reads = wants.deltas || wants.replay;
                if why.is_none() && is_watched && is_whole && reads {
                    self.readers
                        .push(Arc::new(Reader::new(journal, found.home)));
                }
                stats.not_replayed = why;
            }
        }
        stats
    }

    /// Makes a journal's commit blocks wait for the blocks they commit, or returns why it cannot.
    fn order(&mut self, journal: &Journal, volume_blocks: u64) -> Result<(), String> {
        let bytes = journal.format.block_bytes;
        if bytes as usize != BLOCK_BYTES {
            return Err(format!(
                "its blocks of {bytes} bytes are not the volume's 4096: \
                 make it with mkfs.ext4 -b 4096"
            ));
        }
        if !self.has_room(journal.extents.len()) {
            return Err(format!(
                "there are more than {COMMIT_JOURNALS} journals, or {COMMIT_EXTENTS} pieces of them, \
                 on the volume, and those of few pieces come first"
            ));
        }
        let commits = Commits::new(journal, volume_blocks * BLOCK)
            .ok_or_else(|| "its journal does not lie on the volume in whole blocks".to_owned())?;
        self.commits.push(commits);
        Ok(())
    }
}

/// True if a part of it was set by hand.
fn is_set(extents: &[Span], set: &[Extent]) -> bool {
    let is_hit = |span: &Span| set.iter().any(|extent| span.overlaps(extent.span()));
    extents.iter().any(is_hit)
}

/// Why a journal that is watched is not replayed by the volume; `None` if it may be. What is replayed is not compared with anything, so
/// it must be certain whose the journal is.
fn not_replayed(journal: &Journal) -> Option<String> {
    let bytes = journal.format.block_bytes;
    if bytes as usize != BLOCK_BYTES {
        return Some(format!(
            "its blocks of {bytes} bytes are not the volume's 4096"
        ));
    }
    journal.is_external.then(|| {
        "its journal has a partition of its own, and only a UUID says whose it is".to_owned()
    })
}

/// Runs of blocks: the first block and the number.
type Extents = Vec<(u64, u64)>;

/// A file system's journal and its extents in blocks, or why it is not used.
fn usable<'a>(
    found: &'a FileSystem,
    set: &[Extent],
    volume_blocks: u64,
) -> Result<(&'a Journal, Extents), String> {
    let journal = found.journal.as_ref().map_err(ToString::to_string)?;
    match journal.alignment {
        Alignment::Aligned => {}
        Alignment::Unaligned(Unaligned::BlockSize(bytes)) => {
            return Err(format!(
                "its blocks of {bytes} bytes are smaller than the volume's 4096: \
                 make it with mkfs.ext4 -b 4096"
            ));
        }
        Alignment::Unaligned(Unaligned::Partition(at) | Unaligned::JournalPartition(at)) => {
            return Err(format!(
                "the partition at byte {} does not begin at a multiple of 4096",
                at.start
            ));
        }
    }
    let mut extents = merged(&journal.extents, volume_blocks, 0);
    if extents.len() > JOURNAL_EXTENTS {
        extents = merged(&journal.extents, volume_blocks, JOURNAL_GAP_BLOCKS);
    }
    let by_hand = extents.iter().any(|&(start, end)| {
        let own = Extent::of(start, end - start);
        set.iter().any(|extent| extent.overlaps(own))
    });
    match by_hand {
        true => Err("its journal was set by hand".to_owned()),
        false => Ok((journal, extents)),
    }
}

/// Extents in blocks, in address order, joined if they are this close. In a journal with many extents, a small gap mostly holds
/// the journal's own indirect blocks, which are never written again, so treating them as journal costs nothing.
fn merged(extents: &[Span], volume_blocks: u64, gap: u64) -> Vec<(u64, u64)> {
    let mut blocks: Vec<(u64, u64)> = extents
        .iter()
        .map(|span| {
            (
                span.start.div_ceil(BLOCK),
                (span.end() / BLOCK).min(volume_blocks),
            )
        })
        .filter(|(start, end)| start < end)
        .collect();
    blocks.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in blocks {
        match merged.last_mut() {
            Some((_, last)) if start <= *last + gap => *last = end.max(*last),
            _ => merged.push((start, end)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_ext4::Uuid;
    use vellum_ext4::journal::{JournalBlock, JournalFeatures, JournalFormat};

    /// A journal of so many blocks, each a piece of its own.
    fn in_pieces(start: u64, blocks: u64) -> Journal {
        let piece = |block| Span::new((start + 2 * block) * BLOCK, BLOCK);
        Journal {
            extents: (0..blocks).map(piece).collect(),
            format: JournalFormat {
                block_bytes: BLOCK as u32,
                first: JournalBlock(1),
                end: JournalBlock(blocks as u32),
                features: JournalFeatures {
                    compatible: 0,
                    incompatible: 4,
                },
                seed: 0,
            },
            is_empty: true,
            blocks: blocks as u32,
            fast_commit_blocks: 0,
            uuid: Uuid::default(),
            superblock: JournalBlock(0),
            is_external: true,
            alignment: Alignment::Aligned,
        }
    }

    #[test]
    fn a_journal_of_many_pieces_takes_no_room_from_others() {
        let many = in_pieces(100, COMMIT_EXTENTS as u64);
        let few = in_pieces(1 << 20, 4);
        let scan = Scan {
            journals_of_others: vec![many, few.clone()],
            ..Scan::default()
        };
        let plan = Plan::new(&scan, &[], &Wants::default(), 1 << 30);
        let followed = plan
            .commits
            .iter()
            .map(|known| known.layout().extents().count());
        assert_eq!(followed.collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_journal_that_could_not_be_read_is_kept_if_nothing_else_is_there() {
        let (own, other) = (in_pieces(100, 4), in_pieces(102, 4));
        let plan = |scan: &Scan, set: &[Extent]| Plan::new(scan, set, &Wants::default(), 1000);
        let found = |journals: Vec<Journal>, unread: Vec<Span>| Scan {
            journals_of_others: journals,
            unread,
            ..Scan::default()
        };
        let before = plan(&found(vec![own.clone()], vec![]), &[]).commits;
        let partition = Span::new(90 * BLOCK, 100 * BLOCK);
        let part = Span::new(104 * BLOCK, 100 * BLOCK);
        let set = [Extent::of(100, 1)];
        for (scan, set, kept) in [
            (found(vec![], vec![partition]), &[][..], true),
            (found(vec![], vec![]), &[], false),
            (found(vec![], vec![part]), &[], false),
            (found(vec![], vec![partition]), &set[..], false),
            (found(vec![other], vec![partition]), &[], false),
        ] {
            let mut plan = plan(&scan, set);
            plan.keep(&before, &scan, set);
            let is_it = |known: &Commits| known.is_of_the_same(&before[0]);
            assert_eq!(plan.commits.iter().any(is_it), kept, "{:?}", scan.unread);
        }
    }

    #[test]
    fn journals_set_by_hand_are_checked() {
        let mut known = Vec::new();
        let mut set = |start, bytes| set(&mut known, start, bytes, 1000);
        assert_eq!(set(4096, 8192), Ok(()));
        assert_eq!(set(4096, 8192), Ok(()), "the same again");
        assert!(matches!(set(8192, 4096), Err(JournalError::Overlap { .. })));
        assert!(matches!(
            set(100, 4096),
            Err(JournalError::Unaligned { .. })
        ));
        assert!(matches!(
            set(40_960, 5),
            Err(JournalError::Unaligned { .. })
        ));
        for (start, bytes) in [
            (40_960, 0),
            (999 * BLOCK, 2 * BLOCK),
            (u64::MAX / BLOCK * BLOCK, BLOCK),
        ] {
            assert!(matches!(
                set(start, bytes),
                Err(JournalError::OutOfRange { .. })
            ));
        }
        for n in 1..JOURNAL_EXTENTS as u64 {
            assert_eq!(set((n * 4) * BLOCK, BLOCK), Ok(()));
        }
        assert!(matches!(
            set(990 * BLOCK, BLOCK),
            Err(JournalError::TooMany { .. })
        ));
        assert_eq!(known.len(), JOURNAL_EXTENTS);
    }

    #[test]
    fn extents_are_joined_over_indirect_blocks() {
        let spans = [
            Span::new(0, 3 * BLOCK),
            Span::new(20 * BLOCK, 2 * BLOCK),
            Span::new(4 * BLOCK, 5 * BLOCK),
            Span::new(98 * BLOCK, 9 * BLOCK),
        ];
        let (near, far) = (
            [(0, 9), (20, 22), (98, 100)],
            [(0, 3), (4, 9), (20, 22), (98, 100)],
        );
        assert_eq!(merged(&spans, 100, 2), near);
        assert_eq!(merged(&spans, 100, 0), far);
    }

    #[test]
    fn the_rules_of_journals_follow_the_wants() {
        let set = [Extent::of(8, 8)];
        let plan = |write_once| {
            let wants = Wants {
                write_once,
                ..Wants::default()
            };
            let plan = Plan::new(&Scan::default(), &set, &wants, 100);
            assert_eq!(plan.journals, [(8, 16)], "known whatever is wanted");
            let rule = plan.regions.first().map(|region| region.rule);
            (rule, plan.needs_hash())
        };
        assert_eq!(plan(WriteOnce::Off), (None, false));
        assert_eq!(plan(WriteOnce::Hash), (Some(WriteOnce::Hash), true));
        assert_eq!(plan(WriteOnce::Descriptor), (Some(WriteOnce::Hash), true));
    }
}
