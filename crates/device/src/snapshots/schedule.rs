//! The snapshots that a volume takes by itself, and those of them that go: on a thread of its own.
//!
//! What is taken is durable, or it was not taken; so there is nothing to be kept between two lives but the list. Each that is taken
//! lets two go at most: a clock that is far ahead, or a volume that was not served for a month, costs no history at once. And while a
//! clock is in doubt (`doubt.rs`) none goes for its age.

use super::doubt::Doubt;
use super::keeper::Keeper;
use super::pace::Pace;
use super::take::{self, SnapshotError};
use crate::block::BlockError;
use crate::frames::Share;
use crate::limits::{SCHEDULE_DELETES, SCHEDULE_PATIENCE};
use crate::shared::Shared;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vellum_core::addr::Lba;
use vellum_core::format::history::{Number, Snapshot, Stage};
use vellum_core::room::Level;
use vellum_core::snapshots::{ListError, Schedule, Snapshots, scheduled_name};

/// Those that the schedule has taken, the oldest first.
fn own(book: &Snapshots) -> impl DoubleEndedIterator<Item = &Snapshot> {
    let own = |one: &&Snapshot| one.stage == Stage::Kept && one.is_scheduled();
    book.iter().filter(own)
}

/// How long the machine has been on: nobody sets this clock, and it goes on while the machine sleeps.
fn since_boot() -> Duration {
    let mut since = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for what is read.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut since) };
    Duration::new(since.tv_sec.cast_unsigned(), since.tv_nsec as u32)
}

/// The thread's whole life.
pub(crate) fn run(shared: &Arc<Shared>) {
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
    shared: &'a Shared,
    keeper: &'a Keeper,
    pace: Pace,
    doubt: Doubt,
    /// Requests that had changed something when the last one was taken in this life.
    written: Option<u64>,
}

/// What came of a look.
enum Looked {
    Taken,
    Unchanged,
    Again(Duration),
}

impl History<'_> {
    /// Does what is due; how long to wait then.
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

    /// Before clients find no room, those go that nobody has asked for.
    fn relieve(&self) {
        while self.is_critical() && !self.keeper.schedule.is_stopping() {
            match give_up_oldest(self.shared, self.keeper, |_| true) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    fn look(&mut self, now: u64) -> Looked {
        // Before: what is written between this and the snapshot is in the snapshot.
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
        if is_full && matches!(give_up_oldest(self.shared, self.keeper, |_| true), Ok(true)) {
            taken = self.take(now);
        }
        match taken {
            Ok(()) => {
                self.written = Some(written);
                self.keeper.schedule.count(|counts| counts.taken += 1);
                Looked::Taken
            }
            // The clock was set back, and comes to this second once more.
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

    /// Whether something was written since the newest: what that keeps tells, also of before a restart. But home blocks that are
    /// pledged are kept for it although nobody has written them.
    fn has_changed(&self, written: u64) -> bool {
        let book = self.keeper.book();
        let newest = own(&book).next_back().map(|newest| newest.number);
        newest.is_none_or(|newest| {
            self.written != Some(written) && book.next_changed(Lba(0), newest, None).is_some()
        })
    }

    /// Deletes what no rule keeps, so many at most.
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

/// Deletes the oldest that the schedule has taken, of those that give something back; whether there was one.
fn give_up_oldest(
    shared: &Shared,
    keeper: &Keeper,
    is_still_wanted: impl FnOnce(&Snapshots) -> bool,
) -> Result<bool, SnapshotError> {
    let alone = keeper.alone();
    let oldest = {
        let book = keeper.book();
        if !is_still_wanted(&book) {
            return Ok(true);
        }
        let gives = |one: &&Snapshot| {
            let number = one.number;
            let is_free = !keeper.is_viewed(number) && book.clones_of(number).next().is_none();
            is_free && book.kept_by(number) > 0
        };
        own(&book).find(gives).map(|one| one.number)
    };
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
    // If somebody has begun to look at it just now, the next one is asked for.
    Ok(true)
}

/// Where so many blocks more might meet the end of the volume, makes room for them; whether that is worth another look. What is in
/// the write buffer may need room as well.
pub(super) fn give_room(shared: &Shared, keeper: &Keeper, blocks: u64) -> bool {
    let buffered = shared.frames.capacity(Share::Write) - shared.frames.available(Share::Write);
    let more = blocks.saturating_add(buffered as u64);
    let is_short = || shared.inner.lock().engine.room().ends_within(more);
    is_short() && give_up_oldest(shared, keeper, |_| is_short()).unwrap_or(false)
}

/// Makes room for what is to be kept before clients' writes; whether it is worth another try. `kept`: blocks that were kept when
/// there was none.
pub(super) fn make_room(shared: &Shared, keeper: &Keeper, kept: u64) -> bool {
    let is_still_full = |book: &Snapshots| book.room().0 >= kept;
    give_up_oldest(shared, keeper, is_still_full).unwrap_or(false)
}
