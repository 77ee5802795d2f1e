//! Deduplication on a device: during writes, and after a restart.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/thrice.rs"]
mod thrice;

use common::{Client, block_of, open_under, settled, stop_sound};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrice::*;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_device::block::Op;
use vellum_device::pack::Compression;
use vellum_device::policy::{Policy, PrintHash};
use vellum_medium::Medium;
use vellum_policies::words::store_named;

#[test]
fn repeated_contents_are_stored_once() {
    let (medium, volume) = volume();
    volume.set_policy(deduplicating()).unwrap();
    write_thrice(&volume);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    assert_eq!(counted(&volume, "dedup_blocks"), 2 * CONTENTS);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// The same content written over a block that cannot be read is stored: nothing shares the damaged page.
#[test]
fn contents_written_over_a_damaged_block_are_stored() {
    let (medium, volume) = volume();
    volume.set_policy(deduplicating()).unwrap();
    let mut client = Client::new(&volume);
    // Two that are read together and are not beside each other.
    for (lba, fill) in [(5, 70), (50, 1), (6, 71)] {
        client.write(lba, &[fill]).unwrap();
    }
    client.flush().unwrap();
    for fill in [70, 71] {
        let mut block = [0; BLOCK_BYTES];
        let mut is_there = |at: &Pba| {
            medium.read(*at, &mut block).unwrap();
            block == block_of(fill)
        };
        let at = (0..medium.blocks()).map(Pba).find(|at| is_there(at));
        medium.write(at.unwrap(), &block_of(72)).unwrap();
    }
    assert!(client.read(5, 2).is_err());
    for (lba, fill) in [(5, 70), (6, 71), (7, 70)] {
        client.write(lba, &[fill]).unwrap();
        client.flush().unwrap();
    }
    assert_eq!(client.read(5, 3).unwrap(), [70, 71, 70]);
    volume.stop().unwrap();
}

#[test]
fn fingerprints_decide_from_the_third_owner_on() {
    for hash in PrintHash::ALL {
        let (medium, volume) = volume();
        volume
            .set_policy(Policy {
                fingerprint: Some(hash),
                ..deduplicating()
            })
            .unwrap();
        write_thrice(&volume);
        assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
        assert_eq!(counted(&volume, "dedup_fingerprints"), 2 * CONTENTS);
        assert_eq!(counted(&volume, "dedup_decided"), CONTENTS);
        let spent = volume.stats().medium.compared;
        assert!(spent.fingerprint_micros > 0 && spent.compare_micros > 0);
        // Another kind of hash: bytes are compared once more, and then the content is known again.
        volume.set_policy(deduplicating()).unwrap();
        volume
            .set_policy(Policy {
                fingerprint: Some(hash),
                ..deduplicating()
            })
            .unwrap();
        let mut client = Client::new(&volume);
        for lba in 3 * CONTENTS..3 * CONTENTS + 2 {
            client.write(lba, &[1]).unwrap();
        }
        assert_eq!(counted(&volume, "dedup_decided"), CONTENTS + 1);
        assert_read(&volume);
        stop_sound(&volume, &*medium);
    }
}

/// Opens the volume again, and writes all its contents once more: each is stored already.
fn assert_all_known(medium: &Arc<dyn Medium>, policy: Policy) {
    let volume = open_under(medium, policy);
    wait_until("the index knows all contents", || {
        counted(&volume, "index_entries") == CONTENTS
    });
    let mut client = Client::new(&volume);
    for content in 0..CONTENTS {
        client
            .write(3 * CONTENTS + content, &[content + 1])
            .unwrap();
    }
    assert_eq!(settled(&volume).core["dedup_blocks"], CONTENTS);
    assert_read(&volume);
    stop_sound(&volume, &**medium);
}

#[test]
fn the_index_is_filled_from_the_medium_after_a_restart() {
    let (medium, volume) = volume();
    write_thrice(&volume);
    volume.stop().unwrap();
    drop(volume);
    assert_all_known(&medium, deduplicating());
}

#[test]
fn parts_of_pages_are_known_again_after_a_restart() {
    let (medium, volume) = volume();
    volume.set_policy(packing()).unwrap();
    write_thrice(&volume);
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    volume.stop().unwrap();
    drop(volume);
    let policy = Policy {
        compression: Compression::Lz4,
        ..deduplicating()
    };
    assert_all_known(&medium, policy);
}

#[test]
fn blocks_of_one_checksum_are_told_apart() {
    let (medium, volume) = older_volume();
    for fingerprint in [None, Some(PrintHash::Blake3)] {
        volume
            .set_policy(Policy {
                fingerprint,
                ..deduplicating()
            })
            .unwrap();
        let mut client = Client::new(&volume);
        for lba in 0..40 {
            let mut request = client.write_request(lba, &[5], false);
            let before = crc32c::crc32c(request.frames.block(0));
            if lba % 2 == 1 {
                collide(&mut request);
            }
            assert_eq!(crc32c::crc32c(request.frames.block(0)), before);
            client.call(request).unwrap();
        }
        assert!(counted(&volume, "dedup_false_hints") > 0);
        for lba in 0..40 {
            let request = client.request(Op::Read, lba, 1);
            let mut request = client.call(request).unwrap();
            if lba % 2 == 1 {
                collide(&mut request);
            }
            assert_eq!(request.frames.block(0), common::block_of(5), "LBA {lba}");
        }
        client.discard(0, 40).unwrap();
    }
    stop_sound(&volume, &*medium);
}

#[test]
fn the_same_blocks_from_several_threads_are_stored_once() {
    let (medium, volume) = volume();
    volume.set_policy(deduplicating()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                let mut client = Client::new(volume);
                let contents: Vec<u64> = (0..CONTENTS).collect();
                // Not so many at once that the buffer is full, because then in-line deduplication stops.
                for contents in contents.chunks(60) {
                    let requests = contents.iter().map(|content| {
                        client.write_request(thread * CONTENTS + content, &[content + 1], false)
                    });
                    let requests = requests.collect();
                    for tag in client.submit(requests) {
                        client.sink.wait(tag).unwrap();
                    }
                }
            });
        }
    });
    // A write that waits for a comparison has no place yet, so another one with the same contents does not find it.
    assert!(counted(&volume, "dedup_blocks") >= 2 * CONTENTS);
    Client::new(&volume).flush().unwrap();
    sweep(&volume);
    wait_for_sweeps(&volume, 1);
    assert_eq!(counted(&volume, "live_blocks"), CONTENTS);
    assert_read(&volume);
    stop_sound(&volume, &*medium);
}

