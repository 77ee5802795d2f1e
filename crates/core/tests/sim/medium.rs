//! The simulated medium: pristine blocks, a volatile cache over them, rot over both.
//!
//! What it may do to the core, and nothing else:
//!
//! | event | what becomes of a block |
//! | --- | --- |
//! | write carried out, not synced | kept aside; a power cut leaves any version that was written since the last sync, the one before, or a mixture of sectors of two of them |
//! | write in flight at a power cut | each of its blocks was written, torn, or not written |
//! | durable write completed | there for good |
//! | sync completed | every write *completed when the sync was asked for* is there for good; others may be |
//! | sync failed | what was in the cache reads as before and will never be synced; a power cut decides as before |
//! | cache dropped | what a failed sync left in it is decided now, as by a power cut; what else was in it is there for good |
//! | write failed or out of room | each of its blocks was written or not |
//! | erase of a segment | each of its blocks is blank or what it was |
//! | discard of blocks of tables | each of its blocks is blank, what it was, or garbage |
//! | rot | reads give other bytes until the block is written again |
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

/// Which bytes a token stands for, and what their sum is.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    sum: BlockSum,
    /// Behind it is its own CRC32C, as behind an ext4 superblock: so the CRC32C of all tokens' blocks is one and the same.
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
        // A token of zeros is a block of zeros; and what was torn has nobody's sum.
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

    /// The content that these bytes are: what looks like data is data, for bytes do not tell.
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

    /// What a client would take it for. Metadata is nobody's data, except when it is all zeros.
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

    /// Some sectors of `self`, some of `new`.
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

/// A rule of the table broken on purpose: the oracle must notice each.
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
    /// Now and then a read of data gives another block's bytes, and the sum that was hoped for.
    ReadLies,
    /// Every comparison finds the blocks equal: write-once journaling as the paper has it, which trusts. On volumes that have CRC32C
    /// for a checksum, all blocks have the same one: else it is the checksums that tell blocks apart.
    CompareTrusts,
    /// A block is discarded when an overwrite of it is asked for, before that is durable: too early.
    DiscardsEarly,
    /// A discard takes the block behind it as well.
    DiscardsMore,
    /// All blocks have one fingerprint.
    FingerprintsCollide,
    /// The cache is not dropped when it is asked for: an opening believes what a failed sync gave up.
    CacheStays,
    /// Blocks end with their own CRC32C, and are checked by their CRC32C: of an older volume.
    SumsAreLinear,
    /// Parities and second roots stay as they were written first.
    CopiesAreStale,
    /// A volume that grows has its first superblock before what that leads to.
    GrowsTooSoon,
    /// What a file system has given up is dropped, whether or not it was written again since.
    FreedIsBlind,
    /// The core is not told what is critical.
    CriticalIsForgotten,
    /// A scrub takes whatever it reads for good.
    ScrubTrusts,
    /// A scrub takes what is whole for bad, now and then.
    ScrubSuspects,
    /// A scrub mends from whatever was at an address at some time.
    MendsByPlace,
}

/// Bytes that are not what was written.
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
    /// Any of them, on a medium of so many blocks.
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
    /// A sync has failed with it: the page cache takes it for clean, and no sync writes it.
    given_up: bool,
}

#[derive(Clone)]
pub struct Medium {
    durable: Vec<Cell>,
    cache: BTreeMap<u64, Vec<Version>>,
    pub rot: BTreeMap<u64, Rot>,
    stamp: u64,
    /// Effects so far, over all lives: gives each its number.
    pub writes: u64,
    pub tokens: Tokens,
    pub broken: Broken,
    /// Where copies of what leads to data are.
    pub copies: Range<u64>,
    /// What whoever reads leaves of the map beside the driver sees of it.
    beside: Shown,
}

/// A medium as it is read by the core itself, while a driver writes it.
#[derive(Clone)]
pub struct Beside {
    cells: Arc<Mutex<Vec<Cell>>>,
    tokens: Tokens,
    /// Of so many reads one fails, and none of the others that a stripe takes. 0: none does.
    fails_each: u64,
    reads: Arc<AtomicU64>,
}

/// Who reads a medium beside its driver does not read its copies.
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

    /// From now on somebody reads it beside the driver; nobody does of its copies.
    pub fn read_beside(&mut self) -> Beside {
        let beside = Beside {
            cells: Arc::default(),
            tokens: self.tokens,
            // Where there is no parity, or a block is bad already, a leaf is told by nothing else.
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

    /// Nobody does any more.
    pub fn read_alone(&mut self) {
        self.beside = Shown(None);
    }

    /// All that is there has changed.
    fn show_beside(&self) {
        if let Some(beside) = &self.beside.0 {
            *beside.cells.lock().unwrap() = (0..self.blocks()).map(|at| self.read(at)).collect();
        }
    }

    pub fn blocks(&self) -> u64 {
        self.durable.len() as u64
    }

    /// It is longer from now on, or as short again.
    pub fn set_length(&mut self, blocks: u64) {
        self.durable.resize(blocks as usize, Cell::Blank);
        self.read_alone();
    }

    /// Writes for good, outside of any life.
    pub fn format(&mut self, at: u64, bytes: &[u8]) {
        for (i, block) in bytes.chunks_exact(BLOCK).enumerate() {
            self.durable[at as usize + i] = Cell::Meta(block.into());
        }
    }

    /// Puts something else into a block, as if it had been there before.
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

    /// What a read gives now.
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

    /// The same, as bytes.
    pub fn read_into(&self, at: u64, out: &mut [u8]) {
        self.read(at).fill(self.tokens, out);
    }

    /// Whether rot changes what a read of this block gives.
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

    /// A write carried out before has completed.
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

    /// Persists what had completed when the sync was asked for.
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

    /// The sync failed: the cache is taken for clean, and never written.
    pub fn sync_fails(&mut self) {
        for version in self.cache.values_mut().flatten() {
            version.done = u64::MAX;
            version.given_up = true;
        }
    }

    /// Whether something is only in the cache.
    pub fn is_cached(&self) -> bool {
        !self.cache.is_empty()
    }

    /// What is read from now on is what the medium has: it is synced, and what a failed sync left in the cache is dropped.
    pub fn drop_cache(&mut self, rng: &mut Rng) {
        self.sync(self.stamp, rng);
        if !self.cache.is_empty() && self.broken != Broken::CacheStays {
            self.lose_cache(rng);
        }
        self.show_beside();
    }

    /// The process dies and the machine does not: the cache stays, and counts as completed.
    pub fn process_dies(&mut self) {
        self.stamp += 1;
        for version in self.cache.values_mut().flatten() {
            version.done = version.done.min(self.stamp);
        }
    }

    /// Power fails: of what is not durable, any subset is kept.
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

    /// Of what is in the cache any subset stays, torn or whole.
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
                // Everything up to one write, or everything but what is before it.
                2 => versions.iter().rev().find(|v| v.effect <= cut),
                3 => versions.iter().rev().find(|v| v.effect >= cut),
                // One write lost, all others kept.
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
