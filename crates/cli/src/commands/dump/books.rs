//! The list of snapshots and clones, and the rows of what they keep: as they are on the volume, right or not.

use super::found;
use crate::outcome::usage;
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::history::{
    BLOCK_ENTRIES, BLOCK_ROWS, ENTRY_BYTES, History, Identity, Name, Number, Row, Snapshot, Stage,
};
use vellum_core::format::superblock::Superblock;
use vellum_device::Volume;
use vellum_device::inspect::open_to_check;
use vellum_medium::Medium;

/// A volume whose books are shown; see the module.
pub struct Books<'a> {
    volume: Volume,
    history: History,
    /// The blocks that clients see: fewer than before the history, if the volume has shrunk.
    seen: u64,
    out: &'a mut dyn Write,
}

/// Shows an entry of the list, given its place.
type Show<'a> = &'a mut dyn FnMut(&mut dyn Write, u64, &Snapshot) -> io::Result<()>;

/// Kept blocks one after the other that are consecutive blocks of one snapshot.
struct Run {
    slot: u64,
    blocks: u64,
    first: Row,
}

impl Run {
    fn goes_on(&self, slot: u64, row: Row) -> bool {
        self.slot + self.blocks == slot
            && self.first.lba.0 + self.blocks == row.lba.0
            && self.first.number == row.number
    }
}

impl<'a> Books<'a> {
    /// Opens the volume to read them, and tells what is lost of them.
    pub fn open(
        path: &Path,
        medium: &Arc<dyn Medium>,
        sb: &Superblock,
        out: &'a mut dyn Write,
    ) -> Result<Self> {
        let (history, shown) = (sb.history(), path.display());
        if history.kept() == 0 {
            return Err(usage(format!("{shown} has no room for snapshots")));
        }
        if sb.without_data().is_some() {
            return Err(usage(format!(
                "{shown} is a pack, and holds no data: the list of snapshots and the rows are data"
            )));
        }
        let volume = open_to_check(medium)?;
        if let Some(damage) = volume.damage() {
            for finding in damage.findings() {
                writeln!(out, "damaged: {finding}")?;
            }
            let [list, rows, _] = history.parts();
            let range = list.start.0..rows.end.0;
            found::runs(damage.lost(), &range, "lost", out)?;
            if damage.may_go_on() {
                writeln!(out, "damaged: what was written last may be missing")?;
            }
        }
        Ok(Self {
            volume,
            history,
            seen: sb.logical_blocks(),
            out,
        })
    }

    /// The list, a line an entry.
    pub fn snapshots(mut self) -> Result<()> {
        let [entry, number, taken] = ["entry", "number", "taken"];
        writeln!(self.out, "{entry:>8} {number:>10} {taken:>12}  name")?;
        self.entries(&mut |out, place, one| {
            let Identity { name, taken, .. } = one.identity;
            let state = state(one);
            writeln!(
                out,
                "{place:>8} {:>10} {taken:>12}  {name}{state}",
                one.number.0
            )
        })?;
        Ok(())
    }

    /// The rows in these blocks of rows, a line a range.
    pub fn rows(mut self, range: Range<u64>) -> Result<()> {
        let mut names = BTreeMap::new();
        self.entries(&mut |_, _, one| {
            // An opening refuses a list in which a number is there twice.
            names.entry(one.number).or_insert(one.identity.name);
            Ok(())
        })?;
        let Self {
            volume,
            history,
            seen,
            out,
        } = self;
        let first = history.parts()[1].start;
        let blocks = first.plus(range.start)..first.plus(range.end);
        volume.read_books(blocks, &mut |at, block| {
            let number = at.0 - first.0;
            match block {
                Err(error) => writeln!(out, "block {number} of rows, LBA {at}: {error}"),
                Ok(block) => {
                    writeln!(out, "block {number} of rows, LBA {at}")?;
                    rows(&history, seen, number, &block, &names, out)
                }
            }
        })?;
        Ok(())
    }

    /// Shows each entry of the list, or tells why it, or a block of the list, cannot be read.
    fn entries(&mut self, show: Show<'_>) -> io::Result<()> {
        let [list, ..] = self.history.parts();
        let (first, out) = (list.start, &mut *self.out);
        self.volume.read_books(list, &mut |at, block| {
            let number = at.0 - first.0;
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    return writeln!(out, "block {number} of the list, LBA {at}: {error}");
                }
            };
            entries(number, &block, out, show)
        })
    }
}

