//! The simulated medium: pristine blocks, a volatile cache over them, rot over both.
//!
//! It may do this to the core, and nothing else:
//!
//! | event | effect on a block |
//! | --- | --- |
//! | write carried out, not synced | kept aside; a power cut leaves any version written since the last sync, the one before, or a mixture of sectors of two of them |
//! | write in flight at a power cut | each of its blocks was written, torn, or not written |
//! | durable write completed | permanent |
//! | sync completed | every write *completed when the sync was requested* is permanent; others may be |
//! | sync failed | the contents of the cache read as before and will never be synced; a power cut decides as before |
//! | cache dropped | as at a power cut for what a failed sync left in the cache; the rest of the cache is permanent |
//! | write failed or out of room | each of its blocks was written or not |
//! | erase of a segment | each of its blocks is blank or unchanged |
//! | discard of blocks of tables | each of its blocks is blank, unchanged, or garbage |
//! | rot | reads return other bytes until the block is written again |
//! | read of a leaf beside the driver | fails now and then, never twice in a stripe |

use super::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use vellum_core::addr::Pba;
use vellum_core::format::superblock::Superblock;
use vellum_core::format::{BlockSum, SumKind};
use vellum_core::state::Nodes;

pub const BLOCK: usize = 4096;
const SECTOR: usize = 512;

/// A block's content. Data is a token: its bytes, and so its sum, are a pure function of it ([`Tokens`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Blank,
    Meta(Arc<[u8]>),
    Data(u32),
}

/// Tokens with this bit are never written by a client.
pub const GARBAGE: u32 = 1 << 31;

/// Maps tokens to bytes, and to their sums.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    sum: BlockSum,
    /// A block ends with its own CRC32C, as an ext4 superblock does, so the CRC32C of all tokens' blocks is the same.
    ends_with_crc: bool,
}

impl Tokens {
    pub fn of(superblock: &Superblock, broken: Broken) -> Self {
        let are_linear = superblock.sums() == SumKind::Crc32c;
        Self {
            sum: superblock.sum(crc32c::crc32c),
            ends_with_crc: !are_linear
                || matches!(broken, Broken::SumsAreLinear | Broken::CompareTrusts),
        }
    }

    fn fill(self, number: u32, out: &mut [u8]) {
        out.fill(0);
        let token = number.to_le_bytes();
        out[..4].copy_from_slice(&token);
        // The token 0 is a block of zeros; and garbage must not have a valid sum.
        if self.ends_with_crc && number != 0 && number & GARBAGE == 0 {
            out[4..8].copy_from_slice(&crc32c::crc32c(&token).to_le_bytes());
        }
    }

    /// The sum of a token's block.
    pub fn sum(self, token: u32) -> u32 {
        let mut bytes = [0; BLOCK];
        self.fill(token, &mut bytes);
        self.sum.of(&bytes)
    }

    /// The content that these bytes are. Bytes that look like data are data, because bytes alone do not tell.
    pub fn cell(self, bytes: &[u8]) -> Cell {
        let token = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut data = [0; BLOCK];
        self.fill(token, &mut data);
        match bytes == data {
            true => Cell::Data(token),
            false => Cell::Meta(bytes.into()),
        }
    }
}

impl Cell {
    pub fn fill(&self, tokens: Tokens, out: &mut [u8]) {
        match self {
            Self::Blank => out.fill(0),
            Self::Meta(bytes) => out.copy_from_slice(bytes),
            Self::Data(token) => tokens.fill(*token, out),
        }
    }

    /// The data that a client would take it for. Metadata is no client's data, except if it is all zeros.
    pub fn token(&self) -> u32 {
        match self {
            Self::Blank => 0,
            Self::Data(token) => *token,
            Self::Meta(bytes) => GARBAGE | (crc32c::crc32c(bytes) >> 1),
        }
    }

    pub fn sum(&self, tokens: Tokens) -> u32 {
        match self {
            Self::Meta(bytes) => tokens.sum.of(bytes),
            other => tokens.sum(other.token()),
        }
    }

