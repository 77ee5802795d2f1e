//! `vellum disable`: a volume is no longer attached at each boot.

use crate::boot::{Name, Tab, systemd};
use crate::commands::boot;
use crate::outcome::{out, usage};
use crate::peek;
use anyhow::Result;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Its name (see `vellum boot list`), the volume, or where it is mounted.
    #[arg(value_name = "NAME")]
    what: PathBuf,
    /// Detach it now as well; otherwise it stays attached until the shutdown.
    #[arg(long, conflicts_with = "root")]
    now: bool,
    /// Of the system in this folder.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

/// Removes its entry.
pub fn run(args: &Args) -> Result<()> {
    let tab = Tab::of(args.root.as_deref());
    let name = named(&tab, &args.what)?;
    let runs = args.root.is_none() && systemd::runs();
    // Before the entry is removed: a volume in use stays as it is, and so does its entry.
    if args.now && runs {
        systemd::order("stop", &name)?;
    }
    if args.now {
        // systemctl also reports success if nothing was stopped.
        boot::stop(Some(&name))?;
    }
    tab.remove(&name)?;
    if runs {
        systemd::reload()?;
    }
    writeln!(out(), "{name}: no longer attached at boot")?;
    Ok(())
}

/// The entry that is meant. A damaged one is found by its name.
fn named(tab: &Tab, what: &Path) -> Result<Name> {
    let text = what.to_string_lossy();
    if let Ok(name) = text.parse::<Name>()
        && tab.path(&name).exists()
    {
        return Ok(name);
    }
    let path = what.canonicalize().unwrap_or_else(|_| what.to_owned());
    let uuid = peek::uuid_of(what).ok();
    for (_, read) in tab.entries()? {
        let Ok((name, entry)) = read else { continue };
        let is_there =
            entry.volume == path || entry.volume.canonicalize().is_ok_and(|real| real == path);
        if is_there || entry.mount.as_ref() == Some(&path) || uuid.is_some() && entry.uuid == uuid {
            return Ok(name);
        }
    }
    Err(usage(format!(
        "nothing is enabled as {text} (`vellum boot list`)"
    )))
}
