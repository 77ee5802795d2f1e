//! An entry of the volumes attached at boot: any text yields lines of a unit that order and run nothing, or an error that names
//! the file.

use std::path::Path;
use vellum_cli::ordered_at_boot;

/// The keys such lines may set.
const KEYS: [&str; 4] = ["Before", "After", "Wants", "RequiresMountsFor"];

/// What an entry for nbd may have in addition.
const OF_NBD: &str = "[Service]\nPrivateNetwork=no\n";

/// Reads the bytes as an entry.
pub fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match ordered_at_boot(text, Path::new("v.toml")) {
        Ok(unit) => {
            let mut lines = unit.strip_suffix(OF_NBD).unwrap_or(&unit).lines();
            assert_eq!(lines.next(), Some("[Unit]"));
            for line in lines {
                let key = line.split_once('=').map(|(key, _)| key);
                assert!(key.is_some_and(|key| KEYS.contains(&key)), "{line:?}");
                assert!(!line.ends_with('\\'), "{line:?}");
            }
        }
        Err(error) => assert!(format!("{error:#}").contains("v.toml"), "{error:#}"),
    }
}
