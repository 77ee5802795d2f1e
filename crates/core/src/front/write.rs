//! A write whose blocks are placed one after another: as it arrives, or as it waits.

use super::verdict::Verdict;
use crate::addr::{Lba, RequestId};
use crate::seam::{Ack, Payload};
use alloc::{borrow::Cow, vec::Vec};

/// A write. As long as it does not wait it borrows its blocks, because most writes never wait. `T` is what they are compared with.
pub(crate) struct Write<'a, T> {
    pub id: RequestId,
    pub lba: Lba,
    pub blocks: Cow<'a, [Payload]>,
    pub placed: usize,
    /// The verdict on each block's twin; empty if no block was compared.
    pub verdicts: Vec<Verdict<T>>,
    pub ack: Ack,
}

/// The result of placing one block, or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    Done,
    Wait,
    Full,
}

impl<T> Write<'_, T> {
    /// Places the blocks that are not placed yet, until one has to wait or finds no room.
    #[inline]
    pub fn each(&mut self, mut place: impl FnMut(Lba, &Payload, &Verdict<T>) -> Placed) -> Placed {
        while let Some(payload) = self.blocks.get(self.placed) {
            let verdict = self.verdicts.get(self.placed);
            let lba = self.lba.plus(self.placed as u64);
            match place(lba, payload, verdict.unwrap_or(&Verdict::Write)) {
                Placed::Done => self.placed += 1,
                not_placed => return not_placed,
            }
        }
        Placed::Done
    }

    /// Takes what is left of it, to wait or to be refused.
    pub fn take(&mut self) -> Write<'static, T> {
        Write {
            id: self.id,
            lba: self.lba,
            blocks: Cow::Owned(core::mem::take(&mut self.blocks).into_owned()),
            placed: self.placed,
            verdicts: core::mem::take(&mut self.verdicts),
            ack: self.ack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Buf;

    #[test]
    fn blocks_are_placed_in_order_and_none_twice() {
        let payload = |index| Payload {
            buf: Buf(index),
            digest: Default::default(),
        };
        let blocks = [payload(0), payload(1), payload(2)];
        let mut write = Write {
            id: RequestId(1),
            lba: Lba(7),
            blocks: Cow::Borrowed(&blocks),
            placed: 0,
            verdicts: Verdict::ask_for(&blocks, |index, _| (index == 1).then_some('a')),
            ack: Ack::Placed,
        };
        let mut seen = Vec::new();
        let until_asked = write.each(|lba, payload, verdict| {
            seen.push((lba.0, payload.buf.0));
            match verdict {
                Verdict::Asked('a') => Placed::Wait,
                _ => Placed::Done,
            }
        });
        assert_eq!(
            (until_asked, seen),
            (Placed::Wait, [(7, 0), (8, 1)].to_vec())
        );
        let mut waits = write.take();
        assert_eq!(waits.verdicts[1].end(|_| None), Some('a'));
        let mut left = Vec::new();
        let done = waits.each(|lba, _, verdict| {
            assert!(matches!(verdict, Verdict::Write));
            left.push(lba.0);
            Placed::Done
        });
        assert_eq!(
            (done, left, waits.placed),
            (Placed::Done, [8, 9].to_vec(), 3)
        );
    }
}
