//! Decodes runs of blocks from an archive that may be anything.

use super::totals::Totals;
use crate::runs::{Damaged, FrameReader, Nature};
use std::io::Read;
use vellum_core::addr::Pba;
use vellum_core::format::archive::{HEAD_BYTES, Head};
use vellum_core::format::frames::FrameKind;

const ARCHIVE: Nature = Nature {
    what: "archive",
    others: &[FrameKind::Unread, FrameKind::LeftOut],
};

/// A run of blocks, whole as it was written.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<'a> {
    /// Blocks.
    Blocks {
        /// The first.
        at: Pba,
        /// All of them.
        bytes: &'a [u8],
    },
    /// Blocks that are not in the archive.
    Missing {
        /// The first.
        at: Pba,
        /// How many.
        blocks: u64,
    },
}

/// Reads an archive.
pub struct Reader<R> {
    head: Head,
    frames: FrameReader<R>,
}

impl<R: Read> Reader<R> {
    /// Reads and checks its head.
    ///
    /// # Errors
    /// When it is not an archive, is damaged, or is from the future.
    pub fn new(mut source: R) -> Result<Self, Damaged> {
        let (head, sum) = ARCHIVE.head(&mut source, Head::decode)?;
        let frames = FrameReader::new(source, ARCHIVE, HEAD_BYTES, sum, head.medium_blocks)?;
        Ok(Self { head, frames })
    }

    /// The archive's head.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What there was, once it has ended.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        let (blocks, missing, sum) = self.frames.totals()?;
        Some(Totals {
            blocks,
            missing,
            sum,
        })
    }

    /// Returns the next run, by rising addresses; `None` when the archive has ended, and is whole.
    ///
    /// # Errors
    /// When the bytes are not what was written. Nothing can be read after that.
    pub fn next_run(&mut self) -> Result<Option<Run<'_>>, Damaged> {
        let next = self.frames.next_frame()?;
        Ok(next.map(|(frame, bytes)| {
            let (at, blocks) = (Pba(frame.at), frame.blocks);
            match frame.kind {
                FrameKind::Blocks => Run::Blocks { at, bytes },
                _ => Run::Missing { at, blocks },
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Problem, Writer};
    use super::*;
    use crate::runs::sample::{assert_all_needed, blocks_of};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use vellum_core::addr::BLOCK_BYTES;
    use vellum_core::entry::MAX_PBA;
    use vellum_core::format::FormatError;
    use vellum_core::format::frames::FRAME_BYTES;

    const MEDIUM: u64 = 3000;

    /// Runs of blocks and of missing ones, each so far after the one before.
    fn archive(runs: &[(u64, u64, u8)]) -> (Vec<u8>, Vec<Option<u8>>, Totals) {
        let head = Head {
            kind: Kind::Whole,
            uuid: [3; 16],
            life: 1,
            medium_blocks: MEDIUM,
        };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        let mut model = vec![Some(0); MEDIUM as usize];
        let mut next = 0;
        for &(gap, blocks, byte) in runs {
            let at = next + gap;
            next = at + blocks;
            if next > MEDIUM {
                break;
            }
            let range = at as usize..next as usize;
            if byte == 0 {
                writer.missing(Pba(at), blocks, FrameKind::Unread).unwrap();
                model[range].fill(None);
                continue;
            }
            writer.blocks(Pba(at), &blocks_of(byte, blocks)).unwrap();
            model[range].fill(Some(byte));
        }
        let (bytes, totals) = writer.end().unwrap();
        (bytes, model, totals)
    }

    #[test]
    fn a_head_that_no_reader_takes_is_not_written() {
        for (medium_blocks, may_be) in [(MAX_PBA + 1, true), (MAX_PBA + 2, false)] {
            let head = Head {
                kind: Kind::Whole,
                uuid: [3; 16],
                life: 1,
                medium_blocks,
            };
            assert_eq!(Writer::new(Vec::new(), &head).is_ok(), may_be);
        }
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Option<u8>>, Totals), Damaged> {
        let mut reader = Reader::new(bytes)?;
        let mut model = vec![Some(0); reader.head().medium_blocks as usize];
        while let Some(run) = reader.next_run()? {
            match run {
                Run::Blocks { at, bytes } => {
                    for (block, bytes) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                        model[block as usize] = Some(bytes[0]);
                    }
                }
                Run::Missing { at, blocks } => {
                    model[at.0 as usize..(at.0 + blocks) as usize].fill(None);
                }
            }
        }
        Ok((model, reader.totals().unwrap()))
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(runs in vec((0u64..200, 1u64..600, 0u8..8), 0..12)) {
            let (bytes, model, totals) = archive(&runs);
            let found = read(&bytes).unwrap();
            prop_assert_eq!(found, (model, totals));
        }

        /// Wherever it is cut or changed, and whatever is added or left out, it is never read to its end.
        #[test]
        fn an_altered_archive_is_never_read_to_its_end(
            runs in vec((0u64..50, 1u64..40, 0u8..8), 1..12),
            place: proptest::sample::Index,
            bit in 0u8..8,
        ) {
            let (bytes, ..) = archive(&runs);
            assert_all_needed(&bytes, place.index(bytes.len()), bit, read);
        }

        #[test]
        fn anything_ends_in_an_answer(bytes in vec(any::<u8>(), 0..500)) {
            let _ = read(&bytes);
            let (mut whole, ..) = archive(&[(1, 3, 5)]);
            whole.truncate(HEAD_BYTES);
            whole.extend(&bytes);
            prop_assert!(read(&whole).is_err());
        }
    }

    #[test]
    fn a_frame_of_another_archive_is_not_taken() {
        let (first, ..) = archive(&[(0, 1, 2), (0, 1, 4)]);
        let (second, ..) = archive(&[(0, 1, 6), (0, 1, 4)]);
        // Both are equally long, and their last frames say the same.
        assert_eq!(first.len(), second.len());
        let end = first.len() - FRAME_BYTES;
        let mixed = [&first[..end], &second[end..]].concat();
        let error = read(&mixed).unwrap_err();
        assert_eq!(error.at, end as u64);
        assert!(matches!(
            error.problem,
            Problem::Format(FormatError::Checksum { .. })
        ));
    }
}
