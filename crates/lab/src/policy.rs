//! What is compared: a translation layer and its options, as people name them.

use crate::base;
use crate::raw::{Hash, Saving};
use crate::vellum::{Placing, Tidying};
use std::fmt;
use std::str::FromStr;
use vellum_core::engine;
use vellum_core::format::areas::Layout;
use vellum_core::seam::{Decide, Dedup, Order, Search, Store, WriteOnce};
use vellum_core::tables::Persistence;

/// Memory of the index of contents when nobody says how much.
const INDEX_BYTES: usize = 64 << 20;

/// CAFTL's fingerprint store, by the order of its entries and whether a bucket's ends are looked at first.
const STORES: [(&str, Store); 5] = [
    ("arrival", store(Order::Arrival, false)),
    ("arrival-check", store(Order::Arrival, true)),
    ("hotness", store(Order::Hotness, false)),
    ("hotness-check", store(Order::Hotness, true)),
    ("value", store(Order::Value, true)),
];
const STORE_NAMES: &str =
    "store= is CAFTL's: arrival, hotness, each with -check, or value; without it the index is ours";

const fn store(order: Order, range_check: bool) -> Store {
    Store::Caftl(Search { range_check, order })
}

/// Whether and where blocks are stored as their difference to what they replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deltas {
    /// They are not.
    Off,
    /// With all else that is small.
    Packed,
    /// In pages of their own, for each block group (CSA-FS §3.3).
    Log,
}

/// Which translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The baseline page map.
    Base {
        /// How its collector chooses.
        victim: base::Victim,
        /// In what order its map is updated.
        order: base::Order,
        /// What is done about uneven wear.
        levelling: base::Levelling,
        /// Whether hot and cold data are apart.
        separated: bool,
        /// Entries of its map that RAM has room for, the map being on flash; none: all of it is in RAM.
        map_cache: Option<u32>,
    },
    /// What the write-once paper measured above a device of which only the speed is known.
    Raw(Saving),
    /// The engine.
    Vellum {
        /// How its collector chooses.
        victim: engine::Victim,
        /// Whether zeros are a map entry alone.
        zero: bool,
        /// Whether and how equal blocks are stored once.
        dedup: Dedup,
        /// Whether blocks that can be stored in fewer bytes share pages.
        compress: bool,
        /// Whether and where blocks are stored as their difference to what they replace, where that is less.
        deltas: Deltas,
        /// What is done about blocks that a journal holds already.
        write_once: WriteOnce,
        /// Whether the volume puts home itself what a journal has committed: the flush behind home writes is free.
        replay: bool,
        /// What is stored is made better beside its clients.
        tidying: Tidying,
        /// Where blocks go, and when they are durable.
        placing: Placing,
        /// Above a drive with a page map, instead of straight on flash.
        on_drive: bool,
        /// What that drive does about uneven wear.
        levelling: base::Levelling,
    },
}

/// A layer, and how much space it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Which.
    pub layer: Layer,
    /// Over-provisioning in thousandths, if not the device's.
    pub over_provisioning: Option<u32>,
}

/// A policy that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {why}")]
pub struct PolicyError {
    text: String,
    why: &'static str,
}

/// What can be named, for a help text.
pub const NAMES: &str = "base[:cost-benefit|fifo|random|d=N][,hot-cold][,oftl|stream|unordered][,level-dynamic][,level-static[=ERASURES]][,map-cache=KIB] (a page map, greedy unless said \
otherwise; hot and cold data in blocks of their own; its map updates ordered by OFTL's rule or the stream FTL's, or counted where out of order; wear levelling; the map on flash with a cache of its entries, as DFTL has it), \
vellum[:cost-benefit][,no-zero][,dedup][,index=KIB][,sample=BLOCKS][,store=arrival|hotness|value][,fingerprint][,compress[,deltas[=log]]][,write-once[=descriptor|unless-collided][,replay]][,fold[=now]][,sweep[=now]][,layout=ordered|shadow][,persistence=strong][,no-merging][,no-anticipation][,on-drive[,level-dynamic][,level-static[=ERASURES]]] \
(the engine; on-drive puts it above a drive with a page map, and level- is what that drive does about wear; compress goes by a model of sizes, and deltas are against what a block replaces, with =log in pages of their own for each block group, as CSA-FS has it; write-once=descriptor goes by the journal's own descriptors, as JFTL does, unless-collided remaps nothing whose hash two journal blocks share, as WOJ does; replay makes the flush behind home writes free, where the load or the trace tells what commits; fold stores anew what is left in sparse pages when little room is left, and sweep shares what is stored twice, beside the host and once more at the end, with =now without waiting for the host; layout= puts tables in place of the log, on a drive or a block device), \
woj[:md5|sha1], jftl and dmdedup (block devices alone: what the write-once paper compares), each with [,op=PERCENT]";

