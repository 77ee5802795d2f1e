//! What a server gives up ([decision 0036](../../../../docs/decisions/0036-a-server-gives-up.md)): first what a dump of its memory would tell,
//! and, when its volumes are open and its front ends have begun, all rights that serving does not need. Whoever takes it over by what a
//! client or a medium sends has little more than what is on that volume.

mod calls;
mod files;
mod threads;

pub use calls::Calls;
pub use files::Files;

use crate::outcome::{tell, usage};
use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The variable that lifts some of it, to look for a fault.
const VARIABLE: &str = "VELLUM_ALLOW";

/// What was given up, as this process tells it.
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

/// A server on its way from all that its user may to what serving needs.
pub struct Confinement {
    allowed: Allowed,
}

impl Confinement {
    /// Before there is anything that a dump could tell.
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
                // Also for a handler of dumps that is a program, which no limit holds.
                libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            }
        }
        Ok(Self { allowed })
    }

    /// All is open, and what listens listens. What cannot be given up is told; the server serves all the same.
    pub fn close(self, needs: &Needs) {
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
    }
}

/// What serving still takes, once all is open.
pub struct Needs {
    /// Nothing where the kernel would not let it unmount any more: landlock allows that to nobody.
    pub files: Option<Files>,
    /// Calls that only some servers make.
    pub calls: Calls,
}

/// What this process has given up, for who asks it.
pub fn told() -> Value {
    json!(GIVEN_UP.get().map(|given_up| given_up.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_a_list_of_words() {
        assert_eq!(Allowed::parse("").unwrap(), Allowed::default());
        let allowed = Allowed::parse(" core-dumps,calls,").unwrap();
        assert!(allowed.core_dumps && allowed.calls && !allowed.files);
        assert!(Allowed::parse("core-dump").is_err());
    }
}
