//! Policies as people write them: `write-once=paper,hash=md5,zero=off`.

use crate::size::{self, Size};
use serde_json::{Value, json};
use std::str::FromStr;
use vellum_core::seam::{Commits, Store, WriteOnce};
use vellum_core::tables::Persistence;
use vellum_device::Extent;
use vellum_device::pack::Compression;
use vellum_device::policy::{
    Deltas, Policy, PrintHash, WeakHash, decide_name, decide_named, rule_name, rule_named,
    store_name, store_named,
};

/// The policies and their values, as help texts name them.
const NAMES: [(&str, &str); 18] = [
    ("write-once", "on|off|paper|descriptor"),
    ("hash", "xxh3|head64|crc32c|md5|sha1"),
    ("replay", "on|off"),
    ("zero", "on|off"),
    ("compress", "on|off|lz4|zstd|zstd:LEVEL"),
    ("delta", "on|off|log"),
    ("dedup", "on|off"),
    ("index", "SIZE"),
    ("sample", "off|SIZE"),
    ("store", "compact|caftl"),
    ("decide", "compare|blake3|sha256|sha1|md5"),
    ("fold", "on|off"),
    ("sweep", "full|SIZE"),
    ("semantics", "on|off"),
    ("freed", "on|off"),
    ("commit-every", "off|REQUESTS"),
    ("merging", "on|off"),
    ("anticipation", "on|off"),
];

/// A help text that ends with them.
pub fn help(what: &str) -> String {
    let all: Vec<_> = NAMES
        .map(|(name, values)| format!("{name}={values}"))
        .into();
    format!("{what}: {}; several with commas", all.join(", "))
}

/// Flags of whatever opens a volume.
#[derive(clap::Args)]
pub struct Policies {
    /// What is done with what is written.
    #[arg(long = "policy", value_name = "NAME=VALUE,...", help = help("What is done with what is written"))]
    pub changes: Vec<Change>,
    /// Watch a journal here, besides those that are found; like 1G+128M.
    #[arg(long, value_name = "START+LENGTH")]
    pub journal: Vec<Journal>,
    /// When a write is answered, on the layouts `ordered` and `shadow`: when it is in memory (durable after a flush, with FUA,
    /// or within a second), or when it is durable.
    #[arg(long, value_enum, default_value = "weak")]
    pub persistence: PersistenceChoice,
}

/// When a write is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PersistenceChoice {
    /// When it is in memory.
    #[default]
    Weak,
    /// When it is durable.
    Strong,
}

impl From<PersistenceChoice> for Persistence {
    fn from(choice: PersistenceChoice) -> Self {
        match choice {
            PersistenceChoice::Weak => Self::Weak,
            PersistenceChoice::Strong => Self::Strong,
        }
    }
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
        let strong = self.persistence == PersistenceChoice::Strong;
        let persistence = strong.then(|| "--persistence=strong".to_owned());
        policies.chain(journals).chain(persistence).collect()
    }
}

