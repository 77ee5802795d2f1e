//! Puts in force what the user has chosen and what the scout has found: the orders that the core, the digester and the sweeper are
//! given.

use crate::choices::Chosen;
use crate::memory::{self, advise_large_pages};
use crate::policy::{NoIndex, Policy};
use crate::shared::SharedVolume;
use crate::watching::Watching;
use std::sync::Arc;
use vellum_core::index::Index;
use vellum_core::seam::{Hint, Input, Setting};
use vellum_ext4::Scan;
use vellum_watch::{Classes, Critical, Findings, JournalError, Plan, journals};

/// Puts in force what the user has chosen at opening.
pub(crate) fn begin(shared: &SharedVolume) -> Result<(), NoIndex> {
    let mut chosen = shared.choices.lock();
    let wanted = chosen.policy.index_bytes;
    while let Err(refused) = prepare_index(shared, &chosen.policy) {
        // A volume that a larger machine served must still open on this one.
        chosen.policy.index_bytes = refused.smaller().ok_or(refused)?;
    }
    let had = chosen.policy.index_bytes;
    if had < wanted {
        let warning = format!(
            "this machine has too little memory for an index of contents of {wanted} bytes (dedup-memory). \
             Until the volume is opened again the index has {had} bytes, and duplicates of contents that do \
             not fit in it are stored again"
        );
        shared.events.add("memory", warning);
    }
    change(shared, &chosen, false);
    Ok(())
}

/// Ends a scan, and puts in force what it has found.
pub(crate) fn scanned(shared: &SharedVolume, scan: &Arc<Scan>, classes: Classes) {
    let critical = Arc::new(Critical::new(scan, shared.blocks));
    let chosen = shared.choices.lock();
    let wants = chosen.policy.wants();
    let before = shared.scout.now_in_force();
    let mut plan = Plan::new(scan, &chosen.journals, &wants, shared.blocks);
    plan.keep(before.commits(), scan, &chosen.journals);
    let found = Findings::new(Arc::clone(scan), plan, Arc::new(classes), critical, wants);
    let scout = &shared.scout;
    let watching = Watching::new(scout.scans_ended() + 1, found, &before);
    let watching = Arc::new(watching);
    scout.end(&watching, shared.now());
    give(shared, &chosen, &watching, false);
}

/// Puts another policy in force.
pub(crate) fn set_policy(shared: &SharedVolume, policy: Policy) -> Result<(), NoIndex> {
    let mut chosen = shared.choices.lock();
    prepare_index(shared, &policy)?;
    let anew = chosen.policy.hash != policy.hash;
    chosen.policy = policy;
    change(shared, &chosen, anew);
    Ok(())
}

/// Watches a journal that the user names.
pub(crate) fn set_journal(
    shared: &SharedVolume,
    start: u64,
    bytes: u64,
) -> Result<(), JournalError> {
    let mut chosen = shared.choices.lock();
    journals::set(&mut chosen.journals, start, bytes, shared.blocks)?;
    change(shared, &chosen, false);
    Ok(())
}

/// Forgets the journals that the user has named.
pub(crate) fn clear_journals(shared: &SharedVolume) {
    let mut chosen = shared.choices.lock();
    chosen.journals.clear();
    change(shared, &chosen, false);
}

/// Puts new choices in force, with the latest scan.
fn change(shared: &SharedVolume, chosen: &Chosen, anew: bool) {
    let scout = &shared.scout;
    let semantics = chosen.policy.semantics;
    // It needs a walk of the inodes.
    let is_new = !shared.choices.set_semantics(semantics) && semantics;
    if scout.freed.want(chosen.policy.freed) || is_new {
        scout.scan_again(shared.now());
    }
    let before = scout.now_in_force();
    let wants = chosen.policy.wants();
    let mut plan = Plan::new(before.scan(), &chosen.journals, &wants, shared.blocks);
    plan.keep(before.commits(), before.scan(), &chosen.journals);
    let found = before.planned(plan, wants);
    let watching = Arc::new(Watching::new(before.scan_number(), found, &before));
    scout.replace(&watching);
    give(shared, chosen, &watching, anew);
}

/// Gives all of them their orders. `anew`: what the core has learned about the journals is of no use any more.
fn give(shared: &SharedVolume, chosen: &Chosen, watching: &Watching, anew: bool) {
    let policy = &chosen.policy;
    let hash = watching.needs_hash().then_some(policy.hash);
    // Hashes before the pool that keeps them.
    shared.digester.set(hash, policy.zero);
    shared
        .digester
        .set_compression(policy.compression, policy.deltas);
    if let Some(print) = policy.fingerprint {
        shared.digester.set_print(print);
    }
    shared.digester.set_shares(policy.shares());
    shared.sweeper.set_rate(policy.sweep_blocks);
    let dedup = policy.core_dedup(shared.blocks);
    let (deltas, commits) = (policy.deltas.are_made(), policy.commits);
    let index = |inner: &crate::drive::Inner| {
        let stats = inner.core.stats();
        (stats.index_capacity, stats.index_entries == 0)
    };
    let index = shared.with_core(|now, inner, batch| {
        let before = index(inner);
        if anew {
            inner.feed(now, Input::Hint(Hint::Journals { regions: &[] }), batch);
        }
        // Before the journals: two deliberate copies could come to share a page by way of a journal that has both.
        inner.feed(now, Input::Hint(watching.critical().hint()), batch);
        inner.feed(now, Input::Hint(watching.hint()), batch);
        let lost = inner.gate.commits.follow(watching.commits());
        let lost = lost.into_iter().map(|at| ("journal", unfollowed(at)));
        batch.warnings.extend(lost);
        // Scans end, and choices change, only while the choices are held.
        shared.scout.reported();
        inner.feed(now, Input::Set(Setting::Dedup { policy: dedup }), batch);
        inner.feed(now, Input::Set(Setting::Commits { policy: commits }), batch);
        if inner.bases.set(deltas) {
            inner.feed(now, Input::Set(Setting::Deltas { on: deltas }), batch);
        }
        (before, index(inner))
    });
    drop(exchange_index(shared, Index::default()));
    let folds = policy.fold && policy.packs();
    shared.sweeper.folds(folds);
    if let Some((before, after)) = index {
        shared.sweeper.index(after.0 > 0, before != after);
    }
}

/// About a journal that has gone.
fn unfollowed(at: u64) -> String {
    format!(
        "the journal at byte {at} is no longer followed: its commit blocks do not wait for what they commit. \
         `vellum journal list` may say why. If it is of a file system that is mounted with \
         journal_async_commit, mount that without this option"
    )
}

/// Makes an index that is about to be needed, so that no request waits while its memory is touched. A policy whose index does not
/// fit in memory is refused before anything changes. Called with the choices held: the next orders to the core take the index.
fn prepare_index(shared: &SharedVolume, policy: &Policy) -> Result<(), NoIndex> {
    let policy = policy.core_dedup(shared.blocks);
    let is_needed = shared.with_core(|_, inner, _| inner.core.needs_index(policy));
    if is_needed == Some(true) {
        let wanted = policy.index_bytes as u64;
        NoIndex::check(wanted, memory::available())?;
        let made = Index::with_advice(policy.store, policy.index_bytes, &mut advise_large_pages);
        let made = made.map_err(|_| NoIndex::Refused { wanted })?;
        drop(exchange_index(shared, made));
    }
    Ok(())
}

fn exchange_index(shared: &SharedVolume, index: Index) -> Option<Index> {
    shared.with_core(|_, inner, _| inner.core.lay_by_index(index))
}
