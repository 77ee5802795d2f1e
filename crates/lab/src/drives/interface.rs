//! The tables of a drive's file that change what its host may ask, and how: placement handles, zones, and submission queues.

use super::cells::write_one;
use super::fields::{DriveError, Reader, Writer};
use super::tables;
use crate::flash::{Nand, PLAIN, PageMapping, Placement, Queues, Weights, Zoned};
use vellum_core::addr::BLOCK_BYTES;

const PLACEMENT: &str = "placement";
const ZONED: &str = "zoned";
const QUEUES: &str = "queues";

/// Reads the placement handles, if the drive has any.
///
/// # Errors
/// If the file has an invalid value, or they do not fit the rest of the drive.
pub fn placement(file: &mut Reader<'_>, nand: &Nand) -> Result<Option<Placement>, DriveError> {
    let Some(mut table) = file.table(PLACEMENT)? else {
        return Ok(None);
    };
    let mut placement = Placement::default();
    tables::placement(&mut table, &mut placement)?;
    let line = table.line();
    if nand.slc.is_some() {
        let wrong = "[slc-cache] does not go with it: what its host writes is in the cache first";
        return Err(file.wrong(line, PLACEMENT, wrong));
    }
    let plain = PageMapping {
        kept_free: nand.page_map.kept_free,
        ..PLAIN
    };
    if nand.page_map != plain {
        let wrong = "neither striped, copy-back nor summaries of [page-map] go with it";
        return Err(file.wrong(line, PLACEMENT, wrong));
    }
    table.end()?;
    Ok(Some(placement))
}

/// Writes the table, or an example of it.
pub fn write_placement(to: &mut Writer, placement: Option<Placement>) {
    let about =
        "Handles by which a host says what belongs together (NVMe's FDP); left out, there are none";
    write_one(to, (PLACEMENT, about), placement, |to, placement| {
        // Writing cannot fail.
        let _ = tables::placement(to, placement);
    });
}

/// Reads the zones, if the drive has any.
///
/// # Errors
/// If the file has an invalid value, or they do not fit the rest of the drive.
pub fn zoned(file: &mut Reader<'_>, nand: &Nand) -> Result<Option<Zoned>, DriveError> {
    let Some(mut table) = file.table(ZONED)? else {
        return Ok(None);
    };
    let mut zoned = Zoned::default();
    tables::zoned(&mut table, &mut zoned)?;
    let line = table.line();
    for (name, is_there) in [
        ("[slc-cache]", nand.slc.is_some()),
        ("[placement]", nand.placement.is_some()),
        ("[page-map]", nand.page_map != PLAIN),
    ] {
        if is_there {
            let wrong = format!("{name} does not go with it: a drive with zones has no page map");
            return Err(file.wrong(line, ZONED, wrong));
        }
    }
    let dies = nand.channels * nand.dies_per_channel;
    if !zoned.dies.is_power_of_two() || !dies.is_multiple_of(zoned.dies) {
        let wrong = format!("it is a power of two that divides the drive's {dies} dies");
        return Err(table.wrong(line, "dies", wrong));
    }
    let beside = dies / zoned.dies;
    if !zoned.conventional.is_multiple_of(beside) {
        let wrong =
            format!("it is a multiple of {beside}: so many zones lie side by side on the dies");
        return Err(table.wrong(line, "conventional", wrong));
    }
    if zoned.active < zoned.open {
        let wrong = "it is at least as many as may be open: an open zone is active";
        return Err(table.wrong(line, "active", wrong));
    }
    let together = if nand.multi_plane { nand.planes } else { 1 };
    let block = u64::from(nand.pages_per_block) * u64::from(nand.page_bytes * together);
    let holds = block * u64::from(zoned.dies) * u64::from(zoned.deep);
    if zoned.size_bytes != 0 && zoned.size_bytes < holds {
        let wrong = format!("it is at least the {} KiB that a zone holds", holds / 1024);
        return Err(table.wrong(line, "size-kib", wrong));
    }
    if holds / BLOCK_BYTES as u64 > u64::from(u32::MAX) {
        let wrong = "a zone holds less than 16 TiB";
        return Err(table.wrong(line, "erase-blocks", wrong));
    }
    table.end()?;
    Ok(Some(zoned))
}

/// Writes the table, or an example of it.
pub fn write_zoned(to: &mut Writer, zoned: Option<Zoned>) {
    let about = "Zones, which are written in order and reset as a whole (NVMe's ZNS); left out, the drive \
                 has a page map";
    write_one(to, (ZONED, about), zoned, |to, zoned| {
        // Writing cannot fail.
        let _ = tables::zoned(to, zoned);
    });
}

/// Reads the submission queues, if the drive has any.
///
/// # Errors
/// If the file has an invalid value, or only some of the weights.
pub fn queues(file: &mut Reader<'_>) -> Result<Option<Queues>, DriveError> {
    let Some(mut table) = file.table(QUEUES)? else {
        return Ok(None);
    };
    let (mut queues, mut weights) = (Queues::default(), Weights::default());
    tables::queues(&mut table, &mut queues, &mut weights)?;
    let line = table.line();
    if !queues.burst.is_power_of_two() {
        let wrong = "it is a power of two, from 1 to 64";
        return Err(table.wrong(line, "burst", wrong));
    }
    let each = [
        ("high", weights.high),
        ("medium", weights.medium),
        ("low", weights.low),
    ];
    let left_out = each.iter().find(|(_, weight)| *weight == 0);
    match (weights == Weights::default(), left_out) {
        (true, _) => {}
        (false, None) => queues.weights = Some(weights),
        (false, Some((name, _))) => {
            let wanted = "weighted round robin has all three weights, high, medium and low";
            return Err(table.missing(name, wanted));
        }
    }
    table.end()?;
    Ok(Some(queues))
}

/// Writes the table, or an example of it.
pub fn write_queues(to: &mut Writer, queues: Option<Queues>) {
    let about = "Submission queues, from which the controller takes commands in turn; left out, each request \
                 goes to the drive at once";
    write_one(to, (QUEUES, about), queues, |to, queues| {
        let mut weights = queues.weights.unwrap_or_default();
        // Writing cannot fail.
        let _ = tables::queues(to, queues, &mut weights);
    });
}
