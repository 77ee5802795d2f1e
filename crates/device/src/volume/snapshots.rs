//! A volume's snapshots, as its user requests them.

use super::Volume;
use crate::block::Extent;
use crate::error::Uncommitted;
use crate::options::{OpenError, OpenOptions};
use crate::snapshots::{
    self, ArrivalError, Cloned, Each, Keeper, Seen, SnapshotError, SnapshotInfo, Wrong, schedule,
};
use crate::stats::HistoryStats;
use std::ops::Range;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::{Identity, Name, Number};
use vellum_core::format::stream::Head;
use vellum_core::snapshots::{Schedule, Snapshots, Span};

impl Volume {
    /// Loads the snapshots, or gives them up, and starts the schedule.
    pub(super) fn begin_history(&mut self, options: &OpenOptions) -> Result<(), OpenError> {
        self.load_snapshots(options)?;
        if let Some(keeper) = &self.shared.keeper
            && !self.read_only
            && self.damage.is_none()
            // It would make room at once, and could delete what was received before, or the snapshot that the user is about to go
            // back to.
            && !options.receiving
        {
            keeper.schedule.begin(options.schedule.clone());
            self.spawn("vellum-history", schedule::run)?;
        }
        Ok(())
    }

    /// How many snapshots it has taken by itself, and deleted of those, and what all of them keep.
    pub(super) fn history(&self) -> HistoryStats {
        let Some(keeper) = &self.shared.keeper else {
            return HistoryStats::default();
        };
        let (every, counts) = keeper.schedule.counts();
        let (kept_blocks, most_blocks) = keeper.book().room();
        HistoryStats {
            every_seconds: every.map_or(0, Span::seconds),
            taken: counts.taken,
            deleted: counts.deleted,
            deleted_for_room: counts.deleted_for_room,
            failed: counts.failed,
            kept_blocks,
            most_blocks,
        }
    }

