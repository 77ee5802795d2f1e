//! A file replaced whole or not at all, in a folder that others may write to.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// What the name of a file begins with that is not whole yet.
const PREFIX: &str = ".vellum-";

/// Writes a file beside its place, makes it durable and moves it there. A disk that fills leaves what was there before. A link that somebody
/// put at the place is replaced, and not followed.
///
/// # Errors
/// What the system refused.
pub fn file(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut made = beside(path)?;
    made.write_all(bytes)?;
    let file = made.as_file();
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    name(made, path, true)
}

/// A file that is made beside its place; dropped, it is gone. It is for nobody else to read.
///
/// # Errors
/// What the system refused.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .tempfile_in(folder(path))
}

/// The same of what `make` makes there.
///
/// # Errors
/// What `make` refused.
pub fn made_beside<F>(
    path: &Path,
    make: impl FnMut(&Path) -> io::Result<F>,
) -> io::Result<NamedTempFile<F>> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .make_in(folder(path), make)
}

/// Gives what was made beside a place its name there, durably; never in place of what is there, unless `over` says so.
///
/// # Errors
/// What the system refused.
pub fn name<F>(made: NamedTempFile<F>, path: &Path, over: bool) -> io::Result<()> {
    let named = match over {
        true => made.persist(path),
        false => made.persist_noclobber(path),
    };
    named.map_err(|refused| refused.error)?;
    sync_folder(path)
}

/// Makes durable what the folder of `path` says of it.
///
/// # Errors
/// What the system refused.
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
