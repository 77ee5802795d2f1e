//! Keeps blocks before they change, and reads at an opening what is kept.

use super::carry;
use super::keeper::Keeper;
use super::load::{Wrong, read_list, read_rows};
use super::schedule;
use super::take::{forget_all, return_rest};
use crate::block::{BlockError, Op, Replies, Request};
use crate::options::OpenError;
use crate::shared::SharedVolume;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::format::history::{LIST_BLOCKS, Snapshot, Stage};
use vellum_core::snapshots::Snapshots;

fn broken(what: impl std::fmt::Display) -> OpenError {
    OpenError::Snapshots(what.to_string())
}

/// Gives up all snapshots of a volume, whatever was read of them: [`load`] then finds none, and gives up what they kept.
pub(crate) fn forget_list(shared: &SharedVolume, keeper: &Keeper) -> Result<(), OpenError> {
    let history = keeper.book().history();
    // In this order: with a list and no rows, snapshots would read as the volume does now.
    carry::discard(shared, history.list(0), LIST_BLOCKS)
        .and_then(|()| carry::flush(shared))
        .and_then(|()| carry::discard(shared, history.rows(0), history.row_blocks()))
        .map_err(broken)?;
    *keeper.book() = Snapshots::new(history);
    Ok(())
}

/// Reads the list and the rows of a volume's snapshots and, if it `may_write`, finishes what a crash has cut short. While a
/// snapshot is being received, only the receiver (`receiving`) may write: any other write would become part of that snapshot.
///
/// # Errors
/// When they cannot be read, or are not valid. Then no snapshot can be read: a missing row would make a snapshot read what was
/// written later.
pub(crate) fn load(
    shared: &SharedVolume,
    keeper: &Keeper,
    may_write: bool,
    receiving: bool,
) -> Result<(), OpenError> {
    let mut book = keeper.book();
    if let Err(error) = read_all(shared, &mut book) {
        *book = Snapshots::new(book.history());
        return Err(error);
    }
    keeper.note(&book);
    if let Some(arriving) = book.arriving().filter(|_| may_write && !receiving) {
        return Err(OpenError::Arriving(arriving.identity.name));
    }
    let has_begun = |one: &&Snapshot| one.stage.leaves() || one.stage == Stage::Returning;
    let mut began: Vec<_> = book.iter().filter(has_begun).copied().collect();
    // A rollback may need the room that deletions give back.
    began.sort_by_key(|one| !one.stage.leaves());
    drop(book);
    if !may_write {
        return Ok(());
    }
    carry::clear(shared, &mut keeper.book()).map_err(broken)?;
    if let Err(error) = carry::sweep(shared, &mut keeper.book()) {
        // It takes room until the next opening, and does no other harm.
        shared.events.add("snapshots", error.to_string());
    }
    for snapshot in began {
        let ended = match snapshot.stage {
            stage if stage.leaves() => forget_all(shared, keeper, snapshot.number),
            _ => return_rest(shared, keeper, &snapshot),
        };
        match ended {
            Ok(()) => {}
            // The remains of what is being deleted take room until the next opening, and do no other harm.
            Err(error) if snapshot.stage.leaves() => {
                shared.events.add("snapshots", error.to_string());
            }
            Err(error) => {
                return Err(OpenError::Returning {
                    name: snapshot.identity.name,
                    why: error.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// At an opening, what leads to most of it has to be right. Rows that do not count are written over.
fn read_all(shared: &SharedVolume, book: &mut Snapshots) -> Result<(), OpenError> {
    let mut tell = |wrong: Wrong| match wrong.spoils_all() {
        true => Err(wrong),
        false => Ok(()),
    };
    read_list(shared, book, &mut tell)
        .and_then(|()| read_rows(shared, book, &mut tell))
        .map_err(broken)
}

/// Keeps what requests change, before they are handed to the core. If that fails, answers the requests that change something; the
/// others are left.
pub(crate) fn keep_for(
    shared: &SharedVolume,
    keeper: &Keeper,
    requests: &mut Vec<Request>,
    replies: &Arc<dyn Replies>,
) {
    if let Err(error) = keep(shared, keeper, requests) {
        refuse(shared, requests, replies, &error);
    }
}

fn changes(request: &Request) -> bool {
    !matches!(request.op, Op::Read | Op::Flush)
}

fn keep(shared: &SharedVolume, keeper: &Keeper, requests: &[Request]) -> Result<(), BlockError> {
    if !keeper.has_any() || !requests.iter().any(changes) {
        return Ok(());
    }
    let writes = requests
        .iter()
        .filter(|request| matches!(request.op, Op::Write { .. }));
    let blocks = writes.map(|request| request.blocks).sum();
    loop {
        if schedule::give_room(shared, keeper, blocks) {
            continue;
        }
        let mut book = keeper.book();
        let Some(newest) = book.newest() else {
            return Ok(());
        };
        carry::owed(shared, &mut book)?;
        let mut runs = Vec::new();
        for request in requests {
            changed_by(shared, request, &mut runs);
        }
        let lbas = runs.iter().flat_map(|&(first, end)| first..end).map(Lba);
        let Ok(plan) = book.plan(newest, lbas) else {
            let (kept, _) = book.room();
            drop(book);
            // Scheduled snapshots are deleted before a write is refused.
            match schedule::make_room(shared, keeper, kept) {
                true => continue,
                false => return Err(BlockError::Full),
            }
        };
        let plan = carry::out(shared, &mut book, plan)?;
        book.keep(plan);
        return Ok(());
    }
}

/// Adds the runs of blocks that a request changes. A discard does not change what is not mapped.
fn changed_by(shared: &SharedVolume, request: &Request, runs: &mut Vec<(u64, u64)>) {
    let (first, end) = (request.lba.0, request.lba.0.saturating_add(request.blocks));
    // The volume itself refuses a request that is out of range.
    if end > shared.blocks {
        return;
    }
    match request.op {
        Op::Read | Op::Flush => {}
        Op::Write { .. } => runs.push((first, end)),
        Op::Discard { .. } | Op::WriteZeroes { .. } => {
            let mut at = first;
            while at < end {
                for (blocks, is_mapped) in carry::extents(shared, Lba(at), end - at) {
                    if is_mapped {
                        runs.push((at, at + blocks));
                    }
                    at += blocks;
                }
            }
        }
    }
}

fn refuse(
    shared: &SharedVolume,
    requests: &mut Vec<Request>,
    replies: &Arc<dyn Replies>,
    error: &BlockError,
) {
    // The volume itself refuses a request that is out of range.
    let ends = |request: &Request| request.lba.0.saturating_add(request.blocks);
    let is_hit = |request: &Request| changes(request) && ends(request) <= shared.blocks;
    // Before answering: a client that has its answer finds it counted, and a commit block may wait for what is refused here.
    shared.with_core(|now, inner, _| {
        for request in requests.iter().filter(|request| is_hit(request)) {
            inner.counters.refused += 1;
            inner.gate.refused(now, request, error);
        }
    });
    for request in requests.extract_if(.., |request| is_hit(request)) {
        replies.complete(request, Err(error.clone()));
    }
    replies.flush();
}
