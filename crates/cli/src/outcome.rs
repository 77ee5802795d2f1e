//! How a command ends, as its caller sees it.

use std::process::ExitCode;

/// Exit code: something failed.
pub const FAILURE: u8 = 1;
/// Exit code: the command line or the configuration file is wrong.
pub const USAGE: u8 = 2;
/// Exit code: `check` found damage.
pub const DAMAGE: u8 = 3;

/// An error that has an exit code of its own.
#[derive(Debug)]
pub enum Special {
    /// The options make no sense.
    Usage(String),
    /// The volume is damaged.
    Damage(String),
}

impl std::fmt::Display for Special {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Usage(text) | Self::Damage(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Special {}

/// A usage error.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Special::Usage(text.into()))
}

/// Damage found.
pub fn damage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Special::Damage(text.into()))
}

/// Tells the user and picks the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("vellum: {error:#}");
    ExitCode::from(match error.downcast_ref::<Special>() {
        Some(Special::Usage(_)) => USAGE,
        Some(Special::Damage(_)) => DAMAGE,
        None => FAILURE,
    })
}
