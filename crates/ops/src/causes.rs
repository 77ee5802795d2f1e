//! The bytes written to the medium, and the writes it was spared, by cause: the counters for each, and its name for people.

/// A reason for writing bytes to the medium.
pub struct Cause {
    /// Its name in a figure.
    pub name: &'static str,
    /// Its name in a list on one line.
    pub short: &'static str,
    /// The counters that add up to it, in bytes.
    pub counters: &'static [&'static str],
}

/// All causes. Together they account for every byte written to the medium.
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

/// The reasons for not writing a block at all: a name for people, and the counter, in blocks. Zeros are not listed, because their
/// counter also includes blocks that a client asked to zero, which it did not write.
pub const SPARED: &[(&str, &str)] = &[
    ("in a journal already", "core.remapped_blocks"),
    ("stored already", "core.dedup_blocks"),
    ("overwritten in memory", "core.absorbed_blocks"),
];
