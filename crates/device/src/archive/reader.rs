//! An archive that may be anything, into runs of blocks.

use super::totals::Totals;
use std::io::{self, Read};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::FormatError;
use vellum_core::format::archive::{FRAME_BYTES, Frame, FrameKind, HEAD_BYTES, Head, RUN_BLOCKS};
use zstd_safe::DCtx;

/// What is wrong with an archive, and where.
#[derive(Debug, thiserror::Error)]
#[error("the archive is of no use from its byte {at} on: {problem}")]
pub struct ArchiveError {
    /// The byte at which what is wrong begins.
    pub at: u64,
    /// What it is.
    pub problem: Problem,
}

/// What can be wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// It has no end.
    #[error("it ends there: it was cut short")]
    CutShort,
    /// It has more than its end.
    #[error("it has ended, and more follows")]
    More,
    /// A run of blocks that cannot be there.
    #[error("blocks {at}+{blocks} are not behind block {after}, or not on a medium of {medium}")]
    Order {
        /// The first.
        at: Pba,
        /// How many.
        blocks: u64,
        /// The first that may come.
        after: u64,
        /// Blocks of the medium.
        medium: u64,
    },
    /// What was encoded is not what it should be.
    #[error("what it holds cannot be decoded")]
    Encoded,
    /// The end counts others than there were.
    #[error("it counts {said} blocks where {found} were")]
    Count {
        /// What the end says.
        said: u64,
        /// What there was.
        found: u64,
    },
    /// No memory.
    #[error("there is no memory to decode it")]
    NoMemory,
}

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
    source: R,
    head: Head,
    /// Where the next frame begins.
    at: u64,
    sum: u64,
    /// The first block that may come.
    next: u64,
    totals: Totals,
    has_ended: bool,
    context: DCtx<'static>,
    held: Vec<u8>,
    decoded: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads and checks its head.
    ///
    /// # Errors
    /// When it is no archive, damaged, or from the future.
    pub fn new(mut source: R) -> Result<Self, ArchiveError> {
        let wrong = |problem| ArchiveError { at: 0, problem };
        let mut bytes = [0; HEAD_BYTES];
        fill(&mut source, &mut bytes).map_err(wrong)?;
        let (head, sum) = Head::decode(&bytes).map_err(|error| wrong(error.into()))?;
        let context = DCtx::try_create().ok_or_else(|| wrong(Problem::NoMemory))?;
        let run = || vec![0; RUN_BLOCKS as usize * BLOCK_BYTES];
        Ok(Self {
            source,
            head,
            at: HEAD_BYTES as u64,
            sum,
            next: 0,
            totals: Totals::default(),
            has_ended: false,
            context,
            held: run(),
            decoded: run(),
        })
    }

    /// What it is an archive of.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What there was, once it has ended.
    #[must_use]
    pub fn totals(&self) -> Option<Totals> {
        self.has_ended.then_some(self.totals)
    }

    /// The next run, by rising addresses; `None` when it has ended, and is whole.
    ///
    /// # Errors
    /// When what comes is not what was written. Nothing can be read behind that.
    pub fn next_run(&mut self) -> Result<Option<Run<'_>>, ArchiveError> {
        if self.has_ended {
            return Ok(None);
        }
        let at = self.at;
        let frame = self
            .frame()
            .map_err(|problem| ArchiveError { at, problem })?;
        let run = match frame.kind {
            FrameKind::End => return Ok(None),
            FrameKind::Blocks => {
                let all = frame.blocks as usize * BLOCK_BYTES;
                let bytes = match frame.is_encoded {
                    true => &self.decoded[..all],
                    false => &self.held[..all],
                };
                Run::Blocks {
                    at: frame.at,
                    bytes,
                }
            }
            FrameKind::Unread | FrameKind::LeftOut => Run::Missing {
                at: frame.at,
                blocks: frame.blocks,
            },
        };
        Ok(Some(run))
    }

    /// Reads a frame and all that it holds, and holds them against what may come.
    fn frame(&mut self) -> Result<Frame, Problem> {
        let mut bytes = [0; FRAME_BYTES];
        fill(&mut self.source, &mut bytes)?;
        let frame = Frame::decode(&bytes)?;
        let held = &mut self.held[..frame.bytes as usize];
        fill(&mut self.source, held)?;
        self.sum = Frame::check(&bytes, self.sum, held)?;
        self.at += (FRAME_BYTES + held.len()) as u64;
        if frame.kind == FrameKind::End {
            self.end(&frame)?;
            return Ok(frame);
        }
        let end = frame.at.0.checked_add(frame.blocks);
        let fits = end.filter(|end| *end <= self.head.medium_blocks && frame.at.0 >= self.next);
        let Some(end) = fits else {
            return Err(Problem::Order {
                at: frame.at,
                blocks: frame.blocks,
                after: self.next,
                medium: self.head.medium_blocks,
            });
        };
        self.next = end;
        match frame.kind {
            FrameKind::Blocks => self.totals.blocks += frame.blocks,
            _ => self.totals.missing += frame.blocks,
        }
        if frame.is_encoded {
            let all = frame.blocks as usize * BLOCK_BYTES;
            let length = self.context.decompress(&mut self.decoded[..all], &*held);
            if length != Ok(all) {
                return Err(Problem::Encoded);
            }
        }
        Ok(frame)
    }

    fn end(&mut self, frame: &Frame) -> Result<(), Problem> {
        let counts = [
            (frame.at.0, self.totals.blocks),
            (frame.blocks, self.totals.missing),
        ];
        if let Some((said, found)) = counts.into_iter().find(|(said, found)| said != found) {
            return Err(Problem::Count { said, found });
        }
        match fill(&mut self.source, &mut [0]) {
            Err(Problem::CutShort) => {}
            Err(other) => return Err(other),
            Ok(()) => return Err(Problem::More),
        }
        self.totals.sum = self.sum;
        self.has_ended = true;
        Ok(())
    }
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), Problem> {
    source
        .read_exact(bytes)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Problem::CutShort,
            _ => Problem::Read(error),
        })
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Writer};
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const MEDIUM: u64 = 3000;

    /// Runs of blocks and of what is missing, each so far behind the one before.
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
            let mut bytes = vec![byte; blocks as usize * BLOCK_BYTES];
            if byte & 1 == 1 {
                // Nothing makes it shorter.
                let mut word = u64::from(byte);
                for part in bytes.chunks_exact_mut(8) {
                    word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    part.copy_from_slice(&(word ^ word >> 29).to_le_bytes());
                }
                bytes
                    .chunks_exact_mut(BLOCK_BYTES)
                    .for_each(|b| b[0] = byte);
            }
            writer.blocks(Pba(at), &bytes).unwrap();
            model[range].fill(Some(byte));
        }
        let (bytes, totals) = writer.end().unwrap();
        (bytes, model, totals)
    }

    fn read(bytes: &[u8]) -> Result<(Vec<Option<u8>>, Totals), ArchiveError> {
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

        /// Wherever it is cut or changed, whatever is added or left out: never read to its end.
        #[test]
        fn what_is_not_as_it_was_written_has_no_end(
            runs in vec((0u64..50, 1u64..40, 0u8..8), 1..12),
            place: proptest::sample::Index,
            bit in 0u8..8,
        ) {
            let (bytes, ..) = archive(&runs);
            let at = place.index(bytes.len());
            let cut = read(&bytes[..at]).unwrap_err();
            prop_assert!(matches!(cut.problem, Problem::CutShort), "{}", cut);
            prop_assert!(cut.at <= at as u64);
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(read(&changed).is_err());
            changed[at] ^= 1 << bit;
            changed.remove(at);
            prop_assert!(read(&changed).is_err());
            changed = bytes.clone();
            changed.push(0);
            prop_assert!(matches!(read(&changed).unwrap_err().problem, Problem::More));
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
        // As long as one another, and their last frames say the same.
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
