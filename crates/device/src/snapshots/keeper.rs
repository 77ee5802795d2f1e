//! What all users of snapshots share, under its locks.

use super::scheduler::Scheduler;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::Lba;
use vellum_core::format::history::{Name, Number};
use vellum_core::format::superblock::Superblock;
use vellum_core::snapshots::Snapshots;

/// The snapshots of a volume. Locks, in this order: the door, `alone`, `clones`, the book, `views`, the volume's.
pub(crate) struct Keeper {
    /// Held for reading to submit requests; for writing to take a snapshot.
    door: RwLock<()>,
    /// Whether there is a snapshot that changes are kept for.
    has_any: AtomicBool,
    book: Mutex<Snapshots>,
    /// Held to delete a snapshot: what it kept goes to an older one, which must not be deleted at the same time.
    alone: Mutex<()>,
    /// Held for reading to write to a clone; for writing to delete one.
    clones: RwLock<()>,
    /// How often each snapshot or clone is open.
    views: Mutex<BTreeMap<Number, u32>>,
    /// The snapshots that the volume takes by itself.
    pub schedule: Scheduler,
}

/// The right to delete snapshots; only one thread has it.
pub(crate) type Alone<'a> = MutexGuard<'a, ()>;

impl Keeper {
    /// Makes the keeper of a volume with room for snapshots.
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

    /// Held while requests are handed on: no snapshot is taken meanwhile.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.door.read()
    }

    /// Held while a snapshot is taken: no requests are handed on meanwhile.
    pub fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.door.write()
    }

    /// The bookkeeping. A caller that changes the list has to [note](Self::note) it.
    pub fn book(&self) -> MutexGuard<'_, Snapshots> {
        self.book.lock()
    }

    /// Held while a snapshot is deleted.
    pub fn alone(&self) -> Alone<'_> {
        self.alone.lock()
    }

    /// Held while a clone is written to: its blocks stay its own meanwhile.
    pub fn enter_clone(&self) -> RwLockReadGuard<'_, ()> {
        self.clones.read()
    }

    /// Held while a clone is marked as being deleted: no clone is written to meanwhile.
    pub fn close_clones(&self) -> RwLockWriteGuard<'_, ()> {
        self.clones.write()
    }

    /// Notes that a snapshot or a clone is opened.
    pub fn look(&self, number: Number) {
        *self.views.lock().entry(number).or_default() += 1;
    }

    /// Notes that it is closed.
    pub fn look_away(&self, number: Number) {
        let mut views = self.views.lock();
        if let Some(count) = views.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                views.remove(&number);
            }
        }
    }

    /// True if it is open.
    pub fn is_viewed(&self, number: Number) -> bool {
        self.views.lock().contains_key(&number)
    }

    /// A snapshot or a clone that is open, if there is one.
    pub fn in_use(&self) -> Option<Name> {
        let book = self.book();
        let views = self.views.lock();
        let mut open = book.iter().filter(|one| views.contains_key(&one.number));
        open.next().map(|one| one.identity.name)
    }

    /// True if there is a snapshot that changes are kept for.
    pub fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Notes that a snapshot is about to be in the list, the first one perhaps: until [`note`](Self::note) is called, no block may change
    /// unless the book is asked. It is in use meanwhile.
    pub fn expects_one(&self) {
        self.has_any.store(true, Ordering::Release);
    }

    /// Notes that the list has changed.
    pub fn note(&self, book: &Snapshots) {
        self.has_any
            .store(book.newest().is_some(), Ordering::Release);
    }

    /// False if snapshots surely cannot keep one more block.
    pub fn has_room(&self) -> bool {
        let has_room = |book: MutexGuard<'_, Snapshots>| {
            let (kept, most) = book.room();
            kept < most
        };
        // Whoever holds the book may be keeping a block just now.
        !self.has_any() || self.book.try_lock().is_none_or(has_room)
    }

    /// True if a block may change now without being kept before; false if that cannot be decided at once.
    pub fn may_change(&self, lba: Lba) -> bool {
        !self.has_any() || self.book.try_lock().is_some_and(|book| !book.wants(lba))
    }
}
