//! Reads blocks of the volume for a scrub.

use crate::block::{BlockError, Op, Request};
use crate::frames::{Frames, Quota};
use crate::shared::SharedVolume;
use vellum_core::addr::Lba;

/// Reads what these blocks hold, as a client would; it is not counted as a client's read.
pub(super) fn read(shared: &SharedVolume, lba: Lba, blocks: u32) -> Result<Frames, BlockError> {
    let frames = shared.frames.take(Quota::OwnRead, blocks as usize)?;
    let read = shared.call_plain(Request::new(Op::Read, lba, blocks.into(), frames));
    read.map(|request| request.frames)
}
