//! The table.

use crate::kind::Kind;
use vellum_core::engine::VictimPolicy;
use vellum_core::format::areas::Layout;
use vellum_core::snapshots::USUAL_KEEP;

/// Who a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Everyone.
    Everyday,
    /// Users with a reason.
    Seldom,
    /// Users who compare mechanisms: never stored, and set only with `--research`.
    Research,
    /// Only the lab: how it sets up what it compares.
    Lab,
}

/// The layouts that have a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// All.
    All,
    /// The log.
    Log,
    /// `ordered` and `shadow`.
    Tables,
}

/// A choice. Several rows may share a name, each with its own values.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub kind: Kind,
    /// Who it is for.
    pub tier: Tier,
    /// The layouts that have it.
    pub has: Has,
    /// Its value on a new volume unless one is chosen; on the layouts with a log, if they differ.
    pub default: &'static str,
    /// Its value in the lab unless one is chosen: nothing, so that the effect of each saving can be seen alone.
    /// `None`: the lab does not have it.
    pub lab: Option<&'static str>,
    /// What it does.
    pub doc: &'static str,
    /// What it gains and costs.
    pub cost: &'static str,
}

impl Has {
    /// True if this layout has it.
    #[must_use]
    pub fn has(self, layout: Layout) -> bool {
        match self {
            Self::All => true,
            Self::Log => layout == Layout::Log,
            Self::Tables => layout != Layout::Log,
        }
    }

    /// Their names.
    #[must_use]
    pub fn names(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Log => "log",
            Self::Tables => "ordered, shadow",
        }
    }
}

/// The rows, each under a name, and the table of all of them.
macro_rules! rows {
    ($($row:ident = $is:expr;)*) => {
        $(
            #[doc = concat!("The row ", stringify!($row), ".")]
            pub static $row: Row = $is;
        )*

        /// All rows, in the order in which they are shown.
        pub static TABLE: &[&Row] = &[$(&$row),*];
    };
}

const ENCODINGS: &[&str] = &[
    "off", "lz4", "zstd", "zstd:2", "zstd:3", "zstd:4", "zstd:5", "zstd:6", "zstd:7", "zstd:8",
    "zstd:9",
];

/// The longest of the user's own words.
const VALUE_TEXT: usize = 256;

