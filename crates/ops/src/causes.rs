//! What the medium got, and what it was spared, by cause: which counters tell it, and what people call it.

/// Why the medium got bytes.
pub struct Cause {
    /// In a figure.
    pub name: &'static str,
    /// In a line with others.
    pub short: &'static str,
    /// The counters whose sum it is, in bytes.
    pub counters: &'static [&'static str],
}

/// All causes: together they are what the medium got.
pub const CAUSES: &[Cause] = &[
    Cause {
        name: "data",
        short: "data",
        counters: &["medium.data_bytes"],
    },
    Cause {
        name: "headers of the log",
        short: "headers",
        counters: &["medium.header_bytes"],
    },
    Cause {
        name: "moved by the collector",
        short: "collector",
        counters: &["medium.moved_bytes"],
    },
    Cause {
        name: "summaries of segments",
        short: "summaries",
        counters: &["medium.summary_bytes"],
    },
    Cause {
        name: "map",
        short: "map",
        counters: &[
            "medium.map_bytes",
            "medium.link_bytes",
            "medium.directory_bytes",
        ],
    },
    Cause {
        name: "tables",
        short: "tables",
        counters: &[
            "medium.count_bytes",
            "medium.fingerprint_bytes",
            "medium.edition_bytes",
        ],
    },
];

/// Why a block was not written at all: what people call it, and the counter, in blocks. Zeros are not among them: their
/// counter has what a client asked to be zeroed, too, which it did not write.
pub const SPARED: &[(&str, &str)] = &[
    ("in a journal already", "core.remapped_blocks"),
    ("stored already", "core.dedup_blocks"),
    ("overwritten in memory", "core.absorbed_blocks"),
];
