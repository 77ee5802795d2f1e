//! All properties: the one table that commands, help texts and the guide are made from.

use super::kind::Kind;
use super::settings::{Replay, Settings};
use vellum_core::engine::Victim;
use vellum_core::format::areas::Layout;
use vellum_core::format::properties::Value;
use vellum_core::seam::WriteOnce;
use vellum_core::tables::Persistence;
use vellum_device::Extent;
use vellum_device::policy::{
    Deltas, decide_name, decide_named, rule_named, store_name, store_named,
};

/// For whom a property is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// For everyone.
    Everyday,
    /// For who has a reason.
    Seldom,
    /// For who compares mechanisms: never stored, and set by `--research` alone.
    Research,
}

/// Which layouts have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// All.
    All,
    /// The log.
    Log,
    /// `ordered` and `shadow`.
    Tables,
}

/// When a change of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// At once.
    Now,
    /// When the volume is served or attached the next time.
    Next,
}

/// What may be chosen.
pub struct Property {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub kind: Kind,
    /// For whom it is.
    pub tier: Tier,
    /// Which layouts have it.
    pub has: Has,
    /// When a change counts.
    pub counts: Counts,
    /// What it does.
    pub doc: &'static str,
    /// What it brings and costs.
    pub cost: &'static str,
    pub(super) get: fn(&Settings) -> Value,
    pub(super) put: fn(&mut Settings, &Value),
}

impl Has {
    /// Whether this layout is one of them.
    pub fn has(self, layout: Layout) -> bool {
        match self {
            Self::All => true,
            Self::Log => layout == Layout::Log,
            Self::Tables => layout != Layout::Log,
        }
    }

    /// Their names.
    pub fn names(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Log => "log",
            Self::Tables => "ordered, shadow",
        }
    }
}

/// One that is not of research, by its name.
pub fn named(name: &str) -> Option<&'static Property> {
    let kept = |p: &&Property| p.name == name && p.tier != Tier::Research;
    TABLE.iter().find(kept)
}

/// One of research.
pub fn of_research(name: &str) -> Option<&'static Property> {
    let found = |p: &&Property| p.name == name && p.tier == Tier::Research;
    TABLE.iter().find(found)
}

macro_rules! switch {
    ($($field:ident).+) => {
        (
            |s: &Settings| Value::switch(s.$($field).+),
            |s: &mut Settings, value: &Value| {
                if let Some(on) = value.as_switch() {
                    s.$($field).+ = on;
                }
            },
        )
    };
}

macro_rules! bytes {
    ($($field:ident).+, $type:ty, $unit:expr) => {
        (
            |s: &Settings| Value::number(u64::from(s.$($field).+) * $unit),
            |s: &mut Settings, value: &Value| {
                let number = value.as_number().map(|bytes| <$type>::try_from(bytes / $unit));
                if let Some(Ok(number)) = number {
                    s.$($field).+ = number;
                }
            },
        )
    };
}

macro_rules! words {
    ($($field:ident).+) => {
        (
            |s: &Settings| Value::text(&s.$($field).+),
            |s: &mut Settings, value: &Value| {
                if let Some(text) = value.as_text() {
                    s.$($field).+ = text.to_owned();
                }
            },
        )
    };
}

macro_rules! choice {
    ($($field:ident).+, $name:expr, $of:expr) => {
        (
            |s: &Settings| Value::text($name(&s.$($field).+).as_ref()),
            |s: &mut Settings, value: &Value| {
                let chosen = value.as_text().and_then($of);
                if let Some(chosen) = chosen {
                    s.$($field).+ = chosen;
                }
            },
        )
    };
}

type Access = (fn(&Settings) -> Value, fn(&mut Settings, &Value));

const fn row(
    name: &'static str,
    kind: Kind,
    (tier, has, counts): (Tier, Has, Counts),
    doc: &'static str,
    cost: &'static str,
    (get, put): Access,
) -> Property {
    Property {
        name,
        kind,
        tier,
        has,
        counts,
        doc,
        cost,
        get,
        put,
    }
}

