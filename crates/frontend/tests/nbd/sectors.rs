//! Clients that write sectors on several connections never undo each other's writes, nor those of aligned writers.

use crate::client::Client;
use crate::disks::{LateDisk, Served};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use vellum_frontend::nbd::wire::command;
use vellum_frontend::testing::RamDisk;

/// Each connection owns one sector of each of two blocks, and counts up in it. An update is lost if the owner of a sector finds
/// an old number there.
fn sector_writers(each: Duration, turns: u32) {
    let ram = Arc::new(RamDisk::new(16, 64, 64));
    let served = Served::of(LateDisk::new(Arc::clone(&ram), each));
    let path = served.path();
    std::thread::scope(|scope| {
        for owner in 0..8u64 {
            let path = &path;
            scope.spawn(move || {
                let mut client = Client::connected(path, "disk", owner % 2 == 0);
                for turn in 1..=turns {
                    let block = u64::from(turn % 2);
                    let offset = block * 4096 + owner * 512;
                    let sector = turn.to_be_bytes().repeat(128);
                    assert_eq!(client.write(offset, &sector), 0);
                    assert_eq!(
                        client.read(offset, 512),
                        sector,
                        "owner {owner}, turn {turn}"
                    );
                    if turn > 1 {
                        let other = (1 - block) * 4096 + owner * 512;
                        assert_eq!(
                            client.read(other, 4),
                            (turn - 1).to_be_bytes(),
                            "owner {owner}, turn {turn}"
                        );
                    }
                }
            });
        }
    });
    drop(served);
    assert!(ram.all_frames_free());
}

#[test]
fn sector_writers_of_one_block_lose_nothing() {
    sector_writers(Duration::ZERO, 200);
    sector_writers(Duration::from_micros(100), 30);
}

/// Reports the end even when its thread panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_aligned_write_is_not_undone_by_a_sector_write() {
    let ram = Arc::new(RamDisk::new(16, 64, 64));
    let served = Served::of(LateDisk::new(Arc::clone(&ram), Duration::from_micros(20)));
    let path = served.path();
    let done = AtomicBool::new(false);
    let turns = [const { AtomicU32::new(0) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&done);
            let mut client = Client::connected(&path, "disk", true);
            let began = Instant::now();
            let has_few = |turns: &AtomicU32| turns.load(Ordering::Relaxed) <= 10;
            // The others get their turns too, if they go on.
            let goes_on =
                |_: &u32| turns.iter().any(has_few) && began.elapsed() < Duration::from_secs(60);
            for _ in (0..400).chain((0..).take_while(goes_on)) {
                // Unused bytes, in the blocks that the others write whole.
                assert_eq!(client.write(512, &[0xaa; 512]), 0);
                assert_eq!(
                    client.call(command::WRITE_ZEROES, 0, 4096 + 512, 512, &[]),
                    0
                );
            }
        });
        for (block, turns) in (0..2u64).zip(&turns) {
            let (path, done) = (&path, &done);
            scope.spawn(move || {
                let mut client = Client::connected(path, "disk", true);
                let mut turn = 0u32;
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let bytes = turn.to_be_bytes().repeat(1024);
                    assert_eq!(client.write(block * 4096, &bytes), 0);
                    assert_eq!(client.read(block * 4096, 512), bytes[..512], "turn {turn}");
                    assert_eq!(
                        client.read(block * 4096 + 1024, 3072),
                        bytes[..3072],
                        "turn {turn}"
                    );
                    turns.store(turn, Ordering::Relaxed);
                }
                assert!(turn > 10);
            });
        }
    });
}
