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

pub const BY_HASH: &str = "throughput of WOJ_xxh64 over WOJ_sha1, at most";

/// The name of the claim about the speed of a load.
pub fn speed_claim(load: &str) -> String {
    format!("WOJ_xxh64 at 1000 writes a flush, {load}")
}

/// The megabytes a second of WOJ with few flushes on the fast drive, as the paper states them.
pub const SPEEDS: [(&str, f64); 2] = [("random", 165.0), ("sequential", 290.0)];
