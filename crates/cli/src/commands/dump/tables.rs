//! Dumps a volume with tables in place: it has no chunks and no segments.

use crate::outcome::counted;
use anyhow::Result;
use std::io::Write;
use std::ops::Range;
use vellum_core::addr::Generation;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::Kind;
use vellum_core::tables::Recovered;
use vellum_device::info::hex_uuid;

/// Its identity and geometry.
pub fn superblock(sb: &Superblock, mirror_lost: bool, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "uuid              {}", hex_uuid(&sb.uuid()))?;
    writeln!(out, "layout            {}", sb.layout().name())?;
    writeln!(out, "life              {}", sb.life())?;
    writeln!(out, "medium blocks     {}", sb.medium_blocks())?;
    writeln!(out, "logical blocks    {}", sb.logical_blocks())?;
    writeln!(out, "capacity blocks   {}", sb.capacity_blocks())?;
    writeln!(out, "sums of blocks    {}", sb.sums().name())?;
    let copies = match sb.layout() {
        Layout::Shadow => ", two copies of each",
        _ => "",
    };
    if sb.layout() == Layout::Shadow {
        let (blocks, at) = (sb.shadow_root_blocks(), sb.shadow_root_at(Generation(0)));
        writeln!(
            out,
            "{:<22} {}, two copies of each of two, from block {at}; once durable: {}",
            "root",
            counted(blocks, "block"),
            sb.root_generation().0
        )?;
        let (blocks, at) = (sb.directory_blocks(), sb.directory_at(0, 0));
        writeln!(
            out,
            "{:<22} {}{copies}, from block {at}",
            "directory",
            counted(blocks, "block")
        )?;
    }
    let tables = Kind::ALL.into_iter().zip(sb.table_blocks());
    for (kind, blocks) in tables.filter(|(_, blocks)| *blocks > 0) {
        let at = sb.table_at(sb.table_number(kind, 0), 0);
        writeln!(
            out,
            "{:<22} {}{copies}, from block {at}",
            kind.name(),
            counted(blocks, "block")
        )?;
    }
    if let Some(at) = sb.map_twin(0, 0) {
        let blocks = counted(sb.table_blocks()[Kind::Map as usize], "block");
        let what = "twins of the map";
        writeln!(out, "{what:<22} {blocks}{copies}, from block {at}")?;
    }
    if let Some(at) = sb.directory_twin(0, 0) {
        let (what, blocks) = (
            "twins of the directory",
            counted(sb.directory_blocks(), "block"),
        );
        writeln!(out, "{what:<22} {blocks}{copies}, from block {at}")?;
    }
    let areas = sb.areas();
    let (blocks, first) = (areas.data_blocks(), areas.data(0));
    writeln!(out, "data blocks       {blocks}, from block {first}")?;
    let [first, last] = sb.mirrors();
    let lost = match mirror_lost {
        true => "; one is damaged or older",
        false => "",
    };
    writeln!(out, "mirrors           at blocks {first} and {last}{lost}")?;
    Ok(())
}

/// The map, with one line for each run of consecutive blocks.
pub fn map(found: &Recovered, range: Range<u64>, out: &mut dyn Write) -> Result<()> {
    let links = found.links().map(|(lba, at, _)| (u64::from(lba), at.0));
    let mut run: Option<(u64, u64, u64)> = None;
    let show = |out: &mut dyn Write, run: Option<(u64, u64, u64)>| match run {
        None => Ok(()),
        Some((lba, at, blocks)) => writeln!(out, "{lba:>12} {blocks:>10}  at block {at}"),
    };
    for (lba, at) in links.filter(|(lba, _)| range.contains(lba)) {
        match &mut run {
            Some((first, start, blocks)) if *first + *blocks == lba && *start + *blocks == at => {
                *blocks += 1;
            }
            _ => show(out, run.replace((lba, at, 1)))?,
        }
    }
    Ok(show(out, run)?)
}
