//! What a server gives up ([decision 0030](../../../../docs/decisions/0030-confined.md)): first what a dump of its memory would tell,
//! and, when its volumes are open and its front ends have begun, all rights that serving does not need. Whoever takes it over by what a
//! client or a medium sends has little more than what is on that volume.

mod threads;

use crate::outcome::usage;
use anyhow::Result;
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
                _ => {
                    return Err(usage(format!(
                        "{VARIABLE}={words}: {word:?} is none of core-dumps"
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

    /// All is open, and what listens listens. Gives what was given up, in words.
    pub fn close(self) -> String {
        let mut given_up = Vec::new();
        if !self.allowed.core_dumps {
            given_up.push("no core dumps".to_owned());
        }
        match threads::give_up() {
            Ok(()) => given_up.push("no new privileges".to_owned()),
            Err(error) => given_up.push(format!("new privileges NOT given up: {error}")),
        }
        let words = given_up.join(", ");
        let _ = GIVEN_UP.set(given_up);
        words
    }
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
        assert!(Allowed::parse(" core-dumps,").unwrap().core_dumps);
        assert!(Allowed::parse("core-dump").is_err());
    }
}
