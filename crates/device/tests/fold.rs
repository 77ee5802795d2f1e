//! Sparse pages of parts: folding them frees room, changes nothing, and does not get in a client's way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use common::{
    Client, Random, assert_sound, create, open, open_packing, stop_sound, wait_for, with_crc_sums,
};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::SumKind;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, Haste, Sought, Volume};
use vellum_medium::{Medium, MemoryMedium};

/// The number of blocks written.
const BLOCKS: u64 = 3000;

fn counted(volume: &Volume, name: &str) -> u64 {
    volume.stats().core[name]
}

/// A fill whose block is stored in fewer bytes, from some dozens to most of a page.
fn small(number: u64) -> u64 {
    number / 5 * 7 + 1 + number % 5
}

/// Chooses the next block to write.
type Load = fn(&mut Random) -> u64;

fn uniform(random: &mut Random) -> u64 {
    random.below(BLOCKS)
}

/// The first ones far more often than the last ones.
fn skewed(random: &mut Random) -> u64 {
    (0..3).map(|_| random.below(BLOCKS)).min().unwrap_or(0)
}

/// Nine of ten writes go to a tenth of the blocks.
fn hot_and_cold(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => BLOCKS / 10 + random.below(BLOCKS * 9 / 10),
        _ => random.below(BLOCKS / 10),
    }
}

/// The contents of each block, and the number of contents so far.
struct Contents {
    fills: Vec<u64>,
    next: u64,
    random: Random,
}

impl Contents {
    /// Writes all blocks in order.
    fn write_all(client: &mut Client) -> Self {
        let mut contents = Self {
            fills: vec![0; BLOCKS as usize],
            next: 0,
            random: Random(7),
        };
        for lba in 0..BLOCKS {
            contents.write(client, lba);
        }
        contents
    }

    fn write(&mut self, client: &mut Client, lba: u64) {
        self.next += 1;
        let fill = small(self.next);
        client.write(lba, &[fill]).unwrap();
        self.fills[lba as usize] = fill;
    }

    /// Writes random blocks again.
    fn write_again(&mut self, client: &mut Client, load: Load, writes: u64) {
        for _ in 0..writes {
            // Neighbours are not written equally often.
            let lba = load(&mut self.random) * 1009 % BLOCKS;
            self.write(client, lba);
        }
    }

    fn assert_read(&self, volume: &Arc<Volume>) {
        let mut client = Client::new(volume);
        for (from, fills) in (0..).step_by(100).zip(self.fills.chunks(100)) {
            assert_eq!(client.read(from, 100).unwrap(), fills, "from LBA {from} on");
        }
    }
}

fn medium() -> (Arc<MemoryMedium>, Arc<dyn Medium>) {
    let memory = Arc::new(MemoryMedium::new(6000));
    create(&*memory);
    let medium: Arc<dyn Medium> = memory.clone();
    (memory, medium)
}

