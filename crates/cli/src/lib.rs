//! The vellum command. Each subcommand has a file, and each is thin: the work is done in other crates.
//!
//! Exit codes: 0 success; 1 failure; 2 the command line or the configuration file is wrong; 3 `check`, `scrub`, `dump` or
//! `restore` found damage. `health` has its own codes.

// These macros panic if they cannot write. Commands print through `outcome::out` and `outcome::tell`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ago;
mod archive;
mod attachment;
mod behind;
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
mod in_use;
mod keys;
mod lookup;
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
mod remover;
mod replace;
mod resize;
mod restart;
mod room;
mod sent;
mod served;
mod server_log;
mod serving;
mod signals;
mod size;
mod smaller;
mod snapshots;
mod state;
mod strangers;
mod tls;
mod unfinished;
mod user;
mod views;
mod volume;
mod whole;
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
    after_help = "Exit codes: 0 all well, 1 it failed, 2 wrong usage or configuration, \
3 check or scrub found\n\
damage, or dump, pack or restore left blocks out. `health` has its own.\n\
Sizes take K, M, G, T or P, and KB or KiB mean the same: powers of 1024, like 10G."
)]
struct Cli {
    /// Take options from this TOML file: a table a subcommand, keys like the flags. Flags win.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    signals::outlive_file_limit();
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
    match cli.command.run(command_line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => outcome::report(&error),
    }
}

/// Returns the flags that a configuration file's text sets for one command (`["lab", "run"]`). `file` is its name in errors. An
/// error names the line, and the key if it is about one. Reads nothing else.
///
/// # Errors
/// If anything in the file is wrong, for any command.
pub fn configured(text: &str, file: &Path, command: &[&str]) -> anyhow::Result<Vec<OsString>> {
    let wanted: Vec<_> = command.iter().map(|&name| name.to_owned()).collect();
    Ok(config::flags(&command_line(), text, file, &wanted)?.0)
}

/// Returns the systemd ordering for a volume attached at boot, from the text of its entry. `file` is its name in errors.
///
/// # Errors
/// If anything in it is wrong.
pub fn ordered_at_boot(text: &str, file: &Path) -> anyhow::Result<String> {
    let entry = boot::Entry::parse(text, file)?;
    Ok(boot::systemd::ordering("local-fs.target", Some(&entry)))
}

/// Returns the answer to a line on the control socket of a server whose volumes accept everything.
#[must_use]
pub fn asked(line: &[u8]) -> serde_json::Value {
    control::answer(line, &willing::Volumes, &mut control::After::default())
}

/// The mount points and sources in a table of mounts.
#[must_use]
pub fn mounted(table: &[u8]) -> Vec<(PathBuf, PathBuf)> {
    let found = host::mounts_in(table).into_iter();
    found.map(|mount| (mount.target, mount.source)).collect()
}

/// Parses a state file and writes it again.
///
/// # Errors
/// If the bytes are not a state file.
pub fn recorded(bytes: &[u8]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec_pretty(&state::State::parse(bytes)?)
}

/// Checks whether the command line accepts these arguments.
///
/// # Errors
/// The message that the user would see.
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