    /// Some sectors of `self`, and some of `new`.
    fn torn(&self, new: &Self, tokens: Tokens, rng: &mut Rng) -> Self {
        if self == new {
            return new.clone();
        }
        if let (Self::Data(_) | Self::Blank, Self::Data(_) | Self::Blank) = (self, new) {
            return Self::Data(GARBAGE | rng.next() as u32);
        }
        let (mut bytes, mut other) = (vec![0; BLOCK], vec![0; BLOCK]);
        self.fill(tokens, &mut bytes);
        new.fill(tokens, &mut other);
        let mask = rng.range(1, 254);
        for sector in (0..BLOCK / SECTOR).filter(|s| mask >> s & 1 == 1) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            bytes[range.clone()].copy_from_slice(&other[range]);
        }
        tokens.cell(&bytes)
    }
}

/// A rule of the table that is broken on purpose. The oracle must notice each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    No,
    /// A sync completes and persists nothing.
    SyncPersistsNothing,
    /// A sync forgets one write in eight.
    SyncForgetsSome,
    /// A durable write is only cached.
    DurableIsCached,
    /// Now and then a power cut damages a block that was safe.
    CutDamages,
    /// Now and then a read of data returns another block's bytes, with the expected sum.
    ReadLies,
    /// Every comparison finds the blocks equal: write-once journaling as in the paper, which trusts hashes. On volumes with
    /// CRC32C sums all blocks have the same sum; otherwise the sums would tell the blocks apart.
    CompareTrusts,
    /// A block is discarded when an overwrite of it is requested, before that is durable: too early.
    DiscardsEarly,
    /// A discard also takes the block after it.
    DiscardsMore,
    /// All blocks have the same fingerprint.
    FingerprintsCollide,
    /// The cache is not dropped on request: an opening believes what a failed sync gave up.
    CacheStays,
    /// Blocks end with their own CRC32C, and their sums are CRC32C, as in an older volume.
    SumsAreLinear,
    /// Parities and second roots stay as they were first written.
    CopiesAreStale,
    /// A volume that grows writes its first superblock before what that leads to.
    GrowsTooSoon,
    /// A volume shrinks without a look at what lies behind its new end.
    ShrinksBlindly,
    /// A medium becomes shorter, and nothing is moved before.
    ShortensBlindly,
    /// Blocks that a file system has freed are dropped even if they were written again since.
    FreedIsBlind,
    /// The core does not learn what is critical.
    CriticalIsForgotten,
    /// A scrub accepts whatever it reads.
    ScrubTrusts,
    /// A scrub now and then reports a whole block as bad.
    ScrubSuspects,
    /// A scrub mends a block from anything that was at its address at some time.
    MendsByPlace,
    /// A recovery gets the first record of this kind wrong in each chunk.
    Mistakes(u8),
    /// A recovery takes a torn block for the one that was written.
    TornIsWhole,
    /// A power cut leaves a count of owners that is too low.
    CountsTooLow,
    /// A volume that was full refuses everything from then on.
    FullIsDead,
    /// Room that became free is not used again.
    RoomIsLost,
}

/// Bytes that differ from what was written.
#[derive(Clone, Copy, Debug)]
pub enum Rot {
    /// One bit differs.
    Flip(u16),
    /// Zeros.
    Zeroed,
    /// Another block's content: a misdirected read or write.
    Other(u64),
}

impl Rot {
    /// Random rot, on a medium of so many blocks.
    pub fn any(rng: &mut Rng, blocks: u64) -> Self {
        match rng.below(4) {
            0 => Self::Zeroed,
            1 => Self::Other(rng.below(blocks)),
            _ => Self::Flip(rng.below(4096 * 8) as u16),
        }
    }
}

#[derive(Clone)]
struct Version {
    cell: Cell,
    effect: u64,
    /// When its write completed; `u64::MAX` while it has not.
    done: u64,
    /// A sync with it has failed: the page cache takes it for clean, and no sync writes it.
    given_up: bool,
}

#[derive(Clone)]
pub struct Medium {
    durable: Vec<Cell>,
    cache: BTreeMap<u64, Vec<Version>>,
    pub rot: BTreeMap<u64, Rot>,
    stamp: u64,
    /// Effects so far, over all lives; each gets its number from this.
    pub writes: u64,
    pub tokens: Tokens,
    pub broken: Broken,
    /// Where the copies of metadata are.
    pub copies: Range<u64>,
    /// What others see of it: those that read leaves of the map beside the driver.
    beside: Shown,
}

/// A medium that the core itself reads, while a driver writes it.
#[derive(Clone)]
pub struct Beside {
    cells: Arc<Mutex<Vec<Cell>>>,
    tokens: Tokens,
    /// One read in so many fails, and the other reads of its stripe succeed. 0: none fails.
    fails_each: u64,
    reads: Arc<AtomicU64>,
}

