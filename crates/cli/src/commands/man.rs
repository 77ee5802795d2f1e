//! `vellum man`.

use anyhow::{Context, Result};
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Write a page a subcommand into this directory; without it, the main page goes to standard output.
    directory: Option<PathBuf>,
}

/// Writes the pages.
pub fn run(args: &Args) -> Result<()> {
    match &args.directory {
        None => Ok(clap_mangen::Man::new(crate::command_line()).render(&mut std::io::stdout())?),
        Some(dir) => clap_mangen::generate_to(crate::command_line(), dir)
            .with_context(|| format!("cannot write manual pages into {}", dir.display())),
    }
}
