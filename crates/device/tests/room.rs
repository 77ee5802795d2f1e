//! A thin volume that fills up reports it before it is full, on every layout, and again when it fills up again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::Client;
use parking_lot::Mutex;
use std::sync::Arc;
use vellum_core::format::areas::Layout;
use vellum_device::block::BlockError;
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::MemoryMedium;

const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Ordered, Layout::Shadow];
const MEDIUM_BLOCKS: u64 = 8000;

type Told = Arc<Mutex<Vec<String>>>;

fn open(layout: Layout, logical_blocks: u64) -> (Arc<Volume>, Told) {
    let medium = Arc::new(MemoryMedium::new(MEDIUM_BLOCKS));
    let create = CreateOptions {
        layout,
        logical_blocks: Some(logical_blocks),
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create).unwrap();
    let told = Told::default();
    let theirs = Arc::clone(&told);
    let options = OpenOptions {
        on_event: Some(Arc::new(move |event| {
            theirs.lock().push(event.kind.clone())
        })),
        ..OpenOptions::default()
    };
    (Arc::new(Volume::open(medium, &options).unwrap()), told)
}

/// Writes blocks that all differ, from `from` on, until one is refused; returns that one.
fn fill(client: &mut Client, from: u64, until: u64) -> Option<u64> {
    (from..until).find(|&lba| match client.write(lba, &[lba + 1]) {
        Ok(()) => false,
        Err(BlockError::Full) => true,
        Err(other) => panic!("block {lba}: {other}"),
    })
}

#[test]
fn a_thin_volume_says_that_it_fills_up_before_it_is_full() {
    for layout in LAYOUTS {
        let (volume, told) = open(layout, 4 * MEDIUM_BLOCKS);
        let mut client = Client::new(&volume);
        let room = volume.stats().room;
        assert_eq!((room.level.as_str(), room.thin), ("ample", true));
        let capacity = room.capacity_bytes / 4096;
        for (percent, level) in [(80, "filling"), (90, "high"), (95, "critical")] {
            let reached = (capacity * percent).div_ceil(100);
            let before = told.lock().len();
            assert_eq!(fill(&mut client, 0, reached - 1), None, "{layout:?}");
            assert_eq!(told.lock().len(), before, "{layout:?}: too early");
            assert_eq!(fill(&mut client, reached - 1, reached), None, "{layout:?}");
            assert_eq!(told.lock().last().map(String::as_str), Some(level));
            let room = volume.stats().room;
            assert_eq!((room.level.as_str(), room.used_percent), (level, percent));
        }
        // The last part is kept for a mount and for deletions.
        let for_anybody = capacity - capacity / 32;
        assert_eq!(fill(&mut client, 0, 4 * MEDIUM_BLOCKS), Some(for_anybody));
        assert_eq!(
            told.lock().as_slice(),
            ["filling", "high", "critical", "full"]
        );

        // Once space is free again the level drops, and the next rise is reported again.
        client.discard(0, capacity / 2).unwrap();
        client.flush().unwrap();
        assert_eq!(volume.stats().room.level, "ample");
        assert_eq!(fill(&mut client, 0, capacity / 2), None);
        assert_eq!(
            told.lock()[4..],
            ["filling", "high", "critical"],
            "{layout:?}"
        );
        drop(client);
        volume.stop().unwrap();
    }
}

#[test]
fn a_volume_that_is_not_thin_never_reports_that_it_fills_up() {
    for layout in LAYOUTS {
        let (volume, told) = open(layout, 5000);
        let mut client = Client::new(&volume);
        assert_eq!(fill(&mut client, 0, 5000), None);
        assert_eq!(fill(&mut client, 0, 5000), None);
        let room = volume.stats().room;
        assert_eq!((room.level.as_str(), room.thin), ("ample", false));
        assert_eq!(told.lock().len(), 0, "{layout:?}");
        drop(client);
        volume.stop().unwrap();
    }
}