#[test]
fn the_index_changes_its_size_and_kind_under_load() {
    let (medium, volume) = volume();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !done.load(Ordering::SeqCst) {
                round += 1;
                volume
                    .set_policy(Policy {
                        dedup: round % 5 != 0,
                        index_bytes: [64, 4096, 1 << 20, 40_000][round % 4],
                        store: store_named(["compact", "caftl", "caftl-hot"][round % 3]).unwrap(),
                        fingerprint: [None, Some(PrintHash::Blake3), Some(PrintHash::Md5)]
                            [round % 3],
                        ..Policy::default()
                    })
                    .unwrap();
            }
        });
        let mut client = Client::new(&volume);
        let mut random = common::Random(5);
        let mut holds = vec![0; 1000];
        for step in 0..6000u64 {
            let lba = random.below(1000);
            let content = 1 + random.below(50);
            client.write(lba, &[content]).unwrap();
            holds[lba as usize] = content;
            if step % 10 == 0 {
                let lba = random.below(1000);
                assert_eq!(client.read(lba, 1).unwrap(), [holds[lba as usize]]);
            }
        }
        for (lba, &content) in holds.iter().enumerate() {
            assert_eq!(client.read(lba as u64, 1).unwrap(), [content], "LBA {lba}");
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(counted(&volume, "dedup_blocks") > 100);
    stop_sound(&volume, &*medium);
}
