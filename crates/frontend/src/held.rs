//! A folder that is held open from when it is looked at until something is mounted on it: who may write to the folder above it
//! could put a link in its place meanwhile.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder, held open.
#[derive(Debug)]
pub struct HeldFolder {
    folder: File,
    path: PathBuf,
}

impl HeldFolder {
    /// Opens a folder. Links in the path are followed, now and never again.
    ///
    /// # Errors
    /// The system's error; `NotADirectory` if it is none.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let mut options = OpenOptions::new();
        let folder = options.read(true).custom_flags(flags);
        let folder = folder.open(dir.canonicalize()?);
        let folder = folder.map_err(|error| match error.kind() {
            // In plain words, without the system's number.
            io::ErrorKind::NotADirectory => io::ErrorKind::NotADirectory.into(),
            _ => error,
        })?;
        // Where it is, whatever led there.
        let path = current(&folder)?;
        Ok(Self { folder, path })
    }

    /// The path that it had when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to it that other processes can use while this one holds it. It leads there even if the folder has moved.
    #[must_use]
    pub fn handle(&self) -> PathBuf {
        // The dot makes the kernel follow the link before it.
        let number = self.folder.as_raw_fd();
        format!("/proc/{}/fd/{number}/.", std::process::id()).into()
    }

    /// True if its path still leads to it, and not through a link. Something mounted on it since is not looked at.
    #[must_use]
    pub fn is_at_its_path(&self) -> bool {
        current(&self.folder).is_ok_and(|now| now == self.path)
    }

    /// Where it is now.
    ///
    /// # Errors
    /// The system's error.
    pub fn current(&self) -> io::Result<PathBuf> {
        current(&self.folder)
    }

    /// Its mode, as in `st_mode`.
    ///
    /// # Errors
    /// The system's error.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(self.folder.metadata()?.mode())
    }
}

fn current(folder: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_held_folder_is_known_again_when_a_link_has_taken_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (mount, moved, victim) = (root.join("mnt"), root.join("moved"), root.join("victim"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::create_dir(&victim).unwrap();
        symlink(&mount, root.join("link")).unwrap();
        let held = HeldFolder::open(&root.join("link")).unwrap();
        assert_eq!(held.path(), mount);
        assert!(held.is_at_its_path());
        std::fs::rename(&mount, &moved).unwrap();
        symlink(&victim, &mount).unwrap();
        assert!(!held.is_at_its_path());
        let node = |path: &Path| path.metadata().unwrap().ino();
        assert_eq!(node(&held.handle()), node(&moved));
        assert_eq!(held.current().unwrap(), moved);
        std::fs::write(root.join("file"), "").unwrap();
        let error = HeldFolder::open(&root.join("file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
