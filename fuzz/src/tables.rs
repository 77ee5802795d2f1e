//! Whatever is in tables in place, opening and checking them end in an answer, and what was opened can be read.
//!
//! Checksums would keep a fuzzer out, so here the checksum of anything is 0.

use std::collections::HashMap;
use vellum_core::addr::{BLOCK_BYTES, Lba, Nanos, Pba, RequestId};
use vellum_core::check::{Options, check};
use vellum_core::engine;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{Params, plan_tables};
use vellum_core::format::{self, superblock::Superblock};
use vellum_core::recovery::{Source, Unreadable};
use vellum_core::seam::{Effect, Input};
use vellum_core::tables::{self, Persistence, Tables};

const MEDIUM_BLOCKS: u64 = 700;

fn nothing(_: &[u8]) -> u32 {
    0
}

struct Disk(HashMap<u64, Vec<u8>>);

impl Source for Disk {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        assert!(
            at.0 + blocks <= MEDIUM_BLOCKS,
            "a read of {blocks} blocks at {at}"
        );
        for (at, out) in (at.0..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            match self.0.get(&at) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0),
            }
        }
        Ok(())
    }
}

fn geometry(layout: Layout) -> Superblock {
    plan_tables(
        &Params {
            medium_blocks: MEDIUM_BLOCKS,
            logical_blocks: None,
            over_provisioning: 100,
            segment_blocks: None,
            uuid: *b"a fuzzed volume!",
            secret: *b"a fuzzed volume!a fuzzed volume!",
        },
        layout,
    )
    .expect("large enough")
}

/// Edits of eight bytes each in the first blocks of a volume: which, where in it (two bytes), nothing, a number. Whether it
/// still opens.
pub fn volume(layout: Layout, edits: &[u8]) -> bool {
    let mut disk = Disk(HashMap::new());
    let superblock = geometry(layout);
    format::blank(&superblock, nothing, &mut |at, bytes| {
        for (at, block) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            disk.0.insert(at, block.to_vec());
        }
    });
    let first = superblock.areas().data(0).0;
    for edit in edits.chunks_exact(8) {
        let block = disk.0.entry(u64::from(edit[0]) % first);
        let block = block.or_insert_with(|| vec![0; BLOCK_BYTES]);
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (BLOCK_BYTES - 4);
        block[at..at + 4].copy_from_slice(&edit[4..]);
    }
    let options = Options {
        data: true,
        ..Options::default()
    };
    check(&mut disk, MEDIUM_BLOCKS, options, nothing);
    let Ok(found) = tables::recover(&mut disk, MEDIUM_BLOCKS, nothing) else {
        return false;
    };
    let blocks = found.superblock.logical_blocks();
    let options = tables::Options::new(&engine::Options::default(), Persistence::Weak);
    let mut core = Tables::new(found, options, nothing);
    core.handle(
        Nanos(1),
        Input::Read {
            id: RequestId(0),
            lba: Lba(0),
            blocks: blocks.min(1 << 16) as u32,
        },
    );
    while let Some(effect) = core.poll_effect() {
        if let Effect::Read { at, blocks, .. } = effect {
            assert!(at.0 + u64::from(blocks) < MEDIUM_BLOCKS);
        }
    }
    core.handle(
        Nanos(2),
        Input::Discard {
            id: RequestId(1),
            lba: Lba(0),
            blocks,
            fua: true,
        },
    );
    while core.poll_effect().is_some() {}
    true
}

/// The first byte chooses the layout.
#[allow(dead_code, reason = "the fuzz target's; tests choose themselves")]
pub fn any(bytes: &[u8]) {
    if let Some((first, edits)) = bytes.split_first() {
        let layout = match first & 1 {
            0 => Layout::Ordered,
            _ => Layout::Shadow,
        };
        volume(layout, edits);
    }
}