/// A volume whose blocks were written in order, and then some of them again.
fn sparse(medium: &Arc<dyn Medium>, load: Load) -> (Arc<Volume>, Contents) {
    let volume = open_packing(medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    let mut contents = Contents::write_all(&mut client);
    contents.write_again(&mut client, load, 3 * BLOCKS);
    client.flush().unwrap();
    (volume, contents)
}

fn fold(volume: &Volume) {
    let ended = volume.sweep_progress(Sought::SparsePages).ended;
    volume.sweep(Sought::SparsePages, Haste::Beside).unwrap();
    wait_for(volume, "the fold ends", |volume| {
        volume.sweep_progress(Sought::SparsePages).ended == ended + 1
    });
}

#[test]
fn folding_gives_room_back_and_changes_nothing() {
    let loads: [(&str, Load, SumKind); 4] = [
        ("uniform", uniform, SumKind::Xxh3),
        ("skewed", skewed, SumKind::Xxh3),
        ("hot and cold", hot_and_cold, SumKind::Xxh3),
        ("an older volume", skewed, SumKind::Crc32c),
    ];
    for (name, load, sums) in loads {
        let (_, medium) = medium();
        if sums == SumKind::Crc32c {
            with_crc_sums(&*medium);
        }
        let (volume, contents) = sparse(&medium, load);
        let before = volume.stats();
        let pages = before.core["packed_pages"];
        assert_eq!(before.core["packed_owners"], BLOCKS);
        fold(&volume);
        let after = volume.stats();
        let left = after.core["packed_pages"];
        let folded = after.core["folded_blocks"];
        let [pages_a_block, left_a_block] = [pages, left].map(|of| of as f64 / BLOCKS as f64);
        println!(
            "{name}: {pages_a_block:.2} pages a block, {left_a_block:.2} when {folded} of {BLOCKS} were \
             folded"
        );
        // Half of all parts are dead, and in each page that is left half are alive.
        assert!(left * 10 < pages * 8, "{name}: {left} of {pages}");
        assert!(after.core["folds"] >= pages - left, "{name}");
        assert_eq!(after.core["packed_owners"], BLOCKS);
        // No client requested it.
        assert_eq!(after.clients, before.clients);
        for name in ["host_blocks_written", "packed_blocks", "asked_data"] {
            assert_eq!(after.core[name], before.core[name], "{name}");
        }
        assert!(after.medium.read.read_fold_bytes >= folded);
        contents.assert_read(&volume);
        // Folded pages are not sparse.
        fold(&volume);
        let again = counted(&volume, "folded_blocks") - folded;
        assert!(again < folded / 20, "{name}: {again} after {folded}");
        stop_sound(&volume, &*medium);
        contents.assert_read(&open(&medium));
    }
}

#[test]
fn clients_go_on_beside_a_fold() {
    let (_, medium) = medium();
    let (volume, mut contents) = sparse(&medium, skewed);
    let mut client = Client::new(&volume);
    for _ in 0..5 {
        volume.sweep(Sought::SparsePages, Haste::Now).unwrap();
        contents.write_again(&mut client, skewed, 500);
        let lba = contents.random.below(BLOCKS);
        client.discard(lba, 1).unwrap();
        contents.fills[lba as usize] = 0;
        contents.assert_read(&volume);
    }
    fold(&volume);
    assert!(counted(&volume, "folded_blocks") > 0);
    contents.assert_read(&volume);
    stop_sound(&volume, &*medium);
    contents.assert_read(&open(&medium));
}

#[test]
fn a_fold_ends_when_it_is_switched_off() {
    let (_, medium) = medium();
    let (volume, contents) = sparse(&medium, skewed);
    let policy = |fold| Policy {
        compression: Compression::Lz4,
        sweep_blocks: 200,
        fold,
        ..Policy::default()
    };
    volume.set_policy(policy(true)).unwrap();
    volume.sweep(Sought::SparsePages, Haste::Beside).unwrap();
    wait_for(&volume, "it has folded some", |volume| {
        counted(volume, "folded_blocks") >= 20
    });
    volume.set_policy(policy(false)).unwrap();
    wait_for(&volume, "it has ended", |volume| {
        volume.sweep_progress(Sought::SparsePages).halted == 1
    });
    assert_eq!(volume.sweep_progress(Sought::SparsePages).ended, 0);
    contents.assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// Parts from an encoding that was better than the present one stay in their page.
#[test]
fn a_page_stays_if_one_of_its_parts_cannot_be_encoded_again() {
    let (_, medium) = medium();
    let volume = open_packing(&medium, Compression::ZSTD);
    let mut client = Client::new(&volume);
    let mut random = Random(1);
    // Twelve letters in random order: half a page for zstd, and a whole one for LZ4.
    let mut write = |client: &mut Client, lba: u64| {
        let mut request = client.write_request(lba, &[1], false);
        let block = request.frames.block_mut(0);
        block.fill_with(|| b'a' + random.below(12) as u8);
        client.call(request).unwrap();
    };
    (0..100).for_each(|lba| write(&mut client, lba));
    client.flush().unwrap();
    (0..100).step_by(2).for_each(|lba| write(&mut client, lba));
    client.flush().unwrap();
    let lz4 = Policy {
        compression: Compression::Lz4,
        ..Policy::default()
    };
    volume.set_policy(lz4).unwrap();
    fold(&volume);
    assert!(volume.stats().medium.read.read_fold_bytes > 0);
    assert_eq!(counted(&volume, "folded_blocks"), 0);
    assert_eq!(counted(&volume, "folds_put_off"), 0);
    volume
        .set_policy(Policy {
            compression: Compression::ZSTD,
            ..lz4
        })
        .unwrap();
    fold(&volume);
    assert!(counted(&volume, "folds") > 20);
    volume.stop().unwrap();
}

#[test]
fn a_fold_that_is_killed_loses_nothing() {
    let (_, medium) = medium();
    let (volume, contents) = sparse(&medium, skewed);
    let live = counted(&volume, "live_blocks");
    drop(volume);
    for kill in 0..4 {
        let volume = open_packing(&medium, Compression::Lz4);
        volume
            .set_policy(Policy {
                compression: Compression::Lz4,
                sweep_blocks: 400,
                ..Policy::default()
            })
            .unwrap();
        volume.sweep(Sought::SparsePages, Haste::Beside).unwrap();
        wait_for(&volume, "it has folded some", |volume| {
            counted(volume, "folded_blocks") >= 20
        });
        if kill % 2 == 0 {
            Client::new(&volume).flush().unwrap();
        }
        // Without a stop: the medium is left as by a crash.
        drop(volume);
        assert_sound(&*medium);
    }
    let volume = open_packing(&medium, Compression::Lz4);
    assert!(counted(&volume, "live_blocks") < live);
    contents.assert_read(&volume);
    volume.halt_sweep(Sought::SparsePages).unwrap();
    fold(&volume);
    contents.assert_read(&volume);
    stop_sound(&volume, &*medium);
}

/// Parts that cannot be read stay where they are, and remain an error; everything else is folded.
#[test]
fn a_fold_leaves_what_is_damaged_alone() {
    let (memory, medium) = medium();
    let (volume, contents) = sparse(&medium, skewed);
    volume.stop().unwrap();
    drop(volume);
    let mut page = [0; BLOCK_BYTES];
    let is_page = |at: &u64| {
        memory.read(Pba(*at), &mut page).unwrap();
        page.starts_with(b"VLPK")
    };
    let pages: Vec<u64> = (0..memory.blocks()).filter(is_page).collect();
    for &at in pages.iter().step_by(10) {
        memory.read(Pba(at), &mut page).unwrap();
        page[4000] ^= 1;
        memory.write(Pba(at), &page).unwrap();
    }
    let volume = open_packing(&medium, Compression::Lz4);
    let read = |volume: &Arc<Volume>| -> Vec<bool> {
        let mut client = Client::new(volume);
        let fills = (0..).zip(&contents.fills);
        fills
            .map(|(lba, &fill)| match client.read(lba, 1) {
                Ok(got) => {
                    assert_eq!(got, [fill], "LBA {lba}");
                    true
                }
                Err(_) => false,
            })
            .collect()
    };
    let before = read(&volume);
    assert!(before.contains(&false));
    fold(&volume);
    assert!(counted(&volume, "folds") > 0);
    assert_eq!(read(&volume), before);
    volume.stop().unwrap();
}

/// A volume folds by itself when little room is left and no clients are active.
#[test]
fn a_volume_folds_by_itself_when_little_is_free() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(3000));
    let options = CreateOptions {
        logical_blocks: Some(2 * BLOCKS),
        segment_blocks: Some(64),
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    let policy = Policy {
        compression: Compression::Lz4,
        fold: true,
        ..Policy::default()
    };
    let volume = open_packing(&medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    let mut contents = Contents::write_all(&mut client);
    while volume.stats().room.used_percent <= 85 {
        contents.write_again(&mut client, skewed, 10);
    }
    // Enough writes to make it look, which take no room.
    for _ in 0..(64 << 10) / 256 {
        client.write(BLOCKS, &[0; 256]).unwrap();
    }
    client.flush().unwrap();
    let used = volume.stats().room.used_percent;
    volume.set_policy(policy).unwrap();
    wait_for(&volume, "it folds", |volume| {
        volume.sweep_progress(Sought::SparsePages).ended == 1
    });
    assert!(volume.stats().room.used_percent < used - 10);
    contents.assert_read(&volume);
    stop_sound(&volume, &*medium);
}
