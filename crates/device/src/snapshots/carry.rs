//! What the bookkeeping asks for, carried out by the core: copies, discards, and blocks that are read and written.

use crate::bases::digest_all;
use crate::block::{BlockError, Op, Request};
use crate::drive::{Batch, Inner};
use crate::frames::{Frames, Share};
use crate::gate;
use crate::requests::Pending;
use crate::scout::Watched;
use crate::scratch::Scratch;
use crate::shared::Shared;
use vellum_core::addr::{BLOCK_BYTES, Lba, Nanos};
use vellum_core::seam::{Copy, Input};
use vellum_core::snapshots::{Forget, Plan, Snapshots};

/// Runs that are looked at under the lock at a time.
const EXTENTS: usize = 64;

/// A request of the volume's own. It counts as no client's, and is told to nobody who follows file systems.
fn request(op: Op, lba: Lba, blocks: u64, frames: Frames) -> Request {
    let tag = 0;
    Request {
        tag,
        op,
        lba,
        blocks,
        frames,
    }
}

/// As the core is asked for what takes no frames, and moves none.
fn admit_plain(now: Nanos, inner: &mut Inner, pending: Pending, batch: &mut Batch) {
    inner.admit(now, pending, &[], batch);
}

/// Makes all that was acknowledged durable.
pub(super) fn flush(shared: &Shared) -> Result<(), BlockError> {
    let flush = request(Op::Flush, Lba(0), 0, Frames::default());
    shared.call(flush, admit_plain).map(drop)
}

pub(super) fn discard(shared: &Shared, lba: Lba, blocks: u64) -> Result<(), BlockError> {
    let op = Op::Discard { fua: false };
    let discard = request(op, lba, blocks, Frames::default());
    shared.call(discard, admit_plain).map(drop)
}

/// Reads some blocks into these frames.
pub(super) fn read_into(shared: &Shared, lba: Lba, frames: Frames) -> Result<Frames, BlockError> {
    let blocks = frames.len() as u64;
    let read = request(Op::Read, lba, blocks, frames);
    shared.call(read, admit_plain).map(|request| request.frames)
}

/// The first runs of blocks from `lba` on, and whether there is something in each.
pub(super) fn extents(shared: &Shared, lba: Lba, blocks: u64) -> Vec<(u64, bool)> {
    let inner = shared.knowing_all();
    match inner.busy {
        // Broken down: whoever asks is refused soon.
        true => vec![(blocks, true)],
        false => inner.engine.extents(lba, blocks, EXTENTS),
    }
}

/// A block of the volume; `None` if there is nothing.
pub(super) fn read(
    shared: &Shared,
    lba: Lba,
) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, BlockError> {
    if extents(shared, lba, 1).iter().all(|(_, mapped)| !mapped) {
        return Ok(None);
    }
    let frames = read_into(shared, lba, shared.frames.take(Share::Read, 1)?)?;
    let mut block = Box::new([0; BLOCK_BYTES]);
    block.copy_from_slice(frames.block(0));
    Ok(Some(block))
}

/// Writes these blocks, in fewer bytes where that is wanted.
pub(super) fn write_from(shared: &Shared, lba: Lba, frames: Frames) -> Result<(), BlockError> {
    let blocks = frames.len() as u64;
    let mut writes = [request(Op::Write { fua: false }, lba, blocks, frames)];
    let mut scratch = Scratch::default();
    scratch.verdicts.push((None, Watched::default()));
    let (_, sight) = shared.scout.sight();
    digest_all(shared, &sight, &mut writes, &mut scratch);
    let admit = |now, inner: &mut Inner, pending, batch: &mut Batch| {
        let write = gate::Write {
            pending,
            blocks: &mut scratch.payloads,
            found: &scratch.found,
            steps: &mut scratch.steps,
            sight: &sight,
        };
        gate::pass(shared, inner, now, write, batch);
    };
    let [write] = writes;
    shared.call(write, admit).map(drop)
}

/// Writes a block that `fill` makes, in fewer bytes where that is wanted; of zeros, nothing is left.
pub(super) fn write(
    shared: &Shared,
    lba: Lba,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), BlockError> {
    let mut frames = shared.frames.take(Share::Own, 1)?;
    fill(frames.block_mut(0));
    if frames.block(0).iter().all(|&byte| byte == 0) {
        return discard(shared, lba, 1);
    }
    write_from(shared, lba, frames)
}

/// Lets blocks hold what others hold; by their bytes, where a link cannot be.
pub(super) fn copy(shared: &Shared, copy: &Copy) -> Result<(), BlockError> {
    let Copy { from, to, blocks } = *copy;
    let admit = |now, inner: &mut Inner, pending, batch: &mut Batch| {
        let id = inner.requests.insert(pending);
        inner.feed(now, Input::Copy { id, copy: *copy }, batch);
    };
    // To whoever follows file systems it is what a discard is: blocks that change without a write.
    let op = Op::Discard { fua: false };
    let linked = shared.call(request(op, to, blocks, Frames::default()), admit);
    match linked {
        Err(BlockError::Unlinkable) => {
            (0..blocks).try_for_each(|index| copy_bytes(shared, from.plus(index), to.plus(index)))
        }
        linked => linked.map(drop),
    }
}

fn copy_bytes(shared: &Shared, from: Lba, to: Lba) -> Result<(), BlockError> {
    match read(shared, from)? {
        Some(block) => write(shared, to, |out| out.copy_from_slice(&block[..])),
        None => discard(shared, to, 1),
    }
}

/// Gives up what a crash has left of snapshots, when there are none: it says nothing any more, and takes room.
pub(super) fn clear(shared: &Shared, book: &mut Snapshots) -> Result<(), BlockError> {
    if book.iter().next().is_some() {
        return Ok(());
    }
    let history = book.history();
    let (mut at, end) = (history.rows(0), history.end());
    while at < end {
        for (blocks, is_mapped) in extents(shared, at, end.0 - at.0) {
            if is_mapped {
                discard(shared, at, blocks)?;
            }
            at = at.plus(blocks);
        }
    }
    book.cleaned();
    Ok(())
}

/// Carries a plan out: it has taken effect then.
pub(super) fn out(shared: &Shared, book: &Snapshots, plan: &Plan) -> Result<(), BlockError> {
    // What was answered before has to be what is copied.
    drop(shared.knowing_all());
    plan.copies.iter().try_for_each(|one| copy(shared, one))?;
    rows(shared, book, &plan.row_blocks)
}

/// As [`out`], of what is given up.
pub(super) fn out_of(shared: &Shared, book: &Snapshots, forget: &Forget) -> Result<(), BlockError> {
    for (lba, blocks) in &forget.discards {
        discard(shared, *lba, *blocks)?;
    }
    rows(shared, book, &forget.row_blocks)
}

/// Writes blocks of rows.
pub(super) fn rows(shared: &Shared, book: &Snapshots, blocks: &[u64]) -> Result<(), BlockError> {
    let history = book.history();
    blocks.iter().try_for_each(|&block| {
        write(shared, history.rows(block), |out| {
            book.encode_rows(block, out)
        })
    })
}

/// Writes a block of the list.
pub(super) fn list(shared: &Shared, book: &Snapshots, block: u64) -> Result<(), BlockError> {
    write(shared, book.history().list(block), |out| {
        book.encode_list(block, out);
    })
}
