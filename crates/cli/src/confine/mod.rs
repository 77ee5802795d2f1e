//! What a server gives up ([decision 0036](../../../../docs/decisions/0036-a-server-gives-up.md)): first, that its memory can be
//! dumped; then, once its volumes are open and its front ends have started, all rights that serving does not need. An attacker
//! who takes it over through data from a client or a medium gains little more than what is on that volume.

mod calls;
mod files;
mod threads;

pub use calls::Calls;
pub use files::Files;

use crate::outcome::{tell, usage};
use crate::user::ServiceUser;
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The environment variable that lifts some of these restrictions, for debugging.
const VARIABLE: &str = "VELLUM_ALLOW";

/// What was given up, for reports.
static GIVEN_UP: OnceLock<Vec<String>> = OnceLock::new();

/// What is not given up this time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allowed {
    core_dumps: bool,
    files: bool,
    calls: bool,
}

impl Allowed {
    fn parse(words: &str) -> Result<Self> {
        let mut allowed = Self::default();
        for word in words
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            match word {
                "core-dumps" => allowed.core_dumps = true,
                "files" => allowed.files = true,
                "calls" => allowed.calls = true,
                _ => {
                    return Err(usage(format!(
                        "{VARIABLE}={words}: {word:?} is none of core-dumps, files, calls"
                    )));
                }
            }
        }
        Ok(allowed)
    }
}

/// A server on its way from all of its user's rights to those that serving needs.
pub struct Confinement {
    allowed: Allowed,
}

impl Confinement {
    /// Before there is anything in memory worth dumping.
    pub fn begin() -> Result<Self> {
        let allowed = Allowed::parse(&std::env::var(VARIABLE).unwrap_or_default())?;
        if !allowed.core_dumps {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the limit lives during the call.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                // Also stops a dump handler that is a program, to which no limit applies.
                libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            }
        }
        Ok(Self { allowed })
    }

    /// Gives up rights, once everything is open and listening. What cannot be given up is reported, and the server serves all the
    /// same. Only if it cannot become this user does it fail, because that was requested.
    pub fn close(self, needs: &Needs, user: Option<&ServiceUser>) -> Result<()> {
        let mut given_up = Vec::new();
        let mut note = |done: Result<()>, what: &str| match done {
            Ok(()) => given_up.push(what.to_owned()),
            Err(error) => {
                let not = format!("NOT {what}: {error:#}");
                tell(format_args!(
                    "this server gives up less than it could: {not}"
                ));
                given_up.push(not);
            }
        };
        if !self.allowed.core_dumps {
            note(Ok(()), "no core dumps");
        }
        let rules = match (&needs.files, self.allowed.files) {
            (Some(files), false) => Some(files.rules()),
            _ => None,
        };
        let (rules, limited) = match rules {
            None => (None, None),
            Some(Ok(Some(rules))) => (Some(rules), Some(Ok(()))),
            Some(Ok(None)) => (None, Some(Err(anyhow!("this kernel has no landlock")))),
            Some(Err(error)) => (None, Some(Err(error))),
        };
        // The rules were opened as root, and do not apply yet. The filter would forbid this.
        if let Some(user) = user {
            user.becomes()?;
            note(Ok(()), &user.told());
        }
        note(
            threads::give_up(rules).map_err(Into::into),
            "no new privileges",
        );
        if let Some(limited) = limited {
            note(limited, "no files but its own");
        }
        if !self.allowed.calls {
            note(
                needs.calls.give_up(),
                "no system calls but those of a server",
            );
        }
        let _ = GIVEN_UP.set(given_up);
        Ok(())
    }
}

/// What serving still needs once everything is open.
pub struct Needs {
    /// The files of its sockets, which are removed with it.
    pub sockets: Vec<PathBuf>,
    /// `None` if landlock must not be used, because the server has to unmount: landlock allows that to no process.
    pub files: Option<Files>,
    /// Calls that only some servers make.
    pub calls: Calls,
}

/// Describes what this process has given up.
pub fn told() -> Value {
    json!(GIVEN_UP.get().map(|given_up| given_up.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_a_list_of_words() {
        assert_eq!(Allowed::parse("").unwrap(), Allowed::default());
        let allowed = Allowed::parse(" core-dumps,calls,").unwrap();
        assert!(allowed.core_dumps && allowed.calls && !allowed.files);
        assert!(Allowed::parse("core-dump").is_err());
    }
}
