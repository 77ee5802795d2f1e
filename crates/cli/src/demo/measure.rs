//! Counters before and after, for both kinds of server.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// The causes of writes to the medium, by the volume's counters.
pub const CAUSES: [(&str, &str); 5] = [
    ("/medium/data_bytes", "data"),
    ("/medium/header_bytes", "chunk headers"),
    ("/medium/moved_bytes", "collector"),
    ("/medium/summary_bytes", "segment summaries"),
    ("/medium/map_bytes", "map checkpoints"),
];

/// The traffic of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes that the host wrote.
    pub host: u64,
    /// Bytes written to the medium, by cause.
    pub medium: [u64; CAUSES.len()],
    /// Flushes that the host sent.
    pub flushes: u64,
    /// Syncs of the medium.
    pub syncs: u64,
    /// Commits of the file system's journal; 0 if they are not counted.
    pub commits: u64,
    /// Blocks written home, and how many of them were mapped to their journal copy instead.
    pub home_writes: u64,
    /// See `home_writes`.
    pub remapped: u64,
    /// Blocks stored in a part of a page.
    pub packed: u64,
}

impl Counters {
    /// Reads them from a server's statistics.
    pub fn of(stats: &Value) -> Option<Self> {
        let get = |path: &str| stats.pointer(path).and_then(Value::as_u64);
        let mut medium = [0; CAUSES.len()];
        for (bytes, (path, _)) in medium.iter_mut().zip(CAUSES) {
            *bytes = get(path)?;
        }
        Some(Self {
            host: get("/clients/write/bytes")?,
            medium,
            flushes: get("/clients/flush/requests")?,
            syncs: get("/medium/syncs")? + get("/medium/durable_writes")?,
            commits: get("/write_once/commits")?,
            // A plain file has no such counters.
            home_writes: get("/core/home_writes").unwrap_or(0),
            remapped: get("/core/remapped_blocks").unwrap_or(0),
            packed: get("/core/packed_blocks").unwrap_or(0),
        })
    }

    /// Queries a server.
    pub fn ask(control: &Path) -> Result<Self> {
        Self::of(&crate::control::stats_of_one(control)?)
            .context("the server's statistics lack a counter")
    }

    /// The difference since then.
    pub fn since(&self, before: &Self) -> Self {
        let mut medium = self.medium;
        medium
            .iter_mut()
            .zip(before.medium)
            .for_each(|(now, was)| *now = now.saturating_sub(was));
        Self {
            host: self.host.saturating_sub(before.host),
            medium,
            flushes: self.flushes.saturating_sub(before.flushes),
            syncs: self.syncs.saturating_sub(before.syncs),
            commits: self.commits.saturating_sub(before.commits),
            home_writes: self.home_writes.saturating_sub(before.home_writes),
            remapped: self.remapped.saturating_sub(before.remapped),
            packed: self.packed.saturating_sub(before.packed),
        }
    }

    /// All bytes written to the medium.
    pub fn medium_bytes(&self) -> u64 {
        self.medium.iter().sum()
    }
}

/// One application's run.
#[derive(Clone, Debug)]
pub struct Lap {
    /// What it did.
    pub name: String,
    /// How many operations.
    pub operations: u64,
    /// How long they took.
    pub time: Duration,
}

/// A column of the table.
pub struct Column {
    /// Its title.
    pub title: [&'static str; 2],
    /// Its runs.
    pub laps: Vec<Lap>,
    /// What they cost.
    pub counters: Counters,
}
