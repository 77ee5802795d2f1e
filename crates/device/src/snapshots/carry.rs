//! Has the core carry out what the bookkeeping requires: copies, discards, and reads and writes of blocks.

use crate::block::{BlockError, Op, Request};
use crate::drive::{Batch, Inner, Phase};
use crate::encoding::digest_all;
use crate::frames::{Frames, Quota};
use crate::gate;
use crate::requests::Pending;
use crate::scratch::Scratch;
use crate::shared::SharedVolume;
use crate::watched::Watched;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Lba, Nanos};
use vellum_core::room::Room;
use vellum_core::seam::{CopyBlocks, Input, Payload};
use vellum_core::snapshots::{Forget, Plan, Snapshots};

/// The most runs that are looked at in one hold of the lock.
const EXTENTS: usize = 64;

/// The time between two looks at whether all is counted.
const COUNT_WAIT: Duration = Duration::from_millis(5);

/// Carries out a request that changes something, or makes it durable, after everything that was answered before: a client may have the
/// answer to a write that the core does not have yet (`gate/early.rs`).
fn call(
    shared: &SharedVolume,
    request: Request,
    admit: impl FnOnce(Nanos, &mut Inner, Pending, &mut Batch),
) -> Result<Request, BlockError> {
    drop(shared.knowing_all());
    shared.call(request, admit)
}

/// Makes all that was acknowledged durable.
pub(super) fn flush(shared: &SharedVolume) -> Result<(), BlockError> {
    let flush = Request::new(Op::Flush, Lba(0), 0, Frames::default());
    let (_, watching) = shared.scout.watching();
    let entries = &mut Vec::new();
    // Through the gate like a client's: it must not overtake the commit block that it may be for.
    let admit = |now, inner: &mut Inner, pending, batch: &mut Batch| {
        let write = gate::Write {
            pending,
            blocks: &mut [],
            found: &[],
            entries,
            watching: &watching,
        };
        shared.passage(now, inner, batch).pass(write);
    };
    call(shared, flush, admit).map(drop)
}

pub(super) fn discard(shared: &SharedVolume, lba: Lba, blocks: u64) -> Result<(), BlockError> {
    let op = Op::Discard { fua: false };
    let discard = Request::new(op, lba, blocks, Frames::default());
    drop(shared.knowing_all());
    shared.call_plain(discard).map(drop)
}

/// Reads some blocks into these frames.
pub(super) fn read_into(
    shared: &SharedVolume,
    lba: Lba,
    frames: Frames,
) -> Result<Frames, BlockError> {
    let blocks = frames.len() as u64;
    let read = Request::new(Op::Read, lba, blocks, frames);
    shared.call_plain(read).map(|request| request.frames)
}

/// The first runs of blocks from `lba` on, and whether each is mapped.
pub(super) fn extents(shared: &SharedVolume, lba: Lba, blocks: u64) -> Vec<(u64, bool)> {
    let inner = shared.knowing_all();
    match inner.has_broken_down() {
        // Broken down: the caller is refused soon.
        true => vec![(blocks, true)],
        false => inner.core.extents(lba, blocks, EXTENTS),
    }
}

/// How many of these blocks are mapped, in parts.
pub(super) fn mapped(shared: &SharedVolume, runs: &[(Lba, u64)]) -> impl Iterator<Item = u64> {
    runs.iter().flat_map(move |&(first, blocks)| {
        let mut at = first;
        let end = first.plus(blocks);
        std::iter::from_fn(move || {
            let found = (at < end).then(|| extents(shared, at, end.0 - at.0))?;
            at = at.plus(found.iter().map(|(blocks, _)| blocks).sum());
            let mapped = found.iter().filter(|(_, mapped)| *mapped);
            Some(mapped.map(|(blocks, _)| blocks).sum())
        })
    })
}

/// Reads a block of the volume; `None` if it is not mapped.
pub(super) fn read(
    shared: &SharedVolume,
    lba: Lba,
) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, BlockError> {
    if extents(shared, lba, 1).iter().all(|(_, mapped)| !mapped) {
        return Ok(None);
    }
    let frames = read_into(shared, lba, shared.frames.take(Quota::OwnRead, 1)?)?;
    let mut block = Box::new([0; BLOCK_BYTES]);
    block.copy_from_slice(frames.block(0));
    Ok(Some(block))
}

