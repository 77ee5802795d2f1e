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

The volume, and its other snapshots, stay as they are.
A snapshot with clones stays until these are deleted, and a clone for as long as it is in use.

If what says which snapshots there are is damaged, the volume is not written.
`vellum delete disk.vellum --all` gives all of them up, clones too, and the volume is written again.")]
pub struct Args {
    /// The volume; if it is being served, its server does it.
    volume: PathBuf,
    /// The snapshot, or the clone.
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// All snapshots and clones.
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    key: Key,
}

/// Deletes it.
pub fn run(args: &Args) -> Result<()> {
    let uuid = peek::uuid_of(&args.volume)?;
    let Some(name) = &args.name else {
        // When it is damaged, nothing of it is attached.
        let there = snapshots::ask::<All>(&args.volume, &args.key, &Order::List);
        for one in there.map(|all| all.snapshots).unwrap_or_default() {
            views::is_free(&uuid, &args.volume, &one.name)?;
        }
        let _: All = snapshots::ask(&args.volume, &args.key, &Order::DeleteAll)?;
        writeln!(out(), "all snapshots and clones are deleted")?;
        return Ok(());
    };
    views::is_free(&uuid, &args.volume, name)?;
    let order = Order::Delete(name.clone());
    let left: All = snapshots::ask(&args.volume, &args.key, &order)?;
    let kept = Size(left.kept_bytes);
    writeln!(out(), "{name} is deleted; those that are left keep {kept}")?;
    Ok(())
}
