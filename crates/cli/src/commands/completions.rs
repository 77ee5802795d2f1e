//! `vellum completions`.

use anyhow::Result;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Which shell.
    shell: clap_complete::Shell,
}

/// Prints the script.
#[expect(clippy::unnecessary_wraps, reason = "every command has the same form")]
pub fn run(args: &Args) -> Result<()> {
    clap_complete::generate(
        args.shell,
        &mut crate::command_line(),
        "vellum",
        &mut std::io::stdout(),
    );
    Ok(())
}
