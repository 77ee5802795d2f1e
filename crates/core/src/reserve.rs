//! The reserve of a thin volume: when the volume is full, its file system can still be mounted and files deleted (promise 7).
//!
//! A mount writes: it replays a journal, removes orphans, updates superblocks. So does a deletion. On a volume that gave its last
//! block to data, both would fail, and nothing could ever be freed. So the last part of the capacity is restricted:
//!
//! 1. New data takes no block of it, except as in 3.
//! 2. *Upkeep* (a journal, a file system's metadata, overwrites of existing blocks) may take half of it, and half of the rest each time
//!    that a *spell* begins. A spell begins when the volume is opened. Another one begins when upkeep was refused and then no room was
//!    requested for a while: a file system whose journal ran out of room is dead until it is mounted again, and is quiet until then.
//! 3. If the volume was already full when it was opened, new data may take a quarter of the rest in that spell. This is for a runtime
//!    that does not follow the file system: then no block is known to be upkeep.
//! 4. The reserve is whole again as soon as room is freed.
//! 5. The last blocks are only for the records of snapshots (their list and rows). Without these records no snapshot could be deleted,
//!    and if snapshots have filled a volume, only that frees room. The runtime writes no rows that keep more blocks there: the core
//!    cannot tell them from those of a deletion.
//!
//! So no number of attempts uses the reserve up: each leaves half for the next. Nothing of this is stored on the medium.

use crate::addr::Nanos;
use crate::limits::RESERVE_QUIET_NANOS;
use crate::room::Room;

/// The purpose of a block that needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// New data, as far as is known.
    New,
    /// A part of a journal, or of a file system's metadata, or an overwrite of a block.
    Upkeep,
    /// The records of snapshots: which exist, and which blocks they keep.
    Books,
}

/// The reserve of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// The fewest blocks in use since the spell began.
    floor: u64,
    /// The volume was full when it was opened, and no room has been freed since.
    opened_full: bool,
    /// Upkeep was refused in this spell.
    refused: bool,
    /// When room was last requested.
    asked: Nanos,
}

impl Reserve {
    /// For a volume opened with so much in use.
    #[must_use]
    pub fn new(room: Room) -> Self {
        Self {
            floor: room.live,
            opened_full: is_full(room),
            refused: false,
            asked: Nanos(0),
        }
    }

    /// True if one more block may be taken. Call once for each block that needs room, and not otherwise.
    pub fn admits(&mut self, now: Nanos, need: Need, room: Room) -> bool {
        let was_quiet = now.0.saturating_sub(self.asked.0) >= RESERVE_QUIET_NANOS;
        self.asked = now;
        self.floor = self.floor.min(room.live);
        self.opened_full &= is_full(room);
        if need == Need::Upkeep && self.refused && was_quiet {
            self.floor = room.live;
            self.refused = false;
        }
        let base = self.floor.max(room.for_anybody());
        let left = room.capacity.saturating_sub(base + room.books());
        let share = match need {
            Need::Books => room.capacity.saturating_sub(base),
            Need::Upkeep => left.div_ceil(2),
            Need::New if self.opened_full => left / 4,
            Need::New => 0,
        };
        let admitted = room.live < base + share;
        self.refused |= !admitted && need == Need::Upkeep;
        admitted
    }
}

