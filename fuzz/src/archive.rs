//! Archives: any bytes yield runs of blocks within bounds, or an error that names the byte.

use crate::frames;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::archive::{Head, Kind};
use vellum_core::format::frames::RUN_BLOCKS;
use vellum_device::archive::{Reader, Run};

const MEDIUM_BLOCKS: u64 = 5000;

/// Reads the bytes as an archive, and one made from them whose sums are right, so that the code after the sums is reached.
pub fn read(bytes: &[u8]) {
    all(bytes);
    all(&made(bytes));
}

/// Makes an archive whose frames are chosen by the bytes: a few bytes for each frame, and some for its contents.
fn made(bytes: &[u8]) -> Vec<u8> {
    let head = Head {
        kind: Kind::Whole,
        uuid: [1; 16],
        life: 1,
        medium_blocks: MEDIUM_BLOCKS,
    };
    frames::behind(head.encode(), bytes)
}

fn all(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else {
        return;
    };
    let end = reader.head().medium_blocks;
    let (mut next, mut found, mut missing) = (0, 0, 0);
    loop {
        let (at, blocks) = match reader.next_run() {
            Err(error) => {
                assert!(error.at <= bytes.len() as u64);
                assert!(reader.totals().is_none());
                return;
            }
            Ok(None) => break,
            Ok(Some(Run::Missing { at, blocks })) => {
                missing += blocks;
                (at, blocks)
            }
            Ok(Some(Run::Blocks { at, bytes })) => {
                let blocks = (bytes.len() / BLOCK_BYTES) as u64;
                assert!(bytes.len().is_multiple_of(BLOCK_BYTES) && blocks <= RUN_BLOCKS);
                found += blocks;
                (at, blocks)
            }
        };
        assert!(at.0 >= next && blocks > 0 && at.0 + blocks <= end);
        next = at.0 + blocks;
    }
    let totals = reader.totals().expect("it has ended");
    assert_eq!((totals.blocks, totals.missing), (found, missing));
}
