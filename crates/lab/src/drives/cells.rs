//! The tables of a drive's file that describe its cells.

use super::fields::{DriveError, Reader, Writer};
use super::tables;
use crate::flash::{Energy, Nand, PageTypes, Refresh, SlcCache, TYPES_MAX};
use std::fmt::Write as _;
use toml::de::DeValue;

const TYPES: &str = "page-types";
const CACHE: &str = "slc-cache";
const ENERGY: &str = "energy";
const DISTURB: &str = "read-disturb";
const RETENTION: &str = "retention";
/// How far the mean of the types may differ from the figure for all pages, in thousandths.
const MEAN_OFF: u64 = 10;

/// Reads the page types, if the file distinguishes them.
///
/// # Errors
/// If the file has an invalid value, or the types do not fit the flash.
pub fn page_types(flash: &mut Reader<'_>, nand: &mut Nand) -> Result<(), DriveError> {
    let wanted = format!(
        "a list of 2 to {TYPES_MAX} types in the order of programming, \
         like [{{ read-us = 40, program-us = 500 }}, {{ read-us = 60, program-us = 900 }}]"
    );
    let Some((value, line)) = flash.take(TYPES) else {
        return Ok(());
    };
    let wrong = |wrong: String| flash.wrong(line, TYPES, wrong);
    let DeValue::Array(list) = value else {
        return Err(wrong(format!("it is {wanted}")));
    };
    if !(2..=TYPES_MAX).contains(&list.len()) || list.len() > nand.pages_per_block as usize {
        return Err(wrong(format!(
            "it is {wanted}; and a block has a page of each at least"
        )));
    }
    let mut times = Vec::new();
    for entry in list.iter() {
        let line = flash.line_of(entry.span().start);
        let DeValue::Table(table) = entry.get_ref() else {
            return Err(flash.wrong(line, TYPES, format!("it is {wanted}")));
        };
        let mut of = flash.within(TYPES, table, line);
        let (mut read, mut program) = (0, 0);
        tables::page_type(&mut of, &mut read, &mut program)?;
        of.end()?;
        times.push((read, program));
    }
    let mean = |of: fn(&(u64, u64)) -> u64| {
        let all: u64 = times.iter().map(of).sum();
        all / times.len() as u64
    };
    for (name, mean, said) in [
        ("read-us", mean(|of| of.0), nand.read_ns),
        ("program-us", mean(|of| of.1), nand.program_ns),
    ] {
        if mean.abs_diff(said) * 1000 > said * MEAN_OFF {
            let (mean, said) = (mean as f64 / 1000.0, said as f64 / 1000.0);
            return Err(wrong(format!(
                "[flash] {name} is the mean of its types: they come to {mean}, and it is {said}"
            )));
        }
    }
    if let Some(types) = PageTypes::new(&times) {
        nand.page_types = types;
    }
    Ok(())
}

/// Writes the page types, or an example of them.
pub fn write_page_types(to: &mut Writer, nand: &Nand) {
    let about = "# Types of pages that take different times, in the order of programming: of a cell \
                 of three bits\n# the lower, the middle and the upper page. Of their times read-us and \
                 program-us are the means.";
    let _ = writeln!(to.text, "{about}");
    if nand.page_types.count() == 0 {
        let _ = writeln!(to.text, "# {TYPES} =");
        return;
    }
    let _ = writeln!(to.text, "{TYPES} = [");
    for &(mut read, mut program) in nand.page_types.times() {
        let mut entry = Writer {
            inline: true,
            ..Writer::default()
        };
        let _ = tables::page_type(&mut entry, &mut read, &mut program);
        let _ = writeln!(to.text, "    {{ {} }},", entry.text);
    }
    let _ = writeln!(to.text, "]");
}

/// Reads the cache with one bit a cell, if the file has one.
///
/// # Errors
/// If the file has an invalid value, or the cache does not fit the flash.
pub fn slc_cache(file: &mut Reader<'_>, nand: &Nand) -> Result<Option<SlcCache>, DriveError> {
    let Some(mut table) = file.table(CACHE)? else {
        return Ok(None);
    };
    let mut slc = SlcCache::default();
    tables::slc_cache(&mut table, &mut slc)?;
    let line = table.line();
    let types = nand.page_types.count();
    if slc.units(nand.pages_per_block) == 0 {
        let wrong = "a block of it has a page at least: pages-per-block is less than bits-per-cell";
        return Err(table.wrong(line, "bits-per-cell", wrong));
    }
    if types > 0 && types != slc.bits {
        let wrong = format!("the flash has {types} page-types, and so its cells have {types} bits");
        return Err(table.wrong(line, "bits-per-cell", wrong));
    }
    if nand.page_map.copy_back || nand.page_map.summary {
        let wrong = "neither copy-back nor summaries go with it";
        return Err(file.wrong(line, CACHE, wrong));
    }
    table.end()?;
    Ok(Some(slc))
}

/// Reads the energy of the flash's operations, if the file has it.
///
/// # Errors
/// If the file has an invalid value.
pub fn energy(file: &mut Reader<'_>) -> Result<Option<Energy>, DriveError> {
    let Some(mut table) = file.table(ENERGY)? else {
        return Ok(None);
    };
    let mut energy = Energy::default();
    tables::energy(&mut table, &mut energy)?;
    table.end()?;
    Ok(Some(energy))
}

/// Reads when blocks are refreshed, if the file has it.
///
/// # Errors
/// If the file has an invalid value.
pub fn refresh(file: &mut Reader<'_>) -> Result<Refresh, DriveError> {
    let mut refresh = Refresh::default();
    if let Some(mut table) = file.table(DISTURB)? {
        tables::read_disturb(&mut table, refresh.reads.insert(0))?;
        table.end()?;
    }
    if let Some(mut table) = file.table(RETENTION)? {
        tables::retention(&mut table, refresh.age_ns.insert(0))?;
        table.end()?;
    }
    Ok(refresh)
}

/// Writes the tables, or examples of them.
pub fn write_refresh(to: &mut Writer, refresh: Refresh) {
    let about = "How many reads an erase block stands; left out, reads do it no harm";
    write_one(to, (DISTURB, about), refresh.reads, |to, reads| {
        // Writing cannot fail.
        let _ = tables::read_disturb(to, reads);
    });
    let about = "How long an erase block keeps its data; left out, for ever";
    write_one(to, (RETENTION, about), refresh.age_ns, |to, age_ns| {
        let _ = tables::retention(to, age_ns);
    });
}

/// Writes the table, or an example of it.
pub fn write_energy(to: &mut Writer, energy: Option<Energy>) {
    let about = "What the flash takes of energy; left out, none is told";
    write_one(to, (ENERGY, about), energy, |to, energy| {
        // Writing cannot fail.
        let _ = tables::energy(to, energy);
    });
}

/// Writes the table, or an example of it.
pub fn write_slc_cache(to: &mut Writer, slc: Option<SlcCache>) {
    let about = "Blocks with one bit a cell that a page map writes to first, and folds into the others later";
    write_one(to, (CACHE, about), slc, |to, slc| {
        let _ = tables::slc_cache(to, slc);
    });
}

/// Writes an optional table, or an example of it.
pub(super) fn write_one<T>(
    to: &mut Writer,
    (name, about): (&str, &str),
    table: Option<T>,
    values: impl FnOnce(&mut Writer, &mut T),
) {
    match table {
        Some(mut table) => {
            to.table(name, about);
            values(to, &mut table);
        }
        None => {
            let _ = writeln!(to.text, "\n# {about}.\n# [{name}]");
        }
    }
}