/// Writes these blocks, in fewer bytes if the policy says so.
pub(super) fn write_from(
    shared: &SharedVolume,
    lba: Lba,
    frames: Frames,
) -> Result<(), BlockError> {
    let blocks = frames.len() as u64;
    let op = Op::Write { fua: false };
    let mut writes = [Request::new(op, lba, blocks, frames)];
    let mut scratch = Scratch::default();
    scratch.verdicts.push((None, Watched::default()));
    let (_, watching) = shared.scout.watching();
    digest_all(shared, &watching, &mut writes, &mut scratch);
    let admit = |now, inner: &mut Inner, pending, batch: &mut Batch| {
        let write = gate::Write {
            pending,
            blocks: &mut scratch.payloads,
            found: &scratch.found,
            entries: &mut scratch.entries,
            watching: &watching,
        };
        shared.passage(now, inner, batch).pass(write);
    };
    let [write] = writes;
    call(shared, write, admit).map(drop)
}

/// Writes a block that `fill` makes, in fewer bytes if the policy says so; a block of zeros is discarded.
pub(super) fn write(
    shared: &SharedVolume,
    lba: Lba,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), BlockError> {
    match filled(shared, fill)? {
        Some(frames) => write_from(shared, lba, frames),
        None => discard(shared, lba, 1),
    }
}

/// The same, but nothing that is stored is used for it, because that may be damaged: it is stored as it is.
pub(super) fn write_whole(
    shared: &SharedVolume,
    lba: Lba,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), BlockError> {
    let Some(frames) = filled(shared, fill)? else {
        return discard(shared, lba, 1);
    };
    let digest = shared.digester.how().digest(frames.block(0));
    let bufs: Vec<_> = frames.bufs().collect();
    let write = Request::new(Op::Write { fua: false }, lba, 1, frames);
    let admit = |now, inner: &mut Inner, pending, batch: &mut Batch| {
        let payloads: Vec<_> = bufs.iter().map(|&buf| Payload { buf, digest }).collect();
        bufs.iter().for_each(|&buf| inner.bases.want(buf, 0));
        inner.admit(now, pending, &payloads, batch);
    };
    call(shared, write, admit).map(drop)
}

/// A frame with the block that `fill` makes; `None` if that is zeros.
fn filled(
    shared: &SharedVolume,
    fill: impl FnOnce(&mut [u8]),
) -> Result<Option<Frames>, BlockError> {
    let mut frames = shared.frames.take(Quota::Own, 1)?;
    fill(frames.block_mut(0));
    let is_zeros = frames.block(0).iter().all(|&byte| byte == 0);
    Ok((!is_zeros).then_some(frames))
}

/// Links blocks to the contents of others, or copies the bytes where a link is impossible.
pub(super) fn copy(shared: &SharedVolume, copy: &CopyBlocks) -> Result<(), BlockError> {
    let CopyBlocks { from, to, blocks } = *copy;
    let admit = |now, inner: &mut Inner, pending, batch: &mut Batch| {
        let id = inner.requests.insert(pending);
        inner.feed(now, Input::Copy { id, copy: *copy }, batch);
    };
    // The followers of file systems see this as a discard, because blocks change without a write.
    let op = Op::Discard { fua: false };
    let linked = shared.call(Request::new(op, to, blocks, Frames::default()), admit);
    match linked {
        Err(BlockError::Unlinkable) => {
            (0..blocks).try_for_each(|index| copy_bytes(shared, from.plus(index), to.plus(index)))
        }
        linked => linked.map(drop),
    }
}

fn copy_bytes(shared: &SharedVolume, from: Lba, to: Lba) -> Result<(), BlockError> {
    match read(shared, from)? {
        Some(block) => write(shared, to, |out| out.copy_from_slice(&block[..])),
        None => discard(shared, to, 1),
    }
}

/// When there are no snapshots, gives up what a crash has left of any: it serves nothing, and takes room.
pub(super) fn clear(shared: &SharedVolume, book: &mut Snapshots) -> Result<(), BlockError> {
    if book.iter().next().is_some() {
        return Ok(());
    }
    let history = book.history();
    let first = history.rows(0);
    for (lba, blocks) in mapped_runs(shared, first, history.end().0 - first.0) {
        discard(shared, lba, blocks)?;
    }
    book.cleaned();
    Ok(())
}

/// Gives up kept blocks that a crash has left without rows, and rows that do not count. Nothing else would ever find such blocks.
/// Without snapshots, [`clear`] has looked.
pub(super) fn sweep(shared: &SharedVolume, book: &mut Snapshots) -> Result<(), BlockError> {
    let mut left = Vec::new();
    if book.iter().next().is_none() {
        return Ok(());
    }
    for (first, blocks) in book.without_rows() {
        left.extend(mapped_runs(shared, first, blocks));
    }
    book.loosen(left);
    owed(shared, book)
}

/// The runs of mapped blocks among these.
pub(super) fn mapped_runs(shared: &SharedVolume, first: Lba, blocks: u64) -> Vec<(Lba, u64)> {
    let (mut at, end) = (first, first.plus(blocks));
    let mut runs = Vec::new();
    while at < end {
        for (blocks, is_mapped) in extents(shared, at, end.0 - at.0) {
            if is_mapped {
                runs.push((at, blocks));
            }
            at = at.plus(blocks);
        }
    }
    runs
}

