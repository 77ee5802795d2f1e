//! `vellum check`: every invariant, changing nothing; exit code 3 when one does not hold.

use crate::outcome::damage;
use anyhow::Result;
use std::path::PathBuf;
use vellum_device::{MediumSource, crc32c};
use vellum_medium::{FileMedium, Medium, OpenOptions};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; no server may have it open.
    volume: PathBuf,
}

/// Checks it.
pub fn run(args: &Args) -> Result<()> {
    let medium = FileMedium::open(&args.volume, OpenOptions { read_only: true })?;
    let mut source = MediumSource::new(&medium);
    let recovered = vellum_core::recovery::recover(&mut source, medium.blocks(), crc32c);
    match recovered {
        Ok(_) => Ok(()),
        Err(error) => Err(damage(format!("{}: {error}", args.volume.display()))),
    }
}
