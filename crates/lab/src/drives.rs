//! Drives as files: the built-in ones, and the user's own.
//!
//! A file is TOML. It has the drive's description, the source of its figures, its link, and either its flash or, for a device
//! whose inside is not known, its speed. The built-in drives are such files too, read by the same code.

mod cells;
mod fields;
mod interface;
mod tables;

pub use fields::DriveError;

use crate::flash::{Block, Kind, Nand, Point, Preset, Speed, Table};
use fields::{Fields, Lines, Reader, Writer};
use std::fmt::Write as _;
use std::sync::LazyLock;
use toml::de::{DeTable, DeValue};
use vellum_core::addr::BLOCK_BYTES;

/// The longest drive file.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// A drive, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveFile {
    /// Its name on the command line and in reports.
    pub name: String,
    /// A description.
    pub about: String,
    /// The source of the figures.
    pub source: String,
    /// The figures.
    pub preset: Preset,
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../drives/", $name, ".toml")))),*]
    };
}

const FILES: [(&str, &str); 13] = files!(
    "caftl" "oftl" "csafs" "disksim" "tlc-nvme" "qlc-nvme" "emmc" "sd"
    "fast-ssd" "moderate-ssd" "slow-ssd" "omd-tablet" "omd-server"
);

static KNOWN: LazyLock<Vec<DriveFile>> = LazyLock::new(|| {
    let read = |(name, text)| match DriveFile::read(name, text) {
        Ok(drive) => drive,
        Err(error) => unreachable!("{name}, a file of this crate's own: {error}"),
    };
    FILES.map(read).into()
});

/// Returns the built-in drives.
#[must_use]
pub fn known() -> &'static [DriveFile] {
    &KNOWN
}

/// Returns the built-in drive of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static DriveFile> {
    known().iter().find(|drive| drive.name == name)
}

/// Returns the figures of a built-in drive.
///
/// # Panics
/// If no built-in drive has that name.
#[must_use]
pub fn own(name: &str) -> Preset {
    match find(name) {
        Some(drive) => drive.preset,
        None => panic!("{name} is no drive of this crate's own"),
    }
}

impl DriveFile {
    /// Reads the file of a drive named `name`.
    ///
    /// # Errors
    /// With the first error in the file.
    pub fn read(name: &str, text: &str) -> Result<Self, DriveError> {
        let lines = Lines(text);
        let no_toml = |line, wrong: String| DriveError {
            line,
            key: "the file".into(),
            wrong,
        };
        if text.len() > FILE_BYTES_MAX {
            return Err(no_toml(1, format!("it is at most {FILE_BYTES_MAX} bytes")));
        }
        let table = DeTable::parse(text).map_err(|error| {
            let line = lines.of(error.span().map_or(0, |span| span.start));
            no_toml(
                line,
                format!("it is TOML, and this is not: {}", error.message()),
            )
        })?;
        let mut file = Reader::new(lines, "", table.get_ref(), 1);
        let about = file.text("about", "what the drive is")?;
        let source = file.text("source", "where the figures come from")?;
        let mut preset = Preset {
            command_ns: 0,
            link_bytes_per_s: 0,
            link_in_order: false,
            request_bytes: 0,
            queues: None,
            kind: Kind::Nand(Nand::default()),
        };
        let mut link = match file.table("link")? {
            Some(link) => link,
            None => return Err(file.missing("link", "a table, of the host's link")),
        };
        self::link(&mut link, &mut preset)?;
        link.end()?;
        preset.kind = kind(&mut file)?;
        preset.queues = interface::queues(&mut file)?;
        file.end()?;
        Ok(Self {
            name: name.into(),
            about,
            source,
            preset,
        })
    }

    /// Returns a checksum of the figures, to distinguish drives.
    #[must_use]
    pub fn digest(&self) -> u32 {
        crc32c::crc32c(self.written().as_bytes())
    }

    /// Returns the drive as a file with a comment on each value: a starting point for one's own.
    #[must_use]
    pub fn written(&self) -> String {
        let mut preset = self.preset;
        let mut to = Writer::default();
        to.text("What the drive is", "about", &self.about);
        to.text("Where the figures come from", "source", &self.source);
        to.table("link", "The host's link");
        // Writing cannot fail.
        let _ = link(&mut to, &mut preset);
        match &mut preset.kind {
            Kind::Nand(nand) => {
                to.table("flash", "The flash");
                let _ = tables::flash(&mut to, nand);
                cells::write_page_types(&mut to, nand);
                to.table("page-map", "What a page map does its own way on this drive");
                let _ = tables::page_map(&mut to, &mut nand.page_map);
                cells::write_energy(&mut to, nand.energy);
                cells::write_slc_cache(&mut to, nand.slc);
                cells::write_refresh(&mut to, nand.refresh);
                interface::write_placement(&mut to, nand.placement);
                interface::write_zoned(&mut to, nand.zoned);
            }
            Kind::Block(block) => {
                let about = "A device whose inside is not known, by its speed alone: a latency and a rate, \
                             or sizes that were measured";
                to.table("block", about);
                let _ = tables::flush(&mut to, &mut block.flush_ns);
                for (name, speed) in [("reads", block.read), ("writes", block.write)] {
                    let _ = writeln!(to.text, "{name} = {}", written_speed(speed));
                }
            }
        }
        interface::write_queues(&mut to, preset.queues);
        to.text
    }
}

