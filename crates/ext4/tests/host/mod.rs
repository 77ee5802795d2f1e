//! A host with a journal, and the device below it.

mod replay;
mod restored;
mod scanned;
mod ways;

use crate::ext4;
use replay::{Recovered, superblock};
use scanned::follow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use vellum_ext4::Span;
use vellum_ext4::freed::Freed;
use vellum_ext4::journal::{JournalBlock, Layout};
pub use ways::{Mode, Twist};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 4096;
/// Where the sound volume has its bitmap and its inode table; the model keeps its list of files in the latter.
const BITMAP: u64 = 2;
const FILES: u64 = 4;
/// The blocks that files use.
const DATA: core::ops::Range<u64> = 1400..1480;
const MAGIC: u32 = 0xC03B_3998;

pub struct Rng(pub u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}

type Bytes = Rc<[u8]>;

/// The contents of a file's block: they identify the file and the version.
fn content(file: u32, stamp: u32) -> Bytes {
    let mut bytes = vec![0x55; BLOCK as usize];
    bytes[..4].copy_from_slice(&file.to_le_bytes());
    bytes[4..8].copy_from_slice(&stamp.to_le_bytes());
    bytes.into()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn header(kind: u32, sequence: u32) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    for (at, value) in [(0, MAGIC), (4, kind), (8, sequence)] {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// What the device holds, and what it would hold without drops. Both lose the same in a crash: a prefix remains.
#[derive(Clone, Default)]
struct Device {
    has: BTreeMap<u64, Bytes>,
    would: BTreeMap<u64, Bytes>,
}

#[derive(Clone, Default)]
struct Transaction {
    sequence: u32,
    /// True if the bitmap and the list of files are in it.
    is_dirty: bool,
    freed: BTreeSet<u64>,
    /// Blocks whose data are in it (data=journal).
    data: BTreeMap<u64, Bytes>,
}

/// What the host sends next for the transaction being committed.
enum Step {
    Write(u64, Bytes),
    Flush,
    /// See [`Twist::Forgetful`].
    Forget(u32),
}

struct Committing {
    transaction: Transaction,
    copies: Vec<(u64, Bytes)>,
    steps: VecDeque<Step>,
    /// Where its commit block goes.
    end: u32,
}

pub struct Host<'a> {
    pub rng: &'a mut Rng,
    mode: Mode,
    twist: Twist,
    device: Device,
    /// The device after each write since the last flush: the states a crash may leave.
    since_flush: Vec<Device>,
    freed: Freed,
    layout: Layout,
    flushes: u64,
    /// Taken as freed, and not dropped yet.
    late: VecDeque<(u64, Span)>,
    used: BTreeSet<u64>,
    files: BTreeMap<u32, Vec<u64>>,
    next_file: u32,
    stamp: u32,
    /// Data that are only in memory.
    dirty: BTreeMap<u64, Bytes>,
    running: Transaction,
    committing: Option<Committing>,
    /// Blocks of committed transactions that are not home yet.
    checkpoint: BTreeMap<u64, Bytes>,
    /// The bitmap's home write is in flight: nothing may change the bitmap.
    home_in_flight: bool,
    is_idle: bool,
    head: u32,
    tail: u32,
    /// Where the last commit block of this log is.
    last_commit: Option<u32>,
    pub dropped: u64,
}

const FIRST: u32 = 1;
const END: u32 = 1024;

fn after(block: u32) -> u32 {
    if block + 1 < END { block + 1 } else { FIRST }
}

impl<'a> Host<'a> {
    pub fn new(rng: &'a mut Rng, mode: Mode, twist: Twist) -> Self {
        let (layout, freed) = follow(&Device::default(), 0);
        let mut host = Self {
            rng,
            mode,
            twist,
            device: Device::default(),
            since_flush: Vec::new(),
            freed,
            layout,
            flushes: 0,
            late: VecDeque::new(),
            used: (0..BLOCKS).filter(|block| !DATA.contains(block)).collect(),
            files: BTreeMap::new(),
            next_file: 1,
            stamp: 1,
            dirty: BTreeMap::new(),
            running: Transaction {
                sequence: 1,
                ..Transaction::default()
            },
            committing: None,
            checkpoint: BTreeMap::new(),
            home_in_flight: false,
            is_idle: false,
            head: FIRST,
            tail: FIRST,
            last_commit: None,
            dropped: 0,
        };
        let (bitmap, files) = (host.bitmap(), host.list());
        host.write(BITMAP, bitmap);
        host.write(FILES, files);
        host.write_tail();
        host.flush();
        host
    }

    fn bitmap(&self) -> Bytes {
        let mut bytes = vec![0xFF; BLOCK as usize];
        for block in DATA.filter(|block| !self.used.contains(block)) {
            bytes[(block / 8) as usize] &= !(1 << (block % 8));
        }
        bytes.into()
    }

    fn list(&self) -> Bytes {
        let mut bytes = Vec::new();
        for (file, blocks) in &self.files {
            bytes.extend(file.to_be_bytes());
            bytes.extend((blocks.len() as u32).to_be_bytes());
            for block in blocks {
                bytes.extend((*block as u32).to_be_bytes());
            }
        }
        assert!(bytes.len() + 4 <= BLOCK as usize);
        bytes.resize(BLOCK as usize, 0);
        bytes.into()
    }

    fn place(&self, block: u32) -> u64 {
        self.layout.place_of(JournalBlock(block)).unwrap() / BLOCK
    }

    fn write_tail(&mut self) {
        self.tail = self.head;
        let bytes = superblock(self.running.sequence, self.head);
        self.write(self.place(0), bytes.into());
    }

    /// Sends a write. It completes at once, unless it is the bitmap's home write, which may take its time.
    fn write(&mut self, block: u64, bytes: Bytes) {
        let is_seen = self.twist != Twist::Blind || !DATA.contains(&block);
        if is_seen && self.freed.written(block * BLOCK, &bytes) {
            self.home_in_flight = true;
            if self.rng.one_in(2) {
                self.answer_home();
            }
        }
        self.device.has.insert(block, Rc::clone(&bytes));
        self.device.would.insert(block, bytes);
        self.since_flush.push(self.device.clone());
    }

    fn answer_home(&mut self) {
        self.home_in_flight = false;
        self.freed.answered(BITMAP * BLOCK, true);
    }

    fn flush(&mut self) {
        self.flushes += 1;
        self.freed.flush(self.flushes);
        self.freed.flushed(self.flushes);
        self.since_flush = vec![self.device.clone()];
    }

    /// Lets the device drop some of the blocks it may drop.
    fn drop_some(&mut self) {
        for _ in 0..=self.rng.below(4) {
            let most = 1 + self.rng.below(20);
            let Some(span) = self.freed.take(most) else {
                break;
            };
            let wait = match self.twist {
                Twist::Late => self.rng.below(20),
                _ => 0,
            };
            self.late.push_back((wait, span));
        }
        self.drop_late();
    }

    fn drop_late(&mut self) {
        for _ in 0..self.late.len() {
            let (wait, span) = self.late.pop_front().unwrap();
            if wait > 0 {
                self.late.push_back((wait - 1, span));
                continue;
            }
            for block in span.start / BLOCK..span.end() / BLOCK {
                assert!(DATA.contains(&block), "{block} is never free");
                self.dropped += u64::from(self.device.has.remove(&block).is_some());
            }
            self.since_flush.push(self.device.clone());
        }
    }

    /// Runs up to so many steps.
    pub fn live(&mut self, most: u64) {
        for _ in 0..self.rng.below(most) {
            self.step();
        }
        self.check();
    }

    pub fn step(&mut self) {
        let room = (self.head + END - FIRST - self.tail) % (END - FIRST);
        if self.rng.one_in(30) {
            self.is_idle = !self.is_idle;
        }
        self.is_idle |= room > 700;
        match self.rng.below(13) {
            0..=2 if !self.is_idle => self.create(),
            3..=4 if !self.is_idle => self.delete(),
            5 if !self.is_idle => self.overwrite(),
            6 => self.write_back(),
            7..=8 => self.commit(),
            0..=2 | 9 => self.go_home(),
            3 | 4 | 10 if self.home_in_flight => self.answer_home(),
            3 | 10 => self.flush(),
            _ => self.drop_some(),
        }
        self.drop_late();
        if self.twist == Twist::Hasty {
            self.hasten();
        }
    }

    /// Pretends that what is in the journal so far is committed, home and durable.
    fn hasten(&mut self) {
        let Some(committing) = &self.committing else {
            return;
        };
        let copy = Rc::clone(&committing.copies[1].1);
        let sequence = committing.transaction.sequence;
        let is_sent = !committing
            .steps
            .iter()
            .any(|step| matches!(step, Step::Write(_, bytes) if *bytes == copy));
        if is_sent {
            let at = self.place(committing.end) * BLOCK;
            self.freed.written(at, &header(2, sequence));
            self.show_home(&copy);
        }
    }

    /// Shows the follower a home write of the bitmap, as durable, that did not happen.
    fn show_home(&mut self, bitmap: &[u8]) {
        self.freed.written(BITMAP * BLOCK, bitmap);
        self.freed.answered(BITMAP * BLOCK, true);
        self.flushes += 1;
        self.freed.flush(self.flushes);
        self.freed.flushed(self.flushes);
    }

    /// Returns the blocks that a file may allocate.
    fn allocatable(&self) -> Vec<u64> {
        let committing = self.committing.as_ref().map(|c| &c.transaction.freed);
        DATA.filter(|block| {
            // A freed block is free once that is committed, except in data=writeback.
            let is_held = self.running.freed.contains(block)
                || committing.is_some_and(|freed| freed.contains(block));
            !self.used.contains(block) && (self.mode == Mode::Writeback || !is_held)
        })
        .collect()
    }

    fn create(&mut self) {
        let free = self.allocatable();
        if self.home_in_flight || free.len() < 8 {
            return;
        }
        let blocks: BTreeSet<u64> = (0..=self.rng.below(6))
            .map(|_| self.rng.pick(&free).unwrap())
            .collect();
        let file = self.next_file;
        self.next_file += 1;
        for &block in &blocks {
            self.used.insert(block);
            self.stamp += 1;
            self.put(block, content(file, self.stamp));
        }
        self.files.insert(file, blocks.into_iter().collect());
        self.running.is_dirty = true;
        if self.rng.one_in(2) {
            self.write_back();
        }
    }

    fn put(&mut self, block: u64, bytes: Bytes) {
        if self.mode == Mode::Journal {
            self.running.data.insert(block, bytes);
        } else {
            self.dirty.insert(block, bytes);
        }
    }

    fn a_file(&mut self) -> Option<u32> {
        let files: Vec<u32> = self.files.keys().copied().collect();
        self.rng.pick(&files)
    }

    fn delete(&mut self) {
        let Some(file) = self.a_file().filter(|_| !self.home_in_flight) else {
            return;
        };
        for block in self.files.remove(&file).unwrap() {
            self.used.remove(&block);
            self.dirty.remove(&block);
            self.running.data.remove(&block);
            self.running.freed.insert(block);
        }
        self.running.is_dirty = true;
    }

    fn overwrite(&mut self) {
        let Some(file) = self.a_file() else { return };
        if self.mode == Mode::Journal && self.home_in_flight {
            return;
        }
        let block = self.rng.pick(&self.files[&file].clone()).unwrap();
        self.stamp += 1;
        self.put(block, content(file, self.stamp));
        self.running.is_dirty |= self.mode == Mode::Journal;
    }

    fn write_back(&mut self) {
        for _ in 0..=self.rng.below(5) {
            let dirty: Vec<u64> = self.dirty.keys().copied().collect();
            if let Some(block) = self.rng.pick(&dirty) {
                let bytes = self.dirty.remove(&block).unwrap();
                self.write(block, bytes);
            }
        }
    }

    /// Runs one step of the commit in progress, or begins one.
    fn commit(&mut self) {
        let Some(committing) = &mut self.committing else {
            if self.running.is_dirty {
                self.begin_commit();
            }
            return;
        };
        match committing.steps.pop_front() {
            Some(Step::Write(block, bytes)) => self.write(block, bytes),
            Some(Step::Flush) => self.flush(),
            Some(Step::Forget(sequence)) => {
                let at = self.last_commit.map(|block| self.place(block) * BLOCK);
                if let Some(at) = at {
                    self.freed.written(at, &header(2, sequence));
                }
            }
            None => {
                let Committing {
                    transaction,
                    copies,
                    end,
                    ..
                } = self.committing.take().unwrap();
                self.last_commit = Some(end);
                for block in transaction.freed {
                    self.checkpoint.remove(&block);
                }
                if matches!(self.twist, Twist::Early | Twist::EarlyAndForgetful) {
                    self.show_home(&Rc::clone(&copies[1].1));
                }
                self.checkpoint.extend(copies);
            }
        }
    }

    fn begin_commit(&mut self) {
        let sequence = self.running.sequence;
        let next = Transaction {
            sequence: sequence + 1,
            ..Transaction::default()
        };
        let transaction = core::mem::replace(&mut self.running, next);
        let mut steps = VecDeque::new();
        if self.mode == Mode::Ordered {
            let dirty = core::mem::take(&mut self.dirty);
            steps.extend(dirty.into_iter().map(|(b, c)| Step::Write(b, c)));
        }
        let mut copies = vec![(FILES, self.list()), (BITMAP, self.bitmap())];
        copies.extend(transaction.data.iter().map(|(b, c)| (*b, Rc::clone(c))));
        let mut descriptor = header(1, sequence);
        for (i, (home, _)) in copies.iter().enumerate() {
            let flags = 2 | if i + 1 == copies.len() { 8 } else { 0 };
            descriptor[12 + 8 * i..][..4].copy_from_slice(&(*home as u32).to_be_bytes());
            descriptor[16 + 8 * i..][..4].copy_from_slice(&u32::to_be_bytes(flags));
        }
        let mut at = self.head;
        let mut journal = vec![(self.place(at), Bytes::from(descriptor))];
        for (_, bytes) in &copies {
            at = after(at);
            journal.push((self.place(at), Rc::clone(bytes)));
        }
        if self.rng.one_in(8) {
            // Copies may be written before their descriptor.
            let other = self.rng.below(journal.len() as u64) as usize;
            journal.swap(0, other);
        }
        if matches!(self.twist, Twist::Forgetful | Twist::EarlyAndForgetful) {
            steps.push_back(Step::Forget(sequence - 1));
        }
        steps.extend(journal.into_iter().map(|(b, c)| Step::Write(b, c)));
        steps.push_back(Step::Flush);
        at = after(at);
        steps.push_back(Step::Write(self.place(at), header(2, sequence).into()));
        if self.rng.one_in(2) {
            steps.push_back(Step::Flush);
        }
        self.head = after(at);
        self.committing = Some(Committing {
            transaction,
            copies,
            steps,
            end: at,
        });
    }

    /// Writes home something that no transaction holds now, or moves the journal's tail.
    fn go_home(&mut self) {
        let committing = self.committing.as_ref().map(|c| &c.transaction);
        let is_held = |block: &u64| {
            [Some(&self.running), committing]
                .into_iter()
                .flatten()
                .any(|t| match *block {
                    BITMAP | FILES => t.is_dirty,
                    _ => t.data.contains_key(block) || t.freed.contains(block),
                })
        };
        let ready: Vec<u64> = self
            .checkpoint
            .keys()
            .copied()
            .filter(|block| !is_held(block) && (*block != BITMAP || !self.home_in_flight))
            .collect();
        if let Some(block) = self.rng.pick(&ready) {
            let bytes = self.checkpoint.remove(&block).unwrap();
            self.write(block, bytes);
        } else if self.checkpoint.is_empty() && self.committing.is_none() {
            self.flush();
            self.write_tail();
        }
    }

    /// Crashes the host, the device, or both; replays the journal, and continues.
    pub fn crash(&mut self) {
        if self.rng.one_in(2) {
            // The device loses what it has not synced: a prefix remains.
            let at = self.rng.below(self.since_flush.len() as u64) as usize;
            self.device = self.since_flush[at].clone();
            self.since_flush.truncate(at + 1);
            self.freed = follow(&self.device, self.flushes).1;
            self.late.clear();
        }
        let recovered = Recovered::of(&self.device.would, &self.layout);
        self.files = recovered.files();
        let bitmap = recovered.get(&self.device.would, BITMAP).unwrap();
        self.used = (0..BLOCKS)
            .filter(|b| bitmap[(b / 8) as usize] >> (b % 8) & 1 == 1)
            .collect();
        self.dirty.clear();
        self.checkpoint.clear();
        self.committing = None;
        self.home_in_flight = false;
        for (block, bytes) in &recovered.log {
            // Of several copies of a block the page cache may write only the last.
            let is_last = Rc::ptr_eq(&recovered.last[block], bytes);
            if is_last || self.rng.one_in(3) {
                self.write(*block, Rc::clone(bytes));
            }
        }
        if self.rng.one_in(4) {
            // A tool repairs what it considers wrong.
            let lost = DATA.start + self.rng.below(DATA.end - DATA.start);
            self.used.insert(lost);
            let bitmap = self.bitmap();
            self.write(BITMAP, bitmap);
        }
        self.flush();
        self.running = Transaction {
            sequence: recovered.next,
            ..Transaction::default()
        };
        self.head = FIRST;
        self.last_commit = None;
        self.write_tail();
        self.home_in_flight = false;
    }

    /// Checks that if everything stopped now, the files that a replay finds would be as without drops.
    pub fn check(&self) {
        let Device { has, would } = &self.device;
        for (block, bytes) in would.iter().filter(|(block, _)| !DATA.contains(block)) {
            assert_eq!(has.get(block), Some(bytes), "{block} was dropped");
        }
        let recovered = Recovered::of(would, &self.layout);
        for (file, blocks) in recovered.files() {
            for block in blocks {
                let Some(expected) = recovered.get(would, block) else {
                    continue;
                };
                // In data=writeback a file may hold another file's old data.
                if expected[..4] == file.to_le_bytes() {
                    let found = recovered.get(has, block);
                    assert_eq!(found, Some(expected), "block {block} of file {file}");
                }
            }
        }
    }
}
