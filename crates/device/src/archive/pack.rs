//! Packs into an archive everything that leads to a volume's data, and none of the data.

use super::dump::DumpError;
use super::totals::Totals;
use super::writer::Writer;
use crate::digest::crc32c;
use crate::entropy;
use crate::source::MediumSource;
use std::io::Write;
use vellum_core::addr::{BLOCK_BYTES, Pba, Seq};
use vellum_core::bare::{Choice, Part, bare};
use vellum_core::format::NUMBER_MAX;
use vellum_core::format::archive::Head;
use vellum_core::format::frames::FrameKind;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::{Source, Unreadable, recover};
use vellum_medium::Medium;

/// A medium that gives nothing more once the caller has ended it.
struct Until<'a> {
    medium: MediumSource<'a>,
    stopped: &'a dyn Fn() -> bool,
    has_ended: bool,
}

impl Source for Until<'_> {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        self.has_ended |= (self.stopped)();
        match self.has_ended {
            true => Err(Unreadable {
                at,
                blocks: (bytes.len() / BLOCK_BYTES) as u64,
            }),
            false => self.medium.read(at, bytes),
        }
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        self.medium.drop_cache()
    }
}

/// Writes the pack of a volume, with the given properties. What is damaged is marked in the archive, and is no error.
///
/// # Errors
/// When the archive cannot be written, the medium's cache cannot be dropped, the system has no randomness, or `stopped` ends it.
pub fn pack<W: Write>(
    medium: &dyn Medium,
    superblock: &Superblock,
    properties: Properties,
    head: &Head,
    out: W,
    stopped: &dyn Fn() -> bool,
) -> Result<(W, Totals), DumpError> {
    medium.drop_cache()?;
    let mut source = Until {
        medium: MediumSource::new(medium),
        stopped,
        has_ended: false,
    };
    // If a log cannot be recovered, it is not known which chunks were torn.
    let found = recover(&mut source, medium.blocks(), crc32c);
    let found = found.ok().filter(|found| found.unread.is_none());
    let through = found.map_or(Seq(NUMBER_MAX), |found| found.last_seq);
    let choice = Choice {
        through,
        signature: entropy::bytes()?,
        properties,
    };
    let mut writer = Writer::new(out, head)?;
    let mut written = Ok(());
    bare(&mut source, superblock, choice, crc32c, &mut |at, part| {
        if written.is_err() {
            return;
        }
        written = match part {
            Part::Whole(bytes) => writer.blocks(at, bytes),
            Part::Unread(blocks) => writer.missing(at, blocks, FrameKind::Unread),
            Part::Damaged(blocks) => writer.missing(at, blocks, FrameKind::LeftOut),
        };
    });
    written?;
    match source.has_ended {
        true => Err(DumpError::Interrupted),
        false => Ok(writer.end()?),
    }
}
