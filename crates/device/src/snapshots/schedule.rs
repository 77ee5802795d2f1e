//! The thread that takes a volume's scheduled snapshots, and deletes those that are due.
//!
//! A snapshot is durable or was not taken; so nothing but the list is kept from one life to the next. Each one taken deletes at
//! most two: a clock that is far ahead, or a volume that was not served for a month, does not cost the whole history at once.
//! While a clock is in doubt (`doubt.rs`), none is deleted for its age.

use super::carry;
use super::changed::changed;
use super::doubt::Doubt;
use super::keeper::Keeper;
use super::pace::Pace;
use super::take::{self, SnapshotError};
use crate::block::BlockError;
use crate::frames::Quota;
use crate::limits::{SCHEDULE_DELETES, SCHEDULE_PATIENCE};
use crate::shared::SharedVolume;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vellum_core::addr::Lba;
use vellum_core::format::history::{Number, Snapshot, Stage};
use vellum_core::room::Level;
use vellum_core::snapshots::{ListError, Schedule, Snapshots, scheduled_name};

/// The snapshots that the schedule has taken, the oldest first.
fn own(book: &Snapshots) -> impl DoubleEndedIterator<Item = &Snapshot> {
    let own = |one: &&Snapshot| one.stage == Stage::Kept && one.is_scheduled();
    book.iter().filter(own)
}

/// How long the machine has been on, by a clock that cannot be set and goes on while the machine sleeps.
fn since_boot() -> Duration {
    let mut since = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a local that takes the result.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut since) };
    Duration::new(since.tv_sec.cast_unsigned(), since.tv_nsec as u32)
}

/// The thread's main loop.
pub(crate) fn run(shared: &Arc<SharedVolume>) {
    let Some(keeper) = &shared.keeper else {
        return;
    };
    let newest = own(&keeper.book())
        .next_back()
        .map(|one| one.identity.taken);
    let mut history = History {
        shared,
        keeper,
        pace: Pace::since(newest),
        doubt: Doubt::begin(newest),
        written: None,
    };
    let mut wait = Some(Duration::ZERO);
    while let Some((schedule, thins_all)) = keeper.schedule.wait(wait) {
        wait = history.turn(&schedule, thins_all);
    }
}

struct History<'a> {
    shared: &'a SharedVolume,
    keeper: &'a Keeper,
    pace: Pace,
    doubt: Doubt,
    /// How many changing requests there had been when the last snapshot of this life was taken.
    written: Option<u64>,
}

/// The result of a look.
enum Looked {
    Taken,
    Unchanged,
    Again(Duration),
}

