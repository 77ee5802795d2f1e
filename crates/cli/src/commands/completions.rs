//! `vellum completions`.

use crate::outcome::out;
use anyhow::Result;
use std::io::Write;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Which shell.
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> Result<()> {
    // In memory: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::command_line(),
        "vellum",
        &mut script,
    );
    Ok(out().write_all(&script)?)
}
