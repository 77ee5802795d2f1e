//! Mends damaged blocks of data from other copies of them, and those that say what snapshots are and keep from memory.
//!
//! Copies are looked for by their sums, in everything that summaries and headers name: journals' copies, duplicates that were not
//! shared, and what has been moved or replaced and not been erased yet. [`copies`] decides which of them are copies.
//!
//! The block is written as a client would write it, if the address still leads to the damaged one and no client's write waits.

use super::read::read;
use super::report::Finding;
use super::structures::Structures;
use crate::block::{BlockError, Op, Request};
use crate::frames::{Frames, Quota};
use crate::shared::SharedVolume;
use crate::snapshots;
use std::collections::BTreeMap;
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba, Segment};
use vellum_core::format::areas::Layout;
use vellum_core::seam::Payload;
use vellum_core::service::copies;

/// Map entries that are looked at in one hold of the lock.
const ENTRIES: u64 = 4096;

/// A damaged block whose copy is looked for.
struct Wanted {
    finding: usize,
    lba: Lba,
    at: Pba,
    /// What is left of it, if it can be read.
    left: Option<Vec<u8>>,
}

/// A block that may be a copy.
struct Copy {
    at: Pba,
    sum: u32,
    /// The block that it is said to be.
    owner: Option<Lba>,
}

/// Mends those of the findings that can be mended.
pub(super) fn blocks(shared: &SharedVolume, structures: &Structures<'_>, findings: &mut [Finding]) {
    for finding in findings.iter_mut().filter(|found| found.is_damage()) {
        if let Some(lba) = finding.lba.map(Lba)
            && snapshots::rewrite(shared, lba)
            && read(shared, lba, 1).is_ok()
        {
            finding.mended = Some("written anew, from memory".to_owned());
        }
    }
    let wanted = wanted(shared, findings);
    if wanted.is_empty() || !copies::are_told_apart(structures.superblock()) {
        return;
    }
    let mut mended = BTreeMap::new();
    each_copy(shared, structures, &mut |copy| {
        for one in wanted.get(&copy.sum).into_iter().flatten() {
            if copy.at != one.at
                && !mended.contains_key(&one.finding)
                && is_copy(shared, &copy, one)
            {
                let content = content(shared, copy.at, copy.sum);
                if content.is_some_and(|content| write(shared, one, &content)) {
                    let how = format!("written anew, from the copy at physical block {}", copy.at);
                    mended.insert(one.finding, how);
                }
            }
        }
        !shared.scrubber.is_to_end()
    });
    for (index, how) in mended {
        // Read it again, so that nothing is claimed if something went wrong since.
        if findings[index]
            .lba
            .is_some_and(|lba| read(shared, Lba(lba), 1).is_ok())
        {
            findings[index].mended = Some(how);
        }
    }
}

/// The damaged blocks by the sums that they should have.
fn wanted(shared: &SharedVolume, findings: &[Finding]) -> BTreeMap<u32, Vec<Wanted>> {
    let mut wanted: BTreeMap<u32, Vec<Wanted>> = BTreeMap::new();
    for (finding, found) in findings.iter().enumerate() {
        let Some(lba) = found.lba.filter(|_| found.is_damage()).map(Lba) else {
            continue;
        };
        let known = shared.with_core(|_, inner, _| inner.core.whole_at(lba));
        let Some((at, sum)) = known.flatten() else {
            continue;
        };
        let mut bytes = vec![0; BLOCK_BYTES];
        let left = shared.medium.read(at, &mut bytes).ok().map(|()| bytes);
        wanted.entry(sum).or_default().push(Wanted {
            finding,
            lba,
            at,
            left,
        });
    }
    wanted
}

/// Passes every stored block to `tell`, until that returns false.
fn each_copy(
    shared: &SharedVolume,
    structures: &Structures<'_>,
    tell: &mut dyn FnMut(Copy) -> bool,
) {
    let superblock = structures.superblock();
    if superblock.layout() == Layout::Log {
        for segment in (0..superblock.segment_count()).map(Segment) {
            let start = superblock.segment_start(segment);
            let tags = structures.tags(segment).unwrap_or_default();
            for (tag, at) in tags.iter().zip(start.0..) {
                let Some(owner) = copies::owner(superblock, tag) else {
                    continue;
                };
                let (at, sum) = (Pba(at), tag.sum);
                if !tell(Copy { at, sum, owner }) {
                    return;
                }
            }
        }
        return;
    }
    for from in (0..shared.blocks).step_by(ENTRIES as usize) {
        let lbas = (from..shared.blocks.min(from + ENTRIES)).map(Lba);
        let copies = shared.with_core(|_, inner, _| {
            let at = |lba| inner.core.whole_at(lba).map(|(at, sum)| (lba, at, sum));
            lbas.filter_map(at).collect::<Vec<_>>()
        });
        for (lba, at, sum) in copies.unwrap_or_default() {
            let owner = Some(lba);
            if !tell(Copy { at, sum, owner }) {
                return;
            }
        }
    }
}

fn content(shared: &SharedVolume, at: Pba, sum: u32) -> Option<Vec<u8>> {
    let mut bytes = vec![0; BLOCK_BYTES];
    shared.medium.read(at, &mut bytes).ok()?;
    (shared.digester.sum().of(&bytes) == sum).then_some(bytes)
}

/// True if something besides its sum says that it is a copy.
fn is_copy(shared: &SharedVolume, copy: &Copy, wanted: &Wanted) -> bool {
    let content = content(shared, copy.at, copy.sum);
    content.is_some_and(|content| {
        copies::is_copy(copy.owner, wanted.lba, wanted.left.as_deref(), &content)
    })
}

/// Writes what the block should hold, if the address still leads there.
fn write(shared: &SharedVolume, wanted: &Wanted, content: &[u8]) -> bool {
    let Some(mut frames) = shared.frames.try_take(Quota::Write, 1) else {
        return false;
    };
    frames.block_mut(0).copy_from_slice(content);
    let Some(buf) = frames.bufs().next() else {
        return false;
    };
    let digest = shared.digester.how().digest(frames.block(0));
    let write = Request::new(Op::Write { fua: false }, wanted.lba, 1, frames);
    let written = shared.call(write, |now, inner, pending, batch| {
        if inner.core.leads_to(wanted.lba, wanted.at) {
            inner.bases.want(buf, 0);
            inner.admit(now, pending, &[Payload { buf, digest }], batch);
        } else {
            batch.answers.push(pending, Err(BlockError::Stopping));
        }
    });
    let flush = Request::new(Op::Flush, wanted.lba, 0, Frames::default());
    written.is_ok() && shared.call_plain(flush).is_ok()
}
