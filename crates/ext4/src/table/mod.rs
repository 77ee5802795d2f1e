//! The partitions of a volume.

mod gpt;
mod mbr;

use crate::aside::StoodAside;
use crate::source::Reader;
use crate::span::Span;
use crate::watch::{Watches, read_watched};

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

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub partitioning: Partitioning,
    pub partitions: Vec<Span>,
    /// What was wrong with a table, a chain or an entry.
    pub faults: Vec<StoodAside>,
}

/// Looks for partition tables. What the sector size of a volume is cannot be asked here, so that both are
/// tried: 512 bytes first.
pub(crate) fn find(reader: &mut Reader<'_>, watches: &mut Watches) -> Tables {
    let mut tables = Tables::default();
    let first = match read_watched(reader, watches, 0, mbr::BYTES) {
        Ok(bytes) => bytes,
        Err(aside) => {
            tables.faults.push(aside);
            return tables;
        }
    };
    let Some(entries) = mbr::entries(&first) else {
        return tables;
    };
    // As in the kernel, a GPT counts only behind a protective MBR.
    if entries.iter().any(mbr::Entry::is_protective) {
        gpt::find(reader, watches, &mut tables);
    } else {
        mbr::find(&entries, reader, watches, &mut tables);
    }
    tables
}

/// The bytes of a range of sectors, if it is not empty and lies in the volume.
fn sectors(first: u64, count: u64, sector: u64, volume_bytes: u64) -> Option<Span> {
    let start = first.checked_mul(sector)?;
    let span = Span::new(start, count.checked_mul(sector)?);
    let end = start.checked_add(span.bytes)?;
    (span.bytes > 0 && end <= volume_bytes).then_some(span)
}
