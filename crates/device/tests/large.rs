//! A volume of more than 16 TiB: its LBAs have more than 32 bits, and all that names them has room for that.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/thrice.rs"]
mod thrice;

use common::{Client, assert_sound, small, wait_for};
use std::sync::Arc;
use thrice::{counted, wait_for_sweeps};
use vellum_device::policy::Policy;
use vellum_device::stream::{Reader, Sender, receive};
use vellum_device::{CreateOptions, Haste, OpenOptions, Sought, Volume};
use vellum_medium::{Medium, MemoryMedium};

const TIB: u64 = 1 << 28;
const BLOCKS: u64 = 17 * TIB;
/// Below 16 TiB, at it, and as far behind it. Cut off after 32 bits, the last two are the first two.
const PLACES: [u64; 4] = [0, 7, 16 * TIB, 16 * TIB + 7];
const LAST: u64 = BLOCKS - 1;
const SEGMENT: u64 = 2048;

fn create() -> Arc<MemoryMedium> {
    let medium = MemoryMedium::new(TIB + TIB / 8);
    let options = CreateOptions {
        segment_blocks: Some(SEGMENT as u32),
        logical_blocks: Some(BLOCKS),
        history: 10,
        ..CreateOptions::default()
    };
    Volume::create(&medium, &options).unwrap();
    Arc::new(medium)
}

fn options(dedup: bool) -> OpenOptions {
    OpenOptions {
        policy: Policy {
            dedup,
            ..Policy::default()
        },
        receiving: true,
        map_leaves: Some(64),
        ..small()
    }
}

fn open(medium: &Arc<MemoryMedium>) -> Arc<Volume> {
    open_as(medium, &options(true))
}

fn open_as(medium: &Arc<MemoryMedium>, options: &OpenOptions) -> Arc<Volume> {
    let volume = Arc::new(Volume::open(Arc::clone(medium) as Arc<dyn Medium>, options).unwrap());
    wait_for(&volume, "the census", |volume| {
        volume.stats().core["uncounted_leaves"] == 0
    });
    volume
}

fn assert_read(client: &mut Client<Volume>, expected: [u64; 4]) {
    let read = PLACES.map(|lba| client.read(lba, 1).unwrap()[0]);
    assert_eq!(read, expected);
}

/// Contents that several LBAs own, one of them on each side of 16 TiB, through power cuts, snapshots and their end.
#[test]
fn blocks_behind_16_tib_are_not_taken_for_others() {
    let mut medium = create();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    for (lba, fill) in PLACES.into_iter().zip([1, 2, 3, 1]) {
        client.write(lba, &[fill]).unwrap();
    }
    client.write(LAST, &[3]).unwrap();
    client.flush().unwrap();
    volume.take_snapshot("before", 1).unwrap();
    client.write(16 * TIB, &[2]).unwrap();
    client.write(7, &[4]).unwrap();
    client.flush().unwrap();
    assert!(volume.stats().core["dedup_blocks"] > 0);
    // The power fails.
    medium = Arc::new(medium.fork());
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    assert_read(&mut client, [1, 4, 2, 1]);
    let seen = Arc::new(volume.seen_at("before").unwrap());
    let mut old = Client::new(&seen);
    assert_eq!(old.read(16 * TIB, 1).unwrap(), [3]);
    assert_eq!(old.read(7, 1).unwrap(), [2]);
    drop((old, seen));
    // The last owner but one leaves: what is left is the one behind 16 TiB.
    client.write(0, &[5]).unwrap();
    volume.delete_snapshot("before").unwrap();
    client.flush().unwrap();
    medium = Arc::new(medium.fork());
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    assert_read(&mut client, [5, 4, 2, 1]);
    assert_eq!(client.read(LAST, 1).unwrap(), [3]);
    volume.take_snapshot("now", 2).unwrap();
    client.discard(16 * TIB, 16).unwrap();
    assert_read(&mut client, [5, 4, 0, 0]);
    volume.roll_back("now").unwrap();
    assert_read(&mut client, [5, 4, 2, 1]);
    volume.stop().unwrap();
    assert_sound(&*medium);
}

fn fill_and_discard(client: &mut Client<Volume>, blocks: u64) {
    for first in (0..blocks).step_by(256) {
        let fills: Vec<u64> = (first + 1..=first + 256).collect();
        client.write(first, &fills).unwrap();
    }
    client.discard(0, blocks).unwrap();
}

/// What a snapshot keeps has an LBA behind those that clients see, so behind 16 TiB. No summary names it.
#[test]
fn a_block_that_a_snapshot_keeps_moves() {
    const KEPT: u64 = 409_600;
    let medium = create();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    // Segments before it are free, so that it can move there.
    fill_and_discard(&mut client, 10 * SEGMENT);
    client.write(KEPT, &[7]).unwrap();
    volume.take_snapshot("kept", 1).unwrap();
    client.write(KEPT, &[8]).unwrap();
    fill_and_discard(&mut client, 2 * SEGMENT);
    volume.stop().unwrap();
    drop((client, volume));
    let options = OpenOptions {
        segments_end: Some(10),
        ..options(true)
    };
    let volume = open_as(&medium, &options);
    wait_for(&volume, "all has moved", |volume| {
        let counts = volume.stats().core;
        assert_eq!(counts["quarantined_segments"], 0);
        counts["medium_moved"] == counts["live_blocks"]
    });
    assert_eq!(Client::new(&volume).read(KEPT, 1).unwrap(), [8]);
    let seen = Arc::new(volume.seen_at("kept").unwrap());
    assert_eq!(Client::new(&seen).read(KEPT, 1).unwrap(), [7]);
    drop(seen);
    volume.stop().unwrap();
    assert_sound(&*medium);
}

#[test]
fn a_snapshot_of_it_is_sent_and_received() {
    let volume = open(&create());
    let mut client = Client::new(&volume);
    for (lba, fill) in PLACES.into_iter().zip([1, 2, 3, 1]) {
        client.write(lba, &[fill]).unwrap();
    }
    volume.take_snapshot("sent", 1).unwrap();
    let sender = Sender::new(&volume, "sent", None).unwrap();
    let (stream, _) = sender.send(Vec::new(), &mut |_| true).unwrap();
    let medium = create();
    let to = open(&medium);
    let mut stream = Reader::new(&stream[..]).unwrap();
    receive(&to, &mut stream, false, &mut |_| true).unwrap();
    assert_read(&mut Client::new(&to), [1, 2, 3, 1]);
    to.stop().unwrap();
    assert_sound(&*medium);
}

#[test]
fn a_sweep_merges_blocks_behind_16_tib() {
    let medium = create();
    let volume = open_as(&medium, &options(false));
    let mut client = Client::new(&volume);
    for (lba, fill) in PLACES.into_iter().zip([1, 2, 3, 3]) {
        client.write(lba, &[fill]).unwrap();
    }
    client.flush().unwrap();
    volume.sweep(Sought::Duplicates, Haste::Now).unwrap();
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "merged_blocks"), 1);
    assert_read(&mut client, [1, 2, 3, 3]);
    volume.stop().unwrap();
    assert_sound(&*medium);
}
