//! `vellum snapshot`.

use crate::keys::Key;
use crate::outcome::{out, tell, usage};
use crate::signals::{INSISTED, Stop};
use crate::snapshots::{self, All, Frozen, Order};
use crate::{bound, peek, state};
use anyhow::{Result, bail};
use parking_lot::Mutex;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum snapshot disk.vellum before-upgrade
  vellum snapshot disk.vellum monday --freeze     its file system needs no recovery then
  vellum attach disk.vellum@monday --mount /mnt   to look at it, when the volume is not attached

It takes no time and, at first, no room: what is written over later is kept. A file system on it mounts as
after a power cut; with --freeze it is clean. If the volume is so full that less than a tenth of what is
stored can be written over, it says so.")]
pub struct Args {
    /// The volume; if it is being served, its server does it, and clients notice nothing.
    volume: PathBuf,
    /// What to call it.
    #[arg(value_parser = snapshots::name)]
    name: String,
    /// Freeze the file systems that are mounted from the volume while it is taken; needs root.
    #[arg(long)]
    freeze: bool,
    #[command(flatten)]
    key: Key,
}

/// Takes the snapshot.
pub fn run(args: &Args) -> Result<()> {
    if let (volume, Some(name)) = snapshots::split(&args.volume)
        && volume.exists()
    {
        let shown = volume.display();
        return Err(usage(format!(
            "{name} would be a snapshot or a clone of {shown}, and these have no snapshots of their own: \
             `vellum snapshot {shown} NAME` takes one of the volume"
        )));
    }
    let order = Order::Take(args.name.clone());
    let mounts = match args.freeze {
        true => mounts(args)?,
        false => Vec::new(),
    };
    let frozen = frozen(&mounts)?;
    let taken = snapshots::ask::<All>(&args.volume, &args.key, &order);
    drop(frozen);
    let all = taken?;
    let shown = args.volume.display();
    writeln!(out(), "{shown}@{}", args.name)?;
    if let Some(warning) = all.warning() {
        tell(format_args!("{shown}: {warning}"));
    }
    Ok(())
}

/// Frozen file systems, which the thread that waits for signals can thaw too. Thawed when dropped.
#[derive(Default)]
pub struct Held(Arc<Mutex<Option<Frozen>>>);

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.lock().take());
    }
}

/// Freezes these file systems. A signal thaws them before it ends this command: whoever writes to a frozen file system cannot even
/// be killed.
pub fn frozen(mounts: &[PathBuf]) -> Result<Held> {
    let frozen = Held::default();
    if mounts.is_empty() {
        return Ok(frozen);
    }
    let stop = Stop::with_terminal()?;
    let mut held = frozen.0.lock();
    let seen = Arc::clone(&frozen.0);
    std::thread::Builder::new()
        .name("thaw".into())
        .spawn(move || {
            stop.wait(None);
            drop(seen.lock().take());
            std::process::exit(INSISTED);
        })?;
    *held = Some(Frozen::new(mounts)?);
    drop(held);
    Ok(frozen)
}

fn mounts(args: &Args) -> Result<Vec<PathBuf>> {
    let uuid = peek::uuid_of(&args.volume)?;
    let records = state::records()?;
    let Some((id, state)) = records.iter().find(|(id, _)| *id == uuid) else {
        return Err(usage(format!(
            "--freeze: {} is not attached here, so there is nothing to freeze",
            args.volume.display()
        )));
    };
    let mounts = bound::mounts(id, state);
    if mounts.is_empty() {
        bail!(
            "--freeze: no file system of {} is mounted here",
            args.volume.display()
        );
    }
    Ok(mounts)
}
