//! The vellum command: a file a subcommand, each thin; the work is in the other crates.
//!
//! Exit codes: 0 all well, 1 it failed, 2 the command line or the configuration file is wrong,
//! 3 `check` found damage.

mod attachment;
mod commands;
mod config;
mod control;
mod demo;
mod host;
mod nbd_client;
mod outcome;
mod policy;
mod raw;
mod signals;
mod size;
mod state;
mod volume;

use clap::{CommandFactory, FromArgMatches, Parser};
use std::path::PathBuf;
use std::process::ExitCode;

/// A crash-safe virtual SSD that knows what it is writing.
#[derive(Parser)]
#[command(
    name = "vellum",
    version,
    about,
    propagate_version = true,
    args_override_self = true
)]
#[command(
    after_help = "Exit codes: 0 all well, 1 it failed, 2 wrong usage or configuration, 3 check found damage.\n\
Sizes take K, M, G, T or P: powers of 1024, like 10G."
)]
struct Cli {
    /// Take options from this TOML file: a table a subcommand, keys like the flags. Flags win.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let (args, origins) = match config::expand(Cli::command(), args) {
        Ok(both) => both,
        Err(error) => return outcome::report(&error),
    };
    let cli = Cli::command()
        .try_get_matches_from(args)
        .and_then(|m| Cli::from_arg_matches(&m));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            origins.explain(&error);
            return ExitCode::from(if error.use_stderr() {
                outcome::USAGE
            } else {
                0
            });
        }
    };
    match cli.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => outcome::report(&error),
    }
}

/// The whole command line, for completions and manual pages.
fn command_line() -> clap::Command {
    Cli::command()
}
