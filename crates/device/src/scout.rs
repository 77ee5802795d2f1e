//! The scout: finds the journals on a volume, at opening and whenever a write changes where they are, and tells
//! the core.
//!
//! It is a thread that reads the volume as a client does, so what is only in the write buffer is seen as well.
//! No request waits for it. It sleeps until something that the last scan depended on has been written, lets
//! the writer finish ([`SCAN_QUIET`]), and scans anew.
//!
//! No change may be missed, though writes go on while it reads:
//! 1. A write is held against the scan before it is admitted, and counts as a change when it is answered: by
//!    then a read sees it.
//! 2. The scan's number is odd while one runs. A write that is answered then is remembered, and held against
//!    the new scan at its end.
//! 3. A write that was held against an older scan than the one in force when it is answered is held
//!    against that one too.
//!
//! And most of what it says need not be right: it proposes, and bytes are compared. Where they are not, for a pledge,
//! it counts only as long as no change has been admitted that the scan had not seen ([`Changes`]).

use crate::block::{Op, Replies, Request};
use crate::classes::Classes;
use crate::critical::Critical;
use crate::frames::{Frames, Share};
use crate::freed::{Reclaim, Seen};
use crate::journals::{self, Extent, JournalError, Plan};
use crate::limits::{SCAN_LATEST, SCAN_QUIET, SCAN_READ_BLOCKS, SCAN_WRITES};
use crate::memory::{self, advise_large_pages};
use crate::policy::{NoIndex, Policy};
use crate::requests::{OneAnswer, Pending};
use crate::shared::Shared;
use crate::sight::{Changes, Expected, Sight, span_of};
use parking_lot::{Condvar, Mutex, RwLock};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::pack::PartTag;
use vellum_core::format::summary::{Owner, Tag};
use vellum_core::index::Index;
use vellum_core::seam::{Hint, Input, Setting};
use vellum_ext4::{Scan, Source, Span, Unreadable, scan};

/// See the module.
#[derive(Default)]
pub(crate) struct Scout {
    /// Odd while a scan runs.
    number: AtomicU64,
    sight: RwLock<Arc<Sight>>,
    diary: Mutex<Diary>,
    roused: Condvar,
    /// Policy and hand-set journals; held while a plan is made of them and the core is told, so that the last
    /// one wins. Taken before every other lock.
    wishes: Mutex<Wishes>,
    /// What a scan may not have seen yet.
    pub changes: Changes,
    commits: AtomicU64,
    scans: AtomicU64,
    /// Of so many scans the core knows. Changed under its lock alone, with what it is told.
    told: AtomicU64,
    /// Contents may be shared: each scan finds what must not be. For good, once it is so.
    shares: AtomicBool,
    /// Whether metadata is followed through the inodes.
    follows: AtomicBool,
    /// The thread is to end.
    stopping: AtomicBool,
    /// What follows the file systems' free space.
    pub freed: Reclaim,
}

#[derive(Default)]
struct Wishes {
    policy: Policy,
    set: Vec<Extent>,
}

#[derive(Default)]
struct Diary {
    due: Option<Due>,
    /// What was written since the scan began that runs now.
    meanwhile: Vec<Span>,
    /// The changes that it sees.
    changes: u64,
    stopping: bool,
}

/// When changes were seen that no scan has seen.
#[derive(Clone, Copy)]
struct Due {
    first: Instant,
    last: Instant,
}

impl Due {
    fn at(self) -> Instant {
        (self.last + SCAN_QUIET).min(self.first + SCAN_LATEST)
    }
}

/// What a write was held against.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    number: u64,
    pub touched: bool,
    /// Some of its blocks may be a journal's own.
    pub marks: bool,
    /// What may soon be compared with it.
    pub expected: Expected,
    /// What freed blocks' followers saw in it.
    pub seen: Seen,
    /// Its client has its answer, and the core is about to be handed it.
    pub is_answered: bool,
    /// It is a commit block whose client has its answer, and that goes on when it may.
    pub is_behind: bool,
}

impl Watched {
    /// Of an answer that comes before the write: the scout hears of that one.
    pub fn answer_alone(self) -> Self {
        Self {
            number: self.number,
            ..Self::default()
        }
    }
}

impl Scout {
    pub fn new(policy: Policy, set: Vec<Extent>) -> Self {
        // Asked later, when the process may have given up to open files.
        memory::available();
        Self {
            wishes: Mutex::new(Wishes { policy, set }),
            ..Self::default()
        }
    }

    /// What to hold writes against, and its number.
    pub fn sight(&self) -> (u64, Arc<Sight>) {
        // In this order: a number that is too old costs a look, one that is too new would cost a change.
        let number = self.number.load(Ordering::Acquire);
        (number, Arc::clone(&self.sight.read()))
    }

    pub fn hold(&self, (number, sight): &(u64, Arc<Sight>), request: &Request) -> Watched {
        Watched {
            number: *number,
            touched: sight.is_touched(request),
            expected: sight.expects(request),
            ..Watched::default()
        }
    }

