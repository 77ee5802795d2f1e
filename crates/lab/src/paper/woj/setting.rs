//! The paper's setting: its drives, its systems, its journal, and what the lab lacks of its machine.

pub const DRIVES: [&str; 3] = ["fast-ssd", "moderate-ssd", "slow-ssd"];
/// The paper's name, and ours.
pub const SYSTEMS: [(&str, &str); 4] = [
    ("No_Dedup_DJ", "base"),
    ("WOJ_xxh64", "woj"),
    ("Dmdedup_sha1", "dmdedup"),
    ("the engine", "vellum:zero=off,write-once"),
];
/// 256 MB, as in the paper.
pub const JOURNAL_BLOCKS: u64 = 65_536;

/// Why times differ.
pub const NO_KERNEL: &str = "the lab has no kernel: neither page cache, nor system calls, nor device mapper \
take time, so the drive and the hash decide alone, and the systems lie further apart than on the paper's \
machine";
