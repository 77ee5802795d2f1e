//! What a volume does with what is written to it. The user chooses it at opening, and can change it at any time.

use crate::compression::{Alone, Compression};
use crate::limits::{INDEX_BLOCK_BYTES, INDEX_BYTES_MIN, SWEEP_RATE};
pub use crate::names::UnknownName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Commits, Decide, DedupPolicy, IndexKind, WriteOnce};
pub use vellum_policies::words::Deltas;
use vellum_watch::Wants;

/// The weak hash by which write-once journaling looks for a block's copy (WOJ §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeakHash {
    /// XXH3 of the whole block, seeded with the volume's secret.
    #[default]
    Xxh3,
    /// XXH64 of the first 64 bytes: the paper's choice.
    Head64,
    /// CRC32C, for comparison; older volumes compute it for every block anyway.
    Crc32c,
    /// MD5, for comparison.
    Md5,
    /// SHA-1, for comparison.
    Sha1,
}

impl WeakHash {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Xxh3,
        Self::Head64,
        Self::Crc32c,
        Self::Md5,
        Self::Sha1,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Xxh3 => "xxh3",
            Self::Head64 => "head64",
            Self::Crc32c => "crc32c",
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
        }
    }
}

impl fmt::Display for WeakHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeakHash {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL
            .into_iter()
            .find(|hash| hash.name() == name)
            .ok_or(UnknownName)
    }
}

/// A strong hash, keyed with the volume's secret, that stands for a block's bytes when blocks are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PrintHash {
    /// BLAKE3, keyed.
    Blake3,
    /// SHA-256 of the secret and the block.
    Sha256,
    /// SHA-1 (CAFTL's), the same way.
    Sha1,
    /// MD5 (CSA-FS's), the same way.
    Md5,
}

impl PrintHash {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Blake3, Self::Sha256, Self::Sha1, Self::Md5];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Sha1 => "sha1",
            Self::Md5 => "md5",
        }
    }
}

/// The name of what decides that two blocks are equal: a hash, or `compare` for their bytes.
#[must_use]
pub fn decide_name(print: Option<PrintHash>) -> &'static str {
    print.map_or("compare", PrintHash::name)
}

/// The inverse of [`decide_name`].
///
/// # Errors
/// When the name is unknown.
pub fn decide_named(name: &str) -> Result<Option<PrintHash>, UnknownName> {
    let all = PrintHash::ALL.into_iter().map(Some).chain([None]);
    all.into_iter()
        .find(|print| decide_name(*print) == name)
        .ok_or(UnknownName)
}

/// The policies in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What to do about blocks that a journal holds already.
    pub write_once: WriteOnce,
    /// The hash by which their copies are found.
    pub hash: WeakHash,
    /// Whether blocks of zeros are stored as a map entry alone.
    pub zero: bool,
    /// How blocks are made smaller.
    pub compression: Compression,
    /// Whether a block that replaces another one is stored as its difference to it, if that is much shorter (CSA-FS).
    pub deltas: Deltas,
    /// Whether the volume itself replays journals after a crash; then the flush after home writes is free.
    pub replay: bool,
    /// Whether contents that are stored already are shared instead of stored again.
    pub dedup: bool,
    /// Memory of the index of contents.
    pub index_bytes: u64,
    /// One of this many blocks is looked up first, and the others only if that one was found; 0: all are looked up.
    pub sample_blocks: u32,
    /// Which index of contents.
    pub store: IndexKind,
    /// Whether the volume folds sparse pages by itself when little room is free. Without parts of pages there are none.
    pub fold: bool,
    /// Blocks a second that a sweep may read; 0: as many as it can.
    pub sweep_blocks: u32,
    /// The hash that decides whether a block equals a stored one; `None`: their bytes decide.
    pub fingerprint: Option<PrintHash>,
    /// Whether the index learns only contents of data, not of a file system's metadata and journal (CSA-FS §3).
    pub semantics: bool,
    /// Whether blocks that a mounted ext4 has freed are dropped without its discard.
    pub freed: bool,
    /// When changes of tables become durable, on a layout that has them (`ordered`, `shadow`).
    pub commits: Commits,
}

/// Why the volume cannot have an index of contents as large as the policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIndex {
    /// It would take memory from other programs, or end this one.
    #[error(
        "an index of contents of {wanted} bytes takes more than the {available} bytes of memory that are \
         available: choose a smaller one (dedup-memory=)"
    )]
    TooLarge {
        /// Its bytes.
        wanted: u64,
        /// The bytes that the system reports as available.
        available: u64,
    },
    /// The system does not give this process that much.
    #[error(
        "the system has no memory for an index of contents of {wanted} bytes: choose a smaller one \
         (dedup-memory=), or raise the limit of this process"
    )]
    Refused {
        /// Its bytes.
        wanted: u64,
    },
}

