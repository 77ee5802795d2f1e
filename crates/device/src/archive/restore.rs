//! Restores an archive to a medium. Superblocks are written last, so that an interrupted restore leaves no volume.

use super::reader::{Reader, Run};
use super::totals::Totals;
use crate::runs::Damaged;
use std::io::Read;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::size::Size;
use vellum_medium::{Medium, MediumError};

/// Blocks that are zeroed between two reports.
const ZERO_BLOCKS: u64 = (1 << 30) / BLOCK_BYTES as u64;

/// Why a restore ended early. The medium is then no volume.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The archive is not whole.
    #[error(transparent)]
    Archive(#[from] Damaged),
    /// The medium fails.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The medium is too small.
    #[error(
        "{name} has {:#}, and the archive is of a medium of {:#}",
        Size::of_blocks(*.have),
        Size::of_blocks(*.need)
    )]
    TooSmall {
        /// The medium.
        name: String,
        /// The medium's blocks.
        have: u64,
        /// The blocks that it needs.
        need: u64,
    },
    /// The caller ended it.
    #[error("interrupted")]
    Interrupted,
}

/// Makes a medium what the archive holds. A `blank` medium is all zeros already. Calls `report` with the block that it has
/// reached, and ends when that returns `false`.
///
/// # Errors
/// When the archive is damaged, the medium fails, or `report` ends it. Nothing was written if the medium is too small.
pub fn restore<R: Read>(
    archive: &mut Reader<R>,
    medium: &dyn Medium,
    blank: bool,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Totals, RestoreError> {
    let (have, need) = (medium.blocks(), archive.head().medium_blocks);
    if have < need {
        return Err(RestoreError::TooSmall {
            name: medium.name().to_owned(),
            have,
            need,
        });
    }
    let mut target = Target {
        medium,
        blank,
        end: need,
        at: 0,
        mirrors: [None, None],
        report,
    };
    target.begin()?;
    while let Some(run) = archive.next_run()? {
        match run {
            Run::Blocks { at, bytes } => target.put(at, bytes)?,
            // Zeros decode to no structure and to no stored block, so these are known to be damaged.
            Run::Missing { .. } => {}
        }
    }
    target.finish()?;
    Ok(archive.totals().unwrap_or_default())
}

struct Target<'a> {
    medium: &'a dyn Medium,
    blank: bool,
    end: u64,
    /// Everything before this block is as it should be, except the mirrors.
    at: u64,
    /// The contents of the first block and of the last: the superblocks.
    mirrors: [Option<Vec<u8>>; 2],
    report: &'a mut dyn FnMut(u64) -> bool,
}

impl Target<'_> {
    /// Removes what made the old contents a volume.
    fn begin(&mut self) -> Result<(), MediumError> {
        if self.blank {
            return Ok(());
        }
        for at in [0, self.end - 1, self.medium.blocks() - 1] {
            self.medium.write_zeros(Pba(at), 1)?;
        }
        self.medium.sync()
    }

    fn put(&mut self, at: Pba, bytes: &[u8]) -> Result<(), RestoreError> {
        self.zero_up_to(at.0)?;
        self.at = at.0 + (bytes.len() / BLOCK_BYTES) as u64;
        let (mut at, mut rest) = (at, bytes);
        let [first, last] = &mut self.mirrors;
        if at == Pba(0) {
            let (block, behind) = rest.split_at(BLOCK_BYTES);
            (at, rest, *first) = (Pba(1), behind, Some(block.to_vec()));
        }
        if self.at == self.end && !rest.is_empty() {
            let (before, block) = rest.split_at(rest.len() - BLOCK_BYTES);
            (rest, *last) = (before, Some(block.to_vec()));
        }
        if !rest.is_empty() {
            self.medium.write(at, rest)?;
        }
        self.tell()
    }

    fn zero_up_to(&mut self, end: u64) -> Result<(), RestoreError> {
        while !self.blank && self.at < end {
            let blocks = (end - self.at).min(ZERO_BLOCKS);
            self.medium.write_zeros(Pba(self.at), blocks)?;
            self.at += blocks;
            self.tell()?;
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), RestoreError> {
        match (self.report)(self.at) {
            true => Ok(()),
            false => Err(RestoreError::Interrupted),
        }
    }

    /// The archive is whole: makes a volume of it.
    fn finish(mut self) -> Result<(), RestoreError> {
        self.zero_up_to(self.end)?;
        self.medium.sync()?;
        let [first, last] = self.mirrors;
        for (at, block) in [(self.end - 1, last), (0, first)] {
            if let Some(block) = block {
                self.medium.write(Pba(at), &block)?;
            }
        }
        Ok(self.medium.sync()?)
    }
}
