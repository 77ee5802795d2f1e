//! Duplicates whose pages have left memory: they are compared with what is read back, in as few reads as possible, and no block
//! is judged by the read of another.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/layer.rs"]
mod layer;

use common::{Client, block_of, create, forget, open, settled, stop_sound};
use layer::{Layer, Layered};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_device::Volume;
use vellum_device::limits::{COMPARE_READ_BLOCKS, COMPARE_READ_GAP, COMPARE_READ_THROUGH};
use vellum_device::policy::Policy;
use vellum_medium::fault::{Fault, FaultMedium, Plan};
use vellum_medium::{Done, Io, Kind, Medium};

/// The number of contents in a file: more than several segments of these volumes hold.
const FILE: u64 = 250;
/// The file's place, away from where a scan looks for file systems.
const HOME: u64 = 500;
/// The place of its copy.
const COPY: u64 = 1000;
/// As in `common::create`.
const SEGMENT: u64 = 64;

/// A read of a file's blocks.
#[derive(Clone, Copy, Debug)]
struct Read {
    at: u64,
    blocks: u64,
    /// The number of reads under way with it.
    at_once: usize,
}

/// A medium that breaks on demand, and records the reads of a file.
struct Watching {
    medium: FaultMedium,
    /// The places of the file's contents. All reads except comparisons are of headers and summaries only.
    places: Mutex<HashMap<u64, u64>>,
    reads: Mutex<Vec<Read>>,
    reading: Mutex<usize>,
}

type Watched = Layered<Watching>;

impl Watched {
    /// A volume on such a medium, with a file in it that is not in memory.
    fn with_file(file: &[u64]) -> (Arc<Self>, Arc<Volume>, Client) {
        let medium = Arc::new(Layered(Watching {
            medium: FaultMedium::over_memory(4096, Plan::default()),
            places: Mutex::default(),
            reads: Mutex::default(),
            reading: Mutex::default(),
        }));
        create(&*medium);
        let as_medium: Arc<dyn Medium> = medium.clone();
        let volume = open(&as_medium);
        volume
            .set_policy(Policy {
                dedup: true,
                index_bytes: 1 << 20,
                ..Policy::default()
            })
            .unwrap();
        let mut client = Client::new(&volume);
        client.write(HOME, file).unwrap();
        client.flush().unwrap();
        forget(&volume);
        medium.find_all(file);
        (medium, volume, client)
    }

    fn find_all(&self, file: &[u64]) {
        let mut places = self.places.lock();
        let mut block = [0; BLOCK_BYTES];
        for at in 0..self.blocks() {
            self.medium.read(Pba(at), &mut block).unwrap();
            let fill = u64::from_le_bytes(*block.first_chunk().unwrap());
            if file.contains(&fill) && block == block_of(fill) {
                assert_eq!(places.insert(fill, at), None, "stored once");
            }
        }
        assert_eq!(places.len(), file.len());
    }

    /// The place of a content.
    fn place(&self, fill: u64) -> u64 {
        self.places.lock()[&fill]
    }

    /// Makes reads that touch a content fail from now on.
    fn break_read(&self, fill: u64) {
        let at = self.place(fill);
        self.medium
            .set_plan(Plan::default().with_every(Fault::ReadError, at..at + 1));
    }
}

impl Watching {
    fn is_of_file(&self, io: &Io) -> bool {
        io.kind == Kind::Read && self.places.lock().values().any(|&at| at == io.at.0)
    }
}

impl Layer for Watching {
    fn below(&self) -> &dyn Medium {
        &self.medium
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        for io in ios.iter().filter(|io| self.is_of_file(io)) {
            let mut reading = self.reading.lock();
            *reading += 1;
            self.reads.lock().push(Read {
                at: io.at.0,
                blocks: (io.len() / BLOCK_BYTES) as u64,
                at_once: *reading,
            });
        }
        self.medium.submit(ios);
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        self.medium.wait(done, timeout);
        let ended = done.iter().filter(|done| self.is_of_file(&done.io));
        *self.reading.lock() -= ended.count();
    }
}

fn file() -> Vec<u64> {
    (1..=FILE).collect()
}

fn shared(volume: &Volume) -> u64 {
    settled(volume).core["dedup_blocks"]
}

