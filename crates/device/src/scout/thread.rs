//! The scout's thread, and the orders that it and the core are given.

use super::Wishes;
use super::source::VolumeSource;
use crate::memory::{self, advise_large_pages};
use crate::policy::{NoIndex, Policy};
use crate::shared::Shared;
use crate::sight::Sight;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vellum_core::format::pack::PartTag;
use vellum_core::format::summary::{Owner, Tag};
use vellum_core::index::Index;
use vellum_core::seam::{Hint, Input, Setting};
use vellum_ext4::scan;
use vellum_watch::{Classes, Critical, Extent, Findings, JournalError, Plan, journals};

/// Begins the first scan before the first request, so that it misses no write.
pub(crate) fn begin(shared: &Shared) -> Result<(), NoIndex> {
    let scout = &shared.scout;
    scout.begin(&mut scout.scans.lock());
    let mut wishes = scout.wishes.lock();
    let wished = wishes.policy.index_bytes;
    while let Err(refused) = prepare_index(shared, &wishes.policy) {
        // A volume that a larger machine served must still open on this one.
        wishes.policy.index_bytes = refused.smaller().ok_or(refused)?;
    }
    let had = wishes.policy.index_bytes;
    if had < wished {
        let told = format!(
            "the memory of this machine has no room for an index of contents of {wished} bytes \
            (dedup-memory): it has {had} until the \
             volume is opened again, and contents beyond that are stored again"
        );
        shared.events.add("memory", told);
    }
    change(shared, &wishes, false);
    Ok(())
}

/// The thread's main loop.
pub(crate) fn run(shared: &Arc<Shared>) {
    let scout = &shared.scout;
    loop {
        let mut source = VolumeSource::new(shared);
        let number = scout.freed.number();
        let found = Arc::new(scan(&mut source, shared.blocks));
        if scout.is_stopping() {
            return;
        }
        let follow = scout.wishes.lock().policy.semantics;
        let stop = || scout.stopping.load(Ordering::Relaxed);
        let classes = Classes::new(&found, &mut source, shared.blocks, follow, &stop);
        let critical = Critical::new(&found, shared.blocks);
        {
            let wishes = scout.wishes.lock();
            let (classes, critical) = (Arc::new(classes), Arc::new(critical));
            let wants = wishes.policy.wants();
            let plan = Plan::new(&found, &wishes.set, &wants, shared.blocks);
            let found = Findings::new(Arc::clone(&found), plan, classes, critical, wants);
            let number = scout.scans.lock().ended() + 1;
            let sight = Arc::new(Sight::new(number, found, &scout.now_in_force()));
            scout.end(&sight, shared.now());
            tell(shared, &wishes, &sight, false);
        }
        scout
            .freed
            .follow(&found, &mut source, shared.blocks, number);
        if !scout.wait(|| shared.now()) {
            return;
        }
    }
}

/// What the index of contents is to learn from a segment: by policy, only contents of data.
pub(crate) fn worth_learning<'a>(shared: &Shared, tags: &'a [Tag]) -> Cow<'a, [Tag]> {
    if !shared.scout.follows.load(Ordering::Acquire) {
        return Cow::Borrowed(tags);
    }
    let (_, sight) = shared.scout.sight();
    let worth = |tag: &Tag| match tag.owner {
        Owner::Lba(lba) if !sight.is_data(lba.0) => Tag {
            owner: Owner::None,
            ..*tag
        },
        _ => *tag,
    };
    tags.iter().map(worth).collect()
}

/// The same for a page of parts.
pub(crate) fn parts_worth_learning<'a>(
    shared: &Shared,
    parts: &'a [PartTag],
) -> Cow<'a, [PartTag]> {
    if !shared.scout.follows.load(Ordering::Acquire) {
        return Cow::Borrowed(parts);
    }
    let (_, sight) = shared.scout.sight();
    let worth = |part: &&PartTag| sight.is_data(part.lba.0);
    parts.iter().filter(worth).copied().collect()
}

