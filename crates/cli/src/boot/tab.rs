//! The tab: a folder with one file for each entry. A damaged file affects only its own volume.

use super::entry::{Entry, Name};
use crate::outcome::usage;
use crate::replace;
use crate::state;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// The folder.
const FOLDER: &str = "etc/vellum/volumes";
/// The extension of its files.
const EXTENSION: &str = "toml";
/// A larger file is not an entry.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A file of the tab: its name without the extension, and its contents.
pub type Read = (String, Result<(Name, Entry)>);

/// The volumes that are attached at each boot.
pub struct Tab(PathBuf);

impl Tab {
    /// The tab of this machine, or of the system in a folder.
    pub fn of(root: Option<&Path>) -> Self {
        Self(root.unwrap_or(Path::new("/")).join(FOLDER))
    }

    /// The file of an entry.
    pub fn path(&self, name: &Name) -> PathBuf {
        self.0.join(format!("{name}.{EXTENSION}"))
    }

    /// All files of the tab, in name order, with their contents.
    pub fn entries(&self) -> Result<Vec<Read>> {
        let files = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.with_context(|| format!("cannot read {}", self.0.display()))?,
        };
        let paths = files.flatten().map(|file| file.path());
        let ours = paths.filter(|path| path.extension() == Some(OsStr::new(EXTENSION)));
        let mut all: Vec<_> = ours
            .map(|path| {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let named = stem.parse::<Name>();
                let named = named.map_err(|why| usage(format!("{}: {why}", path.display())));
                let read = named.and_then(|name| Ok((name.clone(), self.read(&name)?)));
                (stem.into_owned(), read)
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// The error about an entry that is not there.
    pub fn lacks(&self, name: &Name) -> anyhow::Error {
        let path = self.path(name);
        let shown = path.display();
        anyhow!("nothing is enabled as {name}: there is no {shown} (`vellum boot list`)")
    }

    /// Reads one entry.
    pub fn read(&self, name: &Name) -> Result<Entry> {
        let path = self.path(name);
        let shown = path.display();
        let mut text = String::new();
        match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.lacks(name)),
            opened => opened?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text),
        }
        .with_context(|| format!("cannot read {shown}"))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            bail!("{shown} is larger than {FILE_BYTES_MAX} bytes: not an entry");
        }
        Entry::parse(&text, &path)
    }

    /// Adds an entry, or replaces the one with this name if it is for the same volume. On return the change is durable; on
    /// an error nothing has changed.
    pub fn add(&self, name: &Name, entry: &Entry) -> Result<()> {
        let failed = || {
            format!(
                "cannot write {}: nothing is enabled by this",
                self.path(name).display()
            )
        };
        let text = entry.text()?;
        fs::create_dir_all(&self.0).with_context(failed)?;
        let _alone = Self::alone().with_context(failed)?;
        for (stem, read) in self.entries()? {
            let same = stem == name.as_str();
            let other = match read {
                Ok((_, other)) => other,
                Err(error) if same => {
                    return Err(
                        error.context(format!("{name} is taken by an entry that cannot be read"))
                    );
                }
                // Affects only itself; `boot list` reports it.
                Err(_) => continue,
            };
            let is_of_it = other.is_same_volume(entry);
            if is_of_it && !same {
                bail!(
                    "{} is enabled already, as {stem}: disable that first",
                    entry.volume.display()
                );
            }
            if same && !is_of_it {
                let volume = other.volume.display();
                bail!("the name {name} is taken, by {volume}: give another by --name");
            }
            if let Some(mount) = entry
                .mount
                .as_ref()
                .filter(|m| !same && Some(*m) == other.mount.as_ref())
            {
                bail!(
                    "{} is where {stem} is mounted at boot: choose another folder",
                    mount.display()
                );
            }
        }
        replace::file(&self.path(name), 0o644, text.as_bytes()).with_context(failed)
    }

    /// Removes an entry.
    pub fn remove(&self, name: &Name) -> Result<()> {
        let path = self.path(name);
        let failed = || format!("cannot remove {}", path.display());
        let _alone = Self::alone().with_context(failed)?;
        fs::remove_file(&path).with_context(failed)?;
        replace::sync_folder(&path).with_context(failed)
    }

    /// Held while entries change, so that two processes do not both find that a volume has none. Not a lock on the folder: everybody
    /// can read that, and who reads a folder can lock it.
    fn alone() -> Result<File> {
        state::alone_by("volumes.lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(volume: &str, uuid: &str, mount: &str) -> Entry {
        let text = format!("volume = '{volume}'\nuuid = '{uuid}'\nmount = '{mount}'\n");
        Entry::parse(&text, Path::new("e")).unwrap()
    }

    #[test]
    fn a_volume_has_one_entry_and_a_folder_one_volume() {
        let root = tempfile::tempdir().unwrap();
        let tab = Tab::of(Some(root.path()));
        let name = |text: &str| text.parse::<Name>().unwrap();
        tab.add(&name("a"), &entry("/a", "1", "/mnt/a")).unwrap();
        for (other, entry, says) in [
            ("b", entry("/a", "2", "/mnt/b"), "enabled already, as a"),
            ("b", entry("/moved", "1", "/mnt/b"), "enabled already, as a"),
            ("a", entry("/b", "2", "/mnt/b"), "is taken, by /a"),
            ("b", entry("/b", "2", "/mnt/a"), "where a is mounted"),
        ] {
            let error = tab.add(&name(other), &entry).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        // The same volume at another mount point is a change.
        tab.add(&name("a"), &entry("/a", "1", "/mnt/c")).unwrap();
        assert_eq!(tab.entries().unwrap().len(), 1);
        assert_eq!(tab.read(&name("a")).unwrap(), entry("/a", "1", "/mnt/c"));
        tab.remove(&name("a")).unwrap();
        assert!(
            tab.read(&name("a"))
                .unwrap_err()
                .to_string()
                .contains("nothing is enabled")
        );
    }

    /// The folder is everybody's to read, and who may read a folder may lock it.
    #[test]
    fn a_lock_on_the_folder_stops_no_change() {
        let root = tempfile::tempdir().unwrap();
        let tab = Tab::of(Some(root.path()));
        fs::create_dir_all(&tab.0).unwrap();
        let strangers = File::open(&tab.0).unwrap();
        strangers.lock_shared().unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let name = "a".parse().unwrap();
            let added = tab.add(&name, &entry("/a", "1", "/mnt/a"));
            let _ = told.send(added.and_then(|()| tab.remove(&name)));
        });
        let changed = hears.recv_timeout(std::time::Duration::from_secs(60));
        changed.unwrap().unwrap();
    }

    #[test]
    fn a_damaged_file_affects_only_its_own_volume() {
        let root = tempfile::tempdir().unwrap();
        let tab = Tab::of(Some(root.path()));
        tab.add(&"a".parse().unwrap(), &entry("/a", "1", "/mnt/a"))
            .unwrap();
        let damaged = b"volume = \xFF".as_slice();
        fs::write(tab.0.join("broken.toml"), damaged).unwrap();
        fs::write(tab.0.join("no name.toml"), "volume = '/n'").unwrap();
        fs::write(
            tab.0.join("large.toml"),
            vec![b'#'; FILE_BYTES_MAX as usize + 1],
        )
        .unwrap();
        tab.add(&"b".parse().unwrap(), &entry("/b", "2", "/mnt/b"))
            .unwrap();
        let read = |stem: &str| {
            tab.entries()
                .unwrap()
                .into_iter()
                .find(|e| e.0 == stem)
                .unwrap()
                .1
        };
        assert!(read("a").is_ok() && read("b").is_ok());
        assert!(read("broken").is_err() && read("no name").is_err() && read("large").is_err());
        // Nor is it overwritten.
        let again = tab.add(&"broken".parse().unwrap(), &entry("/c", "3", "/mnt/c"));
        assert!(again.is_err());
        assert_eq!(fs::read(tab.0.join("broken.toml")).unwrap(), damaged);
    }
}
