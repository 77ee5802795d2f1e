//! The order of writes in a creation, for every layout: everything that a superblock names is written before it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

use vellum_core::addr::Pba;
use vellum_core::format;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{self, Params};
use vellum_core::format::superblock::Superblock;
use vellum_core::layout;
use vellum_core::recovery::{RecoveryError, Source, Unreadable};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 2000;

/// A medium with other contents, whose power is cut after some of the writes.
struct Disk(Vec<u8>);

impl Source for Disk {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let from = at.0 as usize * BLOCK;
        bytes.copy_from_slice(&self.0[from..from + bytes.len()]);
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

fn planned(layout: Layout, uuid: [u8; 16]) -> Superblock {
    let params = Params {
        medium_blocks: BLOCKS,
        logical_blocks: Some(500),
        over_provisioning: 100,
        segment_blocks: Some(64),
        uuid,
        secret: [9; 32],
        sums: format::SumKind::default(),
    };
    match layout {
        Layout::Log => geometry::plan(&params).unwrap(),
        _ => geometry::plan_tables(&params, layout).unwrap(),
    }
}

fn writes(superblock: &Superblock) -> Vec<(Pba, Vec<u8>)> {
    let mut writes = Vec::new();
    format::blank(superblock, crc32c::crc32c, &mut |at, bytes| {
        writes.push((at, bytes.to_vec()));
    });
    writes
}

fn carry_out(disk: &mut Disk, writes: &[(Pba, Vec<u8>)]) {
    for (at, bytes) in writes {
        let from = at.0 as usize * BLOCK;
        disk.0[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

fn uuid_of(disk: &mut Disk) -> Result<[u8; 16], RecoveryError> {
    layout::recover(disk, BLOCKS, crc32c::crc32c).map(|found| found.superblock().uuid())
}

#[test]
fn superblocks_are_written_last_and_the_first_mirror_after_all_else() {
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let superblock = planned(layout, [7; 16]);
        let [first, last] = superblock.mirrors();
        let places: Vec<Pba> = writes(&superblock).iter().map(|(at, _)| *at).collect();
        let (rest, superblocks) = places.split_at(places.len() - 2);
        assert_eq!(superblocks, [last, first], "{layout:?}");
        let early = rest.iter().any(|at| [first, last].contains(at));
        assert!(!early && !rest.is_empty(), "{layout:?}");
    }
}

/// A creation on a blank medium that is cut short anywhere leaves no volume, or a whole one.
#[test]
fn a_creation_that_is_cut_short_leaves_no_half_volume() {
    for layout in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let new = writes(&planned(layout, [7; 16]));
        for done in 0..=new.len() {
            let mut disk = Disk(vec![0; BLOCKS as usize * BLOCK]);
            carry_out(&mut disk, &new[..done]);
            match uuid_of(&mut disk) {
                Ok(uuid) => assert!(
                    uuid == [7; 16] && done > new.len() - 2,
                    "{layout:?}, {done}"
                ),
                Err(RecoveryError::NoSuperblock { .. }) => {
                    assert!(done <= new.len() - 2, "{layout:?}, after {done} writes");
                }
                Err(error) => panic!("{layout:?}, after {done} writes: {error}"),
            }
        }
    }
}

/// Over another volume of any layout, no mixture of the two is ever opened.
#[test]
fn a_creation_over_another_volume_takes_nothing_of_it() {
    let all = [Layout::Log, Layout::Ordered, Layout::Shadow];
    for (old, new) in all.into_iter().flat_map(|old| all.map(|new| (old, new))) {
        let before = writes(&planned(old, [1; 16]));
        let after = writes(&planned(new, [7; 16]));
        let mut disk = Disk(vec![0; BLOCKS as usize * BLOCK]);
        carry_out(&mut disk, &before);
        carry_out(&mut disk, &after);
        assert_eq!(uuid_of(&mut disk), Ok([7; 16]), "{new:?} over {old:?}");
    }
}
