//! Decodes runs of blocks from a stream that may be anything.

use super::totals::Totals;
use crate::runs::{Damaged, FrameReader, Nature};
use std::io::Read;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::frames::FrameKind;
use vellum_core::format::stream::{HEAD_BYTES, Head};

const STREAM: Nature = Nature {
    what: "stream",
    others: &[FrameKind::Zeros],
};

/// A run of blocks, whole as it was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<'a> {
    /// Blocks with data.
    Blocks {
        /// The first.
        at: Lba,
        /// All of them.
        bytes: &'a [u8],
    },
    /// Blocks that are zeros.
    Zeros {
        /// The first.
        at: Lba,
        /// How many.
        blocks: u64,
    },
}

impl Run<'_> {
    /// The block after its last.
    #[must_use]
    pub fn end(&self) -> Lba {
        match self {
            Self::Blocks { at, bytes } => at.plus((bytes.len() / BLOCK_BYTES) as u64),
            Self::Zeros { at, blocks } => at.plus(*blocks),
        }
    }
}

/// Reads a stream.
pub struct Reader<R> {
    head: Head,
    frames: FrameReader<R>,
}

impl<R: Read> Reader<R> {
    /// Reads and checks its head.
    ///
    /// # Errors
    /// When it is not a stream, is damaged, or is from the future.
    pub fn new(mut source: R) -> Result<Self, Damaged> {
        let (head, sum) = STREAM.head(&mut source, Head::decode)?;
        let frames = FrameReader::new(source, STREAM, HEAD_BYTES, sum, head.blocks)?;
        Ok(Self { head, frames })
    }

    /// The stream's head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What there was, once it has ended.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        self.frames.totals().map(Totals::of)
    }

    /// Bytes that were read and found to be right.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.frames.read_bytes()
    }

    /// Returns the next run, by rising addresses; `None` when the stream has ended, and is whole.
    ///
    /// # Errors
    /// When the bytes are not what was written. Nothing can be read after that.
    pub fn next_run(&mut self) -> Result<Option<Run<'_>>, Damaged> {
        let next = self.frames.next_frame()?;
        Ok(next.map(|(frame, bytes)| {
            let (at, blocks) = (Lba(frame.at), frame.blocks);
            match frame.kind {
                FrameKind::Blocks => Run::Blocks { at, bytes },
                _ => Run::Zeros { at, blocks },
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;
    use crate::runs::sample::{assert_all_needed, blocks_of};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use vellum_core::format::frames::FRAME_BYTES;
    use vellum_core::format::history::{Identity, Mark, Name};
    use vellum_core::limits::MAX_LOGICAL_BLOCKS;

    const BLOCKS: u64 = 3000;

    fn identity(name: &str) -> Identity {
        Identity {
            name: Name::new(name).unwrap(),
            taken: 5,
            mark: Mark([9; 6]),
        }
    }

    fn head(is_whole: bool) -> Head {
        Head {
            uuid: [3; 16],
            blocks: BLOCKS,
            snapshot: identity("b"),
            from: (!is_whole).then(|| identity("a")),
        }
    }

    /// Runs of blocks, each so far after the one before: the first byte of each block says which one it is, and 0 is zeros.
    fn stream(head: &Head, runs: &[(u64, u64, u8)]) -> (Vec<u8>, Vec<Option<u8>>, Totals) {
        let mut writer = Writer::new(Vec::new(), head).unwrap();
        let mut model = vec![head.from.map_or(Some(0), |_| None); BLOCKS as usize];
        let mut next = 0;
        for &(gap, blocks, byte) in runs {
            let at = next + gap;
            next = at + blocks;
            if next > BLOCKS {
                break;
            }
            model[at as usize..next as usize].fill(Some(byte));
            if byte == 1 {
                model[at as usize..next as usize].fill(Some(0));
                writer.zeros(Lba(at), blocks).unwrap();
                continue;
            }
            let bytes = blocks_of(byte, blocks);
            for (lba, block) in (at..).zip(bytes.chunks(BLOCK_BYTES)) {
                writer.block(Lba(lba), block).unwrap();
            }
        }
        let (bytes, totals) = writer.end().unwrap();
        (bytes, model, totals)
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Option<u8>>, Totals), Damaged> {
        let mut reader = Reader::new(bytes)?;
        let nothing = reader.head().from.map_or(Some(0), |_| None);
        let mut model = vec![nothing; reader.head().blocks as usize];
        while let Some(run) = reader.next_run()? {
            match run {
                Run::Blocks { at, bytes } => {
                    for (block, bytes) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                        model[block as usize] = Some(bytes[0]);
                    }
                }
                Run::Zeros { at, blocks } => {
                    model[at.0 as usize..(at.0 + blocks) as usize].fill(Some(0));
                }
            }
        }
        assert_eq!(reader.read_bytes(), bytes.len() as u64);
        Ok((model, reader.totals().unwrap()))
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(
            is_whole: bool,
            runs in vec((0u64..200, 1u64..600, 0u8..8), 0..12),
        ) {
            let (bytes, model, totals) = stream(&head(is_whole), &runs);
            let found = read(&bytes).unwrap();
            prop_assert_eq!(found, (model, totals));
        }

        /// Wherever it is cut or changed, and whatever is added or left out, it is never read to its end.
        #[test]
        fn an_altered_stream_is_never_read_to_its_end(
            is_whole: bool,
            runs in vec((0u64..50, 1u64..40, 0u8..8), 1..12),
            place: proptest::sample::Index,
            bit in 0u8..8,
        ) {
            let (bytes, ..) = stream(&head(is_whole), &runs);
            assert_all_needed(&bytes, place.index(bytes.len()), bit, read);
        }

        #[test]
        fn anything_ends_in_an_answer(bytes in vec(any::<u8>(), 0..500)) {
            let _ = read(&bytes);
            let (mut whole, ..) = stream(&head(false), &[(1, 3, 5)]);
            whole.truncate(HEAD_BYTES);
            whole.extend(&bytes);
            prop_assert!(read(&whole).is_err());
        }
    }

    #[test]
    fn a_head_that_no_receiver_takes_is_not_written() {
        for (blocks, may_be) in [(MAX_LOGICAL_BLOCKS, true), (MAX_LOGICAL_BLOCKS + 1, false)] {
            let head = Head {
                blocks,
                ..head(true)
            };
            assert_eq!(Writer::new(Vec::new(), &head).is_ok(), may_be);
        }
    }

    #[test]
    fn frames_of_another_stream_are_not_taken() {
        let runs = [(0, 1, 2), (0, 1, 4)];
        let (first, ..) = stream(&head(false), &runs);
        let other = Head {
            snapshot: identity("c"),
            ..head(false)
        };
        let (second, ..) = stream(&other, &runs);
        assert_eq!(first.len(), second.len());
        for end in [HEAD_BYTES, first.len() - FRAME_BYTES] {
            let mixed = [&first[..end], &second[end..]].concat();
            let error = read(&mixed).unwrap_err();
            assert_eq!(error.at, end as u64, "{error}");
        }
    }

    #[test]
    fn zeros_of_a_whole_snapshot_are_not_written_and_others_are_one_run() {
        let runs = [(5, 10, 1), (0, 300, 0), (0, 1, 1)];
        let (_, _, totals) = stream(&head(true), &runs);
        assert_eq!((totals.blocks, totals.zeros), (0, 0));
        let (bytes, _, totals) = stream(&head(false), &runs);
        assert_eq!((totals.blocks, totals.zeros), (0, 311));
        assert_eq!(bytes.len(), HEAD_BYTES + 2 * FRAME_BYTES);
    }
}
