//! The check of the superblock and its mirrors.

use super::report::{Problem, Report};
use crate::addr::BLOCK_BYTES;
use crate::format::{Crc, superblock::Superblock};
use crate::recovery::Source;

/// Compares each mirror with the superblock.
pub(crate) fn check_mirrors(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
    report: &mut Report,
) {
    let mut block = [0; BLOCK_BYTES];
    if let Some(error) = superblock.torn() {
        report.add(Problem::BothMirrors(error));
    }
    for at in superblock.mirrors() {
        if let Err(error) = source.read(at, &mut block) {
            report.add(Problem::MirrorUnreadable(error));
            continue;
        }
        match Superblock::decode(&block, superblock.medium_blocks(), crc) {
            Ok(found) if found.mirrors_same_life(superblock) => {}
            Ok(_) => report.add(Problem::MirrorDiffers { at }),
            Err(error) => report.add(Problem::Mirror { at, error }),
        }
    }
}
