//! Policies as people write them: `write-once=paper,hash=md5,zero=off`.

use crate::size::Size;
use serde_json::{Value, json};
use std::str::FromStr;
use vellum_core::seam::WriteOnce;
use vellum_device::Extent;
use vellum_device::policy::{Policy, WeakHash, rule_name, rule_named};

/// Flags of whatever opens a volume.
#[derive(clap::Args)]
pub struct Policies {
    /// What is done with what is written: write-once=on|off|paper|descriptor, hash=xxh3|head64|crc32c|md5|sha1,
    /// zero=on|off; several with commas.
    #[arg(long = "policy", value_name = "NAME=VALUE,...")]
    pub changes: Vec<Change>,
    /// Watch a journal here, besides those that are found; like 1G+128M.
    #[arg(long, value_name = "START+LENGTH")]
    pub journal: Vec<Journal>,
}

impl Policies {
    /// The policies that they make of the default.
    pub fn policy(&self) -> Policy {
        let changes = self.changes.iter();
        changes.fold(Policy::default(), |policy, change| change.apply(policy))
    }

    /// The journals set by hand.
    pub fn journals(&self) -> Vec<Extent> {
        self.journal.iter().map(|journal| journal.0).collect()
    }

    /// The same as flags, for a server of our own.
    pub fn flags(&self) -> Vec<String> {
        let policies = self.changes.iter().map(|c| format!("--policy={}", c.text));
        let journals = self.journal.iter();
        let journals = journals.map(|Journal(e)| format!("--journal={}+{}", e.start, e.bytes));
        policies.chain(journals).collect()
    }
}

/// What shall be otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    text: String,
    write_once: Option<WriteOnce>,
    hash: Option<WeakHash>,
    zero: Option<bool>,
}

impl Change {
    /// Makes it so. The paper's rule comes with the paper's hash, and takes it along when it goes, unless a
    /// hash is named.
    pub fn apply(&self, policy: Policy) -> Policy {
        let paper = WriteOnce::HashUnlessCollided;
        let write_once = self.write_once.unwrap_or(policy.write_once);
        let hash = match (self.write_once, policy.write_once) {
            (Some(new), _) if new == paper => WeakHash::Head64,
            (Some(_), old) if old == paper => WeakHash::default(),
            _ => policy.hash,
        };
        Policy {
            write_once,
            hash: self.hash.unwrap_or(hash),
            zero: self.zero.unwrap_or(policy.zero),
        }
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut change = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        for part in text.split(',') {
            let Some((name, value)) = part.split_once('=') else {
                return Err(format!("{part:?} is not NAME=VALUE"));
            };
            let wrong = |values: &str| format!("{name}={value}: it is one of {values}");
            match name {
                "write-once" => {
                    let rule = rule_named(value);
                    change.write_once =
                        Some(rule.map_err(|_| wrong("on, off, paper and descriptor"))?);
                }
                "hash" => {
                    let hash = value.parse();
                    change.hash =
                        Some(hash.map_err(|_| wrong("xxh3, head64, crc32c, md5 and sha1"))?);
                }
                "zero" => {
                    change.zero = Some(match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(wrong("on and off")),
                    });
                }
                _ => {
                    return Err(format!(
                        "no policy is called {name:?}: there are write-once, hash and zero"
                    ));
                }
            }
        }
        Ok(change)
    }
}

/// Policies as programs read them.
pub fn shown(policy: &Policy) -> Value {
    json!({
        "write_once": rule_name(policy.write_once),
        "hash": policy.hash.name(),
        "zero": policy.zero,
    })
}

/// A journal set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal(pub Extent);

impl FromStr for Journal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((start, bytes)) = text.split_once('+') else {
            return Err(format!("{text:?} is not START+LENGTH, like 1G+128M"));
        };
        let (Size(start), Size(bytes)) = (start.parse()?, bytes.parse()?);
        Ok(Self(Extent { start, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(changes: &[&str]) -> (&'static str, WeakHash, bool) {
        let policies = Policies {
            changes: changes.iter().map(|text| text.parse().unwrap()).collect(),
            journal: Vec::new(),
        };
        let policy = policies.policy();
        (rule_name(policy.write_once), policy.hash, policy.zero)
    }

    #[test]
    fn policies_are_read() {
        assert_eq!(after(&[]), ("on", WeakHash::Xxh3, true));
        assert_eq!(
            after(&["write-once=off,zero=off"]),
            ("off", WeakHash::Xxh3, false)
        );
        assert_eq!(
            after(&["write-once=paper"]),
            ("paper", WeakHash::Head64, true)
        );
        assert_eq!(
            after(&["hash=md5,write-once=paper"]),
            ("paper", WeakHash::Md5, true)
        );
        assert_eq!(
            after(&["write-once=paper", "write-once=on"]),
            ("on", WeakHash::Xxh3, true)
        );
        assert_eq!(
            after(&["hash=sha1", "write-once=descriptor"]),
            ("descriptor", WeakHash::Sha1, true)
        );
        for text in [
            "",
            "zero",
            "zero=maybe",
            "hash=crc",
            "write-once=",
            "speed=on",
            "zero=on,",
        ] {
            assert!(text.parse::<Change>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn journals_are_read() {
        let journal = Journal(Extent {
            start: 1 << 30,
            bytes: 128 << 20,
        });
        assert_eq!("1G+128M".parse(), Ok(journal));
        for text in ["1G", "+", "1G+", "1G-2G", "x+1G"] {
            assert!(text.parse::<Journal>().is_err(), "{text:?}");
        }
    }
}
