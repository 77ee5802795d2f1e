//! `vellum lab drives`: those that are known by name, and one as a file.

use crate::outcome::out;
use anyhow::Result;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use vellum_lab::drives::{self, DriveFile, FILE_BYTES_MAX};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum lab drives
  vellum lab drives tlc-nvme > mine.toml
  vellum lab run --workload zipf --drive mine.toml")]
pub struct Args {
    /// Print this drive's file, with a word on each value; a file of your own is checked and printed.
    #[arg(value_name = "NAME|FILE.toml", value_parser = named)]
    drive: Option<Arc<DriveFile>>,
}

impl Args {
    /// Does it.
    pub fn run(&self) -> Result<()> {
        if let Some(drive) = &self.drive {
            return Ok(write!(out(), "{}", drive.written())?);
        }
        for drive in drives::known() {
            writeln!(out(), "{:<14}{}", drive.name, drive.about)?;
        }
        Ok(())
    }
}

/// The drive of a name, or of a file: what is not known by name, and has a folder or ends like one.
pub fn named(text: &str) -> Result<Arc<DriveFile>, String> {
    if let Some(drive) = drives::find(text) {
        return Ok(Arc::new(drive.clone()));
    }
    let path = Path::new(text);
    if !text.contains('/') && path.extension().is_none_or(|kind| kind != "toml") {
        let names: Vec<_> = drives::known().iter().map(|drive| &*drive.name).collect();
        return Err(format!(
            "there are {}; or name a file of your own that ends in .toml",
            names.join(", ")
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read it: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| "it is no text (UTF-8)".to_owned())?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let drive = DriveFile::read(&name, &text).map_err(|error| error.to_string())?;
    Ok(Arc::new(drive))
}
