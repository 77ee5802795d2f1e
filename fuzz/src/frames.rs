//! Frames of archives and of streams, made from some bytes.

use vellum_core::format::frames::{Frame, FrameKind};

/// Returns a head and frames whose sums continue from its sum: a few of the bytes choose each frame, and some are its contents.
pub fn behind((head, mut sum): (impl AsRef<[u8]>, u64), bytes: &[u8]) -> Vec<u8> {
    let mut made = head.as_ref().to_vec();
    let mut rest = bytes;
    while let Some((said, behind)) = rest.split_at_checked(6) {
        let [kind, at, at_high, blocks, held, encoding] = [0, 1, 2, 3, 4, 5].map(|n| said[n]);
        let held = usize::from(held).min(behind.len());
        let frame = Frame {
            kind: match kind % 5 {
                0 => FrameKind::Blocks,
                1 => FrameKind::Unread,
                2 => FrameKind::LeftOut,
                3 => FrameKind::Zeros,
                _ => FrameKind::End,
            },
            at: u64::from(at) | u64::from(at_high) << 8,
            blocks: match blocks {
                255 => u64::MAX,
                blocks => blocks.into(),
            },
            bytes: held as u32,
            is_encoded: encoding & 1 == 1,
        };
        let (held, behind) = behind.split_at(held);
        let (bytes, next) = frame.encode(sum, held);
        sum = next;
        made.extend_from_slice(&bytes);
        made.extend_from_slice(held);
        rest = behind;
    }
    made
}