/// A clone of a medium is not read beside its driver.
#[derive(Default)]
struct Shown(Option<Beside>);

impl Clone for Shown {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl Nodes for Beside {
    fn read(&self, at: Pba, block: &mut [u8; BLOCK]) -> bool {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        if self.fails_each > 0 && reads.is_multiple_of(self.fails_each) {
            return false;
        }
        let cells = self.cells.lock().unwrap();
        cells[at.0 as usize].fill(self.tokens, block);
        true
    }
}

impl Medium {
    pub fn new(blocks: u64, tokens: Tokens, broken: Broken) -> Self {
        Self {
            durable: vec![Cell::Blank; blocks as usize],
            cache: BTreeMap::new(),
            rot: BTreeMap::new(),
            stamp: 0,
            writes: 0,
            tokens,
            broken,
            copies: 0..0,
            beside: Shown::default(),
        }
    }

    /// Lets the core read the medium beside the driver from now on, but not its clones.
    pub fn read_beside(&mut self) -> Beside {
        let beside = Beside {
            cells: Arc::default(),
            tokens: self.tokens,
            // Without parities, or with a bad block already, a leaf that cannot be read may be lost.
            fails_each: match self.copies.is_empty() || !self.rot.is_empty() {
                true => 0,
                false => 37,
            },
            reads: Arc::default(),
        };
        self.beside = Shown(Some(beside.clone()));
        self.show_beside();
        beside
    }

    /// Ends reading beside the driver.
    pub fn read_alone(&mut self) {
        self.beside = Shown(None);
    }

    /// Shows the readers beside the driver that all contents have changed.
    fn show_beside(&self) {
        if let Some(beside) = &self.beside.0 {
            *beside.cells.lock().unwrap() = (0..self.blocks()).map(|at| self.read(at)).collect();
        }
    }

    pub fn blocks(&self) -> u64 {
        self.durable.len() as u64
    }

    /// Changes its length.
    pub fn set_length(&mut self, blocks: u64) {
        self.durable.resize(blocks as usize, Cell::Blank);
        self.cache.retain(|&at, _| at < blocks);
        self.rot.retain(|&at, _| at < blocks);
        self.read_alone();
    }

    /// Writes permanently, outside of any life.
    pub fn format(&mut self, at: u64, bytes: &[u8]) {
        for (i, block) in bytes.chunks_exact(BLOCK).enumerate() {
            self.durable[at as usize + i] = Cell::Meta(block.into());
        }
    }

    /// Replaces the contents of a block, as if the new ones had always been there.
    pub fn replace(&mut self, at: u64, cell: Cell) {
        self.cache.remove(&at);
        self.durable[at as usize] = cell;
    }

    fn pristine(&self, at: u64) -> &Cell {
        match self.cache.get(&at).and_then(|versions| versions.last()) {
            Some(version) => &version.cell,
            None => &self.durable[at as usize],
        }
    }

    /// The contents that a read returns now.
    pub fn read(&self, at: u64) -> Cell {
        let cell = self.pristine(at);
        match self.rot.get(&at) {
            None => cell.clone(),
            Some(Rot::Zeroed) => Cell::Blank,
            Some(Rot::Other(other)) => self.pristine(*other).clone(),
            Some(Rot::Flip(bit)) => {
                let mut bytes = vec![0; BLOCK];
                cell.fill(self.tokens, &mut bytes);
                bytes[*bit as usize / 8] ^= 1 << (bit % 8);
                Cell::Meta(bytes.into())
            }
        }
    }

    /// The contents that a read returns now, as bytes.
    pub fn read_into(&self, at: u64, out: &mut [u8]) {
        self.read(at).fill(self.tokens, out);
    }

    /// True if rot changes what a read of this block returns.
    pub fn is_rotten(&self, at: u64) -> bool {
        self.rot.contains_key(&at) && self.read(at) != *self.pristine(at)
    }

    pub fn is_data(&self, at: u64) -> bool {
        matches!(self.pristine(at), Cell::Data(_))
    }

    pub fn is_blank(&self, at: u64) -> bool {
        matches!(self.pristine(at), Cell::Blank)
    }

    /// A number greater than that of every completion so far.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Carries out one block of a write.
    pub fn write(&mut self, at: u64, cell: Cell, effect: u64) {
        let is_copy = self.copies.contains(&at) && !self.is_blank(at);
        if is_copy && self.broken == Broken::CopiesAreStale {
            return;
        }
        self.rot.remove(&at);
        if let Some(beside) = &self.beside.0 {
            beside.cells.lock().unwrap()[at as usize] = cell.clone();
        }
        self.cache.entry(at).or_default().push(Version {
            cell,
            effect,
            done: u64::MAX,
            given_up: false,
        });
    }

