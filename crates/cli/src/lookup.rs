//! Finds the record of what a user names.

use crate::bound;
use crate::state::{Process, State, records};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Finds the record for a path and for the UUID of a volume there. The path is a volume's file, its block device, or its mount
/// point. Records of dead servers may name the same paths, so kernel bindings are checked first, then living servers.
pub fn find(path: &Path, uuid: Option<&str>) -> Result<Option<String>> {
    let rank = |id: &str, state: &State| {
        let same = |p: &PathBuf| p == path;
        let holds =
            bound::devices(id, state).iter().any(same) || bound::mounts(id, state).iter().any(same);
        let is_it = holds || uuid == Some(id) && same(&state.volume);
        let named = [
            Some(&state.volume),
            state.device.as_ref(),
            state.mount.as_ref(),
        ];
        let names_it = named.into_iter().flatten().any(same);
        let is_served = state.server.is_some_and(Process::alive);
        (is_it || names_it).then_some((is_it, is_served))
    };
    let ranked = records()?
        .into_iter()
        .filter_map(|(id, state)| Some((rank(&id, &state)?, id)));
    Ok(ranked.max().map(|(_, id)| id))
}
