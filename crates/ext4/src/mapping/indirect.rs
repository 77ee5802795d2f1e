//! A file's block map, as in ext3: twelve blocks, then trees of block numbers of depth 1, 2 and 3. Each number adds a block (a
//! journal has no holes), so the walk ends with the file.

use super::runs::{Runs, read_block};
use crate::aside::{Part, StoodAside};
use crate::source::Reader;
use crate::tree::{numbers, roots};
use crate::watch::Watches;

pub(super) fn walk(
    runs: &mut Runs<'_>,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<(), StoodAside> {
    let root = runs.inode.root;
    let at = runs.inode.at;
    for (depth, block) in roots(&root) {
        if runs.is_complete() {
            break;
        }
        let from = (Part::JournalInode, at);
        tree(from, block, depth, runs, reader, watches)?;
    }
    Ok(())
}

fn tree(
    (part, at): (Part, u64),
    block: u64,
    depth: usize,
    runs: &mut Runs<'_>,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<(), StoodAside> {
    let hole = StoodAside::Field {
        part,
        at,
        field: "block",
        found: block,
    };
    if block == 0 {
        return Err(hole);
    }
    if depth == 0 {
        return runs.push(part, at, block, 1);
    }
    let (span, bytes) = read_block(runs.sb, block, hole, reader, watches)?;
    for block in numbers(&bytes) {
        if runs.is_complete() {
            break;
        }
        let from = (Part::IndirectBlock, span.start);
        tree(from, block, depth - 1, runs, reader, watches)?;
    }
    Ok(())
}
