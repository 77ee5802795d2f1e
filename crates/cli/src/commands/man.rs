//! `vellum man`.

use anyhow::{Context, Result};
use clap::Command;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Write a page a subcommand into this directory; without it, the main page goes to standard output.
    directory: Option<PathBuf>,
}

/// Writes the pages of the whole command line.
pub fn run(args: &Args, whole: Command) -> Result<()> {
    match &args.directory {
        None => Ok(clap_mangen::Man::new(whole).render(&mut std::io::stdout())?),
        Some(dir) => clap_mangen::generate_to(whole, dir)
            .with_context(|| format!("cannot write manual pages into {}", dir.display())),
    }
}
