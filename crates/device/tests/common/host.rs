//! A client with a file system that journals, on a volume with snapshots and clones: what it may do, one act after the other.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::{self, Client, Random, block_of, create_keeping, wait_for};
use crate::drawn::contents;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_device::block::{BlockDevice, BlockError, Op, Request};
use vellum_device::{SnapshotError, Volume, crc32c};
use vellum_medium::{FaultMedium, Medium, Plan};

#[path = "../../../../fuzz/src/ext4.rs"]
#[allow(dead_code, unused_imports, reason = "one part of it is used")]
mod ext4;
#[path = "log.rs"]
mod log;

/// Blocks that clients see: all of the file system.
pub const SIZE: u64 = 4096;
/// The place of the journal, and the blocks of it that are used.
pub const JOURNAL: u64 = 68;
pub const USED: u64 = 120;
/// Blocks that the journal commits.
pub const HOMES: std::ops::Range<u64> = 1400..1424;
/// Blocks that it does not.
pub const FILES: std::ops::Range<u64> = 1424..1480;
/// Blocks that only fill the log.
pub const FILLER: std::ops::Range<u64> = 2000..2100;
/// What is compared.
pub const SHOWN: [std::ops::Range<u64>; 3] = [0..200, 1390..1490, FILLER];

/// Sums of all blocks that are compared.
pub type Sums = BTreeMap<u64, u32>;

pub fn sums<D: BlockDevice>(device: &Arc<D>) -> Sums {
    try_sums(device).unwrap()
}

pub fn try_sums<D: BlockDevice>(device: &Arc<D>) -> Result<Sums, BlockError> {
    let mut client = Client::new(device);
    let mut found = Sums::new();
    for lba in SHOWN.into_iter().flatten().step_by(10) {
        let request = client.try_request(Op::Read, lba, 10)?;
        let read = client.call(request)?;
        let blocks = (0..10).map(|n| crc32c(read.frames.block(n)));
        found.extend((lba..).zip(blocks));
    }
    Ok(found)
}

pub fn sum_of(fill: u64) -> u32 {
    crc32c(&block_of(fill))
}

/// Blocks that no encoding makes smaller.
pub fn noise(from: u64) -> Vec<Vec<u8>> {
    let numbers = (0..40).map(|n| 7 * (from + n));
    numbers.map(|number| block_of(number).to_vec()).collect()
}

/// One act of the client.
#[derive(Clone, Debug)]
pub enum Act {
    /// The last block may commit copies: each with its home, and its number.
    Write(u64, Vec<Vec<u8>>, Vec<(u64, u64)>),
    Discard(u64, u64),
    Flush,
    Take(String),
    Clone(String, String),
    WriteClone(String, u64, Vec<u64>),
    Delete(String),
    RollBack(String),
}

pub fn write_request(
    client: &mut Client,
    lba: u64,
    blocks: &[Vec<u8>],
) -> Result<Request, BlockError> {
    let op = Op::Write { fua: false };
    let mut request = client.try_request(op, lba, blocks.len() as u64)?;
    for (index, block) in blocks.iter().enumerate() {
        request.frames.block_mut(index).copy_from_slice(block);
    }
    Ok(request)
}

pub fn act(volume: &Arc<Volume>, one: &Act) -> Result<(), SnapshotError> {
    let mut client = Client::new(volume);
    match one {
        Act::Write(lba, blocks, _) => {
            let request = write_request(&mut client, *lba, blocks)?;
            client.call(request).map(drop)?;
        }
        Act::Discard(lba, blocks) => client.discard(*lba, *blocks)?,
        Act::Flush => client.flush()?,
        Act::Take(name) => volume.take_snapshot(name, 1)?,
        Act::Clone(of, name) => volume.clone_snapshot(of, name, 1)?,
        Act::WriteClone(name, lba, fills) => {
            let clone = Arc::new(volume.clone_at(name)?.expect("it is a clone"));
            Client::new(&clone).write(*lba, fills)?;
        }
        Act::Delete(name) => volume.delete_snapshot(name)?,
        Act::RollBack(name) => volume.roll_back(name)?,
    }
    Ok(())
}

/// The client's file system: what it knows of its journal.
pub struct Host {
    pub random: Random,
    pub superblock: Vec<u8>,
    /// The number and the place of the next transaction.
    pub sequence: u32,
    pub block: u64,
    /// Copies that are committed and not home.
    pub away: BTreeMap<u64, u64>,
    pub fresh: u64,
}

