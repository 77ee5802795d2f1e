//! Tells a whole volume from `VOLUME@NAME`, a snapshot or clone of it.

use crate::outcome::usage;
use std::path::{Path, PathBuf};

/// Splits `VOLUME@NAME` into a volume's path and the name of a snapshot, unless there is a file with the full name.
pub fn split(given: &Path) -> (PathBuf, Option<String>) {
    let text = given.to_string_lossy();
    match text.rsplit_once('@') {
        Some((volume, name))
            if ![volume, name].contains(&"") && !name.contains('/') && !given.exists() =>
        {
            (volume.into(), Some(name.to_owned()))
        }
        _ => (given.to_owned(), None),
    }
}

/// The error for a path where nothing is, if the path is `VOLUME@NAME` or a part of that: this command takes whole volumes. `None` for
/// other paths.
pub fn not_whole(given: &Path) -> Option<anyhow::Error> {
    let text = given.to_string_lossy();
    let shown = given.display();
    let (volume, name) = match text.rsplit_once('@') {
        Some(("", _)) => {
            return Some(usage(format!(
                "{shown} names no volume: give VOLUME{shown}"
            )));
        }
        Some(parts) => parts,
        None => return None,
    };
    let is_there = Path::new(volume).exists() && !name.contains('/');
    is_there.then(|| match name.is_empty() {
        true => usage(format!(
            "{shown} names no snapshot: give {volume}, or {volume}@NAME (`vellum snapshots {volume}` lists \
             them)"
        )),
        false => usage(format!(
            "{shown} names a snapshot, and this command takes a whole volume: give {volume}. (`attach`, \
             `serve`, `send`, `clone`, `rollback` and `delete` take a snapshot.)"
        )),
    })
}