/// Blocks that differ, and headers and summaries of segments, lie between the blocks that are compared: they are read through.
/// This happens each time, because the blocks read through are released.
#[test]
fn a_copy_of_a_file_takes_few_reads() {
    let (medium, volume, mut client) = Watched::with_file(&file());
    let (mut same, mut reads) = (0, Vec::new());
    let differs = FILE.div_ceil(3);
    for round in 1..=COMPARE_READ_THROUGH.div_ceil(differs) + 1 {
        let mut copy = file();
        for block in copy.iter_mut().step_by(3) {
            *block += 5000 * round;
        }
        client.flush().unwrap();
        forget(&volume);
        client.write(COPY, &copy).unwrap();
        same += FILE - differs;
        assert_eq!(shared(&volume), same);
        let these = std::mem::take(&mut *medium.reads.lock());
        let limit = COMPARE_READ_BLOCKS as u64;
        // Each read covers a segment or more; the log's first segments are not adjacent.
        assert!((these.len() as u64) <= FILE / SEGMENT + 4, "{these:?}");
        assert!(these.iter().all(|read| read.blocks <= limit), "{these:?}");
        let crosses = |read: &Read| read.at / SEGMENT != (read.at + read.blocks - 1) / SEGMENT;
        assert!(these.iter().any(crosses), "{these:?}");
        reads.extend(these);
        assert_eq!(client.read(COPY, FILE).unwrap(), copy);
        medium.reads.lock().clear();
    }
    let counted = volume.stats().medium;
    assert_eq!(counted.compared.compare_reads, reads.len() as u64);
    let read: u64 = reads.iter().map(|read| read.blocks).sum();
    assert_eq!(counted.read.read_compare_bytes, read * BLOCK_BYTES as u64);
    stop_sound(&volume, &*medium);
}

#[test]
fn a_block_that_is_damaged_is_the_only_one_not_shared() {
    let (medium, volume, mut client) = Watched::with_file(&file());
    let bad = 30;
    let place = Pba(medium.place(bad));
    medium.medium.flip_bit(place, 12_345).unwrap();
    client.write(COPY, &file()).unwrap();
    assert_eq!(shared(&volume), FILE - 1);
    assert_eq!(client.read(COPY, FILE).unwrap(), file());
    assert!(client.read(HOME + bad - 1, 1).is_err());
    let behind = client.read(HOME + bad, FILE - bad).unwrap();
    assert_eq!(behind, file()[bad as usize..]);
    volume.stop().unwrap();
}

#[test]
fn a_block_that_cannot_be_read_is_the_only_one_not_shared() {
    let (medium, volume, mut client) = Watched::with_file(&file());
    medium.break_read(30);
    client.write(COPY, &file()).unwrap();
    assert_eq!(shared(&volume), FILE - 1);
    assert_eq!(volume.stats().core["unreadable_blocks"], 1);
    medium.medium.set_plan(Plan::default());
    assert_eq!(client.read(COPY, FILE).unwrap(), file());
    stop_sound(&volume, &*medium);
}

/// It lies between two blocks that have copies, and no client requested it.
#[test]
fn a_block_that_is_read_through_may_be_unreadable() {
    let (medium, volume, mut client) = Watched::with_file(&file());
    medium.break_read(30);
    let mut copy = file();
    copy[29] = 5000;
    client.write(COPY, &copy).unwrap();
    assert_eq!(shared(&volume), FILE - 1);
    assert_eq!(volume.stats().core["unreadable_blocks"], 0);
    let bad = medium.place(30);
    let tries = || {
        let meets = |read: &&Read| (read.at..read.at + read.blocks).contains(&bad);
        medium.reads.lock().iter().filter(meets).count()
    };
    assert_eq!(tries(), 1);
    forget(&volume);
    client.write(COPY + FILE, &copy).unwrap();
    assert!(shared(&volume) > FILE + FILE / 2);
    assert_eq!(tries(), 1, "it is not read through again");
    medium.medium.set_plan(Plan::default());
    assert_eq!(client.read(COPY, FILE).unwrap(), copy);
    stop_sound(&volume, &*medium);
}

/// Twins that are too far apart for one read take one each, and no read waits for another: while a comparison waits the write
/// buffer fills, and then deduplication stops.
#[test]
fn simultaneous_comparisons_are_read_simultaneously() {
    let scattered = COMPARE_READ_GAP + 2;
    let file: Vec<u64> = (1..=45 * scattered).collect();
    let (medium, volume, mut client) = Watched::with_file(&file);
    let mut copied = 0;
    for skip in [0, 3, 7] {
        let copy: Vec<u64> = (file.iter().copied().skip(skip))
            .step_by(scattered as usize)
            .collect();
        medium.reads.lock().clear();
        client.write(COPY + copied, &copy).unwrap();
        copied += copy.len() as u64;
        assert_eq!(shared(&volume), copied);
        let reads = medium.reads.lock().clone();
        assert!(reads.len() > 40, "{} reads", reads.len());
        assert_eq!(
            reads.iter().map(|read| read.at_once).max(),
            Some(reads.len())
        );
        assert_eq!(client.read(COPY + copied - 45, 45).unwrap(), copy);
    }
    stop_sound(&volume, &*medium);
}

/// A page that many blocks are copies of is read once for those that wait.
#[test]
fn a_page_is_read_once_for_all_its_copies() {
    let (medium, volume, mut client) = Watched::with_file(&file());
    client.write(COPY, &[7; 60]).unwrap();
    assert_eq!(shared(&volume), 60);
    let reads = medium.reads.lock().clone();
    assert!(matches!(&reads[..], [Read { blocks: 1, .. }]), "{reads:?}");
    assert_eq!(client.read(COPY, 60).unwrap(), [7; 60]);
    stop_sound(&volume, &*medium);
}
