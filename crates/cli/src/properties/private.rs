//! What a volume's properties reveal about the user who chose them.

use super::table::named;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_policies::kind::Kind;

/// The properties of a volume that others may see: without the user's own words, and without unknown ones.
pub fn without_names(superblock: &Superblock) -> Properties {
    let mut kept = Properties::default();
    for (name, value) in superblock.properties().iter() {
        let is_told = named(name).is_some_and(|property| !matches!(property.kind, Kind::Text(_)));
        if is_told {
            // There was room for all of them before.
            let _ = kept.set(name, Some(value.clone()));
        }
    }
    kept
}
