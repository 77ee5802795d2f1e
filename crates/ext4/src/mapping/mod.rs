//! Maps the journal's inode to its blocks.

mod extents;
mod indirect;
mod runs;

use crate::aside::{Part, StoodAside};
use crate::inode::Inode;
use crate::source::Reader;
use crate::superblock::Superblock;
use crate::watch::Watches;
pub(crate) use runs::Run;
use runs::Runs;

/// Where the file's blocks are, in the file's order. Watches the blocks that determine it.
pub(crate) fn map(
    sb: &Superblock,
    inode: &Inode,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<Vec<Run>, StoodAside> {
    let mut runs = Runs {
        sb,
        inode,
        runs: Vec::new(),
        mapped: 0,
        most: reader.most_extents(),
    };
    if inode.has_extents {
        extents::walk(&mut runs, reader, watches)?;
    } else {
        indirect::walk(&mut runs, reader, watches)?;
    }
    let fault = |field, found| StoodAside::Field {
        part: Part::JournalInode,
        at: inode.at,
        field,
        found,
    };
    if !runs.is_complete() {
        return Err(fault("i_size", inode.blocks * u64::from(sb.block_bytes)));
    }
    let mut sorted = runs.runs.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted
        .windows(2)
        .find(|pair| pair[0].first.0 + pair[0].blocks > pair[1].first.0)
    {
        return Err(fault("i_block", pair[1].first.0));
    }
    reader.found_extents(runs.runs.len());
    Ok(runs.runs)
}
