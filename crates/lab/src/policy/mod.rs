//! What is compared: a translation layer and its options, by the names that users give.
//!
//! The engine's options are those of the table of policies (`vellum-policies`), with the same names and words as on
//! the command line.

mod engine;
mod levelling;
mod page_map;

pub use engine::Engine;
pub use page_map::{Base, Tagging};

use crate::raw::{Hash, Saving};
use std::fmt;
use std::str::FromStr;
use vellum_core::format::areas::Layout;
use vellum_policies::table::{Row, Tier};

/// A translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The baseline page map.
    Base(Base),
    /// What the write-once paper measured, above a device of which only the speed is known.
    Raw(Saving),
    /// The engine.
    Vellum(Engine),
}

/// A layer, and the space it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The layer.
    pub layer: Layer,
    /// Over-provisioning in thousandths; none: the device's.
    pub over_provisioning: Option<u32>,
}

/// The text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {why}")]
pub struct PolicyError {
    text: String,
    why: String,
}

/// The names, for a help text.
pub const NAMES: &str = "base (a page map), vellum (the engine), woj, jftl and dmdedup (block devices alone: \
what the write-once paper compares), each with options behind a colon, like vellum:compress,write-once or \
base:fifo,op=28; `vellum lab list` tells all of them";

/// All names, with what they do.
#[must_use]
pub fn listing() -> String {
    let mut text = String::from(BASE);
    text += ENGINE;
    for (name, values, rows) in engine::known() {
        text += &told(name, &values, &rows);
    }
    text +=
        "woj[:md5|sha1], jftl, dmdedup: block devices alone, what the write-once paper compares\n";
    text += "op=PERCENT of each: over-provisioning, from 2 to 1000\n";
    text
}

const ENGINE: &str = "\
vellum:NAME[=VALUE],... the engine; NAME alone is NAME=on, and what is not named is as in brackets
";
const BASE: &str = "\
base[:NAME,...] a page map
  greedy, cost-benefit, fifo, random, d=N  how its collector chooses a block: of N drawn, with d=N [greedy]
  hot-cold                   hot and cold data in blocks of their own
  handles=tenants, heat      on a drive with placement handles: one for each tenant, or hot and cold ones
  oftl, stream, unordered    its map is updated as OFTL has it, or the stream FTL, or anyhow, and counted
  level-dynamic, level-static[=ERASURES]  wear is levelled
  map-cache=KIB              the map is on flash, and so much of it in memory, as DFTL has it
";

/// Describes an option of the engine: its values, its default, and what it does.
fn told(name: &str, values: &str, rows: &[&Row]) -> String {
    let docs: Vec<_> = rows.iter().map(|row| row.doc).collect();
    let usual = rows.first().and_then(|row| row.lab).unwrap_or_default();
    let is_own = rows.iter().all(|row| row.tier == Tier::Lab);
    let whose = if is_own { ", of the lab alone" } else { "" };
    format!(
        "  {name}={} [{usual}]{whose}\n      {}\n",
        values,
        docs.join("; ")
    )
}

impl Layer {
    /// Where the engine puts blocks; the log if it does not run.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self {
            Self::Vellum(engine) => engine.placing.layout,
            _ => Layout::Log,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "base" => Self::Base(Base::default()),
            "vellum" => Self::Vellum(Engine::default()),
            "woj" => Self::Raw(Saving::WriteOnce(Hash::Xxh64)),
            "jftl" => Self::Raw(Saving::Descriptors),
            "dmdedup" => Self::Raw(Saving::Dedup(Hash::Sha1)),
            _ => return None,
        })
    }

    /// True if it passes requests on as they are where the drive is a block device.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self, Self::Base(_) | Self::Raw(Saving::Nothing))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Base(_) | Self::Raw(Saving::Nothing) => "base",
            Self::Raw(Saving::WriteOnce(_)) => "woj",
            Self::Raw(Saving::Descriptors) => "jftl",
            Self::Raw(Saving::Dedup(_)) => "dmdedup",
            Self::Vellum(_) => "vellum",
        }
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        match (self, option) {
            (Self::Base(base), option) => base.set(option),
            (Self::Vellum(engine), option) => engine.set(option),
            (Self::Raw(Saving::WriteOnce(hash)), "md5") => {
                *hash = Hash::Md5;
                Ok(())
            }
            (Self::Raw(Saving::WriteOnce(hash)), "sha1") => {
                *hash = Hash::Sha1;
                Ok(())
            }
            (Self::Raw(_), _) => Err("woj takes md5, sha1, op=; jftl and dmdedup take op=".into()),
        }
    }

    fn shown(&self) -> Vec<String> {
        match self {
            Self::Base(base) => base.shown(),
            Self::Vellum(engine) => engine.shown().collect(),
            Self::Raw(Saving::WriteOnce(Hash::Md5)) => vec!["md5".into()],
            Self::Raw(Saving::WriteOnce(Hash::Sha1)) => vec!["sha1".into()],
            Self::Raw(_) => Vec::new(),
        }
    }

    /// Why its options contradict each other, if they do.
    fn contradiction(&self) -> Option<&'static str> {
        match self {
            Self::Base(base) => base.contradiction(),
            Self::Vellum(engine) => engine.contradiction(),
            Self::Raw(_) => None,
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let read = || {
            let (name, options) = text.split_once(':').unwrap_or((text, ""));
            let layer = Layer::named(name)
                .ok_or("a policy begins with base, vellum, woj, jftl or dmdedup")?;
            let mut policy = Self {
                layer,
                over_provisioning: None,
            };
            for option in options.split(',').filter(|option| !option.is_empty()) {
                match option.strip_prefix("op=") {
                    Some(percent) => policy.over_provisioning = Some(permille(percent)?),
                    None => policy.layer.set(option)?,
                }
            }
            match policy.layer.contradiction() {
                Some(why) => Err(why.to_string()),
                None => Ok(policy),
            }
        };
        read().map_err(|why| PolicyError {
            text: text.chars().take(60).collect(),
            why,
        })
    }
}

