//! Carries out folds: the machine ([`Fold`]) names the blocks, and this module reads them, encodes them and hands them to the
//! core.

use super::stored;
use super::sweeper::Sought;
use crate::block::{BlockError, Op, Request};
use crate::digest::crc32c;
use crate::encoding::Anew;
use crate::frames::{Frames, Quota};
use crate::shared::SharedVolume;
use vellum_core::addr::Lba;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Input, Payload, Service};
use vellum_core::service::Step;
use vellum_core::service::fold::{Fold, Folded};
use vellum_core::service::pace::Haste;

/// Folds all sparse pages; returns `false` if it was ended early.
pub(super) fn fold(shared: &SharedVolume, superblock: &Superblock, haste: Haste) -> bool {
    let mut fold = Fold::new(superblock.clone(), crc32c, haste, shared.now());
    let sought = Some(Sought::SparsePages);
    stored::run(shared, sought, &mut fold, |fold, step| {
        let Step::Fold { lba, blocks } = step else {
            return false;
        };
        let row = fold_row(shared, lba, blocks);
        row.is_some_and(|row| {
            fold.folded(row);
            true
        })
    })
}

/// Reads adjacent blocks, encodes them and hands them to the core, which stores those that have not changed. Returns `None` when
/// the volume stops.
fn fold_row(shared: &SharedVolume, lba: Lba, blocks: u32) -> Option<Folded> {
    let Some(frames) = shared.frames.try_take(Quota::Write, blocks as usize) else {
        // Clients have all frames.
        return Some(Folded::Stays);
    };
    let mut frames = match read(shared, lba, frames) {
        Ok(frames) => frames,
        Err(BlockError::Stopping) => return None,
        // It was reported as damage when it was read.
        Err(_) => return Some(Folded::Stays),
    };
    let how = shared.digester.how();
    let row: Vec<Lba> = (0..blocks).map(|index| lba.plus(index.into())).collect();
    let anew = shared.with_core(|_, inner, _| Anew::new(inner, &row))?;
    let mut payloads: Vec<Payload> = Vec::with_capacity(row.len());
    for (index, buf) in frames.bufs().enumerate().collect::<Vec<_>>() {
        let mut digest = how.digest(frames.block(index));
        digest.packed = anew.pack(&mut frames, index, how);
        if digest.packed.is_none() {
            // An earlier encoding made it smaller than the present one can, or its base is not in memory.
            return Some(Folded::Stays);
        }
        payloads.push(Payload { buf, digest });
    }
    shared.with_core(|now, inner, batch| {
        anew.settle(inner, &mut payloads);
        inner.fold(now, lba, frames, &payloads, batch);
        Folded::Told
    })
}

/// Reads what these blocks hold.
fn read(shared: &SharedVolume, lba: Lba, frames: Frames) -> Result<Frames, BlockError> {
    let blocks = frames.len() as u32;
    let request = Request::new(Op::Read, lba, blocks.into(), frames);
    let read = shared.call(request, |now, inner, pending, batch| {
        let id = inner.requests.insert(pending);
        let read = Service::ReadToFold { id, lba, blocks };
        inner.feed(now, Input::Service(read), batch);
    });
    read.map(|request| request.frames)
}
