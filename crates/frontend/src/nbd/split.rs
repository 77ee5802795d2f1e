//! Splits a range of bytes into whole blocks and partial blocks at its ends.

use vellum_core::addr::BLOCK_BYTES;

/// A range of bytes, split into a part of a first block, whole blocks, and a part of a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Bytes in a block whose beginning (and possibly end) is not covered.
    pub head: usize,
    /// Whole blocks.
    pub blocks: u64,
    /// Bytes in a block whose end is not covered.
    pub tail: usize,
}

impl Split {
    /// Splits `length` bytes at `offset`.
    #[must_use]
    pub fn of(offset: u64, length: u64) -> Self {
        let block = BLOCK_BYTES as u64;
        let head = (offset.wrapping_neg() % block).min(length);
        let rest = length - head;
        Self {
            head: head as usize,
            blocks: rest / block,
            tail: (rest % block) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits() {
        let split = |offset, length| {
            let s = Split::of(offset, length);
            (s.head, s.blocks, s.tail)
        };
        assert_eq!(split(0, 4096), (0, 1, 0));
        assert_eq!(split(512, 512), (512, 0, 0));
        assert_eq!(split(0, 512), (0, 0, 512));
        assert_eq!(split(512, 4096), (3584, 0, 512));
        assert_eq!(split(4095, 8194), (1, 2, 1));
        assert_eq!(split(u64::MAX - 4095 - 1, 1), (1, 0, 0));
        assert_eq!(split(0, 0), (0, 0, 0));
    }
}