fn permille(percent: &str) -> Result<u32, String> {
    let percent: f64 = percent.parse().map_err(|_| "op= needs a number")?;
    match (2.0..=1000.0).contains(&percent) {
        true => Ok((percent * 10.0).round() as u32),
        false => Err("over-provisioning is from 2 to 1000 percent".into()),
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = self.layer.shown();
        if let Some(permille) = self.over_provisioning {
            options.push(format!("op={}", f64::from(permille) / 10.0));
        }
        f.write_str(self.layer.name())?;
        if !options.is_empty() {
            write!(f, ":{}", options.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_as_it_is_written() {
        for text in [
            "base",
            "base:fifo",
            "base:cost-benefit",
            "base:random,oftl",
            "base:hot-cold",
            "base:handles=tenants",
            "base:fifo,handles=heat,level-dynamic,op=10",
            "base:d=5,hot-cold,level-static,map-cache=64,op=10",
            "base:stream",
            "base:unordered",
            "base:d=5,op=28",
            "base:fifo,level-dynamic,level-static",
            "base:level-static=20,map-cache=64,op=10",
            "woj",
            "woj:sha1,op=10",
            "dmdedup",
            "jftl",
            "vellum",
            "vellum:compress,delta,write-once=descriptor",
            "vellum:compress,delta=log,write-once",
            "vellum:write-once=paper",
            "vellum:compress,write-once,replay,on-drive",
            "vellum:dedup,dedup-memory=512K,sample=32K,store=caftl-hot-range,decide=sha1",
            "vellum:dedup,store=caftl",
            "vellum:victim=cost-benefit,zero=off,dedup,compress,write-once,on-drive,op=7.5",
            "vellum:persistence=strong",
            "vellum:dedup,compress,fold=now,sweep",
            "vellum:sweep=now",
            "vellum:on-drive,handles",
            "vellum:on-drive,level-dynamic,level-static=20",
            "vellum:dedup,layout=ordered,persistence=strong,merging=off,anticipation=off,on-drive",
            "vellum:write-once,layout=shadow,op=10",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_policy_is_refused() {
        for text in [
            "",
            "vellu",
            "base:dedup",
            "vellum:fifo",
            "vellum:dedup-memory=1K",
            "vellum:deltas",
            "vellum:compress=lz4",
            "vellum:write-once,replay=auto",
            "vellum:no-zero",
            "vellum:sample=160K",
            "vellum:store=ours",
            "base:d=0",
            "base:op=1",
            "vellum:layout=tree",
            "vellum:persistence=none",
            "vellum:merging=off",
            "vellum:delta",
            "vellum:fold",
            "vellum:sweep,layout=ordered",
            "vellum:replay",
            "vellum:write-once,replay,layout=shadow",
            "vellum:write-once=copy",
            "jftl:sha1",
            "vellum:layout=ordered,compress",
            "vellum:layout=ordered,victim=cost-benefit",
            "vellum:layout=shadow,dedup,decide=sha1",
            "base:level-static=0",
            "base:level-static=200000",
            "base:map-cache=3",
            "base:map-cache=4194305",
            "base:oftl,map-cache=64",
            "vellum:map-cache=64",
            "vellum:level-dynamic",
            "vellum:hot-cold",
            "base:handles",
            "base:handles=heads",
            "base:hot-cold,handles=heat",
            "base:handles=tenants,map-cache=64",
            "base:handles=tenants,oftl",
            "vellum:handles",
            "vellum:handles=heat,on-drive",
            "vellum:handles,on-drive,layout=ordered",
            "vellum:on-drive,level-static=0",
        ] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }
}
