//! `vellum lab drives`: lists the drives known by name, or prints one as a file.

use crate::outcome::out;
use anyhow::Result;
use std::io::Write;
use std::sync::Arc;
use vellum_lab::drives::{self, DriveFile};
use vellum_options::drives::named;

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
    /// Runs the command.
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
