//! Deduplication on a device: while it is written, afterwards, and after a restart; and that a sweep is in nobody's
//! way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use common::{Client, assert_sound, create, open, small};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_device::policy::{Policy, PrintHash};
use vellum_device::{OpenOptions, Volume};
use vellum_medium::{Medium, MemoryMedium};

/// Contents of a volume: each one three times.
const CONTENTS: u64 = 300;

fn counted(volume: &Volume, name: &str) -> u64 {
    volume.stats().core[name]
}

fn deduplicating() -> Policy {
    Policy {
        dedup: true,
        index_bytes: 1 << 20,
        ..Policy::default()
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn write_thrice(volume: &Arc<Volume>) {
    let mut client = Client::new(volume);
    for round in 0..3 {
        for content in 0..CONTENTS {
            client
                .write(round * CONTENTS + content, &[content + 1])
                .unwrap();
        }
    }
    client.flush().unwrap();
}

fn assert_read(volume: &Arc<Volume>) {
    let mut client = Client::new(volume);
    for round in 0..3 {
        for content in 0..CONTENTS {
            let lba = round * CONTENTS + content;
            assert_eq!(client.read(lba, 1).unwrap(), [content + 1], "LBA {lba}");
        }
    }
}

fn volume() -> (Arc<dyn Medium>, Arc<Volume>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    (medium, volume)
}

#[test]
fn what_is_written_again_is_not_stored_again() {
    let (medium, volume) = volume();
    volume.set_policy(deduplicating());
    write_thrice(&volume);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    assert_eq!(counted(&volume, "dedup_blocks"), 2 * CONTENTS);
    assert_read(&volume);
    volume.stop().unwrap();
    assert_sound(&*medium);
}

#[test]
fn fingerprints_decide_from_the_third_owner_on() {
    for hash in PrintHash::ALL {
        let (medium, volume) = volume();
        volume.set_policy(Policy {
            fingerprint: Some(hash),
            ..deduplicating()
        });
        write_thrice(&volume);
        assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
        assert_eq!(counted(&volume, "dedup_fingerprints"), 2 * CONTENTS);
        assert_eq!(counted(&volume, "dedup_decided"), CONTENTS);
        // Of another kind: bytes are compared once more, and it is known again.
        volume.set_policy(deduplicating());
        volume.set_policy(Policy {
            fingerprint: Some(hash),
            ..deduplicating()
        });
        let mut client = Client::new(&volume);
        for lba in 3 * CONTENTS..3 * CONTENTS + 2 {
            client.write(lba, &[1]).unwrap();
        }
        assert_eq!(counted(&volume, "dedup_decided"), CONTENTS + 1);
        assert_read(&volume);
        volume.stop().unwrap();
        assert_sound(&*medium);
    }
}

#[test]
fn a_sweep_shares_what_was_stored_before() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    // Summaries are there of segments that were left; what is in the last ones waits for the next sweep.
    let stored = counted(&volume, "live_blocks");
    assert_eq!(stored, 3 * CONTENTS);
    let began = Instant::now();
    volume.sweep();
    wait_until("the sweep ends", || volume.sweep_progress().ended == 1);
    let merged = counted(&volume, "merged_blocks");
    assert!(merged >= CONTENTS, "{merged} of {}", 2 * CONTENTS);
    assert_eq!(counted(&volume, "live_blocks"), stored - merged);
    // Nobody else is there: it waits for nothing.
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_read(&volume);
    volume.stop().unwrap();
    assert_sound(&*medium);
    assert_read(&open(&medium));
}

#[test]
fn a_sweep_goes_on_beside_its_clients() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.sweep();
    let mut client = Client::new(&volume);
    for round in 0..200 {
        let lba = round * 7 % (3 * CONTENTS);
        let content = lba % CONTENTS + 1;
        assert_eq!(client.read(lba, 1).unwrap(), [content]);
        client.write(lba, &[content]).unwrap();
    }
    wait_until("the sweep ends", || volume.sweep_progress().ended == 1);
    assert_read(&volume);
    volume.stop().unwrap();
    assert_sound(&*medium);
}

#[test]
fn stopping_ends_a_sweep() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.sweep();
    volume.stop().unwrap();
    assert_sound(&*medium);
    assert_read(&open(&medium));
}

#[test]
fn the_index_is_filled_from_the_medium_after_a_restart() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.stop().unwrap();
    drop(volume);
    let options = OpenOptions {
        policy: deduplicating(),
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    wait_until("the index knows most contents", || {
        counted(&volume, "index_entries") >= CONTENTS * 3 / 4
    });
    let mut client = Client::new(&volume);
    let known = counted(&volume, "index_entries");
    for content in 0..CONTENTS {
        client
            .write(3 * CONTENTS + content, &[content + 1])
            .unwrap();
    }
    assert!(counted(&volume, "dedup_blocks") >= known.min(CONTENTS) * 3 / 4);
    assert_read(&volume);
    volume.stop().unwrap();
    assert_sound(&*medium);
}