/// True if hardly any room is left for new data.
fn is_full(room: Room) -> bool {
    room.reserve() > 0 && room.live + room.reserve() / 8 >= room.for_anybody()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 3200;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_last_blocks_are_for_the_books_of_snapshots() {
        let mut room = Room {
            live: 0,
            capacity: CAPACITY,
            promised: CAPACITY - 800,
            keeps: true,
        };
        let mut reserve = Reserve::new(room);
        // In spell after spell, upkeep takes what it can.
        for spell in 1..100 {
            let now = Nanos(spell * 10 * SECOND);
            while reserve.admits(now, Need::Upkeep, room) {
                room.live += 1;
            }
        }
        assert_eq!(room.live, CAPACITY - room.books());
        let now = Nanos(1000 * SECOND);
        assert!(!reserve.admits(now, Need::New, room));
        while reserve.admits(now, Need::Books, room) {
            room.live += 1;
        }
        assert_eq!(room.live, CAPACITY);
    }

    /// A volume, and the time.
    struct Volume {
        room: Room,
        reserve: Reserve,
        now: u64,
    }

    impl Volume {
        fn opened(live: u64) -> Self {
            let room = Room {
                live,
                capacity: CAPACITY,
                promised: 4 * CAPACITY,
                keeps: false,
            };
            let reserve = Reserve::new(room);
            Self {
                room,
                reserve,
                now: 0,
            }
        }

        fn opened_again(&mut self) {
            *self = Self::opened(self.room.live);
        }

        /// Takes blocks until one is refused; returns how many.
        fn take(&mut self, need: Need) -> u64 {
            let before = self.room.live;
            while self.reserve.admits(Nanos(self.now), need, self.room) {
                self.room.live += 1;
                assert!(self.room.live <= CAPACITY);
            }
            self.room.live - before
        }

        fn wait(&mut self, seconds: u64) {
            self.now += seconds * SECOND;
        }
    }

    #[test]
    fn new_data_leaves_the_reserve_to_upkeep() {
        let mut volume = Volume::opened(0);
        assert_eq!(volume.take(Need::New), 3100);
        volume.wait(60);
        assert_eq!(
            volume.take(Need::New),
            0,
            "new data gets nothing, even after a quiet time"
        );
        assert_eq!(volume.take(Need::Upkeep), 50);
        assert_eq!(volume.take(Need::New), 0);
    }

    #[test]
    fn each_spell_leaves_half_for_the_next() {
        let mut volume = Volume::opened(0);
        volume.take(Need::New);
        let mut taken = Vec::new();
        for spell in 0..5 {
            match spell % 2 {
                0 => volume.wait(3),
                _ => volume.opened_again(),
            }
            taken.push(volume.take(Need::Upkeep));
        }
        assert_eq!(taken, [50, 25, 13, 6, 3]);
        volume.wait(1);
        assert_eq!(
            volume.take(Need::Upkeep),
            0,
            "a client that keeps asking begins no spell"
        );
    }

    #[test]
    fn an_unfollowed_file_system_gets_a_part_of_the_reserve_after_an_opening() {
        let mut volume = Volume::opened(3050);
        assert_eq!(
            volume.take(Need::New),
            50,
            "new data takes what is left before the reserve"
        );
        volume.opened_again();
        assert_eq!(volume.take(Need::New), 25);
        volume.wait(60);
        assert_eq!(
            volume.take(Need::New),
            0,
            "new data gets its part once for each opening"
        );
        assert_eq!(
            volume.take(Need::Upkeep),
            25,
            "half of what upkeep would get"
        );
        for _ in 0..1000 {
            volume.opened_again();
            volume.take(Need::New);
        }
        assert!(
            volume.room.live < CAPACITY,
            "each spell leaves a part of the reserve"
        );
        volume.opened_again();
        assert_ne!(volume.take(Need::Upkeep), 0);
    }

    #[test]
    fn freed_room_fills_the_reserve_up_again() {
        let mut volume = Volume::opened(3190);
        assert_eq!(volume.take(Need::New), 2);
        volume.room.live = 2000;
        assert_eq!(volume.take(Need::New), 1100);
        assert_eq!(volume.take(Need::Upkeep), 50);
    }

    #[test]
    fn a_volume_that_is_not_thin_needs_no_reserve() {
        let mut volume = Volume::opened(0);
        volume.room.promised = CAPACITY;
        assert_eq!(volume.take(Need::New), CAPACITY);
        // Quarantine has taken a little.
        volume.room.promised = CAPACITY + 7;
        volume.room.live = 0;
        assert_eq!(volume.take(Need::New), CAPACITY - 7);
    }

    use alloc::vec::Vec;
}