impl NoIndex {
    /// Checks that an index of so many bytes fits in the memory that is available.
    pub(crate) fn check(wanted: u64, available: Option<u64>) -> Result<(), Self> {
        match available {
            Some(available) if wanted > available => Err(Self::TooLarge { wanted, available }),
            _ => Ok(()),
        }
    }

    /// A smaller size to try: half of what is available, or of what was wanted.
    pub(crate) fn smaller(self) -> Option<u64> {
        let bytes = match self {
            Self::TooLarge { available, .. } => available / 2,
            Self::Refused { wanted } => wanted / 2,
        };
        (bytes >= INDEX_BYTES_MIN).then_some(bytes)
    }
}

/// What every volume can do, whatever its layout and age.
impl Default for Policy {
    fn default() -> Self {
        Self {
            write_once: WriteOnce::Hash,
            hash: WeakHash::default(),
            zero: true,
            compression: Compression::Off,
            deltas: Deltas::Off,
            replay: false,
            dedup: false,
            index_bytes: 64 << 20,
            sample_blocks: 0,
            store: IndexKind::default(),
            fold: true,
            sweep_blocks: SWEEP_RATE,
            fingerprint: None,
            semantics: false,
            freed: false,
            commits: Commits::default(),
        }
    }
}

impl Policy {
    /// The default: what wears the medium least without making an fsync wait, as far as the volume can do it (decision 0025).
    #[must_use]
    pub fn usual(superblock: &Superblock) -> Self {
        if superblock.layout() != Layout::Log {
            return Self::default();
        }
        Self {
            compression: Compression::ZSTD,
            deltas: match superblock.delta_leaves() {
                0 => Deltas::Off,
                _ => Deltas::Packed,
            },
            ..Self::default()
        }
    }

    /// What the scout has to find out about clients' file systems.
    pub(crate) fn wants(&self) -> Wants {
        Wants {
            write_once: self.write_once,
            // Replay needs the journals' blocks to be known.
            replay: self.replay && self.write_once != WriteOnce::Off,
            deltas: self.deltas.are_made(),
            dedup: self.shares(),
        }
    }

    /// True if a block may share the page of any other one: then what must stay apart has to be found before.
    pub(crate) fn shares(&self) -> bool {
        self.dedup
    }

    /// True if blocks by themselves are stored in fewer bytes.
    pub(crate) fn packs(&self) -> bool {
        Alone::new(self.compression, self.deltas.are_made()).is_any()
    }

    /// The deduplication of a volume of so many blocks, as the core takes it.
    pub(crate) fn core_dedup(&self, blocks: u64) -> DedupPolicy {
        let bytes = match self.dedup {
            true => self
                .index_bytes
                .min(blocks.saturating_mul(INDEX_BLOCK_BYTES)),
            false => 0,
        };
        DedupPolicy {
            index_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            sample_blocks: self.sample_blocks,
            store: self.store,
            semantics: self.semantics,
            decide: match self.fingerprint {
                Some(print) => Decide::Fingerprint(print as u8),
                None => Decide::Compare,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_no_larger_than_what_is_available() {
        let too_large = NoIndex::TooLarge {
            wanted: 11,
            available: 10,
        };
        assert_eq!(NoIndex::check(11, Some(10)), Err(too_large));
        assert_eq!(NoIndex::check(10, Some(10)), Ok(()));
        assert_eq!(NoIndex::check(11, None), Ok(()));
        // Smaller each time, and given up in the end.
        let steps =
            std::iter::successors(NoIndex::Refused { wanted: 64 << 30 }.smaller(), |&wanted| {
                NoIndex::Refused { wanted }.smaller()
            });
        assert_eq!(steps.last(), Some(INDEX_BYTES_MIN));
        let little = NoIndex::TooLarge {
            wanted: 1 << 30,
            available: 100 << 20,
        };
        assert_eq!(little.smaller(), Some(50 << 20));
    }

    #[test]
    fn names_lead_back() {
        for hash in WeakHash::ALL {
            assert_eq!(hash.name().parse(), Ok(hash));
        }
        for print in PrintHash::ALL.into_iter().map(Some).chain([None]) {
            assert_eq!(decide_named(decide_name(print)), Ok(print));
        }
        assert_eq!(decide_named("crc32c"), Err(UnknownName));
        assert_eq!("crc".parse::<WeakHash>(), Err(UnknownName));
    }
}
