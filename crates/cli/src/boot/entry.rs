//! An entry: one volume that is attached at each boot, as TOML.

use crate::attachment::Via;
use crate::outcome::usage;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The most characters in a name, and the most bytes in a path.
const NAME_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 4095;

/// The head of each entry that we write.
const HEAD: &str = "\
# Written by `vellum enable`. systemd attaches this volume at each boot, as the service vellum@NAME,
# NAME being this file's name without `.toml`. After a change by hand: systemctl daemon-reload.
";

/// The name of an entry, and so of its service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes a name from a label or a file name, if that has a letter or a digit.
    pub fn like(text: &str) -> Option<Self> {
        let fit = |c: char| match is_fit(c) {
            true => c,
            false => '-',
        };
        let text: String = text.chars().map(fit).take(NAME_MAX).collect();
        text.trim_matches(['-', '.', '_']).parse().ok()
    }
}

/// The characters that a unit's name may have without escaping, except '@' and ':'.
fn is_fit(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match begins && text.len() <= NAME_MAX && text.chars().all(is_fit) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!(
                "a name has letters, digits, '-', '_' and '.', begins with a letter or a digit, \
                 and is {NAME_MAX} long at most"
            )),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What waits for a volume at boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The root file system: it is attached by the initramfs.
    Root,
    /// All ordinary services: it is attached with the local file systems.
    #[default]
    LocalFs,
    /// The end of the boot: it is attached when the network and its file systems are there.
    MultiUser,
}

/// One volume that is attached at each boot. Its other settings are in the volume itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The volume's file or block device.
    pub volume: PathBuf,
    /// The UUID that the volume must have; another volume is not attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Where it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<PathBuf>,
    /// How it is attached; if not given, the best way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// The file with its key, if it is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// What waits for it.
    #[serde(default)]
    pub before: Target,
}

impl Entry {
    /// Parses an entry. `file` is its name in errors, which give the line.
    pub fn parse(text: &str, file: &Path) -> Result<Self> {
        let shown = file.display();
        let read: Result<Self, toml::de::Error> = toml::from_str(text);
        let entry = read.map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..at]
                .iter()
                .filter(|&&b| b == b'\n')
                .count();
            usage(format!("{shown}, line {line}: {}", error.message()))
        })?;
        entry
            .check()
            .map_err(|error| error.context(shown.to_string()))?;
        Ok(entry)
    }

    /// The text of its file.
    pub fn text(&self) -> Result<String> {
        self.check()?;
        Ok(format!("{HEAD}{}", toml::to_string(self)?))
    }

    /// True if both are for the same volume.
    pub fn is_same_volume(&self, other: &Self) -> bool {
        self.volume == other.volume || self.uuid.is_some() && self.uuid == other.uuid
    }

    /// Refuses invalid values, and what a unit's line could not hold.
    pub fn check(&self) -> Result<()> {
        let is_uuid = |text: &String| {
            text.len() <= NAME_MAX && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        };
        if !self.uuid.as_ref().is_none_or(is_uuid) {
            bail!("uuid: it is not one, as `vellum info` tells it");
        }
        if self.before == Target::Root {
            self.check_of_root()?;
        }
        for (key, path) in [
            ("volume", Some(&self.volume)),
            ("mount", self.mount.as_ref()),
        ] {
            let Some(path) = path else { continue };
            let text = path.to_str().unwrap_or_default();
            if !path.is_absolute() || text.len() > PATH_BYTES_MAX || text.contains(char::is_control)
            {
                bail!("{key}: it must be an absolute path, in UTF-8, without control characters");
            }
        }
        Ok(())
    }
}

impl Entry {
    /// Checks that an initramfs can attach it.
    fn check_of_root(&self) -> Result<()> {
        if self.mount.is_some() {
            bail!(
                "mount: the initramfs mounts the root file system, by the kernel's argument root="
            );
        }
        if self.key_file.is_some() {
            bail!(
                "key_file: an initramfs is no safe place for a key, so the root file system cannot be on an \
                 encrypted volume"
            );
        }
        if !self.volume.starts_with("/dev") {
            bail!("volume: an initramfs can only use block devices: give one below /dev");
        }
        if !matches!(self.via, None | Some(Via::Ublk)) {
            bail!("via: the root file system comes by ublk alone (Linux 6.5)");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            volume: "/data/disk.vellum".into(),
            uuid: Some("0b".repeat(16)),
            mount: Some("/srv/a b".into()),
            via: Some(Via::Fuse),
            key_file: Some("/etc/vellum/a.key".into()),
            before: Target::MultiUser,
        }
    }

    #[test]
    fn an_entry_is_parsed_as_it_was_written() {
        let text = entry().text().unwrap();
        assert_eq!(Entry::parse(&text, Path::new("e")).unwrap(), entry());
        let short = Entry::parse("volume = '/d'", Path::new("e")).unwrap();
        assert_eq!(short.before, Target::LocalFs);
        assert_eq!(
            Entry::parse(&short.text().unwrap(), Path::new("e")).unwrap(),
            short
        );
    }

    #[test]
    fn a_damaged_entry_is_named_with_its_line() {
        for (text, says) in [
            ("", "line 1: missing field"),
            ("volume = '/d'\nmout = '/m'\n", "line 2: unknown field"),
            ("volume = '/d'\nvia = 'tape'\n", "line 2: unknown variant"),
            ("volume = '/d'\n\nmount = [", "line 3"),
            ("volume = '/d'\nuuid = '../x'", "uuid: it is not one"),
            ("volume = 'd'", "volume: it must be an absolute path"),
            ("volume = \"/d\\nExecStart=/bin/sh\"", "control characters"),
            ("volume = '/d'\nbefore = 'root'", "below /dev"),
            (
                "volume = '/dev/d'\nbefore = 'root'\nmount = '/'",
                "kernel's argument root=",
            ),
            (
                "volume = '/dev/d'\nbefore = 'root'\nkey_file = '/k'",
                "no safe place",
            ),
            (
                "volume = '/dev/d'\nbefore = 'root'\nvia = 'nbd'",
                "by ublk alone",
            ),
            (
                "volume = '/d'\nmount = 'm'",
                "mount: it must be an absolute path",
            ),
        ] {
            let error = format!("{:#}", Entry::parse(text, Path::new("e.toml")).unwrap_err());
            assert!(
                error.contains(says) && error.contains("e.toml"),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn a_name_is_valid_in_a_unit() {
        assert_eq!(
            Name::like("Photos of 2024!").unwrap().as_str(),
            "Photos-of-2024"
        );
        assert_eq!(Name::like("disk.vellum").unwrap().as_str(), "disk.vellum");
        assert_eq!(Name::like("..."), None);
        for bad in ["", "-a", ".a", "a/b", "a@b", "a b", "ü", &"a".repeat(65)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
