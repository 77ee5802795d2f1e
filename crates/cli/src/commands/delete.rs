//! `vellum delete`.

use crate::keys::Key;
use crate::outcome::out;
use crate::size::Size;
use crate::snapshots::{self, All, Order};
use crate::{peek, views};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Example:
  vellum delete disk.vellum before-upgrade

The volume, and its other snapshots, stay as they are.")]
pub struct Args {
    /// The volume; if it is being served, its server does it.
    volume: PathBuf,
    /// The snapshot.
    name: String,
    #[command(flatten)]
    key: Key,
}

/// Deletes it.
pub fn run(args: &Args) -> Result<()> {
    views::is_free(&peek::uuid_of(&args.volume)?, &args.volume, &args.name)?;
    let order = Order::Delete(args.name.clone());
    let left: All = snapshots::ask(&args.volume, &args.key, &order)?;
    let kept = Size(left.kept_bytes);
    writeln!(
        out(),
        "{} is deleted; those that are left keep {kept}",
        args.name
    )?;
    Ok(())
}
