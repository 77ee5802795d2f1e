//! Reads the list of snapshots, and the rows of what they keep.

use super::carry;
use crate::block::BlockError;
use crate::frames::Quota;
use crate::limits::ROWS_READ_BLOCKS;
use crate::shared::SharedVolume;
use std::ops::Range;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::snapshots::{BadEntry, Snapshots, list_blocks};

/// What is wrong with the list of snapshots, or with the rows of what they keep.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A block of the list.
    #[error("block {block} of the list of snapshots: {why}")]
    List {
        /// Its number.
        block: u64,
        /// Why it is not a part of the list.
        why: String,
    },
    /// A clone in the list.
    #[error("the list of snapshots: {0}")]
    Clone(BadEntry),
    /// A block of rows that cannot be read.
    #[error("block {block} of the rows of what snapshots keep: {why}")]
    Rows {
        /// Its number.
        block: u64,
        /// Why it cannot be read.
        why: String,
    },
    /// Rows that are not right.
    #[error(
        "block {block} of the rows of what snapshots keep: {rows} are for a block that the volume does not \
         have, or that another row is for; the first is for LBA {lba} of {name}"
    )]
    WrongRows {
        /// Its number.
        block: u64,
        /// How many are not right.
        rows: u64,
        /// The LBA of the first one.
        lba: Lba,
        /// The name of that one's snapshot or clone.
        name: String,
    },
    /// Rows that a crash may have left.
    #[error(
        "block {block} of the rows of what snapshots keep: {rows} are of no snapshot, as a crash may leave \
         them; the next opening clears them"
    )]
    LeftRows {
        /// Its number.
        block: u64,
        /// How many they are.
        rows: u64,
    },
}

impl Wrong {
    /// True if no snapshot can be read with certainty.
    #[must_use]
    pub fn spoils_all(&self) -> bool {
        !matches!(self, Self::WrongRows { .. } | Self::LeftRows { .. })
    }
}

/// Told what is wrong; goes on unless that is an error.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Wrong) -> Result<(), Wrong>;

/// Given a block as it is, or why it cannot be read; goes on unless that is an error.
pub(crate) type Each<'a, E> =
    &'a mut dyn FnMut(Lba, Result<Box<[u8; BLOCK_BYTES]>, BlockError>) -> Result<(), E>;

/// Reads those of these blocks of the list, or of rows, that are mapped.
pub(crate) fn read_as_they_are<E>(
    shared: &SharedVolume,
    range: Range<Lba>,
    each: Each<'_, E>,
) -> Result<(), E> {
    let runs = carry::mapped_runs(shared, range.start, range.end.0 - range.start.0);
    for at in runs.iter().flat_map(|&(first, n)| first.0..first.0 + n) {
        if let Some(block) = carry::read(shared, Lba(at)).transpose() {
            each(Lba(at), block)?;
        }
    }
    Ok(())
}

/// Reads the list: all of it that is right.
pub(crate) fn read_list(
    shared: &SharedVolume,
    book: &mut Snapshots,
    tell: Tell<'_>,
) -> Result<(), Wrong> {
    let history = book.history();
    let mut is_whole = true;
    for block in list_blocks() {
        let read = carry::read(shared, history.list(block)).map_err(|error| error.to_string());
        let load = |bytes: Option<Box<_>>| {
            let loaded = bytes.map_or(Ok(()), |bytes| book.load_list(block, &bytes));
            loaded.map_err(|error| error.to_string())
        };
        if let Err(why) = read.and_then(load) {
            is_whole = false;
            tell(Wrong::List { block, why })?;
        }
    }
    match book.check_clones() {
        // Otherwise its snapshot may be among those that are lost.
        Err(clone) if is_whole => tell(Wrong::Clone(clone)),
        _ => Ok(()),
    }
}

/// Reads the rows, once the list is read: several blocks at once, because there may be many.
pub(crate) fn read_rows(
    shared: &SharedVolume,
    book: &mut Snapshots,
    tell: Tell<'_>,
) -> Result<(), Wrong> {
    let history = book.history();
    let mut block = 0;
    while block < history.row_blocks() {
        let rest = history.row_blocks() - block;
        for (blocks, is_mapped) in carry::extents(shared, history.rows(block), rest) {
            let end = block + blocks;
            while is_mapped && block < end {
                let blocks = (end - block).min(ROWS_READ_BLOCKS);
                read_row_blocks(shared, book, (block, blocks), tell)?;
                block += blocks;
            }
            block = end;
        }
    }
    Ok(())
}

/// Reads some blocks of rows; one by one if they cannot be read as a whole.
fn read_row_blocks(
    shared: &SharedVolume,
    book: &mut Snapshots,
    (first, blocks): (u64, u64),
    tell: Tell<'_>,
) -> Result<(), Wrong> {
    let frames = shared.frames.take(Quota::OwnRead, blocks as usize);
    let lba = book.history().rows(first);
    match frames.and_then(|frames| carry::read_into(shared, lba, frames)) {
        Ok(frames) => (first..)
            .zip(0..frames.len())
            .try_for_each(|(block, index)| load_rows(book, block, frames.block(index), tell)),
        Err(_) if blocks > 1 => (first..first + blocks)
            .try_for_each(|one| read_row_blocks(shared, book, (one, 1), tell)),
        Err(error) => {
            let (block, why) = (first, error.to_string());
            tell(Wrong::Rows { block, why })
        }
    }
}

fn load_rows(book: &mut Snapshots, block: u64, bytes: &[u8], tell: Tell<'_>) -> Result<(), Wrong> {
    let Some(bytes) = bytes.first_chunk::<BLOCK_BYTES>() else {
        unreachable!("a frame holds a block")
    };
    let ignored = book.load_rows(block, bytes);
    if let Some(row) = ignored.first {
        let one = book.by_number(row.number);
        tell(Wrong::WrongRows {
            block,
            rows: ignored.wrong,
            lba: row.lba,
            name: one.map_or_else(String::new, |one| one.identity.name.as_str().to_owned()),
        })?;
    }
    match ignored.of_nobody {
        0 => Ok(()),
        rows => tell(Wrong::LeftRows { block, rows }),
    }
}

#[cfg(test)]
mod tests;
