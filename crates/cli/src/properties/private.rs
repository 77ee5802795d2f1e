//! What a volume's properties tell of whoever chose them.

use super::table::named;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_policies::kind::Kind;

/// The properties of a volume that somebody else may see: none of the user's own words, and none that is not known.
pub fn without_names(superblock: &Superblock) -> Properties {
    let mut kept = Properties::default();
    for (name, value) in superblock.properties().iter() {
        let is_told = named(name).is_some_and(|property| !matches!(property.kind, Kind::Text(_)));
        if is_told {
            // There is room for all that was there.
            let _ = kept.set(name, Some(value.clone()));
        }
    }
    kept
}
