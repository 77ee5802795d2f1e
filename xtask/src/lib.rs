//! Chores of the repository. Each is a function from the work tree to a list of complaints; an empty list is good.

use std::path::PathBuf;

pub mod coverage;
pub mod dependencies;
pub mod guide;
pub mod imports;
pub mod links;
mod names;
pub mod promise;
pub mod shape;
pub mod spdx;
pub mod statistics;
pub mod text;
pub mod trips;
pub mod words;
pub mod workspace;

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}
