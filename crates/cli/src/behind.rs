//! Finds the volume of a server that does not answer.

use crate::{control, peek, state};
use std::path::{Path, PathBuf};

/// The path of the volume behind a socket whose server does not answer: as `attach` has recorded it, or else the file that the
/// server has open.
pub fn volume_behind(uuid: &str, socket: &Path) -> Option<PathBuf> {
    let records = state::records().unwrap_or_default();
    if let Some((_, record)) = records.into_iter().find(|(id, _)| id == uuid) {
        return Some(record.volume);
    }
    let open = format!("/proc/{}/fd", control::server_pid(socket)?);
    let open = std::fs::read_dir(open).ok()?.flatten();
    let mut files = open.filter_map(|fd| fd.path().read_link().ok());
    files.find(|file| peek::uuid_of(file).is_ok_and(|its| its == uuid))
}
