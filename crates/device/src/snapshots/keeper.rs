//! What all who keep snapshots share, under its locks.

use super::scheduler::Scheduler;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::Lba;
use vellum_core::format::history::{Name, Number};
use vellum_core::format::superblock::Superblock;
use vellum_core::snapshots::Snapshots;

/// The snapshots of a volume. Locks, in this order: the door, who deletes, who writes to clones, the book, who looks, the volume's.
pub(crate) struct Keeper {
    /// Whoever submits holds it for reading; whoever takes a snapshot, for writing.
    door: RwLock<()>,
    /// Whether there is a snapshot that changes are kept for.
    has_any: AtomicBool,
    book: Mutex<Snapshots>,
    /// Held by whoever deletes one: what it kept goes to an older one, which must not be on its way out.
    alone: Mutex<()>,
    /// Whoever writes to a clone holds it for reading; whoever deletes one, for writing.
    clones: RwLock<()>,
    /// How often each is open.
    views: Mutex<BTreeMap<Number, u32>>,
    /// Those that the volume takes by itself.
    pub schedule: Scheduler,
}

/// Whoever has it deletes snapshots, and nobody else does.
pub(crate) type Alone<'a> = MutexGuard<'a, ()>;

impl Keeper {
    /// That of a volume with room for snapshots.
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let history = superblock.history();
        (history.kept() > 0).then(|| Self {
            door: RwLock::default(),
            has_any: AtomicBool::new(false),
            book: Mutex::new(Snapshots::new(history)),
            alone: Mutex::default(),
            clones: RwLock::default(),
            views: Mutex::default(),
            schedule: Scheduler::default(),
        })
    }

    /// Held by whoever hands requests on: no snapshot is taken meanwhile.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.door.read()
    }

    /// Held by whoever takes a snapshot: nobody hands requests on meanwhile.
    pub fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.door.write()
    }

    /// The bookkeeping. Whoever changes the list [notes](Self::note) it.
    pub fn book(&self) -> MutexGuard<'_, Snapshots> {
        self.book.lock()
    }

    /// Held while one is deleted.
    pub fn alone(&self) -> Alone<'_> {
        self.alone.lock()
    }

    /// Held by whoever writes to a clone: what it has stays its own meanwhile.
    pub fn enter_clone(&self) -> RwLockReadGuard<'_, ()> {
        self.clones.read()
    }

    /// Held by whoever says that a clone is being deleted: nobody writes to one meanwhile.
    pub fn close_clones(&self) -> RwLockWriteGuard<'_, ()> {
        self.clones.write()
    }

    /// Somebody opens one.
    pub fn look(&self, number: Number) {
        *self.views.lock().entry(number).or_default() += 1;
    }

    /// And closes it.
    pub fn look_away(&self, number: Number) {
        let mut views = self.views.lock();
        if let Some(count) = views.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                views.remove(&number);
            }
        }
    }

    /// Whether somebody has it open.
    pub fn is_viewed(&self, number: Number) -> bool {
        self.views.lock().contains_key(&number)
    }

    /// One that somebody has open.
    pub fn in_use(&self) -> Option<Name> {
        let book = self.book();
        let views = self.views.lock();
        let mut open = book.iter().filter(|one| views.contains_key(&one.number));
        open.next().map(|one| one.identity.name)
    }

    /// Whether there is a snapshot that changes are kept for.
    pub fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// The list has changed.
    pub fn note(&self, book: &Snapshots) {
        self.has_any
            .store(book.newest().is_some(), Ordering::Release);
    }

    /// Whether a block may change now without being kept before: not when that cannot be told at once.
    pub fn may_change(&self, lba: Lba) -> bool {
        !self.has_any() || self.book.try_lock().is_some_and(|book| !book.wants(lba))
    }
}
