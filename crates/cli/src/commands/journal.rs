//! `vellum journal`: shows and sets where the journals on a served volume are.

use crate::outcome::{out, usage};
use crate::size::Size;
use crate::{control, whose};
use anyhow::Result;
use clap::Subcommand;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const BLOCK: u64 = vellum_core::addr::BLOCK_BYTES as u64;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[derive(Subcommand)]
enum Action {
    /// Show the file systems that were found, and where their journals are watched or why not.
    List {
        /// The volume; its server is found by itself.
        volume: PathBuf,
        /// As JSON, one line.
        #[arg(long)]
        json: bool,
    },
    /// Watch a journal that is not found by itself, from now on: the volume keeps it. It goes before those that are found.
    Set {
        /// The volume.
        volume: PathBuf,
        /// Where it begins, a multiple of 4096 bytes.
        start: Size,
        /// How long it is, a multiple of 4096 bytes.
        length: Size,
    },
    /// Forget the journals that were set.
    Clear {
        /// The volume.
        volume: PathBuf,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (volume, change, as_json) = match &args.action {
        Action::List { volume, json } => (volume, Value::Null, *json),
        Action::Set {
            volume,
            start: Size(start),
            length: Size(bytes),
        } => (volume, json!({"start": start, "bytes": bytes}), false),
        Action::Clear { volume } => (volume, "clear".into(), false),
    };
    if let Action::Set { start, length, .. } = &args.action
        && (length.0 == 0 || [start.0, length.0].iter().any(|n| !n.is_multiple_of(BLOCK)))
    {
        return Err(usage(format!(
            "start and length must be multiples of {BLOCK} bytes, and the length not 0"
        )));
    }
    let told = ask(volume, &change)?;
    if as_json {
        writeln!(out(), "{told}")?;
    } else {
        write!(out(), "{}", text(&told))?;
    }
    Ok(())
}

/// A server's answer about a volume's journals, after a change, if any.
pub fn ask(volume: &Path, change: &Value) -> Result<Value> {
    let (socket, volume) = whose::server_of(volume)?;
    let request =
        json!({"command": "journal", "volume": volume.to_string_lossy(), "change": change});
    let answer = control::request(&socket, &request)?;
    Ok(answer.get("journal").cloned().unwrap_or_default())
}

/// Describes journals and file systems in words.
pub fn text(told: &Value) -> String {
    let mut text = String::new();
    let list = |key: &str| {
        told.get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    for journal in list("set_journals") {
        let _ = writeln!(text, "  journal set by hand at {}", extent(journal));
    }
    for found in list("file_systems") {
        let get = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default();
        // The label is whatever its owner wrote, possibly terminal commands.
        let _ = writeln!(
            text,
            "  file system {:?} {} at {}",
            get("label"),
            get("uuid"),
            extent(found)
        );
        let journals = found.get("journal").and_then(Value::as_array);
        for journal in journals.into_iter().flatten() {
            let _ = writeln!(text, "    journal watched at {}", extent(journal));
        }
        if let Some(reason) = found.get("stood_aside").and_then(Value::as_str) {
            let _ = writeln!(text, "    journal not watched: {reason}");
        }
        let reason = |key: &str| found.get(key).and_then(Value::as_str);
        if let Some(why) = reason("commits_do_not_wait")
            && reason("stood_aside") != Some(why)
        {
            let _ = writeln!(
                text,
                "    commit blocks do not wait for what they commit: {why}"
            );
        }
        if let Some(why) = reason("not_replayed")
            && reason("stood_aside") != Some(why)
        {
            let _ = writeln!(
                text,
                "    a crash leaves its journal to the file system (replay): {why}"
            );
        }
        if let Some(reason) = found.get("metadata_in_part").and_then(Value::as_str) {
            let _ = writeln!(text, "    metadata known in part: {reason}");
        }
        if let Some(reason) = found.get("not_shared").and_then(Value::as_str) {
            let _ = writeln!(text, "    nothing of it is deduplicated: {reason}");
        }
    }
    for fault in list("table_faults") {
        let fault = fault.as_str().unwrap_or_default();
        let _ = writeln!(text, "  partition table not used: {fault}");
    }
    if text.is_empty() {
        text.push_str("  no file system with a journal was found\n");
    }
    text
}

fn extent(value: &Value) -> String {
    let number = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or_default();
    format!("byte {}, {}", number("start"), Size(number("bytes")))
}
