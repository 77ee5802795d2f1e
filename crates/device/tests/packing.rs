//! Blocks in fewer bytes: written, read from memory and from the medium, shared with a journal, moved, damaged.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Client, Random, assert_sound, block_of, create, open, open_packing};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_device::Volume;
use vellum_device::block::BlockError;
use vellum_device::pack::{Compression, Level};
use vellum_medium::{Medium, MemoryMedium};

fn core(volume: &Volume, name: &str) -> u64 {
    volume.stats().core[name]
}

/// A medium with a new volume on it; also as memory, to look at its blocks.
fn written(medium_blocks: u64) -> (Arc<MemoryMedium>, Arc<dyn Medium>) {
    let memory = Arc::new(MemoryMedium::new(medium_blocks));
    create(&*memory);
    let medium: Arc<dyn Medium> = memory.clone();
    (memory, medium)
}

#[test]
fn repetitive_blocks_take_less_room_and_read_as_written() {
    for how in [&Compression::ALL[..], &[Compression::Zstd(Level::MAX)]].concat() {
        let (_, medium) = written(6000);
        let volume = open_packing(&medium, how);
        let mut client = Client::new(&volume);
        let fills: Vec<u64> = (1..=1000).collect();
        for (index, fills) in fills.chunks(50).enumerate() {
            client.write(index as u64 * 50, fills).unwrap();
        }
        client.flush().unwrap();
        for lba in (0..1000).step_by(40) {
            let expected: Vec<u64> = (lba + 1..=lba + 40).collect();
            assert_eq!(client.read(lba, 40).unwrap(), expected);
        }
        let live = core(&volume, "live_blocks");
        match how {
            Compression::Off => assert_eq!(live, 1000),
            // Six of seven patterns can be stored in fewer bytes, two of them in few.
            _ => assert!(live < 700, "{how}: {live} pages"),
        }
        let space = volume.stats().space;
        assert_eq!(space.mapped_bytes, 1000 * 4096);
        assert_eq!(space.saved_bytes, (1000 - live) * 4096);
        let reads = core(&volume, "packed_reads");
        assert_eq!(reads > 0, how != Compression::Off, "{how}: {reads}");
        volume.stop().unwrap();
        drop((client, volume));
        assert_sound(&*medium);
        // A later opening need not pack.
        let volume = open(&medium);
        let expected: Vec<u64> = (1..=1000).collect();
        let mut client = Client::new(&volume);
        for lba in (0..1000).step_by(40) {
            let range = lba as usize..lba as usize + 40;
            assert_eq!(client.read(lba, 40).unwrap(), expected[range]);
        }
    }
}

#[test]
fn a_small_block_and_a_flush_cost_one_page() {
    let (_, medium) = written(6000);
    let volume = open_packing(&medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    client.flush().unwrap();
    let before = volume.stats().medium.written_bytes;
    for round in 0..20 {
        // 4 and 30 of 512 words that do not repeat.
        client
            .write(round * 3, &[1 + 7 * round, 2 + 7 * round])
            .unwrap();
        client.flush().unwrap();
    }
    let written = volume.stats().medium.written_bytes - before;
    assert_eq!(written, 20 * BLOCK_BYTES as u64);
}

#[test]
fn the_collector_moves_pages_of_parts() {
    let (_, medium) = written(2200);
    let volume = open_packing(&medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    let mut random = Random(3);
    let mut content = vec![0; 1200];
    for stamp in 1..20_000 {
        let lba = random.below(1200);
        client.write(lba, &[stamp]).unwrap();
        content[lba as usize] = stamp;
        if stamp % 97 == 0 {
            client.flush().unwrap();
        }
        if stamp % 1000 == 0 {
            let from = random.below(1100);
            let range = from as usize..from as usize + 100;
            assert_eq!(client.read(from, 100).unwrap(), content[range]);
        }
    }
    assert!(core(&volume, "medium_moved") > 0);
    for lba in (0..1200).step_by(100) {
        let range = lba as usize..lba as usize + 100;
        assert_eq!(client.read(lba, 100).unwrap(), content[range]);
    }
    volume.stop().unwrap();
    drop((client, volume));
    assert_sound(&*medium);
}

#[test]
fn a_journal_copy_in_a_part_is_found_when_it_is_written_home() {
    let (_, medium) = written(6000);
    let volume = open_packing(&medium, Compression::Lz4);
    volume.set_journal(0, 200 * BLOCK_BYTES as u64).unwrap();
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=60).collect();
    client.write(100, &fills).unwrap();
    client.flush().unwrap();
    let pages = core(&volume, "live_blocks");
    client.write(1000, &fills[..30]).unwrap();
    client.flush().unwrap();
    assert_eq!(core(&volume, "remapped_blocks"), 30);
    assert_eq!(core(&volume, "live_blocks"), pages);
    // From the medium, when nothing is in memory any more.
    volume.stop().unwrap();
    drop((client, volume));
    let volume = open_packing(&medium, Compression::Lz4);
    volume.set_journal(0, 200 * BLOCK_BYTES as u64).unwrap();
    let mut client = Client::new(&volume);
    assert_eq!(client.read(1000, 30).unwrap(), fills[..30]);
    client.write(100, &fills).unwrap();
    client.discard(100, 60).unwrap();
    assert_eq!(client.read(1000, 30).unwrap(), fills[..30]);
}

#[test]
fn a_damaged_page_of_parts_is_an_error_and_never_data() {
    let (memory, medium) = written(3000);
    let volume = open_packing(&medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    // Two that share a header, and one in a separate chunk.
    client.write(10, &[1, 2]).unwrap();
    client.flush().unwrap();
    client.write(12, &[7]).unwrap();
    client.flush().unwrap();
    volume.stop().unwrap();
    drop((client, volume));
    // The part of the second pattern that does not repeat is stored as it is.
    let pattern = &block_of(2)[40..64];
    let mut block = vec![0; BLOCK_BYTES];
    let mut damaged = 0;
    for at in 0..3000 {
        memory.read(Pba(at), &mut block).unwrap();
        if let Some(place) = block.windows(24).position(|bytes| bytes == pattern) {
            block[place + 3] ^= 1;
            memory.write(Pba(at), &block).unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    for lba in [10, 11] {
        let error = client.read(lba, 1).unwrap_err();
        assert!(matches!(error, BlockError::Io(_)), "{error}");
    }
    assert_eq!(client.read(12, 1).unwrap(), [7]);
}