/// What an index of contents may take.
const INDEX_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 30;
/// What a sweep may read in a second.
const SWEEP_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 40;
/// Requests after which a commit may be due (Dmdedup's flush interval).
const COMMIT_REQUESTS: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// What a sampling unit may be (CAFTL §3.4.1).
const SAMPLE_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=128 << 10;

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// What shall be otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    text: String,
    write_once: Option<WriteOnce>,
    hash: Option<WeakHash>,
    zero: Option<bool>,
    replay: Option<bool>,
    compression: Option<Compression>,
    deltas: Option<Deltas>,
    dedup: Option<bool>,
    index_bytes: Option<u64>,
    sample_blocks: Option<u32>,
    store: Option<Store>,
    fingerprint: Option<Option<PrintHash>>,
    fold: Option<bool>,
    sweep_blocks: Option<u32>,
    freed: Option<bool>,
    semantics: Option<bool>,
    commit_requests: Option<u32>,
    merging: Option<bool>,
    anticipation: Option<bool>,
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
            replay: self.replay.unwrap_or(policy.replay),
            compression: self.compression.unwrap_or(policy.compression),
            deltas: self.deltas.unwrap_or(policy.deltas),
            dedup: self.dedup.unwrap_or(policy.dedup),
            index_bytes: self.index_bytes.unwrap_or(policy.index_bytes),
            sample_blocks: self.sample_blocks.unwrap_or(policy.sample_blocks),
            store: self.store.unwrap_or(policy.store),
            fingerprint: self.fingerprint.unwrap_or(policy.fingerprint),
            fold: self.fold.unwrap_or(policy.fold),
            sweep_blocks: self.sweep_blocks.unwrap_or(policy.sweep_blocks),
            freed: self.freed.unwrap_or(policy.freed),
            semantics: self.semantics.unwrap_or(policy.semantics),
            commits: Commits {
                requests: self.commit_requests.unwrap_or(policy.commits.requests),
                merging: self.merging.unwrap_or(policy.commits.merging),
                anticipation: self.anticipation.unwrap_or(policy.commits.anticipation),
            },
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
                "zero" => change.zero = Some(switch(value).ok_or_else(|| wrong("on and off"))?),
                "replay" => {
                    change.replay = Some(switch(value).ok_or_else(|| wrong("on and off"))?);
                }
                "compress" => {
                    let how = match value {
                        "on" => Ok(Compression::Lz4),
                        named => named.parse(),
                    };
                    let how = how.map_err(|_| {
                        wrong("on (that is lz4), off, lz4, zstd, and zstd:2 to zstd:9")
                    })?;
                    change.compression = Some(how);
                }
                "delta" => {
                    let deltas = value.parse().map_err(|_| wrong("on, off and log"))?;
                    change.deltas = Some(deltas);
                }
                "semantics" => {
                    change.semantics = Some(switch(value).ok_or_else(|| wrong("on and off"))?);
                }
                "freed" => change.freed = Some(switch(value).ok_or_else(|| wrong("on and off"))?),
                "dedup" => change.dedup = Some(switch(value).ok_or_else(|| wrong("on and off"))?),
                "index" => {
                    let size = value.parse().ok().map(|Size(bytes)| bytes);
                    let size = size.filter(|bytes| INDEX_BYTES.contains(bytes));
                    change.index_bytes =
                        Some(size.ok_or_else(|| wrong("the sizes from 64K to 64G"))?);
                }
                "sample" => {
                    let size = value.parse().ok().map(|Size(bytes)| bytes);
                    change.sample_blocks = Some(match (value, size) {
                        ("off", _) => 0,
                        (_, Some(bytes)) if SAMPLE_BYTES.contains(&bytes) && bytes % 4096 == 0 => {
                            (bytes / 4096) as u32
                        }
                        _ => return Err(wrong("off and the sizes from 8K to 128K in steps of 4K")),
                    });
                }
                "store" => {
                    let store = store_named(value);
                    change.store = Some(store.map_err(|_| {
                        wrong("compact, caftl and caftl-plain, -range, -hot, -hot-range, -value and -value-range")
                    })?);
                }
                "decide" => {
                    let print = decide_named(value);
                    let wrong = |_| wrong("compare, blake3, sha256, sha1 and md5");
                    change.fingerprint = Some(print.map_err(wrong)?);
                }
                "fold" => change.fold = Some(switch(value).ok_or_else(|| wrong("on and off"))?),
                "sweep" => {
                    let size = value.parse().ok().map(|Size(bytes)| bytes);
                    change.sweep_blocks = Some(match (value, size) {
                        ("full", _) => 0,
                        (_, Some(bytes)) if SWEEP_BYTES.contains(&bytes) => (bytes / 4096) as u32,
                        _ => return Err(wrong("full and the sizes from 4K to 1T")),
                    });
                }
                "commit-every" => {
                    let requests = match value {
                        "off" => Some(0),
                        _ => value.parse().ok().filter(|n| COMMIT_REQUESTS.contains(n)),
                    };
                    let wrong = || wrong("off and the numbers from 1 to 1000000");
                    change.commit_requests = Some(requests.ok_or_else(wrong)?);
                }
                "merging" => {
                    change.merging = Some(switch(value).ok_or_else(|| wrong("on and off"))?);
                }
                "anticipation" => {
                    change.anticipation = Some(switch(value).ok_or_else(|| wrong("on and off"))?);
                }
                _ => {
                    let names = NAMES.map(|(name, _)| name).join(", ");
                    return Err(format!("no policy is called {name:?}: there are {names}"));
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
        "replay": policy.replay,
        "zero": policy.zero,
        "compress": policy.compression.to_string(),
        "delta": policy.deltas.name(),
        "dedup": policy.dedup,
        "index_bytes": policy.index_bytes,
        "sample_bytes": u64::from(policy.sample_blocks) * 4096,
        "store": store_name(policy.store),
        "decide": decide_name(policy.fingerprint),
        "semantics": policy.semantics,
        "freed": policy.freed,
        "fold": policy.fold,
        "sweep_bytes": u64::from(policy.sweep_blocks) * 4096,
        "commit_every": policy.commits.requests,
        "merging": policy.commits.merging,
        "anticipation": policy.commits.anticipation,
    })
}

