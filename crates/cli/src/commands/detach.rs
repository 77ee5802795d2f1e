//! `vellum detach`: unmount, unbind, stop the server; whatever of it is still there.

use crate::signals::Stop;
use crate::state::{self, StateFile};
use crate::{attachment, volume};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume, its block device, or where it is mounted.
    volume: PathBuf,
}

/// Detaches it.
pub fn run(args: &Args) -> Result<()> {
    // Half a detach is worse than a whole one: signals wait. (It can be repeated all the same.)
    let _signals = Stop::on_signals(true)?;
    let path = args
        .volume
        .canonicalize()
        .unwrap_or_else(|_| args.volume.clone());
    let id = match state::find(&path)? {
        Some(id) => id,
        None => match volume::uuid_of(&path) {
            Ok(uuid) => uuid,
            Err(error) => bail!("nothing is attached as {}: {error:#}", path.display()),
        },
    };
    let file = StateFile::lock(&id)?;
    match file.load()? {
        Some(mut state) => {
            attachment::undo(&file, &id, &mut state)?;
            println!("detached");
        }
        None => {
            file.remove();
            println!("not attached");
        }
    }
    Ok(())
}
