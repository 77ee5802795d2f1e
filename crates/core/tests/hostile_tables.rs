//! Tables in place that no crash and no decay can cause: only an attacker who knows the checksums can make them. Opening refuses a volume
//! that the engine could not work with.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

use crc32c::crc32c;
use std::collections::HashMap;
use vellum_core::addr::{BLOCK_BYTES, Generation, Pba};
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{self, Params};
use vellum_core::format::root::{self, LeafSlot};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::table::{
    Edition, Entry, Kind, Link, Signer, encode_directory, shadow_root, sum_of_sectors,
};
use vellum_core::format::{self, SumKind};
use vellum_core::layout::{self, Recovered};
use vellum_core::recovery::{RecoveryError, Source, Unreadable};

/// More LBAs than a count has room for.
const BLOCKS: u64 = 80_000;
/// The most references that a data block may have.
const COUNT_MAX: u32 = 65_534;

struct Disk {
    blocks: HashMap<u64, Vec<u8>>,
    superblock: Superblock,
}

impl Source for Disk {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        for (at, out) in (at.0..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            match self.blocks.get(&at) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

impl Disk {
    fn new() -> Self {
        Self::of(Layout::Ordered, SumKind::Xxh3)
    }

    fn of(layout: Layout, sums: SumKind) -> Self {
        let params = Params {
            medium_blocks: BLOCKS,
            logical_blocks: None,
            over_provisioning: 20,
            segment_blocks: None,
            uuid: *b"a forged volume.",
            secret: [7; 32],
            sums,
        };
        let superblock = geometry::plan_tables(&params, layout).unwrap();
        let mut blocks = HashMap::new();
        format::blank(&superblock, crc32c, &mut |at, bytes| {
            for (at, block) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                blocks.insert(at, block.to_vec());
            }
        });
        Self { blocks, superblock }
    }

    /// Sets the first entries of a table.
    fn with<E: Entry>(mut self, entries: &[E]) -> Self {
        let signer = Signer::new(&self.superblock, crc32c);
        for (block, some) in (0..).zip(entries.chunks(E::KIND.entries())) {
            let mut all = vec![E::default(); E::KIND.entries()];
            all[..some.len()].copy_from_slice(some);
            let number = self.superblock.table_number(E::KIND, block);
            let mut bytes = vec![0; BLOCK_BYTES];
            signer.encode(number, Edition::default(), &all, &mut bytes);
            for at in self.copies(number) {
                self.blocks.insert(at.0, bytes.clone());
            }
        }
        self
    }

    fn copies(&self, number: u64) -> Vec<Pba> {
        let first = std::iter::once(self.superblock.table_at(number, 0));
        first.chain(self.superblock.map_twin(number, 0)).collect()
    }

    /// Damages the first block of a table, in each copy.
    fn without(mut self, kind: Kind) -> Self {
        let number = self.superblock.table_number(kind, 0);
        for at in self.copies(number) {
            self.blocks.insert(at.0, vec![0xa5; BLOCK_BYTES]);
        }
        self
    }

    fn error(mut self) -> Option<RecoveryError> {
        match layout::recover(&mut self, BLOCKS, crc32c) {
            Ok(Recovered::Tables(_)) => None,
            Ok(_) => panic!("a log"),
            Err(error) => Some(error),
        }
    }
}

/// Opens a volume with so many links to data block 0, this count, and a fingerprint or none.
fn linked(links: u32, count: u16, print: bool) -> Option<RecoveryError> {
    linked_on(Disk::new(), links, count, print)
}

fn linked_on(disk: Disk, links: u32, count: u16, print: bool) -> Option<RecoveryError> {
    disk.with(&vec![Link::to(0, 77); links as usize])
        .with(&[count])
        .with(&[u32::from(print)])
        .error()
}

#[test]
fn more_owners_than_a_count_has_room_for_are_refused() {
    let at = Disk::new().superblock.areas().data(0);
    let refused = Some(RecoveryError::TooManyOwners { at });
    let most = COUNT_MAX as u16;
    assert_eq!(linked(COUNT_MAX, most, false), None);
    assert_eq!(linked(COUNT_MAX - 1, most, true), None);
    assert_eq!(linked(COUNT_MAX, u16::MAX, true), refused);
    assert_eq!(linked(COUNT_MAX + 1, u16::MAX, false), refused);
    assert_eq!(linked(COUNT_MAX + 1, u16::MAX, true), refused);
    assert_eq!(linked(COUNT_MAX + 2, u16::MAX, false), refused);
}

/// Each link exists once, and nothing shows whether a link or the count is outdated.
#[test]
fn a_count_that_is_too_low_is_refused() {
    let older = || Disk::of(Layout::Ordered, SumKind::Crc32c);
    let at = older().superblock.areas().data(0);
    for (count, links, print) in [(1, 2, false), (2, 2, true), (0, 1, false)] {
        let error = RecoveryError::CountTooLow {
            at,
            count,
            links: links as u16 + u16::from(print),
        };
        assert_eq!(linked_on(older(), links, count, print), Some(error));
    }
    assert_eq!(linked_on(older(), 2, 3, true), None);
}

/// Links exist twice, so one block of counts may be outdated. Two would mean two lost writes, as outdated links would.
#[test]
fn counts_that_are_too_low_in_one_block_are_put_right() {
    assert_eq!(linked(2, 1, false), None);
    let of_block = Kind::Counts.entries() as u32;
    let far = Disk::new().with(&[Link::to(0, 77), Link::to(of_block - 1, 77)]);
    assert_eq!(far.error(), None);
    let far = Disk::new().with(&[Link::to(0, 77), Link::to(of_block, 77)]);
    assert!(matches!(
        far.error(),
        Some(RecoveryError::CountTooLow { count: 0, .. })
    ));
}

/// Each copy of a block of the map is damaged alone: the other one has its links.
#[test]
fn one_copy_of_the_map_is_enough() {
    for copy in 0..2 {
        let far = Link::to(u32::MAX - 1, 1);
        let mut disk = Disk::new().with(&[far]);
        let at = disk.copies(0)[copy];
        disk.blocks.insert(at.0, vec![0xa5; BLOCK_BYTES]);
        let error = disk.error();
        assert!(
            matches!(error, Some(RecoveryError::Outside { .. })),
            "{error:?}"
        );
    }
}

#[test]
fn a_link_outside_the_data_is_refused() {
    let superblock = Disk::new().superblock;
    let end = superblock.areas().data_blocks() as u32;
    let at = superblock.table_at(superblock.table_number(Kind::Map, 0), 0);
    let what = Kind::Map.name();
    let far = Link {
        unit: u32::MAX,
        sum: 1,
    };
    // A link to no block that has a checksum all the same.
    let none = Link { unit: 0, sum: 1 };
    for link in [Link::to(end, 1), far, none] {
        let error = Disk::new().with(&[link]).error();
        assert_eq!(error, Some(RecoveryError::Outside { what, at }), "{link:?}");
    }
    let last = Disk::new().with(&[Link::to(end - 1, 1)]);
    assert_eq!(last.error(), None);
}

/// Counts and fingerprints are not needed to open a volume; the map is. A block with the most owners possible is taken to have no
/// fingerprint.
#[test]
fn a_volume_opens_without_any_table_but_the_map() {
    let full = || {
        let links = vec![Link::to(0, 77); COUNT_MAX as usize];
        Disk::new().with(&links).with(&[COUNT_MAX as u16])
    };
    assert_eq!(full().without(Kind::Counts).error(), None);
    assert_eq!(full().without(Kind::Prints).error(), None);
    let neither = full().without(Kind::Counts).without(Kind::Prints);
    assert_eq!(neither.error(), None);
    let too_many = Disk::new().with(&vec![Link::to(0, 77); COUNT_MAX as usize + 1]);
    let at = too_many.superblock.areas().data(0);
    assert_eq!(
        too_many.without(Kind::Counts).error(),
        Some(RecoveryError::TooManyOwners { at })
    );
    let error = full().without(Kind::Map).error();
    assert!(
        matches!(error, Some(RecoveryError::Table { at, .. }) if at == Pba(1)),
        "{error:?}"
    );
}

/// For shadowed tables the error names the place of the copy that counts.
#[test]
fn a_link_outside_the_data_is_named_where_it_is() {
    for slot in 0..2 {
        let mut disk = Disk::of(Layout::Shadow, SumKind::Xxh3);
        let superblock = disk.superblock.clone();
        let far = Link::to(superblock.areas().data_blocks() as u32, 1);
        let mut entries = vec![Link::default(); Kind::Map.entries()];
        entries[0] = far;
        let mut bytes = vec![0; BLOCK_BYTES];
        let signer = Signer::new(&superblock, crc32c);
        signer.encode(0, Edition::default(), &entries, &mut bytes);
        let sum = match slot {
            0 => sum_of_sectors(&bytes, crc32c),
            // As before 2026-11-22.
            _ => crc32c(&bytes),
        };
        let at = superblock.table_at(0, slot);
        let mut directory = vec![0; BLOCK_BYTES];
        encode_directory(&[LeafSlot::at(slot as u32, sum)], &mut directory);
        let mut slots = vec![LeafSlot::Absent; superblock.directory_blocks() as usize];
        slots[0] = LeafSlot::at(slot as u32, crc32c(&directory));
        let generation = Generation(2);
        let mut root = vec![0; superblock.shadow_root_blocks() as usize * BLOCK_BYTES];
        root::encode(
            &shadow_root(&superblock, generation),
            &slots,
            crc32c,
            &mut root,
        );
        let places = [
            (at, bytes),
            (superblock.directory_at(0, slot), directory),
            (superblock.shadow_root_at(generation), root),
        ];
        for (at, bytes) in places {
            for (at, block) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                disk.blocks.insert(at, block.to_vec());
            }
        }
        let what = Kind::Map.name();
        assert_eq!(disk.error(), Some(RecoveryError::Outside { what, at }));
    }
}