fn link(of: &mut impl Fields, preset: &mut Preset) -> Result<(), DriveError> {
    let Preset {
        command_ns,
        link_bytes_per_s,
        link_in_order,
        request_bytes,
        ..
    } = preset;
    tables::link(
        of,
        command_ns,
        link_bytes_per_s,
        (link_in_order, request_bytes),
    )
}

/// Reads the drive's inside from whichever table the file has.
fn kind(file: &mut Reader<'_>) -> Result<Kind, DriveError> {
    match (file.table("flash")?, file.table("block")?) {
        (Some(flash), None) => nand(file, flash).map(Kind::Nand),
        (None, Some(block)) => self::block(block).map(Kind::Block),
        (None, None) => {
            let wanted = "a table, of the drive's flash; or else [block], of a device that is known by \
                          its speed alone";
            Err(file.missing("flash", wanted))
        }
        (Some(flash), Some(_)) => {
            let wrong = "a drive has [flash] or [block], not both";
            Err(file.wrong(flash.line(), "flash", wrong))
        }
    }
}

fn nand(file: &mut Reader<'_>, mut flash: Reader<'_>) -> Result<Nand, DriveError> {
    let mut nand = Nand::default();
    tables::flash(&mut flash, &mut nand)?;
    cells::page_types(&mut flash, &mut nand)?;
    flash.end()?;
    if let Some(mut map) = file.table("page-map")? {
        tables::page_map(&mut map, &mut nand.page_map)?;
        let one = nand.page_bytes as usize == BLOCK_BYTES && !(nand.multi_plane && nand.planes > 1);
        if nand.page_map.copy_back && !one {
            let wrong = "a program unit is then 4 KiB: page-kib = 4, and planes-together = false";
            return Err(map.wrong(map.line(), "copy-back", wrong));
        }
        if nand.page_map.summary && nand.pages_per_block < 2 {
            let wrong =
                "the last page of each block is its summary: pages-per-block has to be 2 at least";
            return Err(map.wrong(map.line(), "summaries", wrong));
        }
        if nand.page_types.count() > 0 && (nand.page_map.copy_back || nand.page_map.summary) {
            let wrong = "the flash has page-types: neither copy-back nor summaries go with them";
            return Err(map.wrong(map.line(), "page-types", wrong));
        }
        map.end()?;
    }
    nand.energy = cells::energy(file)?;
    nand.slc = cells::slc_cache(file, &nand)?;
    nand.refresh = cells::refresh(file)?;
    nand.placement = interface::placement(file, &nand)?;
    nand.zoned = interface::zoned(file, &nand)?;
    Ok(nand)
}

fn block(mut table: Reader<'_>) -> Result<Block, DriveError> {
    let mut flush_ns = 0;
    tables::flush(&mut table, &mut flush_ns)?;
    let block = Block {
        read: speed(&mut table, "reads")?,
        write: speed(&mut table, "writes")?,
        flush_ns,
    };
    table.end()?;
    Ok(block)
}

/// Reads one direction: a table, or a list of tables.
fn speed(of: &mut Reader<'_>, name: &'static str) -> Result<Speed, DriveError> {
    let wanted = "{ latency-us = 80, mb-per-s = 900 }, or a list of sizes like \
                  [{ kib = 4, us = 90, mb-per-s = 410 }]";
    let (value, line) = match of.take(name) {
        Some(found) => found,
        None => return Err(of.missing(name, wanted)),
    };
    let sizes = match value {
        DeValue::Table(table) => {
            let (mut latency_ns, mut bytes_per_s) = (0, 0);
            let mut flat = of.within(name, table, line);
            tables::flat(&mut flat, &mut latency_ns, &mut bytes_per_s)?;
            flat.end()?;
            return Ok(Speed::Flat {
                latency_ns,
                bytes_per_s,
            });
        }
        DeValue::Array(sizes) => sizes,
        _ => return Err(of.wrong(line, name, format!("it is {wanted}"))),
    };
    let mut points = Vec::new();
    let mut places = Vec::new();
    for size in sizes.iter() {
        let line = of.line_of(size.span().start);
        let DeValue::Table(table) = size.get_ref() else {
            return Err(of.wrong(line, name, format!("it is {wanted}")));
        };
        let mut at = of.within(name, table, line);
        let (mut bytes, mut latency_ns, mut bytes_per_s) = (0, 0, 0);
        tables::point(&mut at, (&mut bytes, &mut latency_ns, &mut bytes_per_s))?;
        at.end()?;
        places.push(line);
        points.push(Point {
            bytes,
            latency_ns,
            bytes_per_s,
        });
    }
    let table = Table::new(&points).map_err(|(index, error)| {
        let line = places.get(index).copied().unwrap_or(line);
        of.wrong(line, name, error.to_string())
    })?;
    Ok(Speed::Measured(table))
}

fn written_speed(speed: Speed) -> String {
    let mut to = Writer {
        inline: true,
        ..Writer::default()
    };
    match speed {
        Speed::Flat {
            mut latency_ns,
            mut bytes_per_s,
        } => {
            let _ = tables::flat(&mut to, &mut latency_ns, &mut bytes_per_s);
            format!("{{ {} }}", to.text)
        }
        Speed::Measured(table) => {
            let mut list = String::from("[\n");
            for mut point in table.points() {
                to.text.clear();
                let values = (
                    &mut point.bytes,
                    &mut point.latency_ns,
                    &mut point.bytes_per_s,
                );
                let _ = tables::point(&mut to, values);
                let _ = writeln!(list, "    {{ {} }},", to.text);
            }
            list + "]"
        }
    }
}

#[cfg(test)]
mod tests;
