//! What a full thin volume keeps for a mount and for deletions (promise 7), on each layout.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod common;

use common::{Client, small};
use std::sync::Arc;
use vellum_core::format::areas::Layout;
use vellum_device::block::BlockError;
use vellum_device::{CreateOptions, Volume};
use vellum_medium::{Medium, MemoryMedium};

const BLOCK: u64 = 4096;
const JOURNAL: u64 = 1024;
const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Ordered, Layout::Shadow];

fn thin(layout: Layout) -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(8000));
    let options = CreateOptions {
        segment_blocks: (layout == Layout::Log).then_some(64),
        logical_blocks: Some(24_000),
        layout,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    medium
}

/// Opens it with a journal at its beginning.
fn open(medium: &Arc<dyn Medium>) -> Client {
    let volume = Volume::open(Arc::clone(medium), &small()).unwrap();
    volume.set_journal(0, JOURNAL * BLOCK).unwrap();
    Client::new(&Arc::new(volume))
}

fn again(client: Client, medium: &Arc<dyn Medium>) -> Client {
    client.volume.stop().unwrap();
    drop(client);
    open(medium)
}

/// Writes unique contents, block after block, until one is refused. Returns how many were written.
fn fill(client: &mut Client, blocks: std::ops::Range<u64>) -> u64 {
    let first = blocks.start;
    let end = blocks.end;
    for lba in blocks {
        match client.write(lba, &[lba + 1]) {
            Ok(()) => {}
            Err(BlockError::Full) => return lba - first,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("block {end} is reached, and nothing is full");
}

#[test]
fn data_leaves_room_for_a_journal_at_each_opening() {
    for layout in LAYOUTS {
        let medium = thin(layout);
        let mut client = open(&medium);
        let data = fill(&mut client, JOURNAL..24_000);
        let next = JOURNAL + data;
        client.flush().unwrap();
        assert!(client.write(next + 5000, &[1]).is_err(), "{layout:?}");
        let mut at = 0;
        let mut taken = Vec::new();
        for _ in 0..4 {
            let count = fill(&mut client, at..JOURNAL);
            at += count;
            taken.push(count);
            client = again(client, &medium);
        }
        let halves = taken.windows(2).all(|two| two[1] <= two[0] && 0 < two[1]);
        assert!(taken[0] > 50 && halves, "{layout:?}: {taken:?}");
        // Deletions free all of it again.
        client.discard(JOURNAL, 2000).unwrap();
        client.flush().unwrap();
        let more = fill(&mut client, 10_000..24_000);
        assert!(more > 1500, "{layout:?}: {more}");
        assert!(fill(&mut client, at..JOURNAL) >= taken[0], "{layout:?}");
        assert_eq!(client.read(next - 1, 1).unwrap(), [next], "{layout:?}");
    }
}

#[test]
fn unfollowed_data_uses_up_no_reserve_over_many_openings() {
    for layout in LAYOUTS {
        let medium = thin(layout);
        let mut client = open(&medium);
        let mut at = JOURNAL + fill(&mut client, JOURNAL..24_000);
        for _ in 0..30 {
            client = again(client, &medium);
            at += fill(&mut client, at..24_000);
        }
        client = again(client, &medium);
        assert!(fill(&mut client, 0..JOURNAL) > 0, "{layout:?}");
    }
}

/// The first steps of a mount: it reads the journal, and writes its contents home.
#[test]
fn a_replay_takes_no_room() {
    for layout in LAYOUTS {
        let medium = thin(layout);
        let mut client = open(&medium);
        for lba in 0..JOURNAL / 2 {
            client.write(lba, &[lba + 100_000]).unwrap();
        }
        fill(&mut client, JOURNAL..24_000);
        client = again(client, &medium);
        let before = client.volume.stats().core;
        for lba in 0..JOURNAL / 2 {
            assert_eq!(client.read(lba, 1).unwrap(), [lba + 100_000]);
        }
        for lba in 0..JOURNAL / 2 {
            client.write(20_000 + lba, &[lba + 100_000]).unwrap();
        }
        let after = client.volume.stats().core;
        let remapped = after["remapped_blocks"] - before["remapped_blocks"];
        assert!(remapped > JOURNAL / 2 - 5, "{layout:?}: {remapped}");
        client.flush().unwrap();
        client = again(client, &medium);
        for lba in 0..JOURNAL / 2 {
            assert_eq!(client.read(20_000 + lba, 1).unwrap(), [lba + 100_000]);
        }
    }
}