impl Host {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            superblock: Vec::new(),
            sequence: 1,
            block: 1,
            away: BTreeMap::new(),
            fresh: 1,
        }
    }

    /// Reads what a mount needs, mostly after the volume has found the file system.
    pub fn look(&mut self, volume: &Arc<Volume>) {
        if self.random.below(4) > 0 {
            wait_for(volume, "the scout", |volume| {
                !volume.stats().commits.looking
            });
        }
        let mut client = Client::new(volume);
        let request = client.request(Op::Read, JOURNAL, 1);
        self.superblock = client.call(request).unwrap().frames.block(0).to_vec();
    }

    pub fn blocks(fills: &[u64]) -> Vec<Vec<u8>> {
        fills.iter().map(|fill| block_of(*fill).to_vec()).collect()
    }

    /// Begins the log again, at its first block.
    pub fn begin(&mut self) -> Vec<Act> {
        self.block = 1;
        log::begin(&mut self.superblock, self.sequence, 1);
        vec![
            Act::Write(JOURNAL, vec![self.superblock.clone()], Vec::new()),
            Act::Flush,
        ]
    }

    /// As a mount after a replay.
    pub fn mount(&mut self) -> Vec<Act> {
        self.away.clear();
        self.sequence += 20;
        log::begin(&mut self.superblock, self.sequence, 0);
        let empty = Act::Write(JOURNAL, vec![self.superblock.clone()], Vec::new());
        let mut acts = vec![empty, Act::Flush];
        acts.extend(self.begin());
        acts
    }

    pub fn go_home(&mut self, most: usize) -> Vec<Act> {
        let homes: Vec<u64> = self.away.keys().take(most).copied().collect();
        let write = |home| {
            let fill = self.away.remove(&home)?;
            Some(Act::Write(home, Self::blocks(&[fill]), Vec::new()))
        };
        homes.into_iter().filter_map(write).collect()
    }

    pub fn commit(&mut self) -> Vec<Act> {
        let count = 1 + self.random.below(5);
        let first = HOMES.start + self.random.below(HOMES.end - HOMES.start - 2 * count);
        let homes: Vec<u64> = (0..count).map(|n| first + 2 * n).collect();
        self.fresh += 10;
        let mut fills = contents(&mut self.random, first, count, self.fresh);
        if self.random.below(6) == 0 {
            fills[0] = 0;
        }
        let copies = Self::blocks(&fills);
        let mut acts = Vec::new();
        if self.block + count + 2 > USED {
            acts.extend(self.go_home(usize::MAX));
            acts.push(Act::Flush);
            acts.extend(self.begin());
        }
        let named: Vec<(u32, u32)> = homes.iter().map(|home| (*home as u32, 0)).collect();
        let parts: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
        let mut blocks = vec![log::descriptor(self.sequence, &named, &parts)];
        blocks.extend(copies);
        let commit = log::commit(self.sequence);
        let at = JOURNAL + self.block;
        let pairs: Vec<(u64, u64)> = homes.into_iter().zip(fills).collect();
        self.away.extend(pairs.iter().copied());
        self.sequence += 1;
        self.block += count + 2;
        match self.random.below(2) {
            0 => {
                blocks.push(commit);
                acts.push(Act::Write(at, blocks, pairs));
            }
            _ => {
                acts.push(Act::Write(at, blocks, Vec::new()));
                acts.push(Act::Write(at + count + 1, vec![commit], pairs));
            }
        }
        acts.push(Act::Flush);
        acts
    }
}

/// A volume with a file system on it, which nobody has mounted yet.
pub fn made() -> Arc<FaultMedium> {
    let fault = Arc::new(FaultMedium::over_memory(3300, Plan::default()));
    create_keeping(&*fault, SIZE, 400);
    let medium: Arc<dyn Medium> = fault.clone();
    let volume = common::open(&medium);
    for (at, bytes) in ext4::mounted().pages() {
        let page = Act::Write(at / 4096, vec![bytes.to_vec()], Vec::new());
        act(&volume, &page).unwrap();
    }
    // What fills the volume, so that the collector has something to do.
    for lba in (FILLER.end..3300).step_by(40) {
        act(&volume, &Act::Write(lba, noise(lba), Vec::new())).unwrap();
    }
    volume.stop().unwrap();
    fault
}