    /// Stops the schedule.
    pub(super) fn end_history(&self) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.schedule.stop();
        }
    }

    /// Sets which snapshots it takes by itself from now on, and which of these stay. A volume without room for any takes none.
    pub fn set_schedule(&self, schedule: Schedule) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.schedule.set(schedule);
        }
    }

    /// Loads the snapshots, or gives them up.
    fn load_snapshots(&self, options: &OpenOptions) -> Result<(), OpenError> {
        let Some(keeper) = &self.shared.keeper else {
            return Ok(());
        };
        if self.damage.is_some() {
            // What the map has lost would read as if nothing had been kept.
            let told = "the volume is damaged, so its snapshots are not read";
            self.shared.events.add("snapshots", told.to_owned());
            return Ok(());
        }
        if options.without_snapshots && self.read_only {
            return Ok(());
        }
        if options.without_snapshots {
            // A rollback that has begun is completed first: without its snapshot the volume would stay a mixture.
            match snapshots::load(&self.shared, keeper, true, true) {
                Err(error @ OpenError::Returning { .. }) => return Err(error),
                Err(error) => self.shared.events.add("snapshots", error.to_string()),
                Ok(()) => {}
            }
            snapshots::forget_list(&self.shared, keeper)?;
        }
        match snapshots::load(&self.shared, keeper, !self.read_only, options.receiving) {
            // What is left of a damaged volume is readable all the same.
            Err(error) if self.read_only => {
                self.shared.events.add("snapshots", error.to_string());
                Ok(())
            }
            // It is opened to give it room, and goes on at the next opening.
            Err(error @ OpenError::Returning { .. }) if options.to_make_room => {
                self.shared.events.add("snapshots", error.to_string());
                Ok(())
            }
            loaded => loaded,
        }
    }

    /// Reads the list of snapshots and the rows of what they keep, of a damaged volume too. Calls `tell` for each thing that is wrong.
    /// Returns those that the list names, as far as it is right. Open the volume [without snapshots](OpenOptions::without_snapshots):
    /// otherwise all rows are read and held twice.
    pub fn check_snapshots(&self, tell: &mut dyn FnMut(Wrong)) -> Vec<SnapshotInfo> {
        let Some(keeper) = &self.shared.keeper else {
            return Vec::new();
        };
        let mut book = Snapshots::new(keeper.book().history());
        let mut is_whole = true;
        let mut tell = |wrong: Wrong| {
            is_whole &= !wrong.spoils_all();
            // The rows of what the list has lost are of no snapshot.
            if is_whole || wrong.spoils_all() {
                tell(wrong);
            }
            Ok(())
        };
        let read = snapshots::read_list(&self.shared, &mut book, &mut tell)
            .and_then(|()| snapshots::read_rows(&self.shared, &mut book, &mut tell));
        debug_assert!(read.is_ok(), "nothing that is told ends it");
        snapshots::listed(&book)
    }

    /// Reads blocks of the list of snapshots, or of the rows of what they keep, and judges nothing. Calls `each` with those that are
    /// mapped, or with why they cannot be read. Those that are [lost](crate::damage::Damage::lost) need not be mapped.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn read_books<E>(&self, range: Range<Lba>, each: Each<'_, E>) -> Result<(), E> {
        snapshots::read_as_they_are(&self.shared, range, each)
    }

    fn keeper(&self) -> Result<&Keeper, SnapshotError> {
        self.shared.keeper.as_ref().ok_or(SnapshotError::NoHistory)
    }

    fn writing_keeper(&self) -> Result<&Keeper, SnapshotError> {
        match self.read_only {
            true => Err(SnapshotError::ReadOnly),
            false => self.keeper(),
        }
    }

    /// Its snapshots, the oldest first.
    ///
    /// # Errors
    /// When the volume has no room for snapshots.
    pub fn snapshots(&self) -> Result<Vec<SnapshotInfo>, SnapshotError> {
        Ok(snapshots::infos(&self.shared, self.keeper()?))
    }

    /// Its snapshots, the oldest first, without what they keep (`kept_bytes` is 0): to find that is to look at each row.
    ///
    /// # Errors
    /// When the volume has no room for snapshots.
    pub fn listed_snapshots(&self) -> Result<Vec<SnapshotInfo>, SnapshotError> {
        Ok(snapshots::listed(&self.keeper()?.book()))
    }

    /// True if nothing that was handed over waits, soon enough. New requests must be held up meanwhile.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shared
            .wait_until(|inner| !inner.gate.commits.holds_any() && inner.core.nothing_waits())
    }

    /// The first commit block that waits for what it commits.
    #[must_use]
    pub fn uncommitted(&self) -> Option<Uncommitted> {
        let inner = self.shared.knowing_all();
        let commits = &inner.gate.commits;
        commits.first_waiting().map(|first| Uncommitted {
            at: first.run.0 * BLOCK_BYTES as u64,
            is_refused: commits.refusal(first).is_some(),
        })
    }

    /// A snapshot or a clone that is open.
    pub(crate) fn in_use(&self) -> Option<Name> {
        self.shared.keeper.as_ref()?.in_use()
    }

    /// Blocks that snapshots keep, and the most that they can keep.
    ///
    /// # Errors
    /// When the volume has no room for snapshots.
    pub fn snapshot_room(&self) -> Result<(u64, u64), SnapshotError> {
        Ok(self.keeper()?.book().room())
    }

    /// How many blocks are stored, and how many of these can be overwritten before there is no room to keep their old contents.
    /// Blocks of scheduled snapshots, which would make room, are not counted.
    ///
    /// # Errors
    /// When the volume has no room for snapshots.
    pub fn snapshot_left(&self) -> Result<(u64, u64), SnapshotError> {
        let (kept, most) = self.keeper()?.book().room();
        let room = self.shared.inner.lock().core.room();
        let free = room.for_anybody().saturating_sub(room.live);
        Ok((room.live, free.min(most.saturating_sub(kept))))
    }

    /// Takes a snapshot of everything that has been acknowledged, and of nothing that is requested later. It is durable on
    /// return. `taken`: the time now, in seconds since 1970.
    ///
    /// # Errors
    /// When there is no room for it, there is one of that name, or the medium fails.
    pub fn take_snapshot(&self, name: &str, taken: u64) -> Result<(), SnapshotError> {
        snapshots::take(&self.shared, self.writing_keeper()?, name, taken)
    }

    /// Makes a clone of a snapshot: another disk, which begins as that snapshot, is written, and shares all that it does not
    /// change. It is durable on return. `taken`: the time now, in seconds since 1970.
    ///
    /// # Errors
    /// When there is no such snapshot, there is one of the clone's name, or the medium fails.
    pub fn clone_snapshot(&self, of: &str, name: &str, taken: u64) -> Result<(), SnapshotError> {
        let keeper = self.writing_keeper()?;
        // Before the clone exists: a version that knows of no clones would take its rows for a snapshot's. What this life has noted may
        // not be durable yet, so only the superblock of the opening tells.
        if !self.superblock.properties().has_clones() {
            self.note_clones()?;
        }
        snapshots::make_clone(&self.shared, keeper, of, name, taken)
    }

    /// A clone, to be written unless the volume is read-only; `None` if the name is a snapshot's.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn clone_at(&self, name: &str) -> Result<Option<Cloned>, SnapshotError> {
        Cloned::of(&self.shared, self.keeper()?, name, self.read_only)
    }

    /// Deletes a snapshot or a clone: gives up what it alone keeps.
    ///
    /// # Errors
    /// When there is none of that name, a snapshot has clones, a clone is in use, or the medium fails: then the next opening goes on.
    pub fn delete_snapshot(&self, name: &str) -> Result<(), SnapshotError> {
        snapshots::delete(&self.shared, self.writing_keeper()?, name)
    }

    /// Checks that the volume is not a mixture of two states. It is one after a rollback was cut short, until the volume is opened
    /// for writing, which completes it; and while a snapshot has not been received as a whole.
    ///
    /// # Errors
    /// When it is.
    pub fn check_unmixed(&self) -> Result<(), SnapshotError> {
        let Some(keeper) = &self.shared.keeper else {
            return Ok(());
        };
        let book = keeper.book();
        if let Some(arriving) = book.arriving() {
            return Err(SnapshotError::Arrives(arriving.identity.name));
        }
        match book.returning() {
            Some(to) => Err(SnapshotError::Returns(to.identity.name)),
            None => Ok(()),
        }
    }

    /// Makes the volume what it was when a snapshot was taken. All snapshots stay as they are. None of its file systems may be
    /// mounted.
    ///
    /// # Errors
    /// When there is none of that name, one is being received, there is no room to keep what newer ones read, or the medium fails:
    /// then the next opening goes on.
    pub fn roll_back(&self, name: &str) -> Result<(), SnapshotError> {
        snapshots::roll_back(&self.shared, self.writing_keeper()?, name)
    }

    /// Runs of blocks that differ between a snapshot and a later one, or the current volume. Some of them may be equal
    /// nevertheless. Clients go on meanwhile; what they write meanwhile is named or not.
    ///
    /// # Errors
    /// When one of the names does not exist, or does not mean the same snapshot any more.
    pub fn changed_since(
        &self,
        since: &str,
        until: Option<&str>,
    ) -> Result<Vec<(Lba, u64)>, SnapshotError> {
        self.changed_from(since, until, Lba(0), usize::MAX)
    }

    /// The same, but at most `most` runs, from block `from` on.
    ///
    /// # Errors
    /// As for [`Self::changed_since`].
    pub fn changed_from(
        &self,
        since: &str,
        until: Option<&str>,
        from: Lba,
        most: usize,
    ) -> Result<Vec<(Lba, u64)>, SnapshotError> {
        // Rows for blocks from before the volume shrank hold no data, and nobody sees these blocks.
        let range = from..Lba(self.shared.blocks);
        snapshots::changed(self.keeper()?, since, until, range, most)
    }

    /// Like [`Self::changed_since`], as extents from `lba` on (`mapped`: they may differ), for at most so many blocks and `max`
    /// extents.
    ///
    /// # Errors
    /// When one of the names does not exist.
    pub fn changed_within(
        &self,
        since: &str,
        until: Option<&str>,
        (lba, blocks): (Lba, u64),
        max: usize,
    ) -> Result<Vec<Extent>, SnapshotError> {
        let keeper = self.keeper()?;
        snapshots::changed_within(keeper, since, until, (lba, blocks), max)
    }

    /// Notes that a snapshot is being received. Returns true if it was before.
    pub(crate) fn arrive(&self, head: &Head, force: bool) -> Result<bool, ArrivalError> {
        snapshots::arrive(&self.shared, self.writing_keeper()?, head, force)
    }

    /// Notes that everything in the stream has arrived, which completes the snapshot. It is durable on return.
    pub(crate) fn arrived(&self, name: &str) -> Result<(), SnapshotError> {
        snapshots::arrived(&self.shared, self.writing_keeper()?, name)
    }

    /// The identity of a snapshot.
    pub(crate) fn identity(&self, name: &str) -> Result<(Number, Identity), SnapshotError> {
        snapshots::identity(self.keeper()?, name)
    }

    /// A snapshot, for reading.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn seen_at(&self, name: &str) -> Result<Seen, SnapshotError> {
        Seen::of(&self.shared, self.keeper()?, name)
    }
}