impl History<'_> {
    /// Does what is due. Returns how long to wait then.
    fn turn(&mut self, schedule: &Schedule, thins_all: bool) -> Option<Duration> {
        self.relieve();
        let every = schedule.every?;
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (wall, running) = (wall.unwrap_or_default(), since_boot());
        let is_in_doubt = self.doubt.look(wall, running);
        if self.doubt.thins_all(thins_all) {
            self.thin(schedule, wall.as_secs(), usize::MAX);
        }
        if let Some(wait) = self.pace.wait(every, wall, running) {
            return Some(wait);
        }
        match self.look(wall.as_secs()) {
            Looked::Again(after) => self.pace.again(after, running),
            looked => {
                self.pace.looked(every, wall, running);
                if matches!(looked, Looked::Taken) && !is_in_doubt {
                    self.thin(schedule, wall.as_secs(), SCHEDULE_DELETES);
                }
            }
        }
        Some(Duration::ZERO)
    }

    fn is_critical(&self) -> bool {
        self.shared.inner.lock().gauge.level() == Level::Critical
    }

    /// Deletes scheduled snapshots before clients find no room.
    fn relieve(&self) {
        while self.is_critical() && !self.keeper.schedule.is_stopping() {
            match give_up_oldest(self.shared, self.keeper, Needs::Data, |_| true) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn look(&mut self, now: u64) -> Looked {
        // Counted before the snapshot: what is written in between is in the snapshot.
        let written = {
            let clients = self.shared.knowing_all().counters.clients;
            let changes = [clients.write, clients.discard, clients.write_zeroes];
            changes.iter().map(|op| op.requests).sum()
        };
        if !self.has_changed(written) {
            return Looked::Unchanged;
        }
        let mut taken = self.take(now);
        let is_full = matches!(
            taken,
            Err(SnapshotError::List(ListError::Full) | SnapshotError::NoRoom(_))
        );
        let gives = || give_up_oldest(self.shared, self.keeper, Needs::Place, |_| true);
        if is_full && matches!(gives(), Ok(true)) {
            taken = self.take(now);
        }
        match taken {
            Ok(()) => {
                self.written = Some(written);
                self.keeper.schedule.count(|counts| counts.taken += 1);
                Looked::Taken
            }
            // The clock was set back, and shows this second once more.
            Err(SnapshotError::List(ListError::Exists(_))) => Looked::Again(Duration::from_secs(1)),
            Err(error) => {
                self.failed(&error);
                Looked::Again(SCHEDULE_PATIENCE)
            }
        }
    }

    fn take(&self, now: u64) -> Result<(), SnapshotError> {
        if self.is_critical() {
            return Err(BlockError::Full.into());
        }
        let name = scheduled_name(now).ok_or(BlockError::Io(
            "the clock is past the year 9999: set it".to_owned(),
        ))?;
        take::take(self.shared, self.keeper, name.as_str(), now)
    }

    /// True if something was written since the newest snapshot. What that snapshot keeps shows it, also from before a restart.
    /// But pledged home blocks are kept for it without having been written, so the requests are counted as well.
    fn has_changed(&self, written: u64) -> bool {
        let newest = own(&self.keeper.book()).next_back().copied();
        newest.is_none_or(|newest| {
            let (name, all) = (newest.identity.name, Lba(0)..Lba(self.shared.blocks));
            let changed = || changed(self.keeper, name.as_str(), None, all, 1);
            self.written != Some(written) && changed().map_or(true, |runs| !runs.is_empty())
        })
    }

    /// Deletes snapshots that no rule keeps, at most `most` of them.
    fn thin(&self, schedule: &Schedule, now: u64, most: usize) {
        let own: Vec<(Number, u64)> = {
            let book = self.keeper.book();
            own(&book)
                .map(|one| (one.number, one.identity.taken))
                .collect()
        };
        let times: Vec<u64> = own.iter().map(|(_, taken)| *taken).collect();
        let mut left = most;
        for at in schedule.keep.thinned(now, &times) {
            if left == 0 || self.keeper.schedule.is_stopping() {
                return;
            }
            match take::give_up(self.shared, self.keeper, own[at].0) {
                Ok(is_gone) => {
                    left -= usize::from(is_gone);
                    let gone = u64::from(is_gone);
                    self.keeper.schedule.count(|counts| counts.deleted += gone);
                }
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn failed(&self, error: &SnapshotError) {
        if self.keeper.schedule.is_stopping() {
            return;
        }
        self.keeper.schedule.count(|counts| counts.failed += 1);
        let told = format!(
            "the snapshot that was due could not be taken, or an old one not deleted: {error}"
        );
        self.shared.events.add("history", told);
    }
}

/// What the volume has no room for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// One more kept block. A block that held nothing takes a place, too.
    Place,
    /// Data on the medium.
    Data,
}

/// Deletes the oldest scheduled snapshot that gives back what is needed. Returns true if there was one. A volume without a schedule
/// gives up none: it may be a copy, and have received them.
fn give_up_oldest(
    shared: &SharedVolume,
    keeper: &Keeper,
    needs: Needs,
    is_still_wanted: impl FnOnce(&Snapshots) -> bool,
) -> Result<bool, SnapshotError> {
    if !keeper.schedule.is_on() {
        return Ok(false);
    }
    let alone = keeper.alone();
    let free: Vec<Number> = {
        let book = keeper.book();
        if !is_still_wanted(&book) {
            return Ok(true);
        }
        let is_free = |one: &&Snapshot| {
            !keeper.is_viewed(one.number) && book.clones_of(one.number).next().is_none()
        };
        own(&book).filter(is_free).map(|one| one.number).collect()
    };
    let gives = |number: &Number| {
        if needs == Needs::Place {
            return keeper.book().gives_up_any(*number);
        }
        // The book is free again while the map is looked at.
        let kept = keeper.book().kept_by(*number);
        carry::mapped(shared, &kept).any(|blocks| blocks > 0)
    };
    let oldest = free.into_iter().find(gives);
    let Some(oldest) = oldest else {
        return Ok(false);
    };
    let told = "there is no room for what snapshots keep: of those that the volume has taken by itself the \
                oldest are deleted";
    shared.events.add("history-room", told.to_owned());
    let is_gone = take::give_up_alone(shared, keeper, oldest, &alone)?;
    keeper
        .schedule
        .count(|counts| counts.deleted_for_room += u64::from(is_gone));
    // If it has just been opened, the caller tries the next one.
    Ok(true)
}

/// Makes room if so many more blocks might fill the volume. Returns true if another look is worthwhile. What is in the write
/// buffer may need room as well.
pub(super) fn give_room(shared: &SharedVolume, keeper: &Keeper, blocks: u64) -> bool {
    let buffered = shared.frames.capacity(Quota::Write) - shared.frames.available(Quota::Write);
    let more = blocks.saturating_add(buffered as u64);
    let is_short = || shared.inner.lock().core.room().ends_within(more);
    is_short() && give_up_oldest(shared, keeper, Needs::Data, |_| is_short()).unwrap_or(false)
}

/// Makes room for what is to be kept before clients' writes. Returns true if another try is worthwhile. `kept`: the number of
/// kept blocks when there was no room.
pub(super) fn make_room(shared: &SharedVolume, keeper: &Keeper, kept: u64) -> bool {
    let is_still_full = |book: &Snapshots| book.room().0 >= kept;
    give_up_oldest(shared, keeper, Needs::Place, is_still_full).unwrap_or(false)
}