/// True if there are only the last blocks, which are for what gives room back ([`Room::books`]).
///
/// [`Room::books`]: vellum_core::room::Room::books
fn has_only_last(shared: &SharedVolume) -> bool {
    let inner = shared.inner.lock();
    let room = inner.core.room();
    // Before all is counted, the core itself waits.
    inner.core.is_counted() && room.live + room.books() >= room.capacity
}

/// True if the volume has this much room, which may take until all is counted after an opening. One that takes no more writes has it
/// too: it refuses them itself.
pub(super) fn has_room(shared: &SharedVolume, is_enough: impl Fn(Room) -> bool) -> bool {
    loop {
        let inner = shared.inner.lock();
        let takes_none = inner.core.refuses_writes().is_some() || inner.phase != Phase::Running;
        if takes_none || is_enough(inner.core.fullest_room()) {
            return true;
        }
        if inner.core.is_counted() {
            return false;
        }
        drop(inner);
        std::thread::sleep(COUNT_WAIT);
    }
}

/// Carries a plan out; on return it has taken effect, or it is dropped. Nothing is copied if there is no room for its rows.
pub(super) fn out(
    shared: &SharedVolume,
    book: &mut Snapshots,
    plan: Plan,
) -> Result<Plan, BlockError> {
    if !plan.is_empty() && has_only_last(shared) {
        book.cancel_plan(plan);
        return Err(BlockError::Full);
    }
    steps(shared, book, plan, new_rows)
}

/// The same, for what has to end once it has begun: it may take the last blocks.
pub(super) fn out_to_the_end(
    shared: &SharedVolume,
    book: &mut Snapshots,
    plan: Plan,
) -> Result<Plan, BlockError> {
    steps(shared, book, plan, rows)
}

fn steps(
    shared: &SharedVolume,
    book: &mut Snapshots,
    plan: Plan,
    write: impl Fn(&SharedVolume, &Snapshots, &[u64]) -> Result<(), BlockError>,
) -> Result<Plan, BlockError> {
    // What is copied must include everything that was answered before.
    drop(shared.knowing_all());
    let done = plan.steps.iter().try_for_each(|step| {
        step.copies.iter().try_for_each(|one| copy(shared, one))?;
        write(shared, book, &[step.row_block])
    });
    match done {
        Ok(()) => Ok(plan),
        Err(error) => {
            drop_plan(shared, book, plan);
            Err(error)
        }
    }
}

/// Takes back what was done of a plan.
pub(super) fn drop_plan(shared: &SharedVolume, book: &mut Snapshots, plan: Plan) {
    book.drop_plan(plan);
    // If it fails, it is owed before the next plan.
    let _ = owed(shared, book);
}

/// Like [`out`], for what is given up.
pub(super) fn out_of(
    shared: &SharedVolume,
    book: &Snapshots,
    forget: &Forget,
) -> Result<(), BlockError> {
    for (lba, blocks) in &forget.discards {
        discard(shared, *lba, *blocks)?;
    }
    rows(shared, book, &forget.row_blocks)
}

/// Writes blocks of rows that lead to more blocks than before. The core would give them the last blocks too, and then no snapshot
/// could be deleted any more.
pub(super) fn new_rows(
    shared: &SharedVolume,
    book: &Snapshots,
    blocks: &[u64],
) -> Result<(), BlockError> {
    blocks.iter().try_for_each(|&block| {
        // Each time: meanwhile, data may take what was left.
        match has_only_last(shared) {
            true => Err(BlockError::Full),
            false => rows(shared, book, &[block]),
        }
    })
}

/// Writes blocks of rows.
fn rows(shared: &SharedVolume, book: &Snapshots, blocks: &[u64]) -> Result<(), BlockError> {
    let history = book.history();
    blocks.iter().try_for_each(|&block| {
        write(shared, history.rows(block), |out| {
            book.encode_rows(block, out)
        })
    })
}

/// Writes the blocks of rows that [are owed](Snapshots::stale_row_blocks), and then discards [what is loose](Snapshots::loose). No
/// plan may be under way.
pub(super) fn owed(shared: &SharedVolume, book: &mut Snapshots) -> Result<(), BlockError> {
    rows(shared, book, &book.stale_row_blocks())?;
    for &(lba, blocks) in book.loose() {
        discard(shared, lba, blocks)?;
    }
    book.cleaned();
    Ok(())
}

/// Writes a block of the list.
pub(super) fn list(shared: &SharedVolume, book: &Snapshots, block: u64) -> Result<(), BlockError> {
    write(shared, book.history().list(block), |out| {
        book.encode_list(block, out);
    })
}
