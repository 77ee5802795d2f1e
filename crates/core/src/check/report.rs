//! What a check has found.

use crate::addr::{Lba, Leaf, Pba, Segment, Vba};
use crate::format::summary::Owner;
use crate::format::{FormatError, superblock::Superblock};
use crate::recovery::{RecoveryError, Replayed, Unreadable};
use alloc::{string::String, vec::Vec};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A crash may leave this behind; the next checkpoint or opening overwrites it.
    Note,
    /// A second copy is damaged; the first still has its contents, or it was only a hint.
    Redundancy,
    /// Something that a client may read is lost, or an invariant does not hold.
    Damage,
}

/// Something that is not as it should be, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum Problem {
    /// Recovery refuses the volume; nothing else was checked.
    #[error("cannot be opened: {0}")]
    Unopenable(RecoveryError),
    /// What was flushed last may be there: nothing else shows how the volume was.
    #[error("{0}: what was flushed last may be there")]
    Unread(Unreadable),
    /// The volume is a pack.
    #[error("it is a pack of a volume, and holds no data: only what leads to data is checked")]
    WithoutData,
    /// Both superblocks are damaged: what is left of one says where everything is.
    #[error("{0}")]
    BothMirrors(FormatError),
    /// One of the two superblocks.
    #[error("the superblock at physical block {at} is damaged: {error}")]
    Mirror { at: Pba, error: FormatError },
    /// One of the two superblocks, when an opening for writing was cut short.
    #[error("the superblock at physical block {at} is older than the other")]
    MirrorDiffers { at: Pba },
    /// One of the two superblocks.
    #[error("a superblock: {0}")]
    MirrorUnreadable(Unreadable),
    /// A copy of the root that counts.
    #[error("a copy of the map checkpoint, at physical block {at}, is damaged: {error}")]
    RootCopy { at: Pba, error: FormatError },
    /// The same.
    #[error("a copy of the map checkpoint, at physical block {at}, is an older one")]
    RootCopyOld { at: Pba },
    /// A leaf of the map that can be restored from the others of its stripe, or a parity.
    #[error(
        "leaf {leaf} of the map, at physical block {at}, is damaged; the others of its stripe restore it"
    )]
    Leaf { leaf: Leaf, at: Pba },
    /// A parity that is whole, but does not match its leaves.
    #[error("the parity at physical block {at} does not match its leaves")]
    Parity { at: Pba },
    /// What a root repeats of chunk headers.
    #[error(
        "the open summary of a segment at physical block {at} is damaged; chunk headers say the same: {error}"
    )]
    OpenSummary { at: Pba, error: FormatError },
    /// A header after the map checkpoint.
    #[error(
        "the chunk header at physical block {at} does not name all that the chunk before it changed"
    )]
    Names { at: Pba },
    /// The root that is not needed: the previous one, or one whose writing was cut short.
    #[error("the spare map checkpoint at physical block {at} is not whole: {error}")]
    OtherRoot { at: Pba, error: FormatError },
    /// The root that is not needed.
    #[error("the spare map checkpoint: {0}")]
    RootUnreadable(Unreadable),
    /// A summary: what it says is then gathered from its segment's chunk headers.
    #[error("the summary of segment {segment} at physical block {at} is damaged: {error}")]
    Summary {
        segment: Segment,
        at: Pba,
        error: FormatError,
    },
    /// The same.
    #[error("the summary of segment {segment}: {error}")]
    SummaryUnreadable { segment: Segment, error: Unreadable },
    /// A header that a summary repeats.
    #[error("a chunk header: {0}")]
    HeaderUnreadable(Unreadable),
    /// A header that a summary repeats.
    #[error(
        "segment {segment}: its chunk headers and its summary differ from physical block {at} on"
    )]
    HeadersDiffer { segment: Segment, at: Pba },
    /// A mapping that leads nowhere.
    #[error("LBA {lba} is mapped to physical block {at}, which holds no data")]
    NotData { lba: Lba, at: Pba },
    /// Data that clients do not see.
    #[error("LBA {lba} and {more} more hold data behind the end of the volume, which has shrunk")]
    Behind { lba: Lba, more: u64 },
    /// A segment that would be written anew.
    #[error(
        "segment {segment} holds {blocks} blocks of data, and the newest map checkpoint says that it is free"
    )]
    NotFree { segment: Segment, blocks: u32 },
    /// A mapping to a page of another owner.
    #[error("LBA {lba} is mapped to physical block {at}, which was written for {owner:?}")]
    Owner { lba: Lba, at: Pba, owner: Owner },
    /// A page that two LBAs claim without sharing it.
    #[error(
        "LBAs {first} and {second} are both mapped to physical block {at}, which is not shared"
    )]
    TwoOwners { at: Pba, first: Lba, second: Lba },
    /// A shared page that has no place.
    #[error("LBA {lba} is mapped to shared page {vba}, which is nowhere")]
    SharedNowhere { lba: Lba, vba: Vba },
    /// A shared page whose count is wrong.
    #[error("shared page {vba} has {counted} owners in the map, but {held} were counted")]
    SharedCount { vba: Vba, counted: u32, held: u32 },
    /// A page with two numbers.
    #[error("physical block {at} is shared page {vba} and {other}")]
    SharedTwice { at: Pba, vba: Vba, other: Vba },
    /// Tables: a count so low that data could be given away.
    #[error("physical block {at} is counted {count} times, and {links} links lead to it")]
    CountTooLow { at: Pba, count: u16, links: u16 },
    /// Tables: a crash may leave this behind; the next opening finds it as well.
    #[error(
        "{blocks} blocks are counted too high, as a crash may leave them: space that the next opening frees"
    )]
    CountsTooHigh { blocks: u64 },
    /// Tables: one of two copies of metadata is bad, the other is good.
    #[error(
        "one of two copies of what leads to data, at physical blocks {first} and {twin}, is damaged or old; \
         the other one tells it"
    )]
    Twins { first: Pba, twin: Pba },
    /// Tables: a crash may leave this behind.
    #[error(
        "one of two copies of a block of the map, at physical blocks {first} and {twin}, is older, \
         as a crash may leave it"
    )]
    TwinBehind { first: Pba, twin: Pba },
    /// Tables: a block of hints.
    #[error("fingerprints, which the next opening does without: {0}")]
    Fingerprints(RecoveryError),
    /// Tables: counts, which follow from the map and the fingerprints.
    #[error("counts, which the next opening counts anew: {0}")]
    Counts(RecoveryError),
    /// Tables: editions, which the map itself shows.
    #[error("editions, which the next opening makes anew: {0}")]
    Editions(RecoveryError),
    /// A block whose bytes differ from those that were written.
    #[error("LBA {lba} at physical block {at}: {error}")]
    Data {
        lba: Lba,
        at: Pba,
        error: FormatError,
    },
    /// A block that cannot be read.
    #[error("LBA {lba}: {error}")]
    DataUnreadable { lba: Lba, error: Unreadable },
    /// The list of snapshots, or the rows of what they keep.
    #[error("{0}")]
    Snapshots(String),
    /// Rows of no snapshot, as a crash may leave them: the next opening ignores them, and clears them.
    #[error("{0}")]
    LeftRows(String),
}

