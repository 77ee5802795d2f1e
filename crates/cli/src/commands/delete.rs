//! `vellum delete`.

use crate::keys::Key;
use crate::outcome::{out, tell};
use crate::size::Size;
use crate::snapshots::{self, All, Order};
use crate::{peek, views};
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum delete disk.vellum before-upgrade
  vellum delete disk.vellum@before-upgrade        the same

The volume, and its other snapshots, stay as they are.
A snapshot with clones stays until these are deleted, and a clone for as long as it is in use.

If what says which snapshots there are is damaged, the volume is not written.
`vellum delete disk.vellum --all` gives all of them up, clones too, and the volume is written again.")]
pub struct Args {
    /// The volume, or VOLUME@NAME; if it is being served, its server does it.
    volume: PathBuf,
    /// The snapshot, or the clone.
    name: Option<String>,
    /// All snapshots and clones.
    #[arg(long, conflicts_with = "name")]
    all: bool,
    #[command(flatten)]
    key: Key,
}

/// Deletes the snapshot.
pub fn run(args: &Args) -> Result<()> {
    if args.all {
        let uuid = peek::uuid_of(&args.volume)?;
        // If the volume is damaged, no snapshot of it is attached.
        let there = snapshots::ask::<All>(&args.volume, &args.key, &Order::List);
        let there = there.map(|all| all.snapshots).unwrap_or_default();
        for one in &there {
            views::is_free(&uuid, &args.volume, &one.name)?;
        }
        let _: All = snapshots::ask(&args.volume, &args.key, &Order::DeleteAll)?;
        if let Some(one) = there.iter().find(|one| one.arrives) {
            let (shown, name) = (args.volume.display(), &one.name);
            tell(format_args!(
                "{shown}: warning: {name} was being received, so the volume is a mixture of it and of what \
                 was there before: `vellum receive --force {shown}` makes it a whole snapshot"
            ));
        }
        writeln!(out(), "all snapshots and clones are deleted")?;
        return Ok(());
    }
    let (volume, name) = snapshots::meant(&args.volume, args.name.as_deref())?;
    views::is_free(&peek::uuid_of(&volume)?, &volume, &name)?;
    let order = Order::Delete(name.clone());
    let left: All = snapshots::ask(&volume, &args.key, &order)?;
    let kept = Size(left.kept_bytes);
    writeln!(out(), "{name} is deleted; those that are left keep {kept}")?;
    Ok(())
}