impl Layer {
    /// Where the engine puts blocks; a log, where it does not run.
    #[must_use]
    pub fn layout(&self) -> Layout {
        match self {
            Self::Vellum { placing, .. } => placing.layout,
            _ => Layout::Log,
        }
    }

    /// The engine, with nothing but zeros saved.
    fn engine() -> Self {
        Self::Vellum {
            victim: engine::Victim::Greedy,
            zero: true,
            dedup: Dedup::default(),
            compress: false,
            deltas: Deltas::Off,
            write_once: WriteOnce::Off,
            replay: false,
            tidying: Tidying::default(),
            placing: Placing::default(),
            on_drive: false,
            levelling: base::Levelling::default(),
        }
    }

    /// Why its options do not go together, if they do not.
    fn contradiction(&self) -> Option<&'static str> {
        let Self::Vellum {
            victim,
            dedup,
            compress,
            deltas,
            write_once,
            replay,
            tidying,
            placing,
            on_drive,
            levelling,
            ..
        } = self
        else {
            return None;
        };
        if *levelling != base::Levelling::default() && !on_drive {
            return Some(
                "the engine's own collector does not level wear: level-dynamic and level-static need on-drive",
            );
        }
        match placing.layout {
            Layout::Log if !placing.merging || !placing.anticipation => Some(
                "no-merging and no-anticipation are of tables: layout=ordered or layout=shadow",
            ),
            Layout::Log if *deltas != Deltas::Off && !*compress => {
                Some("deltas are made of blocks that are stored in fewer bytes: they need compress")
            }
            Layout::Log if *replay && *write_once == WriteOnce::Off => {
                Some("replay is of blocks that a journal holds already: it needs write-once")
            }
            Layout::Log if tidying.fold.is_some() && !*compress => {
                Some("only pages of blocks in fewer bytes can be folded: fold needs compress")
            }
            Layout::Log => None,
            _ if *tidying != Tidying::default() => {
                Some("tables in place have nothing to go by: fold and sweep need layout=log")
            }
            _ if *replay => {
                Some("tables in place write a map entry by itself: replay needs layout=log")
            }
            _ if *compress => Some("tables in place hold whole blocks: compress needs layout=log"),
            _ if *victim != engine::Victim::Greedy => {
                Some("tables in place have no collector: cost-benefit needs layout=log")
            }
            _ if dedup.decide != Decide::Compare => {
                Some("tables in place compare bytes: fingerprint needs layout=log")
            }
            _ => None,
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let wrong = |why| PolicyError {
            text: text.chars().take(60).collect(),
            why,
        };
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let mut over_provisioning = None;
        let mut layer = match name {
            "base" => Layer::Base {
                victim: base::Victim::Greedy,
                separated: false,
                order: base::Order::Off,
                levelling: base::Levelling::default(),
                map_cache: None,
            },
            "vellum" => Layer::engine(),
            "woj" => Layer::Raw(Saving::WriteOnce(Hash::Xxh64)),
            "jftl" => Layer::Raw(Saving::Descriptors),
            "dmdedup" => Layer::Raw(Saving::Dedup(Hash::Sha1)),
            _ => {
                return Err(wrong(
                    "a policy begins with base, vellum, woj, jftl or dmdedup",
                ));
            }
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            if let Some(percent) = option.strip_prefix("op=") {
                let percent: f64 = percent.parse().map_err(|_| wrong("op= needs a number"))?;
                if !(2.0..=1000.0).contains(&percent) {
                    return Err(wrong("over-provisioning is from 2 to 1000 percent"));
                }
                over_provisioning = Some((percent * 10.0).round() as u32);
                continue;
            }
            if let Layer::Vellum { tidying, .. } = &mut layer
                && let Some(more) = tidying.with(option)
            {
                *tidying = more;
                continue;
            }
            let of_engine = engine::Victim::named(option);
            match (&mut layer, option) {
                (Layer::Base { victim, .. }, "greedy") => *victim = base::Victim::Greedy,
                (Layer::Base { victim, .. }, "fifo") => *victim = base::Victim::Fifo,
                (Layer::Base { victim, .. }, "cost-benefit") => *victim = base::Victim::CostBenefit,
                (Layer::Base { victim, .. }, "random") => *victim = base::Victim::Choices(1),
                (Layer::Base { separated, .. }, "hot-cold") => *separated = true,
                (Layer::Base { order, .. }, "unordered") => *order = base::Order::Unordered,
                (Layer::Base { order, .. }, "oftl") => *order = base::Order::Journal,
                (Layer::Base { order, .. }, "stream") => *order = base::Order::Stream,
                (
                    Layer::Base { levelling, .. } | Layer::Vellum { levelling, .. },
                    "level-dynamic",
                ) => levelling.dynamic = true,
                (
                    Layer::Base { levelling, .. } | Layer::Vellum { levelling, .. },
                    "level-static",
                ) => {
                    levelling.threshold = Some(base::THRESHOLD);
                }
                (Layer::Base { levelling, .. } | Layer::Vellum { levelling, .. }, threshold)
                    if let Some(erasures) = threshold.strip_prefix("level-static=") =>
                {
                    let erasures = erasures
                        .parse()
                        .ok()
                        .filter(|erasures| (1..=100_000).contains(erasures));
                    levelling.threshold =
                        Some(erasures.ok_or_else(|| {
                            wrong("level-static= needs erasures, from 1 to 100000")
                        })?);
                }
                (Layer::Base { map_cache, .. }, cache)
                    if let Some(kib) = cache.strip_prefix("map-cache=") =>
                {
                    let kib = kib.parse().ok().filter(|kib| (4..=1 << 22).contains(kib));
                    let kib: u32 =
                        kib.ok_or_else(|| wrong("map-cache= needs KiB, from 4 to 4194304"))?;
                    *map_cache = Some(kib * (1024 / base::ENTRY_BYTES as u32));
                }
                (Layer::Base { victim, .. }, other) => {
                    match other.strip_prefix("d=").map(str::parse) {
                        Some(Ok(draws)) if (1..=1000).contains(&draws) => {
                            *victim = base::Victim::Choices(draws);
                        }
                        _ => {
                            return Err(wrong(
                                "base takes greedy, cost-benefit, fifo, random, d=1 to d=1000, hot-cold, unordered, oftl, stream, level-dynamic, level-static=, map-cache=, op=",
                            ));
                        }
                    }
                }
                (Layer::Vellum { victim, .. }, _) if let Some(named) = of_engine => *victim = named,
                (Layer::Vellum { zero, .. }, "no-zero") => *zero = false,
                (Layer::Vellum { dedup, .. }, "dedup") => dedup.index_bytes = INDEX_BYTES,
                (Layer::Vellum { dedup, .. }, "fingerprint") => {
                    dedup.decide = Decide::Fingerprint(0);
                }
                (Layer::Vellum { dedup, .. }, index)
                    if let Some(kib) = index.strip_prefix("index=") =>
                {
                    let kib = kib.parse().ok().filter(|kib| (4..=1 << 22).contains(kib));
                    let kib: usize =
                        kib.ok_or_else(|| wrong("index= needs KiB, from 4 to 4194304"))?;
                    dedup.index_bytes = kib << 10;
                }
                (Layer::Vellum { dedup, .. }, sample)
                    if let Some(blocks) = sample.strip_prefix("sample=") =>
                {
                    let blocks = blocks
                        .parse()
                        .ok()
                        .filter(|blocks| (2..=32).contains(blocks));
                    dedup.sample_blocks =
                        blocks.ok_or_else(|| wrong("sample= needs blocks, from 2 to 32"))?;
                }
                (Layer::Vellum { dedup, .. }, store)
                    if let Some(name) = store.strip_prefix("store=") =>
                {
                    let found = STORES.iter().find(|(known, _)| *known == name);
                    dedup.store = found.ok_or_else(|| wrong(STORE_NAMES))?.1;
                }
                (Layer::Vellum { compress, .. }, "compress") => *compress = true,
                (Layer::Vellum { deltas, .. }, "deltas") => *deltas = Deltas::Packed,
                (Layer::Vellum { deltas, .. }, "deltas=log") => *deltas = Deltas::Log,
                (Layer::Vellum { write_once, .. }, "write-once") => *write_once = WriteOnce::Hash,
                (Layer::Vellum { write_once, .. }, "write-once=unless-collided") => {
                    *write_once = WriteOnce::HashUnlessCollided;
                }
                (Layer::Vellum { write_once, .. }, "write-once=descriptor") => {
                    *write_once = WriteOnce::Descriptor;
                }
                (Layer::Vellum { replay, .. }, "replay") => *replay = true,
                (Layer::Vellum { on_drive, .. }, "on-drive") => *on_drive = true,
                (Layer::Vellum { placing, .. }, "layout=log") => placing.layout = Layout::Log,
                (Layer::Vellum { placing, .. }, "layout=ordered") => {
                    placing.layout = Layout::Ordered;
                }
                (Layer::Vellum { placing, .. }, "layout=shadow") => {
                    placing.layout = Layout::Shadow;
                }
                (Layer::Vellum { placing, .. }, "persistence=weak") => {
                    placing.persistence = Persistence::Weak;
                }
                (Layer::Vellum { placing, .. }, "persistence=strong") => {
                    placing.persistence = Persistence::Strong;
                }
                (Layer::Vellum { placing, .. }, "no-merging") => placing.merging = false,
                (Layer::Vellum { placing, .. }, "no-anticipation") => placing.anticipation = false,
                (Layer::Raw(Saving::WriteOnce(hash)), "md5") => *hash = Hash::Md5,
                (Layer::Raw(Saving::WriteOnce(hash)), "sha1") => *hash = Hash::Sha1,
                (Layer::Raw(_), _) => {
                    return Err(wrong("woj takes md5, sha1, op=; jftl and dmdedup take op="));
                }
                (Layer::Vellum { .. }, _) => {
                    return Err(wrong(
                        "vellum takes greedy, cost-benefit, no-zero, dedup, index=, sample=, store=, fingerprint, compress, deltas, deltas=log, write-once, write-once=descriptor, write-once=unless-collided, replay, fold, fold=now, sweep, sweep=now, layout=log, layout=ordered, layout=shadow, persistence=weak, persistence=strong, no-merging, no-anticipation, on-drive, op=",
                    ));
                }
            }
        }
        if let Some(why) = layer.contradiction() {
            return Err(wrong(why));
        }
        if let Layer::Base {
            order,
            map_cache: Some(_),
            ..
        } = layer
            && order != base::Order::Off
        {
            return Err(wrong(
                "map-cache= goes without unordered, oftl and stream: those keep the map in RAM",
            ));
        }
        Ok(Self {
            layer,
            over_provisioning,
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        let name = match self.layer {
            Layer::Base {
                victim,
                separated,
                order,
                levelling,
                map_cache,
            } => {
                match victim {
                    base::Victim::Greedy => {}
                    base::Victim::CostBenefit => options.push("cost-benefit".to_string()),
                    base::Victim::Fifo => options.push("fifo".to_string()),
                    base::Victim::Choices(1) => options.push("random".to_string()),
                    base::Victim::Choices(draws) => options.push(format!("d={draws}")),
                }
                if separated {
                    options.push("hot-cold".to_string());
                }
                match order {
                    base::Order::Off => {}
                    base::Order::Unordered => options.push("unordered".to_string()),
                    base::Order::Journal => options.push("oftl".to_string()),
                    base::Order::Stream => options.push("stream".to_string()),
                }
                options.extend(shown(levelling));
                if let Some(entries) = map_cache {
                    let kib = u64::from(entries) * base::ENTRY_BYTES / 1024;
                    options.push(format!("map-cache={kib}"));
                }
                "base"
            }
            Layer::Raw(saving) => match saving {
                Saving::WriteOnce(hash) => {
                    match hash {
                        Hash::Xxh64 => {}
                        Hash::Md5 => options.push("md5".to_string()),
                        Hash::Sha1 => options.push("sha1".to_string()),
                    }
                    "woj"
                }
                Saving::Descriptors => "jftl",
                Saving::Dedup(_) => "dmdedup",
                Saving::Nothing => "base",
            },
            Layer::Vellum {
                victim,
                zero,
                dedup,
                compress,
                deltas,
                write_once,
                replay,
                tidying,
                placing,
                on_drive,
                levelling,
            } => {
                if victim != engine::Victim::default() {
                    options.push(victim.name().to_string());
                }
                if !zero {
                    options.push("no-zero".to_string());
                }
                match dedup.index_bytes {
                    0 => {}
                    INDEX_BYTES => options.push("dedup".to_string()),
                    bytes => options.push(format!("index={}", bytes >> 10)),
                }
                if dedup.sample_blocks > 0 {
                    options.push(format!("sample={}", dedup.sample_blocks));
                }
                if let Some((name, _)) = STORES.iter().find(|(_, store)| *store == dedup.store) {
                    options.push(format!("store={name}"));
                }
                if dedup.decide != Decide::Compare {
                    options.push("fingerprint".to_string());
                }
                if compress {
                    options.push("compress".to_string());
                }
                match deltas {
                    Deltas::Off => {}
                    Deltas::Packed => options.push("deltas".to_string()),
                    Deltas::Log => options.push("deltas=log".to_string()),
                }
                match write_once {
                    WriteOnce::Off => {}
                    WriteOnce::Hash => options.push("write-once".to_string()),
                    WriteOnce::HashUnlessCollided => {
                        options.push("write-once=unless-collided".to_string());
                    }
                    WriteOnce::Descriptor => options.push("write-once=descriptor".to_string()),
                }
                if replay {
                    options.push("replay".to_string());
                }
                options.extend(tidying.shown());
                options.extend(placed(placing));
                if on_drive {
                    options.push("on-drive".to_string());
                }
                options.extend(shown(levelling));
                "vellum"
            }
        };
        if let Some(permille) = self.over_provisioning {
            options.push(format!("op={}", f64::from(permille) / 10.0));
        }
        f.write_str(name)?;
        if !options.is_empty() {
            write!(f, ":{}", options.join(","))?;
        }
        Ok(())
    }
}

/// Where blocks go, as it is written.
fn placed(placing: Placing) -> impl Iterator<Item = String> {
    let is_strong = placing.persistence == Persistence::Strong;
    let options = [
        ("layout=ordered", placing.layout == Layout::Ordered),
        ("layout=shadow", placing.layout == Layout::Shadow),
        ("persistence=strong", is_strong),
        ("no-merging", !placing.merging),
        ("no-anticipation", !placing.anticipation),
    ];
    let chosen = options.into_iter().filter(|(_, is_chosen)| *is_chosen);
    chosen.map(|(name, _)| name.to_string())
}

/// Levelling, as it is written.
fn shown(levelling: base::Levelling) -> impl Iterator<Item = String> {
    let dynamic = levelling.dynamic.then(|| "level-dynamic".to_string());
    let fixed = levelling.threshold.map(|erasures| match erasures {
        base::THRESHOLD => "level-static".to_string(),
        erasures => format!("level-static={erasures}"),
    });
    dynamic.into_iter().chain(fixed)
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
            "vellum:compress,deltas,write-once=descriptor",
            "vellum:compress,deltas=log,write-once",
            "vellum:write-once=unless-collided",
            "vellum:compress,write-once,replay,on-drive",
            "vellum:index=512,sample=8,store=hotness-check,fingerprint",
            "vellum:dedup,store=value",
            "vellum:cost-benefit,no-zero,dedup,compress,write-once,on-drive,op=7.5",
            "vellum:persistence=strong",
            "vellum:dedup,compress,fold=now,sweep",
            "vellum:sweep=now",
            "vellum:on-drive,level-dynamic,level-static=20",
            "vellum:dedup,layout=ordered,persistence=strong,no-merging,no-anticipation,on-drive",
            "vellum:write-once,layout=shadow,op=10",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "vellu",
            "base:dedup",
            "vellum:fifo",
            "vellum:index=1",
            "vellum:sample=40",
            "vellum:store=ours",
            "base:d=0",
            "base:op=1",
            "vellum:layout=tree",
            "vellum:persistence=none",
            "vellum:no-merging",
            "vellum:deltas",
            "vellum:fold",
            "vellum:sweep,layout=ordered",
            "vellum:replay",
            "vellum:write-once,replay,layout=shadow",
            "vellum:write-once=copy",
            "jftl:sha1",
            "vellum:layout=ordered,compress",
            "vellum:layout=ordered,cost-benefit",
            "vellum:layout=shadow,dedup,fingerprint",
            "base:level-static=0",
            "base:level-static=200000",
            "base:map-cache=3",
            "base:map-cache=4194305",
            "base:oftl,map-cache=64",
            "vellum:map-cache=64",
            "vellum:level-dynamic",
            "vellum:hot-cold",
            "vellum:on-drive,level-static=0",
        ] {
            assert!(text.parse::<Policy>().is_err(), "{text}");
        }
    }
}
