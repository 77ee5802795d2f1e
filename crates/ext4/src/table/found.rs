//! The contents of partition tables.

use crate::aside::StoodAside;
use crate::span::Span;

/// How the volume is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioning {
    /// Not at all.
    #[default]
    Whole,
    /// By an MBR.
    Mbr,
    /// By a GPT.
    Gpt,
    /// By a GPT of which only the backup at the volume's end is sound.
    GptBackup,
}

/// The tables that were found.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub partitioning: Partitioning,
    pub partitions: Vec<Span>,
    /// What was wrong with a table, a chain or an entry.
    pub faults: Vec<StoodAside>,
}

/// The bytes of a range of sectors, if it is not empty and is inside the volume.
pub(super) fn sectors(first: u64, count: u64, sector: u64, volume_bytes: u64) -> Option<Span> {
    let start = first.checked_mul(sector)?;
    let span = Span::new(start, count.checked_mul(sector)?);
    let end = start.checked_add(span.bytes)?;
    (span.bytes > 0 && end <= volume_bytes).then_some(span)
}
