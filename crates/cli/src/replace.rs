//! Replaces a file completely or not at all, in a folder that others may write to.

use std::ffi::{CStr, CString};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};
use vellum_medium::OpenError;

/// The prefix of the names of incomplete files.
const PREFIX: &str = ".vellum-";

/// Writes a file beside its place, makes it durable and moves it there. If the disk fills up, the old file stays. A link at the
/// place is replaced, not followed.
///
/// # Errors
/// The system's error.
pub fn file(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut made = beside(path)?;
    made.as_file_mut().write_all(bytes)?;
    let file = made.as_file();
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    name(made, path, true)
}

/// Refuses a place in a folder that does not exist. A later error would name a temporary file beside the place.
///
/// # Errors
/// It names the place.
pub fn has_folder(path: &Path) -> Result<(), OpenError> {
    match folder(path).metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = path.to_owned();
            Err(OpenError::NoFolder { path })
        }
        _ => Ok(()),
    }
}

/// Makes a file beside its place, readable by its owner only. It is removed when dropped.
///
/// # Errors
/// The system's error.
pub fn beside(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(PREFIX)
        .tempfile_in(folder(path))
        .map_err(|error| without_our_name(path, &error))
}

/// Such an error names the temporary file, of which the user knows nothing.
fn without_our_name(path: &Path, error: &io::Error) -> io::Error {
    let folder = folder(path).display();
    let words = match error.kind() {
        io::ErrorKind::NotFound => format!("there is no folder {folder}: make it first"),
        io::ErrorKind::PermissionDenied => format!("no permission to make a file in {folder}"),
        kind => format!("no file can be made in {folder}: {kind}"),
    };
    io::Error::new(error.kind(), words)
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

/// Gives a file another name in the same folder, durably. Never replaces an existing file.
///
/// # Errors
/// The system's error; `AlreadyExists` if there is a file with that name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let named = TempPath::try_from_path(from)?.persist_noclobber(to);
    named.map_err(|refused| {
        // It is none of ours to remove.
        let _ = refused.path.keep();
        refused.error
    })?;
    sync_folder(to)
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

/// Removes the file or link that was `seen` at the path. Whatever has taken its place since stays.
///
/// Anyone who may write to the folder can replace it at any moment. So it is first moved into a folder that only we may use, and looked
/// at there. Both folders are held open: another folder at their paths is not meant.
///
/// # Errors
/// `ResourceBusy` if something else is there by now; otherwise the system's error.
pub fn remove(path: &Path, seen: &Metadata) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let name = CString::new(name.as_bytes())?;
    let folder = File::open(folder(path))?;
    let own = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let only_ours = Permissions::from_mode(0o700);
    let aside = tempfile::Builder::new()
        .prefix(PREFIX)
        .permissions(only_ours)
        .tempdir_in(own)?;
    let private = File::open(aside.path())?;
    let (there, here) = ((&folder, name.as_c_str()), (&private, c"moved"));
    moved(there, here)?;
    let found = aside.path().join("moved").symlink_metadata()?;
    if (found.dev(), found.ino()) == (seen.dev(), seen.ino()) {
        // SAFETY: an open folder, and a name that lives during the call.
        return done(unsafe { libc::unlinkat(private.as_raw_fd(), here.1.as_ptr(), 0) });
    }
    let back = match found.is_dir() {
        // Only an empty folder could be at its place by now.
        true => moved(here, there),
        false => linked(here, there).and_then(|()| {
            // SAFETY: as above.
            done(unsafe { libc::unlinkat(private.as_raw_fd(), here.1.as_ptr(), 0) })
        }),
    };
    match back {
        Ok(()) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "something else has just taken its place, and is left as it is",
        )),
        Err(error) => {
            let kept = self::folder(path).join(aside.keep().file_name().unwrap_or_default());
            Err(io::Error::new(
                error.kind(),
                format!(
                    "what has just taken its place is now in {}: {error}",
                    kept.display()
                ),
            ))
        }
    }
}

type Place<'a> = (&'a File, &'a CStr);

fn moved((from, name): Place<'_>, (to, new): Place<'_>) -> io::Result<()> {
    // SAFETY: open folders, and names that live during the call.
    done(unsafe {
        libc::renameat(
            from.as_raw_fd(),
            name.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
        )
    })
}

/// Gives a file or a link another name. Replaces nothing.
fn linked((from, name): Place<'_>, (to, new): Place<'_>) -> io::Result<()> {
    // SAFETY: open folders, and names that live during the call.
    done(unsafe {
        libc::linkat(
            from.as_raw_fd(),
            name.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            0,
        )
    })
}

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
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
    fn an_error_names_the_folder_and_not_the_temporary_file() {
        let error = file(Path::new("/nowhere/at/all"), 0o600, b"").unwrap_err();
        let told = "there is no folder /nowhere/at: make it first";
        assert_eq!(error.to_string(), told);
        let error = has_folder(Path::new("/nowhere/at/all")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }

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

    #[test]
    fn only_what_was_seen_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volume");
        let other = folder.path().join("other");
        let link = || std::os::unix::fs::symlink("other", &path).unwrap();
        let seen = || path.symlink_metadata().unwrap();
        std::fs::write(&other, "theirs").unwrap();
        std::fs::write(&path, "ours").unwrap();
        remove(&path, &seen()).unwrap();
        // A link goes, and not what it leads to.
        link();
        remove(&path, &seen()).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"theirs");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // It was a link when it was looked at, and is a file, another link or a folder now.
        link();
        let before = seen();
        let replaced = |by: &dyn Fn()| {
            by();
            let now = seen().ino();
            let refused = remove(&path, &before).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
            assert_eq!(seen().ino(), now);
            std::fs::rename(&path, folder.path().join(now.to_string())).unwrap();
        };
        std::fs::rename(&path, folder.path().join("kept")).unwrap();
        replaced(&|| std::fs::write(&path, "another").unwrap());
        replaced(&link);
        replaced(&|| std::fs::create_dir(&path).unwrap());
        let missing = remove(&path, &before).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        // The other one, what was kept, and the three; nothing of ours.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    }
}