    /// Whether there is something that it has not looked at, or has not told the core of.
    pub fn is_behind(&self) -> bool {
        let told = self.told.load(Ordering::Acquire);
        let is_told = told > 0 && told == self.scans.load(Ordering::Acquire);
        !is_told || !self.sight.read().is_current(&self.changes)
    }

    pub fn add_commits(&self, commits: u64) {
        if commits > 0 {
            self.commits.fetch_add(commits, Ordering::Relaxed);
        }
    }

    /// A request is about to be answered: what it wrote can be read.
    pub fn answered(&self, pending: &Pending, is_done: bool) {
        self.freed.answered(pending, is_done);
        if matches!(pending.request.op, Op::Read | Op::Flush) {
            return;
        }
        let (number, touched) = (pending.watched.number, pending.watched.touched);
        let now = self.number.load(Ordering::Acquire);
        if !touched && now == number && now.is_multiple_of(2) {
            return;
        }
        let span = span_of(&pending.request);
        let mut diary = self.diary.lock();
        if touched {
            self.changes.answer();
            return self.rouse(&mut diary);
        }
        // The number changes under this lock.
        if !self.number.load(Ordering::Acquire).is_multiple_of(2) {
            if diary.meanwhile.len() <= SCAN_WRITES {
                diary.meanwhile.push(span);
            }
        } else {
            let sight = self.sight.read();
            if sight.scan.overlaps(span) {
                sight.doubt();
                self.rouse(&mut diary);
            }
        }
    }

    fn rouse(&self, diary: &mut Diary) {
        self.freed.give_up();
        let now = Instant::now();
        match &mut diary.due {
            Some(due) => due.last = now,
            None => {
                diary.due = Some(Due {
                    first: now,
                    last: now,
                });
                self.roused.notify_one();
            }
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.diary.lock().stopping = true;
        self.roused.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.diary.lock().stopping
    }

    /// Waits until a scan is due; false when there will be none any more.
    fn wait(&self) -> bool {
        let mut diary = self.diary.lock();
        loop {
            if diary.stopping {
                return false;
            }
            match diary.due {
                None => self.roused.wait(&mut diary),
                Some(due) if due.at() <= Instant::now() => break,
                Some(due) => {
                    self.roused.wait_until(&mut diary, due.at());
                }
            }
        }
        self.begin(&mut diary);
        true
    }

    fn begin(&self, diary: &mut Diary) {
        diary.due = None;
        diary.meanwhile.clear();
        diary.changes = self.changes.seen();
        self.number.fetch_or(1, Ordering::AcqRel);
    }

    /// A scan has ended: from now on writes are held against it.
    fn end(&self, sight: Arc<Sight>) {
        let mut diary = self.diary.lock();
        sight.set_changes(diary.changes);
        // Before it is seen: until the core is told as well there is something behind.
        self.scans.fetch_add(1, Ordering::AcqRel);
        *self.sight.write() = Arc::clone(&sight);
        self.number.fetch_add(1, Ordering::AcqRel);
        let missed = diary.meanwhile.len() > SCAN_WRITES
            || diary
                .meanwhile
                .iter()
                .any(|span| sight.scan.overlaps(*span));
        if missed {
            sight.doubt();
            self.rouse(&mut diary);
        }
    }

    /// The same scan, seen otherwise.
    fn replace(&self, sight: Arc<Sight>) {
        // Who doubts holds the diary.
        let _diary = self.diary.lock();
        let mut here = self.sight.write();
        sight.set_changes(here.changes());
        *here = sight;
    }
}

/// Before the first request: the first scan begins here, so that no write is missed by it.
pub(crate) fn begin(shared: &Shared) -> Result<(), NoIndex> {
    let scout = &shared.scout;
    scout.begin(&mut scout.diary.lock());
    let mut wishes = scout.wishes.lock();
    let wished = wishes.policy.index_bytes;
    while let Err(refused) = prepare_index(shared, &wishes.policy) {
        // A volume that was served by a larger machine is not to be lost to this one.
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

/// The thread's whole life.
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
        let stop = &scout.stopping;
        let classes = Classes::new(&found, &mut source, shared.blocks, follow, stop);
        let critical = Critical::new(&found, shared.blocks);
        {
            let wishes = scout.wishes.lock();
            if scout.shares.load(Ordering::Acquire) {
                protect(shared, &critical);
            }
            let (classes, critical) = (Arc::new(classes), Arc::new(critical));
            let sight = plan(shared, &wishes, Arc::clone(&found), classes, critical);
            scout.end(Arc::clone(&sight));
            tell(shared, &wishes, &sight, false);
        }
        scout
            .freed
            .follow(&found, &mut source, shared.blocks, number);
        if !scout.wait() {
            return;
        }
    }
}

/// What of a segment the index of contents is to learn: by policy, contents of data alone.
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

/// The same of what is in a page of parts.
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

/// Contents are about to be shared: before that, what must not be is known.
pub(crate) fn guard(shared: &Shared) {
    let _wishes = shared.scout.wishes.lock();
    guard_held(shared);
}

/// The same, with the wishes held: so no scan ends meanwhile that knows nothing of it. Whoever holds them keeps others
/// waiting that want to know the policy: nothing is read.
fn guard_held(shared: &Shared) {
    let scout = &shared.scout;
    if !scout.shares.swap(true, Ordering::AcqRel) {
        let critical = Arc::clone(&scout.sight.read().critical);
        protect(shared, &critical);
    }
}

fn protect(shared: &Shared, Critical { ranges, .. }: &Critical) {
    shared.with_core(|now, inner, batch| {
        inner.feed(now, Input::Hint(Hint::Critical { ranges }), batch);
    });
}

fn plan(
    shared: &Shared,
    wishes: &Wishes,
    scan: Arc<Scan>,
    classes: Arc<Classes>,
    critical: Arc<Critical>,
) -> Arc<Sight> {
    let plan = Plan::new(&scan, &wishes.set, &wishes.policy, shared.blocks);
    let before = Arc::clone(&shared.scout.sight.read());
    Arc::new(Sight::new(
        scan,
        plan,
        classes,
        critical,
        &wishes.policy,
        &before,
    ))
}

/// Tells the core. `anew`: what it has learned of the journals is of no use any more.
fn tell(shared: &Shared, wishes: &Wishes, sight: &Sight, anew: bool) {
    let hash = sight.plan.hash(&wishes.policy);
    // Hashes before the pool that keeps them.
    shared.digester.set(hash, wishes.policy.zero);
    shared
        .digester
        .set_compression(wishes.policy.compression, wishes.policy.deltas);
    if let Some(print) = wishes.policy.fingerprint {
        shared.digester.set_print(print);
    }
    shared.digester.set_shares(wishes.policy.dedup);
    let regions = &sight.plan.regions;
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
        inner.feed(now, Input::Hint(Hint::Journals { regions }), batch);
        inner.gate.follow(&sight.plan.commits);
        // Scans end, and wishes change, with the wishes held.
        let scans = shared.scout.scans.load(Ordering::Acquire);
        shared.scout.told.store(scans, Ordering::Release);
        inner.feed(now, Input::Set(Setting::Dedup { policy }), batch);
        inner.feed(now, Input::Set(Setting::Commits { policy: commits }), batch);
        if inner.set_deltas(deltas) {
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

/// Makes an index that is about to be needed: no request waits until its memory has been touched, and a policy that there is
/// no memory for is refused before anything is otherwise. With the wishes held: the next that is told takes it.
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

/// What is in force now.
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

/// Puts new wishes in force, for the scan that there is.
fn change(shared: &Shared, wishes: &Wishes, anew: bool) {
    let scout = &shared.scout;
    if wishes.policy.dedup {
        guard_held(shared);
    }
    // The inodes are walked for it.
    let is_new = wishes.policy.semantics
        && !scout
            .follows
            .swap(wishes.policy.semantics, Ordering::AcqRel);
    if scout.freed.want(wishes.policy.freed) || is_new {
        scout.rouse(&mut scout.diary.lock());
    }
    let before = Arc::clone(&scout.sight.read());
    let sight = plan(
        shared,
        wishes,
        Arc::clone(&before.scan),
        Arc::clone(&before.classes),
        Arc::clone(&before.critical),
    );
    scout.replace(Arc::clone(&sight));
    tell(shared, wishes, &sight, anew);
}

/// What there is to tell a user.
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
        scans: scout.scans.load(Ordering::Relaxed),
    }
}

/// Reads the volume like a client.
pub(crate) struct VolumeSource<'a> {
    shared: &'a Shared,
    answer: Arc<OneAnswer>,
    replies: Arc<dyn Replies>,
}

