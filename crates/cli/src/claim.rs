//! Claims a volume before its first byte is written: by the lock on its medium, and by its UUID, under which
//! there can be only one server.

use crate::control::ControlSocket;
use crate::keys::Key;
use crate::opened;
use crate::outcome::tell;
use crate::peek;
use crate::unfinished;
use crate::{control, state};
use anyhow::{Result, bail};
use std::fs::File;
use std::path::Path;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::find_superblock;
use vellum_device::info::hex_uuid;
use vellum_device::{MediumSource, crc32c};
use vellum_medium::Medium;

/// A volume's medium and its control socket.
pub struct Claimed {
    /// The medium, locked.
    pub medium: Box<dyn Medium>,
    /// `None` if very many only read it, or if there is no volume, which the caller finds out when it opens it.
    pub socket: Option<ControlSocket>,
}

/// Claims a volume. With `read_only`, alongside others that only read. Half a copy is refused.
pub fn claim(path: &Path, read_only: bool, key: &Key) -> Result<Claimed> {
    claim_again(None, path, read_only, key)
}

/// The same; what is held open is opened again, whatever is at its path by now.
pub fn claim_again(
    held: Option<&File>,
    path: &Path,
    read_only: bool,
    key: &Key,
) -> Result<Claimed> {
    let medium = opened::open_again(held, path, read_only, key)?;
    claimed(path, read_only, medium, |found| {
        unfinished::refuse(path, found)
    })
}

/// Claims a volume to copy another one into it. What is held open is opened again, and has this path only in errors.
pub fn claim_target(held: Option<&File>, path: &Path, key: &Key) -> Result<Claimed> {
    let medium = opened::open_again(held, path, false, key)?;
    claimed(path, false, medium, |_| Ok(()))
}

fn claimed(
    path: &Path,
    read_only: bool,
    medium: Box<dyn Medium>,
    check: impl FnOnce(&Superblock) -> Result<()>,
) -> Result<Claimed> {
    let shown = path.display();
    let found = find_superblock(&mut MediumSource::new(&medium), medium.blocks(), crc32c);
    let Ok((superblock, _)) = found else {
        let socket = None;
        return Ok(Claimed { medium, socket });
    };
    check(&superblock)?;
    let socket = ControlSocket::claim(&hex_uuid(&superblock.uuid()), read_only)?;
    match (&socket, read_only) {
        (Some(_), _) => {}
        (None, true) => tell(format_args!(
            "{shown}: {} servers of a volume with its UUID run already: `vellum list` does not show this \
             one, and it answers by --control alone",
            state::SERVERS_MAX
        )),
        (None, false) => bail!(
            "a volume with the UUID of {shown} is being served already (`vellum list`). If it is this one, \
             use its other path. If one of them is a copy, stop that server first: only one of them can be \
             served at a time"
        ),
    }
    Ok(Claimed { medium, socket })
}

/// Refuses to make a volume over one that a server may be using.
pub fn may_be_lost(path: &Path) -> Result<()> {
    if peek::uuid_of(path).is_ok_and(|uuid| is_served(&uuid)) {
        bail!(
            "the volume on {} has the UUID of one that is being served: stop that server first",
            path.display()
        );
    }
    Ok(())
}

/// True if a reachable server has the volume with this UUID.
pub fn is_served(uuid: &str) -> bool {
    state::control_socket(uuid).is_ok_and(|socket| control::is_answered(&socket))
}
