//! All that is stored, as segments' summaries and pages' directories tell it.

use super::turn::{Haste, Turn};
use crate::digest::crc32c;
use crate::limits::{SWEEP_PAGES, SWEEP_TAGS};
use crate::shared::Shared;
use vellum_core::addr::{BLOCK_BYTES, Pba, Segment};
use vellum_core::format::pack::{self, PartTag};
use vellum_core::format::summary::{self, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Hint, Input};

/// Whose what is stored may be, and its checksums.
pub(super) enum Found<'a> {
    /// By the summary of a segment: of so many of its blocks, in order.
    Blocks(&'a [Tag]),
    /// By the directory of a page: of its parts.
    Parts(&'a [PartTag]),
}

/// Goes through what is stored, a segment's tags after the other's; `false` when it is to end. What
/// cannot be read says nothing. Pages of parts that have more owners than `most_owners` are passed over.
pub(super) fn stored(
    shared: &Shared,
    superblock: &Superblock,
    turn: &mut Turn,
    most_owners: u32,
    mut of: impl FnMut(Pba, Found<'_>) -> bool,
) -> bool {
    let usable = superblock.usable_blocks();
    let blocks = superblock.segment_blocks() - usable;
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    let mut tags = Vec::new();
    for segment in (0..superblock.segment_count()).map(Segment) {
        if !turn.wait(shared) {
            return false;
        }
        let start = superblock.segment_start(segment);
        // What was written last has no summary yet, and is known to the core.
        let known = shared.with_core(|_, inner, _| {
            let known = inner.engine.unsummarised(segment);
            known.is_some_and(|known| {
                tags.clear();
                tags.extend_from_slice(known);
                true
            })
        });
        let is_known = match known {
            None => return false,
            Some(true) => true,
            Some(false) => {
                turn.spend(u64::from(blocks));
                let at = start.plus(usable.into());
                let signature = superblock.signature();
                shared.medium.read(at, &mut bytes).is_ok()
                    && summary::decode_into(
                        &signature,
                        segment,
                        usable as usize,
                        &bytes,
                        crc32c,
                        &mut tags,
                    )
                    .is_ok()
            }
        };
        if !is_known {
            continue;
        }
        let pieces = (start.0..).step_by(SWEEP_TAGS).map(Pba);
        let is_through = pieces
            .zip(tags.chunks(SWEEP_TAGS))
            .all(|(at, tags)| of(at, Found::Blocks(tags)));
        if !(is_through && parts(shared, start, &tags, turn, most_owners, &mut of)) {
            return false;
        }
    }
    true
}

/// The same of the pages of parts of one segment. A page that was moved, or is not written yet, fails its checksum.
fn parts(
    shared: &Shared,
    start: Pba,
    tags: &[Tag],
    turn: &mut Turn,
    most_owners: u32,
    mut of: impl FnMut(Pba, Found<'_>) -> bool,
) -> bool {
    let mut pages = Vec::new();
    let asked = shared.with_core(|_, inner, _| {
        let engine = &inner.engine;
        engine.pages_of_parts(start, tags, most_owners, &mut pages);
    });
    if asked.is_none() {
        return false;
    }
    let mut bytes = [0; SWEEP_PAGES * BLOCK_BYTES];
    let mut found = Vec::new();
    let side_by_side = pages.chunk_by(|(one, _), (next, _)| one.plus(1) == *next);
    for run in side_by_side.flat_map(|run| run.chunks(SWEEP_PAGES)) {
        if !turn.wait(shared) {
            return false;
        }
        turn.spend(run.len() as u64);
        let bytes = &mut bytes[..run.len() * BLOCK_BYTES];
        if shared.medium.read(run[0].0, bytes).is_err() {
            continue;
        }
        for (page, &(at, sum)) in bytes.chunks_exact(BLOCK_BYTES).zip(run) {
            let is_whole = shared.digester.sum().of(page) == sum
                && pack::directory(page, crc32c, &mut found).is_ok();
            if is_whole && !of(at, Found::Parts(&found)) {
                return false;
            }
        }
    }
    true
}

/// Fills the index of contents.
pub(super) fn learn(shared: &Shared, superblock: &Superblock) {
    let mut turn = Turn::new(shared, Haste::Beside);
    stored(shared, superblock, &mut turn, u32::MAX, |at, found| {
        let fed = match found {
            Found::Blocks(tags) => {
                let tags = crate::scout::worth_learning(shared, tags);
                shared.with_core(|now, inner, batch| {
                    inner.feed(now, Input::Hint(Hint::Contents { at, tags: &tags }), batch);
                })
            }
            Found::Parts(parts) => {
                let parts = crate::scout::parts_worth_learning(shared, parts);
                shared.with_core(|now, inner, batch| {
                    inner.feed(now, Input::Hint(Hint::Parts { at, parts: &parts }), batch);
                })
            }
        };
        fed.is_some()
    });
}