/// The same as people write them: names and values that [`Change`] takes.
pub fn written(shown: &Value) -> Vec<(String, String)> {
    let policies = shown.as_object().into_iter().flatten();
    policies
        .map(|(key, value)| {
            let name = key.trim_end_matches("_bytes").replace('_', "-");
            let value = match (name.as_str(), value) {
                (_, Value::String(text)) => text.clone(),
                (_, Value::Bool(true)) => "on".to_owned(),
                (_, Value::Bool(false)) => "off".to_owned(),
                ("sweep", value) if value.as_u64() == Some(0) => "full".to_owned(),
                (_, value) if value.as_u64() == Some(0) => "off".to_owned(),
                (_, value) if key.ends_with("_bytes") => value
                    .as_u64()
                    .map_or_else(|| value.to_string(), size::exact),
                (_, other) => other.to_string(),
            };
            (name, value)
        })
        .collect()
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
            persistence: PersistenceChoice::Weak,
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
            "dedup=1",
            "index=1K",
            "index=100G",
            "sample=4K",
            "sample=9K",
            "sample=1M",
            "store=paper",
            "decide=crc32c",
            "sweep=off",
            "sweep=1K",
            "commit-every=0",
            "commit-every=1000001",
            "commit-every=on",
            "merging=1",
            "anticipation=yes",
        ] {
            assert!(text.parse::<Change>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_help_names_every_policy_and_every_value_that_it_names_is_taken() {
        let told = help("");
        for key in shown(&Policy::default()).as_object().unwrap().keys() {
            let name = key.replace('_', "-");
            let name = name.trim_end_matches("-bytes");
            assert!(told.contains(&format!(" {name}=")), "{name}: {told}");
        }
        for (name, values) in NAMES {
            for value in values.split('|') {
                let text = format!("{name}={}", value.replace("SIZE", "64K"));
                let text = text.replace("REQUESTS", "1000").replace("LEVEL", "6");
                assert_eq!(text.parse::<Change>().err(), None, "{text}");
            }
        }
    }

    #[test]
    fn what_is_shown_can_be_written_back() {
        for text in [
            "zero=on",
            "index=1000000,sample=12K,sweep=full,decide=sha1,commit-every=7,store=caftl",
            "index=3G,sweep=1M,write-once=paper,dedup=on,compress=zstd,merging=off",
        ] {
            let change: Change = text.parse().unwrap();
            let policy = change.apply(Policy::default());
            let written = written(&shown(&policy));
            assert_eq!(written.len(), NAMES.len());
            let written: Vec<_> = written
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let again: Change = written.join(",").parse().unwrap();
            assert_eq!(shown(&again.apply(Policy::default())), shown(&policy));
        }
    }

    #[test]
    fn compression_is_lz4_unless_it_is_named() {
        for (text, how) in [
            ("compress=on", Compression::Lz4),
            ("compress=lz4", Compression::Lz4),
            ("compress=zstd", Compression::ZSTD),
            ("compress=zstd:1", Compression::ZSTD),
            (
                "compress=zstd:9",
                Compression::Zstd(vellum_device::pack::Level::MAX),
            ),
            ("compress=off", Compression::Off),
        ] {
            let change: Change = text.parse().unwrap();
            let policy = Policy {
                compression: Compression::ZSTD,
                ..Policy::default()
            };
            assert_eq!(change.apply(policy).compression, how, "{text}");
        }
    }

    #[test]
    fn deduplication_is_read() {
        let change: Change = "dedup=on,index=256M,sample=32K".parse().unwrap();
        let policy = change.apply(Policy::default());
        assert!(policy.dedup);
        assert_eq!((policy.index_bytes, policy.sample_blocks), (256 << 20, 8));
        let change: Change = "sample=off,store=caftl,decide=blake3,sweep=1M"
            .parse()
            .unwrap();
        assert_eq!(change.apply(policy).fingerprint, Some(PrintHash::Blake3));
        assert_eq!(change.apply(policy).sweep_blocks, 256);
        assert_eq!(change.apply(policy).sample_blocks, 0);
        assert_eq!(shown(&change.apply(policy))["store"], "caftl");
    }

    #[test]
    fn commits_are_read() {
        let change: Change = "commit-every=1000,merging=off".parse().unwrap();
        let policy = change.apply(Policy::default());
        assert_eq!(policy.commits.requests, 1000);
        assert!(!policy.commits.merging && policy.commits.anticipation);
        let change: Change = "commit-every=off,anticipation=off".parse().unwrap();
        let policy = change.apply(policy);
        assert_eq!(policy.commits.requests, 0);
        assert!(!policy.commits.merging && !policy.commits.anticipation);
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
