//! How a command ends, as seen by its caller.

use crate::server_log;
use std::borrow::Cow;
use std::io::{self, Stdout, Write};
use std::process::ExitCode;
use vellum_ops::health::Grade;
use vellum_options::wrong::OptionError;
pub use vellum_policies::size::counted;

/// Exit code: something failed.
pub const FAILURE: u8 = 1;
/// Exit code: the command line or the configuration file is wrong.
pub const USAGE: u8 = 2;
/// Exit code: `check` or `scrub` found damage.
pub const DAMAGE: u8 = 3;

/// Standard output, which may be a file on a full disk. Errors name it, where `println!` would panic.
pub struct Out {
    stdout: Stdout,
    /// It is text, which people may look at.
    is_text: bool,
}

/// Where a command prints its results.
pub fn out() -> Out {
    Out {
        stdout: io::stdout(),
        is_text: true,
    }
}

/// Where a command writes bytes for another program.
pub fn bytes_out() -> Out {
    Out {
        is_text: false,
        ..out()
    }
}

fn unwritten(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_text {
            return self.stdout.write(bytes).map_err(unwritten);
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // A buffer may end within a character.
            Err(error) if error.valid_up_to() > 0 => {
                return self.write(&bytes[..error.valid_up_to()]);
            }
            Err(error) => {
                let wrong = error.error_len().unwrap_or(bytes.len());
                return self.stdout.write(&bytes[..wrong]).map_err(unwritten);
            }
        };
        match lines(text) {
            Cow::Borrowed(_) => self.stdout.write(bytes).map_err(unwritten),
            Cow::Owned(text) => {
                self.stdout.write_all(text.as_bytes()).map_err(unwritten)?;
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush().map_err(unwritten)
    }
}

/// A text in one line, without what a terminal would act on: anybody may have given a file its name.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control)
}

/// The same for lines of text.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_wrong: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_wrong) {
        return text.into();
    }
    let escape = |c: char| match is_wrong(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
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

/// Prints a line on stderr. It does not fail when nothing reads it any more, where `eprintln` would panic.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let line = server_log::tell(&lines(&line.to_string()));
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
    if error
        .chain()
        .any(|cause| cause.downcast_ref().is_some_and(is_no_room))
    {
        text.push_str(": free some room there, and give the same command again");
    }
    text
}

fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use vellum_medium::MediumError;

    #[test]
    fn a_name_does_nothing_to_a_terminal() {
        let name = "a\u{1b}[31m\r\nb\u{9b}2J\té";
        assert_eq!(plain(name), "a\\u{1b}[31m\\r\\nb\\u{9b}2J\\té");
        assert_eq!(lines(name), "a\\u{1b}[31m\\r\nb\\u{9b}2J\té");
        assert!(matches!(plain("é b"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_cause_is_told_once() {
        let full = || std::io::Error::from_raw_os_error(libc::ENOSPC);
        let quotes = || MediumError {
            operation: "write",
            what: "v".into(),
            offset: 0,
            source: full(),
        };
        let advice = "free some room there, and give the same command again";
        let quoted = format!("write of v at byte 0: {}: {advice}", full());
        assert_eq!(told(&quotes().into()), quoted);
        let error = anyhow::Error::from(quotes()).context("making v");
        assert_eq!(told(&error), format!("making v: {quoted}"));
        let error = Err::<(), _>(full()).context("cannot open v").unwrap_err();
        assert_eq!(told(&error), format!("cannot open v: {}: {advice}", full()));
    }
}