impl Problem {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::WithoutData
            | Self::MirrorDiffers { .. }
            | Self::OtherRoot { .. }
            | Self::TwinBehind { .. }
            | Self::CountsTooHigh { .. }
            | Self::LeftRows(_) => Severity::Note,
            Self::Mirror { .. }
            | Self::MirrorUnreadable(_)
            | Self::RootUnreadable(_)
            | Self::RootCopy { .. }
            | Self::RootCopyOld { .. }
            | Self::OpenSummary { .. }
            | Self::Names { .. }
            | Self::Leaf { .. }
            | Self::Parity { .. }
            | Self::Summary { .. }
            | Self::SummaryUnreadable { .. }
            | Self::HeaderUnreadable(_)
            | Self::HeadersDiffer { .. }
            | Self::Twins { .. }
            | Self::Fingerprints(_)
            | Self::Counts(_)
            | Self::Editions(_) => Severity::Redundancy,
            _ => Severity::Damage,
        }
    }
}

/// What a check has found, and how much it has looked at.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The volume; `None` when it cannot be opened.
    pub superblock: Option<Superblock>,
    /// What recovery did.
    pub replayed: Replayed,
    /// LBAs that are mapped to data.
    pub mapped_blocks: u64,
    /// LBAs that are mapped to zeros.
    pub zero_blocks: u64,
    /// Shared pages.
    pub shared_pages: u64,
    /// Pages that hold parts.
    pub packed_pages: u64,
    /// Pages that are, or were, shared, and whose tag names the owner that they were written for.
    pub foreign_tags: u64,
    /// Segments with live blocks or open.
    pub segments: u64,
    /// Summaries read.
    pub summaries: u64,
    /// Live blocks whose data was read and compared with its checksum.
    pub verified_blocks: u64,
    /// Whether something is stored in the list of snapshots, and the list can be read.
    pub has_snapshots: bool,
    /// What is wrong, in the order in which it was found.
    pub findings: Vec<Problem>,
    /// Findings that were left out of the list, of any severity.
    pub unlisted: u64,
    findings_max: usize,
    worst: Option<Severity>,
}

impl Report {
    pub(super) fn new(findings_max: usize) -> Self {
        Self {
            findings_max,
            ..Self::default()
        }
    }

    /// Notes a finding.
    pub fn add(&mut self, problem: Problem) {
        self.worst = self.worst.max(Some(problem.severity()));
        if self.findings.len() < self.findings_max {
            self.findings.push(problem);
        } else {
            self.unlisted += 1;
        }
    }

    /// The severity of the worst finding; `None` if there is none.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.worst
    }

    /// True if nothing is lost and every invariant holds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.worst < Some(Severity::Damage)
    }
}
