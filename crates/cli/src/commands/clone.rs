//! `vellum clone`.

use crate::keys::Key;
use crate::outcome::out;
use crate::snapshots::{self, All, Order};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum clone disk.vellum@before-upgrade try
  vellum attach disk.vellum@try --mount /mnt      it is written, and what is written stays
  vellum delete disk.vellum try                   gives back all that was written to it

It takes no time and, at first, no room: it shares with the snapshot what it does not change.
The snapshot cannot be deleted before its clones.")]
pub struct Args {
    /// The snapshot: VOLUME@NAME; or by its age: VOLUME@-90s, @-15m, @-2h or @-1d.
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    snapshot: PathBuf,
    /// What to call the clone.
    #[arg(value_parser = snapshots::name)]
    name: String,
    #[command(flatten)]
    key: Key,
}

/// Makes the clone.
pub fn run(args: &Args) -> Result<()> {
    let (volume, snapshot) = snapshots::of_snapshot(&args.snapshot)?;
    let order = Order::Clone {
        of: snapshots::found(&volume, &args.key, &snapshot)?,
        name: args.name.clone(),
    };
    snapshots::ask::<All>(&volume, &args.key, &order)?;
    writeln!(out(), "{}@{}", volume.display(), args.name)?;
    Ok(())
}
