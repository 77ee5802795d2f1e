//! How a command ends, as seen by its caller.

use crate::server_log;
use std::io::{self, Stdout, Write};
use std::process::ExitCode;
use vellum_ops::health::Grade;
use vellum_options::wrong::OptionError;

/// Exit code: something failed.
pub const FAILURE: u8 = 1;
/// Exit code: the command line or the configuration file is wrong.
pub const USAGE: u8 = 2;
/// Exit code: `check` or `scrub` found damage.
pub const DAMAGE: u8 = 3;

/// Standard output, which may be a file on a full disk. Errors name it, where `println!` would panic.
pub struct Out(Stdout);

/// Where a command prints its results.
pub fn out() -> Out {
    Out(io::stdout())
}

fn unwritten(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(unwritten)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(unwritten)
    }
}

/// An error that has an exit code of its own.
#[derive(Debug)]
pub enum Special {
    /// The options contradict each other.
    Usage(String),
    /// The volume is damaged.
    Damage(String),
    /// A volume is not well, which has already been reported.
    Health(Grade),
}

impl std::fmt::Display for Special {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(text) | Self::Damage(text) => f.write_str(text),
            Self::Health(grade) => f.write_str(grade.name()),
        }
    }
}

impl std::error::Error for Special {}

/// Makes a usage error.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Special::Usage(text.into()))
}

/// Makes a damage error.
pub fn damage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Special::Damage(text.into()))
}

/// A number of things: `1 request`, `2 requests`.
pub fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Prints a line on stderr. It does not fail when nothing reads it any more, where `eprintln` would panic.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let line = server_log::tell(&line.to_string());
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Reports an error to the user and picks the exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(Special::Health(grade)) = error.downcast_ref() {
        return ExitCode::from(*grade as u8);
    }
    tell(format_args!("vellum: {}", told(error)));
    ExitCode::from(match error.downcast_ref::<Special>() {
        Some(Special::Usage(_)) => USAGE,
        Some(Special::Damage(_)) => DAMAGE,
        None if error.is::<OptionError>() => USAGE,
        Some(Special::Health(_)) | None => FAILURE,
    })
}

/// The error and its causes, leaving out a cause that the error above it already quotes.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut above = String::new();
    for cause in error.chain() {
        let own = cause.to_string();
        if text.is_empty() {
            text.push_str(&own);
        } else if !above.ends_with(&own) {
            text.push_str(": ");
            text.push_str(&own);
        }
        above = own;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use vellum_medium::MediumError;

    #[test]
    fn a_cause_is_told_once() {
        let full = || std::io::Error::from_raw_os_error(libc::ENOSPC);
        let quotes = || MediumError {
            operation: "write",
            what: "v".into(),
            offset: 0,
            source: full(),
        };
        let quoted = format!("write of v at byte 0: {}", full());
        assert_eq!(told(&quotes().into()), quoted);
        let error = anyhow::Error::from(quotes()).context("making v");
        assert_eq!(told(&error), format!("making v: {quoted}"));
        let error = Err::<(), _>(full()).context("cannot open v").unwrap_err();
        assert_eq!(told(&error), format!("cannot open v: {}", full()));
    }
}
