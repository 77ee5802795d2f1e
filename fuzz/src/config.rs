//! The configuration file: any text yields flags, or an error that names file and line.

use std::ffi::OsString;
use std::path::Path;
use vellum_cli::{configured, takes};

const COMMANDS: [&[&str]; 5] = [
    &["create"],
    &["serve"],
    &["attach"],
    &["lab", "run"],
    &["lab", "sweep"],
];

/// An error is a few lines for the user, in addition to what it quotes from the file.
const ERROR_BYTES_MAX: usize = 8 << 10;

/// Reads the bytes as a configuration file of each command.
pub fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    for command in COMMANDS {
        match configured(text, Path::new("v.toml"), command) {
            Ok(flags) => {
                assert!(flags.len() <= text.len(), "{} flags", flags.len());
                let args: Vec<OsString> = std::iter::once(&"vellum")
                    .chain(command)
                    .map(OsString::from)
                    .chain(flags)
                    .collect();
                // Values are checked by the command line's own parser.
                if let Err(why) = takes(&args) {
                    assert!(!why.is_empty());
                }
            }
            Err(error) => {
                let why = error.to_string();
                let line = why.strip_prefix("v.toml, line ");
                let line = line.and_then(|rest| rest.split(':').next());
                let line: usize = line.and_then(|number| number.parse().ok()).unwrap_or(0);
                assert!(line > 0 && line <= text.matches('\n').count() + 1, "{why}");
                assert!(why.len() <= ERROR_BYTES_MAX + 8 * text.len(), "{why}");
            }
        }
    }
}
