//! What can be read of a damaged volume, into a new one.

use crate::Volume;
use crate::block::{BlockDevice, Op};
use crate::frames::Frames;
use crate::migrate::{MigrateError, REQUEST_BLOCKS, Side, same_size};
use vellum_core::addr::Lba;
use vellum_core::recovery::rescue::LbaSet;

/// Blocks after which what was copied is made durable.
const FLUSH_BLOCKS: u64 = 64 << 8;

/// What became of it.
pub struct Copied {
    /// Blocks that were copied.
    pub blocks: u64,
    /// Blocks that could not be: they are lost, or damaged themselves.
    pub lost: LbaSet,
}

/// Copies every block that can be read into a new volume of the same size; the others stay unmapped there. `report` is told
/// how far it is.
///
/// # Errors
/// When the copy refuses. What cannot be read is no error.
pub fn copy(
    from: &Volume,
    to: &dyn BlockDevice,
    report: &mut dyn FnMut(u64),
) -> Result<Copied, MigrateError> {
    same_size(from, to)?;
    let (source, target) = (Side::new(from, "the source"), Side::new(to, "the copy"));
    let mut copied = Copied {
        blocks: 0,
        lost: from.damage().map_or_else(
            || LbaSet::new(from.blocks()),
            |damage| damage.lost().clone(),
        ),
    };
    let (mut at, mut flushed) = (0, 0);
    while at < from.blocks() {
        let (run, mapped) = source.extent(at);
        if mapped && !copied.lost.contains(Lba(at)) {
            let blocks = run.min(REQUEST_BLOCKS);
            copied.run(&source, &target, at, blocks)?;
            at += blocks;
        } else {
            at += run;
        }
        report(at);
        if at - flushed >= FLUSH_BLOCKS || at >= from.blocks() {
            target.ask(Op::Flush, 0, 0, Frames::default())?;
            flushed = at;
        }
    }
    Ok(copied)
}

impl Copied {
    /// Copies a run; block by block if it cannot be read as a whole.
    fn run(
        &mut self,
        source: &Side<'_>,
        target: &Side<'_>,
        at: u64,
        blocks: u64,
    ) -> Result<(), MigrateError> {
        match source.read(at, blocks) {
            Ok(content) => {
                target.write(at, &content)?;
                self.blocks += blocks;
            }
            Err(_) if blocks > 1 => {
                for lba in at..at + blocks {
                    self.run(source, target, lba, 1)?;
                }
            }
            Err(_) => self.lost.insert(Lba(at), 1),
        }
        Ok(())
    }
}
