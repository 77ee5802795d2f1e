//! Copies what can be read of a damaged volume into a new one.

use crate::block::{BlockDevice, Op};
use crate::frames::Frames;
use crate::migrate::{MigrateError, REQUEST_BLOCKS, Side, same_size};
use crate::scout::source::VolumeSource;
use crate::snapshots::{SnapshotInfo, Wrong};
use crate::volume::Volume;
use std::collections::BTreeMap;
use vellum_core::addr::Lba;
use vellum_core::recovery::rescue::LbaSet;
use vellum_ext4::files::Files;

/// Blocks after which what was copied is made durable.
const FLUSH_BLOCKS: u64 = 64 << 8;

/// The most lost blocks that are looked up in files.
const LOST_BLOCKS_NAMED: usize = 1 << 20;

/// The most findings about snapshots that are told.
const WRONG_NAMED: usize = 100;

/// The result of a rescue.
pub struct Rescued {
    /// Blocks that were read, and copied if there is a copy.
    pub blocks: u64,
    /// Blocks that could not be read: they are lost, or damaged themselves.
    pub lost: LbaSet,
    /// Blocks in doubt of which no version is found. They read as zeros: nobody ever wrote them, or they are lost.
    pub missing: LbaSet,
}

/// Reads every block, and copies what can be read into a new volume of the same size, if there is one; the others stay unmapped
/// there. Calls `report` with the block that it has reached, and ends when that returns `false`.
///
/// # Errors
/// When the copy refuses, or the caller ends it. A block that cannot be read is no error.
pub fn rescue(
    from: &Volume,
    to: Option<&dyn BlockDevice>,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Rescued, MigrateError> {
    if let Some(to) = to {
        same_size(from, to)?;
    }
    let source = Side::new(from, "the source");
    let target = to.map(|to| Side::new(to, "the copy"));
    let target = target.as_ref();
    let mut rescued = Rescued {
        blocks: 0,
        // What snapshots hold is not copied.
        lost: from.damage().map_or_else(
            || LbaSet::new(from.blocks()),
            |damage| damage.lost().before(from.blocks()),
        ),
        missing: missing(from, &source),
    };
    let (mut at, mut flushed) = (0, 0);
    while at < from.blocks() {
        let (run, mapped) = source.extent(at);
        if mapped && !rescued.lost.contains(Lba(at)) {
            let blocks = run.min(REQUEST_BLOCKS);
            rescued.run(&source, target, at, blocks)?;
            at += blocks;
        } else {
            at += run;
        }
        if !report(at) {
            return Err(MigrateError::Interrupted);
        }
        let is_due = at - flushed >= FLUSH_BLOCKS || at >= from.blocks();
        if let Some(target) = target.filter(|_| is_due) {
            target.ask(Op::Flush, 0, 0, Frames::default())?;
            flushed = at;
        }
    }
    Ok(rescued)
}

/// The blocks in doubt that are not mapped.
fn missing(from: &Volume, source: &Side<'_>) -> LbaSet {
    let mut missing = LbaSet::new(from.blocks());
    let Some(damage) = from.damage() else {
        return missing;
    };
    for (Lba(mut at), blocks) in damage.guessed().before(from.blocks()).runs() {
        let end = at + blocks;
        while at < end {
            let (run, mapped) = source.extent(at);
            let run = run.min(end - at);
            if !mapped {
                missing.insert(Lba(at), run);
            }
            at += run;
        }
    }
    missing
}

/// The lost blocks that belong to files.
#[derive(Default)]
pub struct Losses {
    /// Paths of files in the volume's ext4 file systems, or the blocks' other roles there, each with its number of lost blocks.
    pub files: BTreeMap<String, u64>,
    /// Whether there may be more: not all blocks were looked for, or something of a file system could not be read.
    pub may_be_more: bool,
}

/// Finds the files of a damaged volume that have lost blocks, as far as the file systems on it can be read.
#[must_use]
pub fn losses(volume: &Volume, lost: &LbaSet) -> Losses {
    let runs = lost.runs().map(|(lba, blocks)| lba.0..lba.0 + blocks);
    let blocks: Vec<u64> = runs.flatten().take(LOST_BLOCKS_NAMED).collect();
    let mut losses = Losses {
        may_be_more: blocks.len() as u64 != lost.len(),
        ..Losses::default()
    };
    if blocks.is_empty() {
        return losses;
    }
    let mut source = VolumeSource::new(&volume.shared);
    let scan = vellum_ext4::scan(&mut source, volume.blocks());
    for found in &scan.file_systems {
        let files = Files::of(found, volume.blocks(), &blocks, &mut source);
        losses.may_be_more |= files.cut_short || files.passed_over > 0;
        for (file, blocks) in files.owners() {
            *losses.files.entry(file).or_default() += blocks;
        }
    }
    losses
}

/// The snapshots and clones of a volume, of which a rescue copies none.
pub struct Left {
    /// Those that the list names, as far as it can be read.
    pub named: Vec<SnapshotInfo>,
    /// What is wrong with the list, or with the rows of what they keep.
    pub wrong: Vec<String>,
    /// Whether there may be more.
    pub may_be_more: bool,
}

/// Finds the snapshots and clones of a volume, as far as that can be told.
#[must_use]
pub fn left(volume: &Volume) -> Left {
    let mut wrong = Vec::new();
    let mut may_be_more = is_list_in_doubt(volume);
    let named = volume.check_snapshots(&mut |one| {
        may_be_more |= matches!(one, Wrong::List { .. });
        if one.spoils_all() && wrong.len() < WRONG_NAMED {
            wrong.push(one.to_string());
        }
    });
    Left {
        named,
        wrong,
        may_be_more,
    }
}

/// True if a block of the list is lost, or need not be the last that was written.
fn is_list_in_doubt(volume: &Volume) -> bool {
    let (Some(damage), Some(keeper)) = (volume.damage(), &volume.shared.keeper) else {
        return false;
    };
    let [list, ..] = keeper.book().history().parts();
    let range = list.start.0..list.end.0;
    let in_doubt = [damage.lost(), damage.guessed()];
    in_doubt
        .iter()
        .any(|set| set.next_run(range.clone()).is_some())
}

impl Rescued {
    /// Reads and copies a run; block by block if it cannot be read as a whole.
    fn run(
        &mut self,
        source: &Side<'_>,
        target: Option<&Side<'_>>,
        at: u64,
        blocks: u64,
    ) -> Result<(), MigrateError> {
        match source.read(at, blocks) {
            Ok(content) => {
                if let Some(target) = target {
                    target.write(at, &content)?;
                }
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
