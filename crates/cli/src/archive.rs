//! Shared by the commands that write and read archives.

use crate::outcome::usage;
use crate::replace;
use crate::size::Size;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::archive::{Head, Kind, Totals};
use vellum_device::info::hex_uuid;

/// Bytes that are read and written at once.
const BUFFER: usize = 1 << 20;

/// True if the path means a stream, not a file.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// Writes an archive to standard output, or to a new file that gets its name when it is complete. Returns its contents and its size.
pub fn write(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> Result<Totals>,
) -> Result<(Totals, Option<u64>)> {
    if is_stream(path) {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err(usage(
                "an archive is nothing for a terminal: give `-` with a pipe, or name a file",
            ));
        }
        let totals = write(&mut BufWriter::with_capacity(BUFFER, stdout.lock()))?;
        return Ok((totals, None));
    }
    let shown = path.display();
    if path.is_dir() {
        bail!("{shown} is a directory: name a file for the archive");
    }
    if path.symlink_metadata().is_ok() {
        bail!("{shown} exists already: choose another name, or remove it");
    }
    let refused = || format!("cannot write {shown}");
    let mut made = replace::beside(path).with_context(refused)?;
    // Its errors do not name the temporary file, as those of `made` do.
    let written = write(&mut BufWriter::with_capacity(BUFFER, made.as_file_mut()));
    let totals = written.with_context(|| format!("{shown} is not written"))?;
    made.as_file().sync_all().with_context(refused)?;
    let bytes = made.as_file().metadata().with_context(refused)?.len();
    replace::name(made, path, false).with_context(refused)?;
    Ok((totals, Some(bytes)))
}

/// Opens an archive for reading.
pub fn open(path: &Path) -> Result<Box<dyn Read>> {
    let source: Box<dyn Read> = if is_stream(path) {
        Box::new(io::stdin().lock())
    } else {
        let shown = path.display();
        Box::new(File::open(path).with_context(|| format!("cannot open {shown}"))?)
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER, source)))
}

/// The size of this many blocks.
pub fn size(blocks: u64) -> Size {
    Size(blocks * BLOCK_BYTES as u64)
}

/// The description of an archive and its contents, as JSON.
pub fn as_json(head: &Head, totals: &Totals) -> Value {
    json!({
        "kind": match head.kind {
            Kind::Whole => "whole",
            Kind::Pack => "pack",
        },
        "uuid": hex_uuid(&head.uuid),
        "life": head.life,
        "medium_bytes": size(head.medium_blocks).0,
        "stored_bytes": size(totals.blocks).0,
        "missing_blocks": totals.missing,
        "sum": format!("{:016x}", totals.sum),
    })
}