/// The entries in a block of the list.
fn entries(
    number: u64,
    block: &[u8; BLOCK_BYTES],
    out: &mut dyn Write,
    show: Show<'_>,
) -> io::Result<()> {
    let (entries, _) = block.as_chunks::<ENTRY_BYTES>();
    for (place, entry) in (number * BLOCK_ENTRIES as u64..).zip(entries) {
        match Snapshot::decode(entry) {
            Ok(None) => {}
            Ok(Some(one)) => show(out, place, &one)?,
            Err(error) => writeln!(out, "{place:>8}  {error}")?,
        }
    }
    Ok(())
}

/// What is to be said of an entry beside its name.
fn state(one: &Snapshot) -> String {
    let clone_of = one.clone_of().map(|of| format!(", clone of {}", of.0));
    let stage = match one.stage {
        Stage::Kept | Stage::Clone => "",
        Stage::Leaving | Stage::LeavingClone => ", being deleted",
        Stage::Returning => ", the volume is being taken back to it",
        Stage::ArrivingWhole => ", being received as a whole",
        Stage::ArrivingChanges => ", being received as changes",
    };
    clone_of.unwrap_or_default() + stage
}

/// The rows in a block of them.
fn rows(
    history: &History,
    seen: u64,
    number: u64,
    block: &[u8; BLOCK_BYTES],
    names: &BTreeMap<Number, Name>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let show = |out: &mut dyn Write, run: Option<Run>| {
        let Some(Run {
            slot,
            blocks,
            first,
        }) = run
        else {
            return Ok(());
        };
        let kept = history.parts()[2].start.plus(slot);
        let Row { lba, number } = first;
        write!(out, "{kept:>12} {blocks:>10}  LBA {lba} of {}", number.0)?;
        match names.get(&number) {
            Some(name) => write!(out, ", {name}")?,
            None => write!(out, ", which the list does not have")?,
        }
        match lba.0 + blocks <= seen {
            true => writeln!(out),
            false => writeln!(out, "; clients do not see all of it"),
        }
    };
    let (mut run, mut strange): (Option<Run>, u64) = (None, 0);
    let (rows, _) = block.as_chunks::<8>();
    for (slot, bytes) in (number * BLOCK_ROWS as u64..).zip(rows) {
        let raw = u64::from_le_bytes(*bytes);
        let row = history.row_form().row(raw);
        let Some(row) = row.filter(|_| slot < history.kept()) else {
            strange += u64::from(raw != 0);
            continue;
        };
        match &mut run {
            Some(run) if run.goes_on(slot, row) => run.blocks += 1,
            _ => show(
                out,
                run.replace(Run {
                    slot,
                    blocks: 1,
                    first: row,
                }),
            )?,
        }
    }
    show(out, run)?;
    match strange {
        0 => Ok(()),
        _ => writeln!(out, "{strange} that are no rows of kept blocks"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use vellum_core::addr::Lba;

    fn shown(history: &History, number: u64, block: &[u8; BLOCK_BYTES]) -> String {
        let mut out = Vec::new();
        rows(
            history,
            history.first().0,
            number,
            block,
            &BTreeMap::new(),
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    /// A checksum does not keep anybody from writing them.
    #[test]
    fn any_bytes_are_shown_as_rows() {
        let history = History::new(Lba(1000), 600);
        let told = shown(&history, 1, &[0xff; BLOCK_BYTES]);
        // 88 of them are of kept blocks, and none follows another.
        let (last, lines) = told
            .trim_end()
            .rsplit_once('\n')
            .map(|(a, b)| (b, a))
            .unwrap();
        assert_eq!(last, "424 that are no rows of kept blocks");
        assert_eq!(lines.lines().count(), 88);
        let line = "        1530          1  LBA 4294967295 of 4294967295, which the list does not have; \
                    clients do not see all of it";
        assert_eq!(lines.lines().next(), Some(line));
        let wide = History::new(Lba(1 << 33), 600);
        let told = shown(&wide, 0, &[0xff; BLOCK_BYTES]);
        assert!(told.contains("LBA 1099511627775 of 16777215,"), "{told}");
    }

    #[test]
    fn an_entry_that_is_none_is_told_with_its_place() {
        let mut block = [0; BLOCK_BYTES];
        block[ENTRY_BYTES] = 7;
        block[ENTRY_BYTES + 4] = 99;
        let (mut out, mut named) = (Vec::new(), 0);
        let mut show = |_: &mut dyn Write, _, _: &Snapshot| {
            named += 1;
            Ok(())
        };
        entries(2, &block, &mut out, &mut show).unwrap();
        assert_eq!(named, 0);
        let told = String::from_utf8(out).unwrap();
        assert_eq!(
            told,
            "     129  list of snapshots: stage is 99, which cannot be\n"
        );
    }
}
