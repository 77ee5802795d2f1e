//! The user that a root server becomes once everything is open: an attacker who takes over the server by what a
//! client sends is then not root.

use crate::host;
use crate::outcome::usage;
use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Uid, User, setgroups, setresgid, setresuid};
use std::str::FromStr;

/// A user of this machine other than root, by name or by the numbers of user and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUser {
    shown: String,
    uid: Uid,
    gid: Gid,
}

impl FromStr for ServiceUser {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (uid, gid) = match numbers(text) {
            Some(numbers) => numbers,
            None => {
                let found = User::from_name(text).ok().flatten();
                let user = found
                    .ok_or_else(|| format!("there is no user {text:?}: see `getent passwd`"))?;
                (user.uid, user.gid)
            }
        };
        if uid.is_root() || gid.as_raw() == 0 {
            return Err(format!(
                "{text} is root, or of root's group: there is nothing to give up"
            ));
        }
        Ok(Self {
            shown: text.to_owned(),
            uid,
            gid,
        })
    }
}

/// Parses `UID:GID`. The highest number is not valid for either: to the kernel it means no change.
fn numbers(text: &str) -> Option<(Uid, Gid)> {
    let (uid, gid) = text.split_once(':')?;
    let number = |text: &str| text.parse().ok().filter(|number: &u32| *number != u32::MAX);
    Some((number(uid)?.into(), number(gid)?.into()))
}

impl ServiceUser {
    /// Checks whether the change is possible at all.
    pub fn check(&self) -> Result<()> {
        match host::is_root() {
            true => Ok(()),
            false => Err(usage(format!(
                "--user {}: only root can become another user: start the server as root, or as that user \
                 without --user",
                self.shown
            ))),
        }
    }

    /// Makes all threads of this process run as that user, in that user's group and no other, with no way back.
    pub fn becomes(&self) -> Result<()> {
        let (uid, gid) = (self.uid, self.gid);
        setgroups(&[]).context("cannot leave root's groups")?;
        setresgid(gid, gid, gid)
            .with_context(|| format!("cannot take the group of {}", self.shown))?;
        setresuid(uid, uid, uid).with_context(|| format!("cannot become {}", self.shown))?;
        // A process may be configured to keep root's rights.
        let root = Uid::from_raw(0);
        if setresuid(root, root, root).is_ok() || keeps_rights(&status()?) {
            bail!(
                "this process became {}, and root's rights stayed",
                self.shown
            );
        }
        Ok(())
    }

    /// As it was given.
    pub fn name(&self) -> &str {
        &self.shown
    }

    /// Its entry in the list of what was given up.
    pub fn told(&self) -> String {
        format!("root's rights (it is {})", self.shown)
    }
}

fn status() -> Result<String> {
    std::fs::read_to_string("/proc/self/status").context("/proc/self/status")
}

/// True if a process has a capability, or may get one without running another program.
fn keeps_rights(status: &str) -> bool {
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    ["CapPrm:", "CapEff:", "CapAmb:"]
        .iter()
        .any(|name| of(name).is_none_or(|rights| rights.trim().bytes().any(|digit| digit != b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_name_or_two_numbers_and_is_not_root() {
        let user: ServiceUser = "1234:5678".parse().unwrap();
        assert_eq!((user.uid.as_raw(), user.gid.as_raw()), (1234, 5678));
        assert!("nobody".parse::<ServiceUser>().is_ok());
        for wrong in [
            "",
            "no such user",
            "root",
            "0:5",
            "5:0",
            "4711",
            "1:4294967295",
            "-1:5",
            "a\0b",
        ] {
            assert!(wrong.parse::<ServiceUser>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rights_are_read_from_the_kernels_status() {
        let none = "CapInh:\t0000000000000001\nCapPrm:\t0000000000000000\n\
                    CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n";
        assert!(!keeps_rights(none));
        assert!(keeps_rights(
            &none.replace("CapPrm:\t0000", "CapPrm:\t0200")
        ));
        assert!(keeps_rights(""), "who knows");
    }
}
