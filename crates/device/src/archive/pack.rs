//! Packs into an archive everything that leads to a volume's data, and none of the data.

use super::dump::DumpError;
use super::totals::Totals;
use super::writer::Writer;
use crate::digest::crc32c;
use crate::entropy;
use crate::source::MediumSource;
use std::io::Write;
use vellum_core::addr::Seq;
use vellum_core::bare::{Choice, Part, bare};
use vellum_core::format::NUMBER_MAX;
use vellum_core::format::archive::Head;
use vellum_core::format::frames::FrameKind;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::recover;
use vellum_medium::Medium;

/// Writes the pack of a volume, with the given properties. What is damaged is marked in the archive, and is no error.
///
/// # Errors
/// When the archive cannot be written, the medium's cache cannot be dropped, or the system has no randomness.
pub fn pack<W: Write>(
    medium: &dyn Medium,
    superblock: &Superblock,
    properties: Properties,
    head: &Head,
    out: W,
) -> Result<(W, Totals), DumpError> {
    medium.drop_cache()?;
    let mut source = MediumSource::new(medium);
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
    Ok(writer.end()?)
}
