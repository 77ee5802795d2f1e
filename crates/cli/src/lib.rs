//! The vellum command: a file a subcommand, each thin; the work is in the other crates.
//!
//! Exit codes: 0 all well, 1 it failed, 2 the command line or the configuration file is wrong,
//! 3 `check`, `scrub`, `dump` or `restore` found damage; `health` has its own.

// They panic where they cannot write: what commands tell goes to `outcome::out` and `outcome::tell`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ago;
mod archive;
mod attachment;
mod boot;
mod bound;
mod claim;
mod commands;
mod config;
mod confine;
mod control;
mod demo;
mod drives;
mod ext4;
mod group;
mod grow;
mod handover;
mod host;
mod keys;
mod nbd_client;
mod observed;
mod opened;
mod outcome;
mod parts;
mod peek;
mod progress;
mod properties;
mod protected;
mod raw;
mod replace;
mod resize;
mod restart;
mod sent;
mod served;
mod server_log;
mod serving;
mod signals;
mod size;
mod smaller;
mod snapshots;
mod state;
mod tls;
mod views;
mod volume;
mod whose;
mod willing;

use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;
use vellum_core::format::VERSION as FORMAT;

/// A crash-safe virtual SSD that knows what it is writing.
#[derive(Parser)]
#[command(
    name = "vellum",
    version,
    propagate_version = true,
    args_override_self = true
)]
#[command(
    after_help = "Exit codes: 0 all well, 1 it failed, 2 wrong usage or configuration, 3 check, scrub, dump or restore found\n\
damage. `health` has its own.\n\
Sizes take K, M, G, T or P: powers of 1024, like 10G."
)]
struct Cli {
    /// Take options from this TOML file: a table a subcommand, keys like the flags. Flags win.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the command line that this process was started with.
pub fn run() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    let (args, origins) = match config::expand(command_line(), args) {
        Ok(both) => both,
        Err(error) => return outcome::report(&error),
    };
    let cli = command_line()
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

/// The flags that a configuration file's text sets for one command (`["lab", "run"]`), `file` being its name in errors: each
/// names the line, and the key if it is about one. Reads nothing else.
///
/// # Errors
/// When anything in it is wrong, for whichever command.
pub fn configured(text: &str, file: &Path, command: &[&str]) -> anyhow::Result<Vec<OsString>> {
    let wanted: Vec<_> = command.iter().map(|&name| name.to_owned()).collect();
    Ok(config::flags(&command_line(), text, file, &wanted)?.0)
}

/// What systemd is told of a volume that is attached at boot, by the text of its entry, `file` being its name in errors.
///
/// # Errors
/// When anything in it is wrong.
pub fn ordered_at_boot(text: &str, file: &Path) -> anyhow::Result<String> {
    let entry = boot::Entry::parse(text, file)?;
    Ok(boot::systemd::ordering("local-fs.target", Some(&entry)))
}

/// What a server whose volumes take everything answers to a line on its control socket.
#[must_use]
pub fn asked(line: &[u8]) -> serde_json::Value {
    control::answer(line, &willing::Volumes, &mut control::After::default())
}

/// What a state file says, written again.
///
/// # Errors
/// When it is none.
pub fn recorded(bytes: &[u8]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(&state::State::parse(bytes)?)
}

/// Whether the command line takes these arguments.
///
/// # Errors
/// As the user would be told.
pub fn takes(args: &[OsString]) -> Result<(), String> {
    let matches = command_line().try_get_matches_from(args);
    let cli = matches.and_then(|found| Cli::from_arg_matches(&found));
    cli.map(drop).map_err(|error| error.to_string())
}

/// The whole command line, for completions, manual pages and the guide.
pub fn command_line() -> clap::Command {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let ours = env!("CARGO_PKG_VERSION");
        format!("{ours}\nvolumes: it writes format {FORMAT}, and reads 1 to {FORMAT}")
    });
    Cli::command().long_version(VERSION.as_str())
}
