//! Replaces a file completely or not at all, in a folder that others may write to.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// The prefix of the names of incomplete files.
const PREFIX: &str = ".vellum-";

/// Writes a file beside its place, makes it durable and moves it there. If the disk fills up, the old file stays. A link at the
/// place is replaced, not followed.
///
/// # Errors
/// The system's error.
pub fn file(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut made = beside(path)?;
    made.write_all(bytes)?;
    let file = made.as_file();
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    name(made, path, true)
}

/// Makes a file beside its place, readable by its owner only. It is removed when dropped.
///
/// # Errors
/// The system's error.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .tempfile_in(folder(path))
}

/// Like [`beside`], for whatever `make` makes there.
///
/// # Errors
/// The error of `make`.
pub fn made_beside<F>(
    path: &Path,
    make: impl FnMut(&Path) -> io::Result<F>,
) -> io::Result<NamedTempFile<F>> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .make_in(folder(path), make)
}

/// Gives a file made beside a place its name there, durably. Never replaces an existing file unless `over` is set.
///
/// # Errors
/// The system's error.
pub fn name<F>(made: NamedTempFile<F>, path: &Path, over: bool) -> io::Result<()> {
    let named = match over {
        true => made.persist(path),
        false => made.persist_noclobber(path),
    };
    named.map_err(|refused| refused.error)?;
    sync_folder(path)
}

/// Removes what an interrupted command may have left. A link is removed, not followed.
///
/// # Errors
/// The system's error.
pub fn clear(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the directory entry of `path` durable.
///
/// # Errors
/// The system's error.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_the_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "theirs").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        file(&path, 0o600, b"ours").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"theirs");
        assert_eq!(std::fs::read(&path).unwrap(), b"ours");
        let meta = path.symlink_metadata().unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