impl<'a> VolumeSource<'a> {
    pub fn new(shared: &'a Shared) -> Self {
        let answer = Arc::new(OneAnswer::default());
        Self {
            shared,
            replies: answer.clone(),
            answer,
        }
    }

    /// In turn with the clients, or under their load there would never be any; those for reads come back in any case.
    fn frames(&self, count: usize) -> Option<Frames> {
        match self.shared.scout.is_stopping() {
            true => None,
            false => self.shared.frames.take(Share::Read, count).ok(),
        }
    }

    fn read_some(&self, lba: u64, out: &mut [u8]) -> Option<()> {
        let count = out.len() / BLOCK_BYTES;
        let request = Request {
            tag: 0,
            op: Op::Read,
            lba: Lba(lba),
            blocks: count as u64,
            frames: self.frames(count)?,
        };
        self.shared
            .ask(request, &self.replies, |now, inner, pending, batch| {
                inner.admit(now, pending, &[], batch);
            });
        let (request, result) = self.answer.wait();
        result.ok()?;
        for (index, block) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            block.copy_from_slice(request.frames.block(index));
        }
        Some(())
    }
}

impl Source for VolumeSource<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = out.len() as u64;
        let mut lba = offset / BLOCK_BYTES as u64;
        for part in out.chunks_mut(SCAN_READ_BLOCKS * BLOCK_BYTES) {
            self.read_some(lba, part)
                .ok_or(Unreadable { offset, bytes })?;
            lba += SCAN_READ_BLOCKS as u64;
        }
        Ok(())
    }
}