/// Reports to the core. `anew`: what the core has learned about the journals is of no use any more.
fn tell(shared: &Shared, wishes: &Wishes, sight: &Sight, anew: bool) {
    let hash = sight.needs_hash().then_some(wishes.policy.hash);
    // Hashes before the pool that keeps them.
    shared.digester.set(hash, wishes.policy.zero);
    shared
        .digester
        .set_compression(wishes.policy.compression, wishes.policy.deltas);
    if let Some(print) = wishes.policy.fingerprint {
        shared.digester.set_print(print);
    }
    shared.digester.set_shares(wishes.policy.shares());
    shared.sweeper.set_rate(wishes.policy.sweep_blocks);
    let policy = wishes.policy.core_dedup(shared.blocks);
    let (deltas, commits) = (wishes.policy.deltas.are_made(), wishes.policy.commits);
    let index = |inner: &crate::drive::Inner| {
        let stats = inner.engine.stats();
        (stats.index_capacity, stats.index_entries == 0)
    };
    let index = shared.with_core(|now, inner, batch| {
        let before = index(inner);
        if anew {
            inner.feed(now, Input::Hint(Hint::Journals { regions: &[] }), batch);
        }
        // Before the journals: two deliberate copies could come to share a page by way of a journal that has both.
        inner.feed(now, Input::Hint(sight.critical().hint()), batch);
        inner.feed(now, Input::Hint(sight.hint()), batch);
        inner.gate.follow(sight.commits());
        // Scans end, and wishes change, only while the wishes are held.
        shared.scout.scans.lock().tell();
        inner.feed(now, Input::Set(Setting::Dedup { policy }), batch);
        inner.feed(now, Input::Set(Setting::Commits { policy: commits }), batch);
        if inner.bases.set_deltas(deltas) {
            inner.feed(now, Input::Set(Setting::Deltas { on: deltas }), batch);
        }
        (before, index(inner))
    });
    drop(exchange_index(shared, Index::default()));
    let folds = wishes.policy.fold && wishes.policy.packs();
    shared.sweeper.folds(folds);
    if let Some((before, after)) = index {
        shared.sweeper.index(after.0 > 0, before != after);
    }
}

/// Makes an index that is about to be needed, so that no request waits while its memory is touched. A policy whose index does not
/// fit in memory is refused before anything changes. Called with the wishes held: the next report to the core takes the index.
fn prepare_index(shared: &Shared, policy: &Policy) -> Result<(), NoIndex> {
    let policy = policy.core_dedup(shared.blocks);
    let is_needed = shared.with_core(|_, inner, _| inner.engine.needs_index(policy));
    if is_needed == Some(true) {
        let wanted = policy.index_bytes as u64;
        NoIndex::check(wanted, memory::available())?;
        let made = Index::with_advice(policy.store, policy.index_bytes, &mut advise_large_pages);
        let made = made.map_err(|_| NoIndex::Refused { wanted })?;
        drop(exchange_index(shared, made));
    }
    Ok(())
}

fn exchange_index(shared: &Shared, index: Index) -> Option<Index> {
    shared.with_core(|_, inner, _| inner.engine.lay_by_index(index))
}

/// The policy in force.
pub(crate) fn policy(shared: &Shared) -> Policy {
    shared.scout.wishes.lock().policy
}

pub(crate) fn set_policy(shared: &Shared, policy: Policy) -> Result<(), NoIndex> {
    let mut wishes = shared.scout.wishes.lock();
    prepare_index(shared, &policy)?;
    let anew = wishes.policy.hash != policy.hash;
    wishes.policy = policy;
    change(shared, &wishes, anew);
    Ok(())
}

pub(crate) fn set_journal(shared: &Shared, start: u64, bytes: u64) -> Result<(), JournalError> {
    let mut wishes = shared.scout.wishes.lock();
    journals::set(&mut wishes.set, start, bytes, shared.blocks)?;
    change(shared, &wishes, false);
    Ok(())
}

pub(crate) fn clear_journals(shared: &Shared) {
    let mut wishes = shared.scout.wishes.lock();
    wishes.set.clear();
    change(shared, &wishes, false);
}

/// Puts new wishes in force, with the latest scan.
fn change(shared: &Shared, wishes: &Wishes, anew: bool) {
    let scout = &shared.scout;
    // It needs a walk of the inodes.
    let is_new = wishes.policy.semantics
        && !scout
            .follows
            .swap(wishes.policy.semantics, Ordering::AcqRel);
    if scout.freed.want(wishes.policy.freed) || is_new {
        scout.rouse(&mut scout.scans.lock(), |scans| {
            scans.change(shared.now());
            true
        });
    }
    let before = scout.now_in_force();
    let wants = wishes.policy.wants();
    let plan = Plan::new(before.scan(), &wishes.set, &wants, shared.blocks);
    let found = before.planned(plan, wants);
    let sight = Arc::new(Sight::new(before.scan_number(), found, &before));
    *scout.sight.write() = Arc::clone(&sight);
    tell(shared, wishes, &sight, anew);
}

/// What users are shown.
pub(crate) struct Report {
    pub policy: Policy,
    pub set: Vec<Extent>,
    pub sight: Arc<Sight>,
    pub commits: u64,
    pub scans: u64,
}

pub(crate) fn report(shared: &Shared) -> Report {
    let scout = &shared.scout;
    let wishes = scout.wishes.lock();
    Report {
        policy: wishes.policy,
        set: wishes.set.clone(),
        sight: Arc::clone(&scout.sight.read()),
        commits: scout.commits.load(Ordering::Relaxed),
        scans: scout.scans.lock().ended(),
    }
}
