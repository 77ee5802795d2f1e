//! `vellum snapshots`.

use crate::ago;
use crate::keys::Key;
use crate::outcome::out;
use crate::size::Size;
use crate::snapshots::{self, All, Order};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use vellum_device::SnapshotInfo;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum snapshots disk.vellum
  vellum snapshots disk.vellum --json | jq -r '.snapshots[].name'

FREED is at most what deleting that one alone gives back: of blocks that are stored in less than a
page, or shared with others, less is freed. BY tells which the volume took by itself (see
`vellum set --help`, snapshot-every), and which are clones.")]
pub struct Args {
    /// The volume.
    volume: PathBuf,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Shows the snapshots.
pub fn run(args: &Args) -> Result<()> {
    let all: All = snapshots::ask(&args.volume, &args.key, &Order::default())?;
    if args.json {
        writeln!(out(), "{}", serde_json::to_string(&all)?)?;
        return Ok(());
    }
    let mut rows = vec![["NAME", "AGE", "BY", "FREED"].map(str::to_owned)];
    rows.extend(all.snapshots.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [name, age, by] = [0, 1, 2].map(|column| width(column).unwrap_or(0));
    if all.snapshots.is_empty() {
        writeln!(out(), "no snapshots")?;
    } else {
        for [one, two, three, four] in &rows {
            writeln!(out(), "{one:name$}  {two:age$}  {three:by$}  {four}")?;
        }
    }
    let (kept, room) = (Size(all.kept_bytes), Size(all.room_bytes));
    writeln!(out(), "they keep {kept}, and have room for {room}")?;
    Ok(())
}

fn row(one: &SnapshotInfo) -> [String; 4] {
    // It may come from a stream, and so be any number.
    let taken = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(one.taken));
    let age = match taken.and_then(|taken| SystemTime::now().duration_since(taken).ok()) {
        Some(age) => ago::words(age.as_secs()),
        None => "of a later date".to_owned(),
    };
    let freed = match (one.leaves, one.arrives) {
        (true, _) => "being deleted".to_owned(),
        (_, true) => "being received".to_owned(),
        _ => Size(one.kept_bytes).to_string(),
    };
    let by = match &one.clone_of {
        Some(of) => format!("clone of {of}"),
        None if one.scheduled => "schedule".to_owned(),
        None => "hand".to_owned(),
    };
    [one.name.clone(), age, by, freed]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_is_formatted() {
        for (taken, told) in [
            (0, " d"),
            (1 << 63, "of a later date"),
            (u64::MAX, "of a later date"),
        ] {
            let one = SnapshotInfo {
                name: "s".to_owned(),
                number: 1,
                taken,
                kept_bytes: 0,
                leaves: false,
                scheduled: false,
                arrives: false,
                clone_of: None,
            };
            let [_, age, ..] = row(&one);
            assert!(age.ends_with(told), "{age}");
        }
    }
}
