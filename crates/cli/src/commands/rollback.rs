//! `vellum rollback`.

use crate::keys::Key;
use crate::outcome::out;
use crate::snapshots::{self, All, Order};
use crate::whose;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum snapshot disk.vellum now              first, to be able to come back
  vellum rollback disk.vellum before-upgrade
  vellum rollback disk.vellum @-15m            to the newest that is a quarter of an hour old, or older

Nothing is copied but the map. All snapshots stay, newer ones too. Killed on its way, it comes to its end at
the next opening.")]
pub struct Args {
    /// The volume, which nobody may serve; or VOLUME@NAME.
    volume: PathBuf,
    /// The snapshot, by its name, or by its age: @-90s, @-15m, @-2h or @-1d.
    name: Option<String>,
    #[command(flatten)]
    key: Key,
}

/// Rolls back.
pub fn run(args: &Args) -> Result<()> {
    let (volume, name) = snapshots::meant(&args.volume, args.name.as_deref())?;
    let shown = volume.display();
    // A mounted file system would find different data below it.
    if whose::find_server(&volume)?.is_some() {
        bail!(
            "{shown} is being served: `vellum detach {shown}`, or stop its server, and then go back"
        );
    }
    let name = snapshots::found(&volume, &args.key, &name)?;
    let order = Order::ReturnTo(name.clone());
    snapshots::ask::<All>(&volume, &args.key, &order)?;
    writeln!(out(), "{shown} is what it was at {name}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ControlSocket;
    use crate::volume::{self, NewVolume};

    /// A server starts after the command has looked for one.
    #[test]
    fn a_volume_that_is_served_by_now_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        let made = volume::create(&path, &NewVolume::of(16 << 20), &|| false).unwrap();
        let _server = ControlSocket::claim(&made.uuid, false).unwrap().unwrap();
        let order = Order::ReturnTo("s".to_owned());
        let error = snapshots::ask::<All>(&path, &Key::none(), &order).unwrap_err();
        assert!(error.to_string().contains("is being served"), "{error:#}");
    }
}