    /// Notes that a write carried out earlier has completed.
    pub fn complete(&mut self, at: u64, blocks: u64, effect: u64, durable: bool) {
        self.stamp += 1;
        for block in at..at + blocks {
            let Some(versions) = self.cache.get_mut(&block) else {
                continue;
            };
            let Some(index) = versions.iter().rposition(|v| v.effect == effect) else {
                continue;
            };
            versions[index].done = self.stamp;
            if durable && self.broken != Broken::DurableIsCached {
                self.durable[block as usize] = versions[index].cell.clone();
                versions.drain(..=index);
                if versions.is_empty() {
                    self.cache.remove(&block);
                }
            }
        }
    }

    /// Makes permanent what had completed when the sync was requested.
    pub fn sync(&mut self, asked: u64, rng: &mut Rng) {
        if self.broken == Broken::SyncPersistsNothing {
            return;
        }
        let forgets = self.broken == Broken::SyncForgetsSome;
        let durable = &mut self.durable;
        self.cache.retain(|&at, versions| {
            if let Some(index) = versions
                .iter()
                .rposition(|v| v.done <= asked && !v.given_up)
                && !(forgets && rng.below(8) == 0)
            {
                durable[at as usize] = versions[index].cell.clone();
                versions.drain(..=index);
            }
            !versions.is_empty()
        });
    }

    /// Fails a sync: the cache is taken for clean, and never written.
    pub fn sync_fails(&mut self) {
        for version in self.cache.values_mut().flatten() {
            version.done = u64::MAX;
            version.given_up = true;
        }
    }

    /// True if something is only in the cache.
    pub fn is_cached(&self) -> bool {
        !self.cache.is_empty()
    }

    /// Drops the cache: from now on reads return what the medium has. It is synced, and what a failed sync left in the cache is
    /// dropped.
    pub fn drop_cache(&mut self, rng: &mut Rng) {
        self.sync(self.stamp, rng);
        if !self.cache.is_empty() && self.broken != Broken::CacheStays {
            self.lose_cache(rng);
        }
        self.show_beside();
    }

    /// The process dies and the machine does not: the cache stays, and its writes count as completed.
    pub fn process_dies(&mut self) {
        self.stamp += 1;
        for version in self.cache.values_mut().flatten() {
            version.done = version.done.min(self.stamp);
        }
    }

    /// The power fails: any subset of what is not durable is kept.
    pub fn power_fails(&mut self, rng: &mut Rng) {
        self.rot.clear();
        self.lose_cache(rng);
        if self.broken == Broken::CutDamages && rng.percent(30) {
            let at = rng.below(self.blocks());
            if self.durable[at as usize] != Cell::Blank {
                self.durable[at as usize] = Cell::Data(GARBAGE | rng.next() as u32);
            }
        }
    }

    /// Keeps any subset of the cache, torn or whole.
    fn lose_cache(&mut self, rng: &mut Rng) {
        let mode = rng.below(8);
        let cut = self
            .cache
            .values()
            .flatten()
            .map(|v| v.effect)
            .max()
            .unwrap_or(0);
        let low = self
            .cache
            .values()
            .flatten()
            .map(|v| v.effect)
            .min()
            .unwrap_or(0);
        let cut = rng.range(low, cut);
        let torn_percent = rng.pick(&[0, 0, 5, 40]);
        for (at, versions) in std::mem::take(&mut self.cache) {
            let kept = match mode {
                0 => None,
                1 => versions.last(),
                // Everything up to one write, or everything but the writes before it.
                2 => versions.iter().rev().find(|v| v.effect <= cut),
                3 => versions.iter().rev().find(|v| v.effect >= cut),
                // Everything but one write.
                4 => versions.iter().rev().find(|v| v.effect != cut),
                _ => versions.get(rng.below(versions.len() as u64 + 1) as usize),
            };
            let old = &self.durable[at as usize];
            let kept = match kept {
                Some(version) if rng.percent(torn_percent) => {
                    old.torn(&version.cell, self.tokens, rng)
                }
                Some(version) => version.cell.clone(),
                None => continue,
            };
            self.durable[at as usize] = kept;
        }
    }
}