rows! {
    COMPRESS = Row {
        name: "compress",
        kind: Kind::Encoding(ENCODINGS),
        tier: Tier::Everyday,
        has: Has::Log,
        default: "zstd",
        lab: Some("off"),
        doc: "a block that compresses to 3 KiB or less shares a page with others; a higher level \
            takes fewer bytes and more time",
        cost: "together with delta, fifteen applications write 0.38 of what ext4 alone writes, in \
            1.34 of its time; an earlier version wrote 0.38 (without both 1.37), in 1.51 (1.47)",
    };

    DELTA = Row {
        name: "delta",
        kind: Kind::Switch,
        tier: Tier::Everyday,
        has: Has::Log,
        default: "on",
        lab: Some("off"),
        doc: "a block that replaces another one is stored as its difference to that block, if the \
            difference is less than half as long as the block would be",
        cost: "beyond what compress saves, a sixth of SQLite's bytes and a tenth of a mail \
            server's; takes 16 MiB of memory, and 28 bytes for each delta",
    };

    DEDUP = Row {
        name: "dedup",
        kind: Kind::Switch,
        tier: Tier::Everyday,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "a content that is stored already is not stored again",
        cost: "a load with 90% duplicates writes 0.10 of its bytes, PostgreSQL three quarters; \
            random writes without duplicates run at 0.93 of their speed; takes memory \
            (dedup-memory)",
    };

    DEDUP_MEMORY = Row {
        name: "dedup-memory",
        kind: Kind::Size {
                range: 64 << 10..=64 << 30,
                step: 1,
                zero: None,
            },
        tier: Tier::Everyday,
        has: Has::All,
        default: "64M",
        lab: Some("64M"),
        doc: "memory for what dedup knows, taken while dedup=on; 64 bytes for each block of the \
            volume at most",
        cost: "at 8 bytes a content, 64M knows 32 GiB of different ones; what it does not know is \
            stored again",
    };

    FREED = Row {
        name: "freed",
        kind: Kind::Switch,
        tier: Tier::Everyday,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "blocks that a mounted ext4 has freed are dropped without its discard",
        cost: "deleted files give their room back within seconds; leave it off where something else \
            reads free blocks (a mirror, or a snapshot of the device mapper)",
    };

    BUFFER = Row {
        name: "buffer",
        kind: Kind::Size {
                range: 8 << 20..=8 << 30,
                step: 1,
                zero: None,
            },
        tier: Tier::Everyday,
        has: Has::All,
        default: "64M",
        lab: None,
        doc: "memory for blocks in flight, the volatile write cache included",
        cost: "takes that memory; a larger one absorbs longer bursts",
    };

    MOUNT_OPTIONS = Row {
        name: "mount-options",
        kind: Kind::Text(VALUE_TEXT),
        tier: Tier::Everyday,
        has: Has::All,
        default: "",
        lab: None,
        doc: "options of `attach --mount`; if empty, data=journal, and journal_async_commit where \
            that is safe",
        cost: "nothing",
    };

    LABEL = Row {
        name: "label",
        kind: Kind::Text(64),
        tier: Tier::Everyday,
        has: Has::All,
        default: "",
        lab: None,
        doc: "a name for people",
        cost: "nothing",
    };

    SNAPSHOT_EVERY = Row {
        name: "snapshot-every",
        kind: Kind::Every,
        tier: Tier::Everyday,
        has: Has::Log,
        default: "off",
        lab: None,
        doc: "how often the volume takes a snapshot of itself while it is served or attached, if \
            something was written",
        cost: "nothing but what the snapshots keep; when there is no room for it, these go first",
    };

    SNAPSHOT_KEEP = Row {
        name: "snapshot-keep",
        kind: Kind::Keep,
        tier: Tier::Everyday,
        has: Has::Log,
        default: USUAL_KEEP,
        lab: None,
        doc: "which of those snapshots stay: of the last 24h one each 15m, of the last 7d one each \
            1d; the others are deleted, and the newest never is",
        cost: "room for what is written over in that time",
    };

    FOLD = Row {
        name: "fold",
        kind: Kind::Switch,
        tier: Tier::Seldom,
        has: Has::Log,
        default: "on",
        lab: Some("off"),
        doc: "gives up pages of which little is left, of its own accord: when less than a fifth of \
            the room is free, clients have written 256 MiB since the last time and have been \
            quiet for five seconds",
        cost: "gives room back, and a full volume wears the medium less",
    };

    SWEEP_RATE = Row {
        name: "sweep-rate",
        kind: Kind::Size {
                range: 4 << 10..=1 << 40,
                step: 4 << 10,
                zero: Some("full"),
            },
        tier: Tier::Seldom,
        has: Has::All,
        default: "64M",
        lab: None,
        doc: "bytes a second that a sweep for duplicates, or a fold, may read",
        cost: "a lower rate disturbs clients less",
    };

    WRITE_ONCE = Row {
        name: "write-once",
        kind: Kind::Switch,
        tier: Tier::Seldom,
        has: Has::All,
        default: "on",
        lab: Some("off"),
        doc: "a block that a journal holds already is not written again when it is written home",
        cost: "saves half of what data=journal writes; takes 24 bytes of memory for each block of \
            the journal",
    };

    REPLAY = Row {
        name: "replay",
        kind: Kind::Choice(&["auto", "on", "off"]),
        tier: Tier::Seldom,
        has: Has::Log,
        default: "auto",
        lab: Some("off"),
        doc: "after a crash the volume itself replays the journals of file systems, as the next \
            mount would; needs write-once. auto: only for file systems that `attach --mount` \
            mounts. on: for all; use it only without a write-back cache above the volume",
        cost: "each commit takes one sync instead of two",
    };

    ZERO = Row {
        name: "zero",
        kind: Kind::Switch,
        tier: Tier::Seldom,
        has: Has::All,
        default: "on",
        lab: Some("on"),
        doc: "a block of zeros is an entry of the map, and takes no room",
        cost: "nothing",
    };

    MAP_MEMORY = Row {
        name: "map-memory",
        kind: Kind::Size {
                range: 1 << 20..=1 << 40,
                step: 4 << 10,
                zero: Some("all"),
            },
        tier: Tier::Seldom,
        has: Has::Log,
        default: "16M",
        lab: None,
        doc: "memory for what says where blocks are: the map, and where pages are that several \
            blocks share. What does not fit is read from the medium when it is needed. By default it is \
            32M for more than 64 GiB, and 64M for more than 256 GiB",
        cost: "all takes 1 MiB for each GiB that is stored, and up to as much again where blocks share \
            pages; with less, an access far from the last ones costs a read or two more",
    };

    JOURNALS = Row {
        name: "journals",
        kind: Kind::Journals,
        tier: Tier::Seldom,
        has: Has::All,
        default: "none",
        lab: None,
        doc: "journals that the volume does not find by itself; they go before those that it \
            finds. A wrong one does no harm: bytes are compared",
        cost: "nothing",
    };

    PERSISTENCE = Row {
        name: "persistence",
        kind: Kind::Choice(&["weak", "strong"]),
        tier: Tier::Seldom,
        has: Has::Tables,
        default: "weak",
        lab: Some("weak"),
        doc: "when a write is answered: when it is in memory (durable after a flush, with FUA, or \
            within a second), or when it is durable",
        cost: "strong: every write waits for the medium",
    };

    WRITE_ONCE_OF_RESEARCH = Row {
        name: "write-once",
        kind: Kind::Choice(&["paper", "descriptor"]),
        tier: Tier::Research,
        has: Has::All,
        default: "on",
        lab: Some("off"),
        doc: "paper: as WOJ has it, several journal blocks with one hash are none, and with \
            hash=head64 unless another is named; descriptor: home addresses are read from the \
            journal's descriptor blocks (JFTL)",
        cost: "paper: copies whose hash is not unique are written again; descriptor: \
            each descriptor block is decoded",
    };

    HASH = Row {
        name: "hash",
        kind: Kind::Choice(&["xxh3", "head64", "crc32c", "md5", "sha1"]),
        tier: Tier::Research,
        has: Has::All,
        default: "xxh3",
        lab: None,
        doc: "the hash that proposes a journal's copy",
        cost: "md5, sha1: more processor time for each block; head64, crc32c: more \
            comparisons in vain",
    };

    DELTA_OF_RESEARCH = Row {
        name: "delta",
        kind: Kind::Choice(&["log"]),
        tier: Tier::Research,
        has: Has::Log,
        default: "on",
        lab: Some("off"),
        doc: "deltas in pages of their own for each block group, merged back when folded (CSA-FS)",
        cost: "a fold reads each block and its deltas",
    };

    SAMPLE = Row {
        name: "sample",
        kind: Kind::Size {
                range: 8 << 10..=128 << 10,
                step: 4096,
                zero: Some("off"),
            },
        tier: Tier::Research,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "dedup looks up one block of each unit of this size first: the one whose first four \
            bytes are the largest number. It looks up the others only if it finds that one",
        cost: "a unit's duplicates are stored again if its first look-up finds nothing",
    };

    STORE = Row {
        name: "store",
        kind: Kind::Choice(&[
                "compact",
                "caftl",
                "caftl-plain",
                "caftl-range",
                "caftl-hot",
                "caftl-hot-range",
                "caftl-value",
                "caftl-value-range",
            ]),
        tier: Tier::Research,
        has: Has::All,
        default: "compact",
        lab: Some("compact"),
        doc: "the index of contents: ours, or CAFTL's, whole and by each way to search it",
        cost: "caftl: a search of a bucket for each look-up",
    };

    DECIDE = Row {
        name: "decide",
        kind: Kind::Choice(&["compare", "blake3", "sha256", "sha1", "md5"]),
        tier: Tier::Research,
        has: Has::Log,
        default: "compare",
        lab: Some("compare"),
        doc: "what tells that two blocks are equal: their bytes, or a keyed fingerprint from a \
            content's third owner on",
        cost: "compare: a read of the stored block; else a fingerprint of the new one",
    };

    SEMANTICS = Row {
        name: "semantics",
        kind: Kind::Switch,
        tier: Tier::Research,
        has: Has::All,
        default: "off",
        lab: None,
        doc: "of an ext4, dedup learns data alone (CSA-FS)",
        cost: "a walk of the file system's inodes",
    };

    COMMIT_EVERY = Row {
        name: "commit-every",
        kind: Kind::Count(1..=1_000_000),
        tier: Tier::Research,
        has: Has::Tables,
        default: "off",
        lab: None,
        doc: "how many requests make a commit due (Dmdedup's flush interval)",
        cost: "a sync for each commit",
    };

    MERGING = Row {
        name: "merging",
        kind: Kind::Switch,
        tier: Tier::Research,
        has: Has::Tables,
        default: "on",
        lab: Some("on"),
        doc: "writes that no answer waits for are held back, and written together with others of \
            the same block (OrderMergeDedup)",
        cost: "what nobody flushes is durable up to 30 seconds later",
    };

    ANTICIPATION = Row {
        name: "anticipation",
        kind: Kind::Switch,
        tier: Tier::Research,
        has: Has::Tables,
        default: "on",
        lab: Some("on"),
        doc: "a commit is held back for a millisecond if more is likely to come (OrderMergeDedup)",
        cost: "a millisecond for a commit that nothing follows",
    };

    VICTIM = Row {
        name: "victim",
        kind: Kind::Choice(VictimPolicy::NAMES),
        tier: Tier::Research,
        has: Has::Log,
        default: "greedy",
        lab: Some("greedy"),
        doc: "how the collector chooses the segment to empty",
        cost: "processor time for each segment that is considered",
    };

    LAYOUT = Row {
        name: "layout",
        kind: Kind::Choice(&["log", "ordered", "shadow"]),
        tier: Tier::Lab,
        has: Has::All,
        default: "log",
        lab: Some("log"),
        doc: "where blocks go: into a log, or to tables in place, on a drive or a block device (of \
            a volume, `create --layout`)",
        cost: "ordered, shadow: writes of tables in place",
    };

    DEDUP_MEMORY_OF_LAB = Row {
        name: "dedup-memory",
        kind: Kind::Size {
            range: 4 << 10..=64 << 30,
            step: 1,
            zero: None,
        },
        tier: Tier::Lab,
        has: Has::All,
        default: "64M",
        lab: Some("64M"),
        doc: "smaller ones, for small drives",
        cost: "that memory",
    };

    FOLD_OF_LAB = Row {
        name: "fold",
        kind: Kind::Choice(&["now"]),
        tier: Tier::Lab,
        has: Has::Log,
        default: "on",
        lab: Some("off"),
        doc: "now: without waiting for clients, nor for room to be short",
        cost: "reads and writes while clients wait",
    };

    SWEEP = Row {
        name: "sweep",
        kind: Kind::Choice(&["off", "on", "now"]),
        tier: Tier::Lab,
        has: Has::Log,
        default: "off",
        lab: Some("off"),
        doc: "what is stored twice is looked for beside the clients, and once more at the end (of \
            a volume, `vellum sweep`); now: without waiting for them",
        cost: "reads of all that is stored",
    };

    ON_DRIVE = Row {
        name: "on-drive",
        kind: Kind::Switch,
        tier: Tier::Lab,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "above a drive with a page map, and not straight on flash",
        cost: "the drive's own collector moves blocks, too",
    };

    HANDLES = Row {
        name: "handles",
        kind: Kind::Switch,
        tier: Tier::Lab,
        has: Has::Log,
        default: "off",
        lab: Some("off"),
        doc: "on a drive with placement handles: what clients write, what the collector moves, and \
            the map have one each",
        cost: "a block of flash that is not full for each handle",
    };

    LEVEL_DYNAMIC = Row {
        name: "level-dynamic",
        kind: Kind::Switch,
        tier: Tier::Lab,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "of the drive below: new data goes to the block that was erased least",
        cost: "a search for the block that was erased least",
    };

    LEVEL_STATIC = Row {
        name: "level-static",
        kind: Kind::Switch,
        tier: Tier::Lab,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "of the drive below: a block that lags too far behind the others in erasures is \
            emptied",
        cost: "moves of data that no client has changed",
    };

    LEVEL_STATIC_BY = Row {
        name: "level-static",
        kind: Kind::Count(1..=100_000),
        tier: Tier::Lab,
        has: Has::All,
        default: "off",
        lab: Some("off"),
        doc: "by so many erasures",
        cost: "the smaller the number, the more is moved",
    };
}
