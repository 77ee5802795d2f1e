//! Whatever is in tables in place, opening and checking them end in an answer, and a volume that opens can be used.
//!
//! Checksums would stop a fuzzer, so here every checksum is 0.

use crate::disk::Disk;
use crate::life;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::check::{Options, check};
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{Params, plan_tables};
use vellum_core::format::{self, SumKind, superblock::Superblock};
use vellum_core::layout::{recover, rescue};
use vellum_core::recovery::rescue::Trust;

const MEDIUM_BLOCKS: u64 = 700;

fn nothing(_: &[u8]) -> u32 {
    0
}

fn geometry(layout: Layout, sums: SumKind) -> Superblock {
    plan_tables(
        &Params {
            medium_blocks: MEDIUM_BLOCKS,
            logical_blocks: None,
            over_provisioning: 100,
            segment_blocks: None,
            uuid: *b"a fuzzed volume!",
            secret: *b"a fuzzed volume!a fuzzed volume!",
            sums,
        },
        layout,
    )
    .expect("large enough")
}

/// Checks that everything left can be read, and that everything lost is named.
fn read_the_rest(disk: &mut Disk, edits: &[u8]) {
    for trust in [Trust::Certain, Trust::Newest] {
        let Ok((found, loss)) = rescue(disk, MEDIUM_BLOCKS, nothing, trust) else {
            continue;
        };
        let blocks = found.superblock().logical_blocks();
        for (lba, length) in loss.lost.runs().chain(loss.guessed.runs()) {
            assert!(lba.0 + length <= blocks && length > 0);
            assert!(!(loss.lost.contains(lba) && loss.guessed.contains(lba)));
        }
        assert!(!edits.is_empty() || loss.lost.is_empty() && loss.damage.is_empty());
        life::read_all(found, &mut disk.written, life::chance(edits));
    }
}

/// Applies edits of eight bytes each to the first blocks of a volume: the block, the offset (two bytes), a share of how the
/// volume is used if it still opens, a number. Returns whether it opens.
pub fn volume(layout: Layout, sums: SumKind, edits: &[u8]) -> bool {
    let mut disk = Disk::new(MEDIUM_BLOCKS);
    let superblock = geometry(layout, sums);
    format::blank(&superblock, nothing, &mut |at, bytes| {
        disk.put(at, bytes);
    });
    let first = superblock.areas().data(0).0;
    for edit in edits.chunks_exact(8) {
        let block = disk.written.entry(u64::from(edit[0]) % first);
        let block = block.or_insert_with(|| vec![0; BLOCK_BYTES]);
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (BLOCK_BYTES - 4);
        block[at..at + 4].copy_from_slice(&edit[4..]);
    }
    let options = Options {
        data: true,
        ..Options::default()
    };
    check(&mut disk, MEDIUM_BLOCKS, options, nothing);
    read_the_rest(&mut disk, edits);
    let Ok(found) = recover(&mut disk, MEDIUM_BLOCKS, nothing) else {
        return false;
    };
    life::live(found, &mut disk.written, life::chance(edits), 80);
    let again = recover(&mut disk, MEDIUM_BLOCKS, nothing);
    assert!(!edits.is_empty() || again.is_ok(), "after a shutdown");
    true
}

/// The first byte chooses the layout and the block checksums: none, as everywhere here, or one that no block matches.
#[allow(dead_code, reason = "the fuzz target's; tests choose themselves")]
pub fn any(bytes: &[u8]) {
    if let Some((first, edits)) = bytes.split_first() {
        let layout = match first & 1 {
            0 => Layout::Ordered,
            _ => Layout::Shadow,
        };
        let sums = match first & 2 {
            0 => SumKind::Crc32c,
            _ => SumKind::Xxh3,
        };
        volume(layout, sums, edits);
    }
}
