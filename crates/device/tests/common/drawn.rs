//! Options that each life draws, so that what holds under one policy is tried under all, and what these policies then did.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::{Random, alike, small, superblock_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_core::seam::WriteOnce;
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy};
use vellum_device::{OpenOptions, StopError, Volume, limits};
use vellum_medium::Medium;

/// The rows of the table.
#[derive(Clone, Copy, Debug)]
pub enum Drawn {
    /// Nothing is done with what is written.
    Nothing,
    /// What a user gets, with the replay that `attach --mount` switches on.
    Usual,
    /// And everything else.
    Everything,
    /// Everything, and few leaves of the map stay in memory.
    Evicted,
    /// Everything, with the least memory for it.
    Tiny,
}

impl Drawn {
    const ALL: [Self; 5] = [
        Self::Usual,
        Self::Evicted,
        Self::Everything,
        Self::Tiny,
        Self::Nothing,
    ];

    /// The row of an opening: each row comes up as often as the others.
    pub fn of(number: u64) -> Self {
        Self::ALL[(number % Self::ALL.len() as u64) as usize]
    }

    fn policy(self, medium: &dyn Medium, random: &mut Random) -> Policy {
        let nothing = Policy {
            write_once: WriteOnce::Off,
            zero: false,
            fold: false,
            ..Policy::default()
        };
        let usual = Policy {
            replay: true,
            ..Policy::usual(&superblock_of(medium))
        };
        let of_two = |random: &mut Random| random.below(2) as usize;
        match self {
            Self::Nothing => nothing,
            Self::Usual => usual,
            _ => Policy {
                compression: [Compression::ZSTD, Compression::Lz4][of_two(random)],
                deltas: [Deltas::Packed, Deltas::Log][of_two(random)],
                dedup: true,
                semantics: random.below(4) == 0,
                freed: true,
                ..usual
            },
        }
    }

    /// Its options, with a choice of what is left open.
    pub fn options(self, medium: &dyn Medium, random: &mut Random) -> OpenOptions {
        let mut options = OpenOptions {
            policy: self.policy(medium, random),
            ..small()
        };
        match self {
            Self::Evicted => options.map_leaves = Some(random.below(3) as usize),
            Self::Tiny => {
                options.map_leaves = Some(0);
                options.cached_sums = Some(1);
                options.policy.index_bytes = limits::INDEX_BYTES_MIN;
            }
            _ => {}
        }
        options
    }

    /// Opens a volume under them.
    pub fn open(self, medium: &Arc<dyn Medium>, random: &mut Random) -> Arc<Volume> {
        let options = self.options(&**medium, random);
        Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
    }
}

/// New contents for a run of blocks: some like those that they replace, some that others have, and the rest unlike any other.
pub fn contents(random: &mut Random, lba: u64, blocks: u64, fresh: u64) -> Vec<u64> {
    let kind = random.below(8);
    let blocks = 0..blocks;
    match kind {
        0..4 => blocks
            .map(|n| alike((lba + n) / 3 % 50, fresh + n))
            .collect(),
        4 => blocks.map(|n| 7 + (lba + n) % 3).collect(),
        _ => blocks.map(|n| fresh + n).collect(),
    }
}

/// What volumes counted, in all their lives.
#[derive(Debug, Default)]
pub struct Counted(BTreeMap<&'static str, u64>);

impl Counted {
    /// What each policy counts when it has done something.
    const ALL: [&'static str; 8] = [
        "delta_blocks",
        "packed_blocks",
        "dedup_blocks",
        "remapped_blocks",
        "pledged_blocks",
        "redeemed_blocks",
        "leaves_read",
        "collections",
    ];

    /// Adds what a volume has counted since it was opened. To be called before it is dropped.
    pub fn add(&mut self, volume: &Volume) {
        let stats = volume.stats();
        for name in Self::ALL {
            *self.0.entry(name).or_default() += stats.core[name];
        }
    }

    /// Checks that each of these things happened. How often depends on how soon a file system is found.
    pub fn has_seen(&self, names: &[&str]) {
        for name in names {
            assert!(self.0[name] > 0, "no {name}: {self:?}");
        }
    }

    /// The same, if there were as many lives as by default.
    pub fn has_seen_in(&self, lives: u64, names: &[&str]) {
        let lived = seeds(lives);
        if lived.end - lived.start >= lives {
            self.has_seen(names);
        }
    }

    /// What contents alone bring about.
    pub const CONTENTS: [&'static str; 3] = ["delta_blocks", "packed_blocks", "dedup_blocks"];

    /// What needs no file system on the volume.
    pub const PLAIN: [&'static str; 4] = [
        "delta_blocks",
        "packed_blocks",
        "dedup_blocks",
        "leaves_read",
    ];

    /// What needs one.
    pub const JOURNALED: [&'static str; 3] =
        ["remapped_blocks", "pledged_blocks", "redeemed_blocks"];
}

/// Checks that a volume has ended because its power failed, and for no other reason.
pub fn has_lost_power(volume: &Volume) {
    let ended = volume.stop();
    assert!(!matches!(ended, Err(StopError::Internal)), "{ended:?}");
}

/// A number that the user may set.
pub fn from_env(name: &str, or: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(or, |value| value.parse().expect("a number"))
}

/// The seeds of a test's lives: `VELLUM_LIVES` many, from `VELLUM_SEED` on.
pub fn seeds(lives: u64) -> std::ops::Range<u64> {
    let is_long = std::env::var_os("VELLUM_LONG").is_some();
    let first = from_env("VELLUM_SEED", 0);
    first..first + from_env("VELLUM_LIVES", if is_long { 10 * lives } else { lives })
}