const ENCODINGS: &[&str] = &[
    "off", "lz4", "zstd", "zstd:2", "zstd:3", "zstd:4", "zstd:5", "zstd:6", "zstd:7", "zstd:8",
    "zstd:9",
];

const EVERYDAY: (Tier, Has, Counts) = (Tier::Everyday, Has::All, Counts::Now);
const SELDOM: (Tier, Has, Counts) = (Tier::Seldom, Has::All, Counts::Now);
const RESEARCH: (Tier, Has, Counts) = (Tier::Research, Has::All, Counts::Next);

/// All of them.
pub static TABLE: [Property; 28] = [
    row(
        "compress",
        Kind::Encoding(ENCODINGS),
        (Tier::Everyday, Has::Log, Counts::Now),
        "a block that compresses to 3 KiB or less shares a page with others; a higher level takes fewer \
        bytes and more time",
        "with delta, over fifteen applications, 0.38 of the bytes that ext4 writes by itself, and \
        without both 1.37; 1.51 of its time, and without 1.47",
        choice!(
            policy.compression,
            |c: &vellum_device::pack::Compression| c.to_string(),
            |text: &str| text.parse().ok()
        ),
    ),
    row(
        "delta",
        Kind::Switch,
        (Tier::Everyday, Has::Log, Counts::Now),
        "a block that replaces another one is stored as its difference to that, if that is less than \
        half as long",
        "of the bytes that zstd leaves, SQLite's are a sixth fewer and a mail server's a tenth; 16 MiB \
        of memory, and 28 bytes a delta",
        (
            |s| Value::switch(s.policy.deltas.are_made()),
            |s, value| {
                if let Some(on) = value.as_switch() {
                    s.policy.deltas = if on { Deltas::Packed } else { Deltas::Off };
                }
            },
        ),
    ),
    row(
        "dedup",
        Kind::Switch,
        EVERYDAY,
        "a content that is stored already is not stored again",
        "of 90% duplicates 0.10 of the bytes, of PostgreSQL's three quarters; unique random writes are \
        0.93 as fast; memory (dedup-memory)",
        switch!(policy.dedup),
    ),
    row(
        "dedup-memory",
        Kind::Size {
            range: 64 << 10..=64 << 30,
            step: 1,
            zero: None,
        },
        EVERYDAY,
        "memory for what dedup knows, taken while dedup=on; 64 bytes for each block of the volume at most",
        "8 bytes a content: 64M are 32 GiB of different ones; contents beyond that are stored again",
        (
            |s| Value::number(s.policy.index_bytes),
            |s, value| {
                if let Some(bytes) = value.as_number() {
                    s.policy.index_bytes = bytes;
                }
            },
        ),
    ),
    row(
        "freed",
        Kind::Switch,
        EVERYDAY,
        "blocks that a mounted ext4 has freed are dropped without its discard",
        "room of deleted files, some seconds later; not where something else reads the volume's free \
        blocks (a snapshot or a mirror of all of it)",
        switch!(policy.freed),
    ),
    row(
        "buffer",
        Kind::Size {
            range: 8 << 20..=8 << 30,
            step: 1,
            zero: None,
        },
        (Tier::Everyday, Has::All, Counts::Next),
        "memory for blocks in flight, the volatile write cache included",
        "memory; more absorbs longer bursts, and write-once compares with what is still in it",
        (
            |s| Value::number(s.buffer_bytes),
            |s, value| {
                if let Some(bytes) = value.as_number() {
                    s.buffer_bytes = bytes;
                }
            },
        ),
    ),
    row(
        "mount-options",
        Kind::Text(VALUE_TEXT),
        (Tier::Everyday, Has::All, Counts::Next),
        "options of `attach --mount`; if empty, data=journal, and journal_async_commit where that is safe",
        "nothing",
        words!(mount_options),
    ),
    row(
        "label",
        Kind::Text(64),
        EVERYDAY,
        "a name for people",
        "nothing",
        words!(label),
    ),
    row(
        "snapshot-every",
        Kind::Every,
        (Tier::Everyday, Has::Log, Counts::Now),
        "how often the volume takes a snapshot of itself while it is served or attached, if something was \
        written",
        "nothing but what the snapshots keep; when there is no room for it, these go first",
        words!(snapshot_every),
    ),
    row(
        "snapshot-keep",
        Kind::Keep,
        (Tier::Everyday, Has::Log, Counts::Now),
        "which of those snapshots stay: of the last 24h one each 15m, of the last 7d one each 1d; the \
        others are deleted, and the newest never is",
        "room for what is written over in that time",
        words!(snapshot_keep),
    ),
    row(
        "fold",
        Kind::Switch,
        (Tier::Seldom, Has::Log, Counts::Now),
        "gives up pages of which little is left, of its own accord: when less than a fifth of the room \
        is free, clients have written \
         256 MiB since the last time and have been quiet for five seconds",
        "room back, and less wear of a full volume",
        switch!(policy.fold),
    ),
    row(
        "sweep-rate",
        Kind::Size {
            range: 4 << 10..=1 << 40,
            step: 4 << 10,
            zero: Some("full"),
        },
        SELDOM,
        "bytes a second that a sweep for duplicates, or a fold, may read",
        "a slower one disturbs less",
        bytes!(policy.sweep_blocks, u32, 4096),
    ),
    row(
        "write-once",
        Kind::Switch,
        SELDOM,
        "a block that a journal holds already is not written again when it is written home",
        "half of what data=journal writes; 20 bytes of memory a journal block",
        (
            |s| Value::switch(s.policy.write_once != WriteOnce::Off),
            |s, value| {
                if let Some(on) = value.as_switch() {
                    s.policy.write_once = if on { WriteOnce::Hash } else { WriteOnce::Off };
                }
            },
        ),
    ),
    row(
        "replay",
        Kind::Choice(&["auto", "on", "off"]),
        (Tier::Seldom, Has::Log, Counts::Now),
        "after a crash the volume puts home by itself what a journal had committed, as the next mount \
         would; it needs write-once. auto: where `attach --mount` mounts it. on: also elsewhere, \
         no cache may lie above the volume that writes back in another order",
        "one sync a commit instead of two",
        choice!(
            replay,
            |replay: &Replay| match replay {
                Replay::Auto => "auto",
                Replay::On => "on",
                Replay::Off => "off",
            },
            |text: &str| match text {
                "auto" => Some(Replay::Auto),
                "on" => Some(Replay::On),
                "off" => Some(Replay::Off),
                _ => None,
            }
        ),
    ),
    row(
        "zero",
        Kind::Switch,
        SELDOM,
        "a block of zeros is an entry of the map, and takes no room",
        "nothing",
        switch!(policy.zero),
    ),
    row(
        "journals",
        Kind::Journals,
        SELDOM,
        "journals that are not found by themselves; they go before those that are. A wrong one does no \
        harm: bytes are compared",
        "nothing",
        (
            |s| {
                let ranges: Vec<_> = s.journals.iter().map(|e| (e.start, e.bytes)).collect();
                Value::ranges(&ranges)
            },
            |s, value| {
                if let Some(ranges) = value.as_ranges() {
                    let extents = ranges.iter();
                    s.journals = extents
                        .map(|&(start, bytes)| Extent { start, bytes })
                        .collect();
                }
            },
        ),
    ),
    row(
        "persistence",
        Kind::Choice(&["weak", "strong"]),
        (Tier::Seldom, Has::Tables, Counts::Next),
        "when a write is answered: when it is in memory (durable after a flush, with FUA, or within a \
        second), or when it is durable",
        "strong: every write waits for the medium",
        choice!(
            persistence,
            |p: &Persistence| match p {
                Persistence::Weak => "weak",
                Persistence::Strong => "strong",
            },
            |text: &str| match text {
                "weak" => Some(Persistence::Weak),
                "strong" => Some(Persistence::Strong),
                _ => None,
            }
        ),
    ),
    row(
        "write-once",
        Kind::Choice(&["paper", "descriptor"]),
        RESEARCH,
        "paper: as WOJ has it, several journal blocks with one hash are none, and with hash=head64 \
        unless another is named; descriptor: \
         home addresses are read from the journal's descriptor blocks (JFTL)",
        "",
        (
            |s| Value::text(vellum_device::policy::rule_name(s.policy.write_once)),
            |s, value| {
                let rule = value.as_text().and_then(|name| rule_named(name).ok());
                if let Some(rule) = rule {
                    s.policy.write_once = rule;
                    if rule == WriteOnce::HashUnlessCollided {
                        s.policy.hash = vellum_device::policy::WeakHash::Head64;
                    }
                }
            },
        ),
    ),
    row(
        "hash",
        Kind::Choice(&["xxh3", "head64", "crc32c", "md5", "sha1"]),
        RESEARCH,
        "the hash that proposes a journal's copy",
        "",
        choice!(
            policy.hash,
            |hash: &vellum_device::policy::WeakHash| hash.name(),
            |text: &str| text.parse().ok()
        ),
    ),
    row(
        "delta",
        Kind::Choice(&["log"]),
        (Tier::Research, Has::Log, Counts::Next),
        "deltas in pages of their own for each block group, merged back when folded (CSA-FS)",
        "",
        choice!(
            policy.deltas,
            |deltas: &Deltas| deltas.name(),
            |text: &str| text.parse().ok()
        ),
    ),
    row(
        "sample",
        Kind::Size {
            range: 8 << 10..=128 << 10,
            step: 4096,
            zero: Some("off"),
        },
        RESEARCH,
        "of each unit of this size dedup looks for the block with the largest first four bytes, and for \
        the others if that was found",
        "",
        bytes!(policy.sample_blocks, u32, 4096),
    ),
    row(
        "store",
        Kind::Choice(&[
            "compact",
            "caftl",
            "caftl-plain",
            "caftl-range",
            "caftl-hot",
            "caftl-hot-range",
            "caftl-value",
            "caftl-value-range",
        ]),
        RESEARCH,
        "the index of contents: ours, or CAFTL's, whole and by each way to search it",
        "",
        choice!(
            policy.store,
            |store: &vellum_core::seam::Store| store_name(*store),
            |text: &str| store_named(text).ok()
        ),
    ),
    row(
        "decide",
        Kind::Choice(&["compare", "blake3", "sha256", "sha1", "md5"]),
        (Tier::Research, Has::Log, Counts::Next),
        "what tells that two blocks are equal: their bytes, or a keyed fingerprint from a content's \
        third owner on",
        "",
        choice!(
            policy.fingerprint,
            |print: &Option<vellum_device::policy::PrintHash>| decide_name(*print),
            |text: &str| decide_named(text).ok()
        ),
    ),
    row(
        "semantics",
        Kind::Switch,
        RESEARCH,
        "of an ext4, dedup learns data alone (CSA-FS)",
        "",
        switch!(policy.semantics),
    ),
    row(
        "commit-every",
        Kind::Count(1..=1_000_000),
        (Tier::Research, Has::Tables, Counts::Next),
        "requests after which what they have changed is committed (Dmdedup's flush interval)",
        "",
        bytes!(policy.commits.requests, u32, 1),
    ),
    row(
        "merging",
        Kind::Switch,
        (Tier::Research, Has::Tables, Counts::Next),
        "what no answer waits for is held back, to be written with what else falls into its block \
        (OrderMergeDedup)",
        "",
        switch!(policy.commits.merging),
    ),
    row(
        "anticipation",
        Kind::Switch,
        (Tier::Research, Has::Tables, Counts::Next),
        "a commit is held back for a millisecond if more is likely to come (OrderMergeDedup)",
        "",
        switch!(policy.commits.anticipation),
    ),
    row(
        "victim",
        Kind::Choice(Victim::NAMES),
        (Tier::Research, Has::Log, Counts::Next),
        "how the collector chooses the segment to empty",
        "",
        choice!(victim, |victim: &Victim| victim.name(), |text: &str| {
            Victim::named(text)
        }),
    ),
];

/// The longest of the user's own words.
const VALUE_TEXT: usize = 256;
