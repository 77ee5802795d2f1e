//! File systems that lie, or that are larger than what is kept about one: copies on purpose are not shared, or the volume reports
//! that nothing is shared.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "only the sound volume is used here")]
mod ext4;

use common::{Client, open_under, wait_for};
use std::sync::Arc;
use vellum_device::block::Op;
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, FileSystemStats, Volume};
use vellum_ext4::limits::METADATA_GROUPS;
use vellum_medium::{Medium, MemoryMedium};
use vellum_watch::limits::CRITICAL_RANGES;

/// The blocks of a group, and the place in it of a block that has no copies.
const GROUP: u64 = 4;
const DATA: u64 = 3;

/// A volume with room for so many groups, with hardly anything stored.
fn thin(groups: u64) -> Arc<Volume> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(80_000));
    let create = CreateOptions {
        logical_blocks: Some(groups * GROUP + 64),
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create).unwrap();
    let policy = Policy {
        dedup: true,
        index_bytes: 1 << 20,
        ..Policy::default()
    };
    open_under(&medium, policy)
}

/// The superblock of an ext4 with so many groups, each with a copy of it and hardly any with descriptors (`meta_bg`).
fn superblock(groups: u64, blocks_per_group: u64) -> Vec<u8> {
    let sound = ext4::sound(true);
    let mut block = sound.pages().next().unwrap().1.to_vec();
    for (at, value) in [
        (0x00, groups * 16),
        (0x04, groups * blocks_per_group),
        (0x20, blocks_per_group),
        (0x24, blocks_per_group),
        (0x28, 16),
        (0x60, 0x50),
    ] {
        block[1024 + at..][..4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    block
}

/// Writes it, and waits until it is found.
fn put(client: &mut Client, superblock: &[u8]) -> FileSystemStats {
    let mut request = client.request(Op::Write { fua: false }, 0, 1);
    request.frames.block_mut(0).copy_from_slice(superblock);
    client.call(request).unwrap();
    let found = |volume: &Volume| volume.stats().write_once.file_systems;
    let volume = Arc::clone(&client.volume);
    wait_for(&volume, "a scan", |volume| {
        !found(volume).is_empty() && !volume.stats().commits.looking
    });
    found(&volume).remove(0)
}

/// True if equal writes to both places are stored once.
fn is_shared(client: &mut Client, content: u64, first: u64, second: u64) -> bool {
    let shared = |client: &Client| client.volume.stats().core["dedup_blocks"];
    let before = shared(client);
    for lba in [first, second] {
        client.write(lba, &[content]).unwrap();
        client.flush().unwrap();
    }
    shared(client) > before
}

#[test]
fn every_copy_of_a_superblock_is_kept_apart() {
    let groups = CRITICAL_RANGES as u64 - 1000;
    let volume = thin(groups);
    let mut client = Client::new(&volume);
    let found = put(&mut client, &superblock(groups, GROUP));
    assert_eq!(found.not_shared, None);
    let last = (groups - 10) * GROUP;
    assert!(!is_shared(&mut client, 1, GROUP, last));
    assert!(is_shared(&mut client, 2, GROUP + DATA, last + DATA));
    volume.stop().unwrap();
}

#[test]
fn nothing_is_shared_of_a_file_system_with_too_many_copies() {
    let groups = CRITICAL_RANGES as u64 + 1000;
    let volume = thin(groups);
    let mut client = Client::new(&volume);
    let found = put(&mut client, &superblock(groups, GROUP));
    assert!(found.not_shared.unwrap().contains("65536 places"));
    let last = (groups - 10) * GROUP;
    for (content, at) in [(1, 0), (2, DATA)] {
        assert!(!is_shared(&mut client, content, GROUP + at, last + at));
    }
    // But blocks after it are.
    let behind = groups * GROUP;
    assert!(is_shared(&mut client, 3, behind, behind + 1));
    volume.stop().unwrap();
}

#[test]
fn nothing_is_shared_of_a_file_system_with_too_many_groups() {
    let groups = METADATA_GROUPS + 1;
    let volume = thin(groups / GROUP + 1);
    let mut client = Client::new(&volume);
    let found = put(&mut client, &superblock(groups, 1));
    for told in [found.not_shared, found.metadata_in_part] {
        assert!(told.unwrap().contains("block groups"));
    }
    assert!(!is_shared(&mut client, 1, 1000, 100_000));
    // Once it is wiped, it does not matter any more.
    client.discard(0, 1).unwrap();
    wait_for(&volume, "it is gone", |volume| {
        let stats = volume.stats();
        stats.write_once.file_systems.is_empty() && !stats.commits.looking
    });
    assert!(is_shared(&mut client, 2, 1000, 100_000));
    volume.stop().unwrap();
}
