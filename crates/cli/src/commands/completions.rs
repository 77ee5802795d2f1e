//! `vellum completions`.

use crate::outcome::bytes_out;
use anyhow::Result;
use clap::Command;
use std::io::Write;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Which shell.
    shell: clap_complete::Shell,
}

/// Prints the script for the whole command line.
pub fn run(args: &Args, whole: &Command) -> Result<()> {
    // Into memory, because the generator panics if it cannot write.
    let mut script = Vec::new();
    let mut command = shown(whole);
    clap_complete::generate(args.shell, &mut command, "vellum", &mut script);
    Ok(bytes_out().write_all(&script)?)
}

/// A command as a shell should offer it: the generator would also offer hidden options.
fn shown(command: &Command) -> Command {
    let shown_ones = command.get_subcommands().filter(|it| !it.is_hide_set());
    Command::new(command.get_name().to_owned())
        .about(command.get_about().cloned().unwrap_or_default())
        .version(env!("CARGO_PKG_VERSION"))
        .args(
            command
                .get_arguments()
                .filter(|it| !it.is_hide_set())
                .cloned(),
        )
        .subcommands(shown_ones.map(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use clap_complete::Shell;

    #[test]
    fn hidden_commands_are_not_completed() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            let mut command = shown(&crate::command_line());
            clap_complete::generate(*shell, &mut command, "vellum", &mut script);
            let script = String::from_utf8(script).unwrap();
            for seen in ["snapshots", "boot", "read-only", "socket-group"] {
                assert!(script.contains(seen), "{shell}: {seen}");
            }
            assert!(!script.contains(crate::remover::COMMAND), "{shell}");
        }
    }
}
