//! For fuzzing and its tests only: the body of the fuzz target.

use super::uapi::{Descriptor, op};
use super::work::{Edge, Limits, SECTOR, Work, work};
use crate::testing::RamDisk;
use crate::unaligned::ByteDevice;
use std::ops::Range;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::{BlockError, Op};

const BLOCKS: usize = 16;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A disk, and its expected contents.
struct Pair {
    bytes: ByteDevice,
    model: Vec<u8>,
}

impl Pair {
    /// Does a byte request on both, in the way the lanes do.
    fn edge(&mut self, edge: Edge, range: Range<usize>, fill: u8) -> Result<(), BlockError> {
        let offset = range.start as u64;
        match edge {
            Edge::Read => {
                let mut read = vec![!fill; range.len()];
                self.bytes.read(offset, &mut read)?;
                assert!(read == self.model[range], "a read of {offset}");
            }
            Edge::Write { fua } => {
                self.model[range.clone()].fill(fill);
                self.bytes.write(offset, &self.model[range], fua)?;
            }
            Edge::Zero { discard, fua } => {
                self.model[range.clone()].fill(0);
                self.bytes.zero(offset, range.len() as u64, discard, fua)?;
            }
        }
        Ok(())
    }
}

/// A descriptor in the kernel's layout.
fn descriptor(raw: &[u8; size_of::<Descriptor>()]) -> Descriptor {
    let (half, rest) = raw.split_at(8);
    let word = |bytes: &[u8], at: usize| {
        u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let long = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&rest[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    Descriptor {
        op_flags: word(half, 0),
        sectors: word(half, 4),
        start_sector: long(0),
        address: long(8),
    }
}

/// Fuzz target `ublk_descriptors`: the bytes are what the kernel has put into a queue's descriptors. Whatever is done must be
/// within the device and the published limits, and must match the descriptor.
///
/// # Panics
/// If it does not.
/// When it does not.
pub fn fuzz_descriptors(data: &[u8]) {
    let disk = Arc::new(RamDisk::new(BLOCKS as u64, 8, 8));
    let mut pair = Pair {
        bytes: Arc::clone(&disk).into(),
        model: vec![0; BLOCKS * BLOCK_BYTES],
    };
    let limits = Limits {
        bytes: BLOCKS as u64 * BLOCK,
        transfer_bytes_max: 8 * BLOCK,
    };
    for (number, raw) in data
        .as_chunks::<{ size_of::<Descriptor>() }>()
        .0
        .iter()
        .enumerate()
    {
        let descriptor = descriptor(raw);
        let Ok(work) = work(&descriptor, limits) else {
            continue;
        };
        let (edge, offset, len) = match work {
            Work::Bytes { edge, offset, len } => {
                assert!(!offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK));
                (edge, offset, len)
            }
            Work::Blocks { op, lba, blocks } => {
                let edge = match op {
                    Op::Flush => {
                        assert_eq!((lba, blocks), (0, 0));
                        continue;
                    }
                    Op::Read => Edge::Read,
                    Op::Write { fua } => Edge::Write { fua },
                    Op::Discard { fua } => Edge::Zero { discard: true, fua },
                    Op::WriteZeroes { fua } => Edge::Zero {
                        discard: false,
                        fua,
                    },
                };
                (edge, lba * BLOCK, blocks * BLOCK)
            }
        };
        assert_eq!(
            (offset, len),
            (
                descriptor.start_sector * SECTOR,
                u64::from(descriptor.sectors) * SECTOR
            )
        );
        assert!(len > 0 && offset + len <= limits.bytes);
        if matches!(descriptor.op_flags & op::MASK, op::READ | op::WRITE) {
            assert!(len <= limits.transfer_bytes_max);
        }
        let range = offset as usize..(offset + len) as usize;
        let done = pair.edge(edge, range, number as u8);
        assert!(done.is_ok(), "{descriptor:?}: {done:?}");
    }
    assert!(disk.all_frames_free());
}
