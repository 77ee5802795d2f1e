//! The partitions of a volume.

mod found;
mod gpt;
mod mbr;

use crate::source::Reader;
use crate::watch::{Watches, read_watched};
pub use found::Partitioning;
pub(crate) use found::Tables;

/// Searches for partition tables. The sector size of the volume is not known here. A GPT's is where its signature is; an MBR is read
/// with sectors of 512 bytes.
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
    // As in the kernel, a GPT counts only after a protective MBR.
    if entries.iter().any(mbr::Entry::is_protective) {
        gpt::find(reader, watches, &mut tables);
    } else {
        mbr::find(&entries, reader, watches, &mut tables);
    }
    tables
}
