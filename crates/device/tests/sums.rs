//! A block's sum distinguishes versions of one block, even if their CRC32C is the same.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

mod common;

use common::{Client, create_as, open, stop_sound, superblock_of, with_crc_sums};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_device::block::{BlockError, Op};
use vellum_device::crc32c;
use vellum_medium::{Medium, MemoryMedium};

const LBA: u64 = 7;

/// A version of ext4's superblock, with nothing around it: it ends with its own CRC32C.
fn superblock(number: u8) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[1024..2044].fill(0x5a);
    block[1100] = number;
    let sum = !crc32c(&block[1024..2044]);
    block[2044..2048].copy_from_slice(&sum.to_le_bytes());
    block
}

fn place_of(medium: &dyn Medium, wanted: &[u8]) -> Pba {
    let mut block = [0; BLOCK_BYTES];
    let is_there = |at: &Pba| {
        medium.read(*at, &mut block).unwrap();
        block == wanted
    };
    (0..medium.blocks()).map(Pba).find(is_there).unwrap()
}

/// Writes two versions of a block, and puts the older one's bytes where the newer one's are: a lost write, in a place that held
/// the block before. Returns what is read then, and whether the check finds nothing.
fn read_back_over_the_newer(layout: Layout, sums: SumKind) -> (Result<Vec<u8>, BlockError>, bool) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create_as(&*medium, layout);
    if sums == SumKind::Crc32c {
        with_crc_sums(&*medium);
    }
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    for number in [1, 2] {
        let mut request = client.write_request(LBA, &[1], false);
        request
            .frames
            .block_mut(0)
            .copy_from_slice(&superblock(number));
        client.call(request).unwrap();
        client.flush().unwrap();
    }
    stop_sound(&volume, &*medium);
    let newer = place_of(&*medium, &superblock(2));
    medium.write(newer, &superblock(1)).unwrap();
    let options = vellum_core::check::Options {
        data: true,
        ..Default::default()
    };
    let is_sound = vellum_device::inspect::check_medium(&*medium, options).is_sound();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let request = client.request(Op::Read, LBA, 1);
    let read = client.call(request);
    volume.stop().unwrap();
    assert_eq!(superblock_of(&*medium).sums(), sums, "it stays as it is");
    (read.map(|read| read.frames.block(0).to_vec()), is_sound)
}

#[test]
fn an_older_version_of_a_block_is_an_error_and_never_data() {
    assert_eq!(crc32c(&superblock(1)), crc32c(&superblock(2)));
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let (read, is_sound) = read_back_over_the_newer(layout, SumKind::Xxh3);
        assert!(matches!(read, Err(BlockError::Io(_))), "{}", layout.name());
        assert!(!is_sound, "{}", layout.name());
        // Older volumes do not detect it.
        let (read, is_sound) = read_back_over_the_newer(layout, SumKind::Crc32c);
        assert_eq!(read.unwrap(), superblock(1), "{}", layout.name());
        assert!(is_sound, "{}", layout.name());
    }
}

#[test]
fn an_older_volume_is_written_and_read_as_it_was() {
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
        create_as(&*medium, layout);
        with_crc_sums(&*medium);
        for life in 0..3 {
            let volume = open(&medium);
            let mut client = Client::new(&volume);
            for lba in 0..50 {
                if life > 0 {
                    assert_eq!(client.read(lba, 1).unwrap(), [lba + life]);
                }
                client.write(lba, &[lba + life + 1]).unwrap();
            }
            stop_sound(&volume, &*medium);
            assert_eq!(superblock_of(&*medium).sums(), SumKind::Crc32c);
        }
    }
}
