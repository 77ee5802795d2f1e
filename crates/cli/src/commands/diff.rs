//! `vellum diff`.

use crate::keys::Key;
use crate::outcome::{counted, out};
use crate::size::Size;
use crate::snapshots::{self, Run};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum diff disk.vellum monday            since then
  vellum diff disk.vellum monday tuesday    between the two
  vellum diff disk.vellum @-2h              since the newest snapshot that is two hours old, or older
  vellum diff disk.vellum monday --json     for a backup: [{\"start\":BYTES,\"bytes\":BYTES}, ...]

What is not listed is the same. What is listed was written, and may hold the same again.")]
pub struct Args {
    /// The volume.
    volume: PathBuf,
    /// A snapshot, by its name, or by its age: @-90s, @-15m, @-2h or @-1d.
    from: String,
    /// A later one; the volume as it is, if not given.
    to: Option<String>,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Shows the differences.
pub fn run(args: &Args) -> Result<()> {
    let named = |text: &String| snapshots::found(&args.volume, &args.key, text);
    let (from, to) = (named(&args.from)?, args.to.as_ref().map(named).transpose()?);
    let runs = snapshots::diff(&args.volume, &args.key, &from, to.as_deref())?;
    if args.json {
        writeln!(out(), "{}", serde_json::to_string(&runs)?)?;
        return Ok(());
    }
    for Run { start, bytes } in &runs {
        writeln!(out(), "{start}+{bytes}")?;
    }
    let all: u64 = runs.iter().map(|run| run.bytes).sum();
    writeln!(
        out(),
        "{} in {}",
        Size(all),
        counted(runs.len() as u64, "place")
    )?;
    Ok(())
}
