//! A medium is archived and restored, with failing reads, and with other contents on the target.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../../fuzz/src/archive.rs"]
mod fuzz;

use proptest::collection::vec;
use proptest::prelude::*;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::properties::Properties;
use vellum_core::recovery::find_superblock;
use vellum_device::archive::{DumpError, Head, Kind, Reader, Totals, dump, pack, restore};
use vellum_device::inspect::{check_medium, recover_medium};
use vellum_device::{CreateOptions, MediumSource, Volume, crc32c};
use vellum_medium::fault::Rule;
use vellum_medium::{Fault, FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 4096;

fn volume() -> MemoryMedium {
    let medium = MemoryMedium::new(BLOCKS);
    Volume::create(&medium, &CreateOptions::default()).unwrap();
    for block in 3000..3100 {
        medium
            .write(Pba(block), &[block as u8; BLOCK_BYTES])
            .unwrap();
    }
    medium
}

fn bytes(medium: &dyn Medium) -> Vec<u8> {
    let mut bytes = vec![0; medium.blocks() as usize * BLOCK_BYTES];
    medium.read(Pba(0), &mut bytes).unwrap();
    bytes
}

fn archive(medium: &dyn Medium) -> (Vec<u8>, Totals) {
    let head = Head {
        kind: Kind::Whole,
        uuid: [1; 16],
        life: 1,
        medium_blocks: BLOCKS,
    };
    dump(medium, &head, Vec::new(), &mut |_| true).unwrap()
}

fn put(archive: &[u8], medium: &dyn Medium, blank: bool) -> Result<Totals, String> {
    let mut reader = Reader::new(archive).map_err(|e| e.to_string())?;
    restore(&mut reader, medium, blank, &mut |_| true).map_err(|e| e.to_string())
}

fn opens(medium: &dyn Medium) -> bool {
    recover_medium(medium).is_ok()
}

#[test]
fn a_pack_is_ended_by_its_caller() {
    let medium = volume();
    let (superblock, _) = find_superblock(&mut MediumSource::new(&medium), BLOCKS, crc32c).unwrap();
    let head = Head {
        kind: Kind::Pack,
        uuid: superblock.uuid(),
        life: 1,
        medium_blocks: BLOCKS,
    };
    let packed = |ends: &dyn Fn() -> bool| {
        pack(
            &medium,
            &superblock,
            Properties::default(),
            &head,
            Vec::new(),
            ends,
        )
    };
    assert!(packed(&|| false).is_ok());
    let error = packed(&|| true).unwrap_err();
    assert!(matches!(error, DumpError::Interrupted), "{error}");
}

#[test]
fn the_old_contents_are_gone() {
    let medium = volume();
    let (archive, totals) = archive(&medium);
    // As if the same volume had lived on there, and were larger.
    let target = MemoryMedium::new(BLOCKS + 100);
    target
        .write(Pba(0), &vec![0xab; (BLOCKS as usize + 100) * BLOCK_BYTES])
        .unwrap();
    assert_eq!(put(&archive, &target, false), Ok(totals));
    let restored = bytes(&target);
    assert!(restored[..BLOCKS as usize * BLOCK_BYTES] == bytes(&medium)[..]);
    assert!(
        check_medium(&target, Default::default())
            .findings
            .is_empty()
    );
}

#[test]
fn unreadable_blocks_are_marked_and_the_rest_is_restored() {
    let medium = volume();
    let whole = bytes(&medium);
    let plan = Plan::default().with_every(Fault::ReadError, 3005..3007);
    let (archive, totals) = archive(&FaultMedium::new(Box::new(medium), plan));
    assert_eq!(totals.missing, 2);
    let target = MemoryMedium::new(BLOCKS);
    assert_eq!(put(&archive, &target, true), Ok(totals));
    let mut expected = whole;
    expected[3005 * BLOCK_BYTES..3007 * BLOCK_BYTES].fill(0);
    assert!(bytes(&target) == expected);
}

/// Wherever the archive ends or the medium fails, no volume remains, neither the old one nor half of the new one.
#[test]
fn a_restore_that_fails_leaves_no_volume() {
    let (archive, _) = archive(&volume());
    for place in 0..40 {
        let target = volume();
        assert!(opens(&target));
        // More than the head, and less than everything.
        let end = 64 + (archive.len() - 65) * place / 39;
        let error = put(&archive[..end], &target, false).unwrap_err();
        assert!(error.contains("cut short"), "{error}");
        assert!(!opens(&target), "cut at byte {end}");
    }
    let target = volume();
    let error = put(&archive[..63], &target, false).unwrap_err();
    assert!(error.contains("byte 0"), "{error}");
    assert!(opens(&target), "nothing was begun");

    for skip in 3..200 {
        let rule = Rule {
            fault: Fault::WriteError,
            blocks: 0..BLOCKS,
            skip,
            times: u64::MAX,
        };
        let plan = Plan::default().with_rule(rule);
        let target = FaultMedium::new(Box::new(volume()), plan);
        match put(&archive, &target, false) {
            // The very last write: one mirror is written, and so is everything else.
            Err(error) if error.contains("at byte 0:") => assert!(opens(&target)),
            Err(error) => assert!(!opens(&target), "write {skip}: {error}"),
            Ok(_) => return assert!(skip > 5 && opens(&target)),
        }
    }
    panic!("it takes more writes than that");
}

#[test]
fn a_medium_that_is_too_small_is_left_alone() {
    let (archive, _) = archive(&volume());
    let target = MemoryMedium::new(BLOCKS - 1);
    target.write(Pba(9), &[9; BLOCK_BYTES]).unwrap();
    let before = bytes(&target);
    let error = put(&archive, &target, false).unwrap_err();
    assert!(error.contains("has 16380"), "{error}");
    assert!(bytes(&target) == before);
}

proptest! {
    /// Does what the fuzz target does, so that the target does not rot.
    #[test]
    fn anything_is_read_within_bounds(bytes in vec(any::<u8>(), 0..300)) {
        fuzz::read(&bytes);
    }
}
