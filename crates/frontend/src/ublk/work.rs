//! Translates the kernel's requests into requests to a volume.

use super::uapi::{Descriptor, op};
use crate::unaligned::is_aligned;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::Op;

/// Bytes of a sector, the kernel's unit.
pub const SECTOR: u64 = 512;

/// The work that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Whole blocks.
    Blocks {
        /// What to do with them.
        op: Op,
        /// The first block.
        lba: u64,
        /// How many blocks.
        blocks: u64,
    },
    /// Partial blocks; these have to wait for reads.
    Bytes {
        /// What to do with them.
        edge: Edge,
        /// The first byte.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
}

/// An operation on bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Read them.
    Read,
    /// Write them.
    Write {
        /// Must be durable before it ends.
        fua: bool,
    },
    /// Make them zero.
    Zero {
        /// True if their space may be given up.
        discard: bool,
        /// Must be durable before it ends.
        fua: bool,
    },
}

/// The limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Its size.
    pub bytes: u64,
    /// The longest read or write.
    pub transfer_bytes_max: u64,
}

/// The work that a descriptor requires; an errno if the request exceeds what was published.
pub fn work(request: &Descriptor, limits: Limits) -> Result<Work, i32> {
    let fua = request.op_flags & op::FUA != 0;
    let (blocks, edge) = match request.op_flags & op::MASK {
        op::FLUSH => {
            return Ok(Work::Blocks {
                op: Op::Flush,
                lba: 0,
                blocks: 0,
            });
        }
        op::READ => (Op::Read, Edge::Read),
        op::WRITE => (Op::Write { fua }, Edge::Write { fua }),
        op::DISCARD => (Op::Discard { fua }, Edge::Zero { discard: true, fua }),
        op::WRITE_ZEROES => (
            Op::WriteZeroes { fua },
            Edge::Zero {
                discard: false,
                fua,
            },
        ),
        _ => return Err(libc::EOPNOTSUPP),
    };
    let offset = request
        .start_sector
        .checked_mul(SECTOR)
        .ok_or(libc::EINVAL)?;
    let len = u64::from(request.sectors) * SECTOR;
    let inside = offset
        .checked_add(len)
        .is_some_and(|end| end <= limits.bytes);
    let transfers = matches!(blocks, Op::Read | Op::Write { .. });
    if !inside || len == 0 || transfers && len > limits.transfer_bytes_max {
        return Err(libc::EINVAL);
    }
    Ok(if is_aligned(offset, len) {
        Work::Blocks {
            op: blocks,
            lba: offset / BLOCK_BYTES as u64,
            blocks: len / BLOCK_BYTES as u64,
        }
    } else {
        Work::Bytes { edge, offset, len }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 1 << 20,
        transfer_bytes_max: 64 << 10,
    };

    fn ask(op_flags: u32, start_sector: u64, sectors: u32) -> Result<Work, i32> {
        let request = Descriptor {
            op_flags,
            sectors,
            start_sector,
            address: 0,
        };
        work(&request, LIMITS)
    }

    #[test]
    fn whole_blocks_and_edges_are_told_apart() {
        let blocks = |op, lba, blocks| Ok(Work::Blocks { op, lba, blocks });
        assert_eq!(ask(op::READ, 8, 16), blocks(Op::Read, 1, 2));
        assert_eq!(
            ask(op::WRITE | op::FUA, 0, 8),
            blocks(Op::Write { fua: true }, 0, 1)
        );
        assert_eq!(
            ask(op::DISCARD, 0, 2048),
            blocks(Op::Discard { fua: false }, 0, 256)
        );
        assert_eq!(ask(op::FLUSH, 0, 0), blocks(Op::Flush, 0, 0));
        assert_eq!(
            ask(op::WRITE, 1, 8),
            Ok(Work::Bytes {
                edge: Edge::Write { fua: false },
                offset: 512,
                len: 4096
            })
        );
    }

    #[test]
    fn requests_beyond_the_published_limits_are_refused() {
        assert_eq!(ask(op::READ, 2048, 8), Err(libc::EINVAL));
        assert_eq!(ask(op::READ, 2047, 8), Err(libc::EINVAL));
        assert_eq!(ask(op::READ, 0, 0), Err(libc::EINVAL));
        assert_eq!(ask(op::WRITE, 0, 136), Err(libc::EINVAL));
        assert_eq!(ask(op::DISCARD, u64::MAX, u32::MAX), Err(libc::EINVAL));
        assert_eq!(ask(op::DISCARD, u64::MAX / 512, 8), Err(libc::EINVAL));
        assert_eq!(ask(4, 0, 8), Err(libc::EOPNOTSUPP));
        assert_eq!(ask(0xff, 0, 8), Err(libc::EOPNOTSUPP));
    }

    /// Whatever the descriptor, the work stays within the device and the published limits.
    #[test]
    fn work_stays_within_the_device_and_its_limits() {
        let places = [0, 1, 7, 8, 2040, 2047, 2048, u64::MAX / 512, u64::MAX];
        let lengths = [0, 1, 7, 8, 127, 128, 129, 2048, u32::MAX];
        for op_flags in (0..=255).flat_map(|op| [op, op | op::FUA, op | !op::MASK]) {
            for (start, sectors) in places.iter().flat_map(|&p| lengths.map(|l| (p, l))) {
                let (from, to) = match ask(op_flags, start, sectors) {
                    Err(errno) => {
                        assert!(errno == libc::EINVAL || errno == libc::EOPNOTSUPP);
                        continue;
                    }
                    Ok(Work::Bytes { offset, len, .. }) => (offset, offset + len),
                    Ok(Work::Blocks { lba, blocks, .. }) => (lba * 4096, (lba + blocks) * 4096),
                };
                assert!(to <= LIMITS.bytes, "{op_flags:#x} {start} {sectors}");
                if matches!(op_flags & op::MASK, op::READ | op::WRITE) {
                    assert!(to - from <= LIMITS.transfer_bytes_max);
                }
            }
        }
    }
}
