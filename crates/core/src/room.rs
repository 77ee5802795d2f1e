//! How near a volume is to having no room left for new data: reported before that happens (promise 7).
//!
//! A thin volume promises more than it has, so it can run out of room. In any other volume, all blocks that clients see fit; only blocks
//! that snapshots keep in addition can fill it. Then the thresholds lie between the clients' blocks and the end of the room. A level is
//! entered at its threshold and left a little below it, so a volume that stays at a threshold is reported once.

use crate::limits::{
    BASES_OF_SPARE, RESERVE_BLOCKS, RESERVE_BOOKS, RESERVE_SHARE, ROOM_CRITICAL, ROOM_FILLING,
    ROOM_HIGH, ROOM_RELIEF,
};

/// How much of the room is used, in blocks of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// In use.
    pub live: u64,
    /// May be in use at once; less than planned once segments are quarantined.
    pub capacity: u64,
    /// Visible to clients.
    pub promised: u64,
    /// True if snapshots may keep blocks in addition. Then a volume that is not thin can fill up as well.
    pub keeps: bool,
}

impl Room {
    /// True if the volume promises more than it has.
    #[must_use]
    pub fn is_thin(self) -> bool {
        self.promised > self.capacity
    }

    /// The blocks reserved for upkeep when the volume is full (see [`Reserve`](crate::reserve::Reserve)). For a thin volume, these are at
    /// most the blocks that it promises beyond its capacity. Another volume needs none, unless snapshots may fill it: then it reserves a
    /// part of the blocks that clients cannot fill and bases of deltas do not take.
    #[must_use]
    pub fn reserve(self) -> u64 {
        let kept = (self.capacity / RESERVE_SHARE).min(RESERVE_BLOCKS);
        match (self.is_thin(), self.keeps) {
            (true, _) => kept.min(self.promised - self.capacity),
            (false, true) => kept.min((self.capacity - self.promised) / BASES_OF_SPARE),
            (false, false) => 0,
        }
    }

    /// The part of the reserve for the records of snapshots.
    #[must_use]
    pub fn books(self) -> u64 {
        match self.keeps {
            true => (self.reserve() / 2).min(RESERVE_BOOKS),
            false => 0,
        }
    }

    /// The blocks that new data may fill.
    #[must_use]
    pub fn for_anybody(self) -> u64 {
        self.capacity - self.reserve()
    }

    /// The percentage of the capacity in use, rounded down.
    #[must_use]
    pub fn percent(self) -> u64 {
        let percent = u128::from(self.live) * 100 / u128::from(self.capacity.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }

    /// True if `blocks` more would reach the end of what new data may fill.
    #[must_use]
    pub fn ends_within(self, blocks: u64) -> bool {
        self.live.saturating_add(blocks) >= self.for_anybody()
    }

    /// True if the volume is at least `percent` per cent full.
    ///
    /// A thin volume is as full as its capacity is used. A volume that only snapshots can fill is [`ROOM_FILLING`] per cent full when
    /// clients, and the bases of deltas, use all that they can; snapshots fill the rest. No other volume fills up.
    fn has_reached(self, percent: u64) -> bool {
        let product = |blocks: u64, percent: u64| u128::from(blocks) * u128::from(percent);
        if self.is_thin() {
            return product(self.live, 100) >= product(self.capacity, percent);
        }
        if !self.keeps {
            return false;
        }
        let clients = self.promised + (self.capacity - self.promised) / BASES_OF_SPARE;
        let snapshots = self.for_anybody().saturating_sub(clients);
        if snapshots == 0 {
            return false;
        }
        // ROOM_FILLING + rest * (live - clients) / snapshots >= percent, without a division and with nothing below zero.
        let rest = 100 - ROOM_FILLING;
        product(self.live, rest) + product(snapshots, ROOM_FILLING)
            >= product(clients, rest) + product(snapshots, percent)
    }
}

/// How full a volume is that can fill up; any other is always [`Level::Ample`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Below all thresholds.
    #[default]
    Ample,
    /// From [`ROOM_FILLING`] per cent on.
    Filling,
    /// From [`ROOM_HIGH`] per cent on.
    High,
    /// From [`ROOM_CRITICAL`] per cent on.
    Critical,
}

impl Level {
    const RISING: [Self; 4] = [Self::Ample, Self::Filling, Self::High, Self::Critical];

    /// Per cent of the capacity at which it is entered.
    #[must_use]
    pub fn percent(self) -> u64 {
        match self {
            Self::Ample => 0,
            Self::Filling => ROOM_FILLING,
            Self::High => ROOM_HIGH,
            Self::Critical => ROOM_CRITICAL,
        }
    }

    /// The name shown to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ample => "ample",
            Self::Filling => "filling",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// The level that a volume is at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauge {
    level: Level,
}

impl Gauge {
    /// The current level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Notes how full the volume is; returns the new level if it is a higher one, to be reported. Call after every `handle`.
    pub fn note(&mut self, room: Room) -> Option<Level> {
        let reached = |of: &&Level| **of == Level::Ample || room.has_reached(of.percent());
        let kept = |of: &&Level| {
            **of == Level::Ample || room.has_reached(of.percent().saturating_sub(ROOM_RELIEF))
        };
        let before = self.level;
        let highest = Level::RISING.iter().rev();
        let entered = highest.clone().find(reached).copied().unwrap_or_default();
        let stays = highest.filter(|&&of| of <= before).find(kept);
        self.level = entered.max(stays.copied().unwrap_or_default());
        (self.level > before).then_some(self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thin(live: u64) -> Room {
        Room {
            live,
            capacity: 1000,
            promised: 1001,
            keeps: false,
        }
    }

    #[test]
    fn each_level_is_reported_when_it_is_entered() {
        let mut gauge = Gauge::default();
        let told: alloc::vec::Vec<_> = (0..=1000)
            .filter_map(|live| Some((live, gauge.note(thin(live))?)))
            .collect();
        assert_eq!(
            told,
            [
                (800, Level::Filling),
                (900, Level::High),
                (950, Level::Critical)
            ]
        );
        let mut jump = Gauge::default();
        assert_eq!(jump.note(thin(960)), Some(Level::Critical));
        assert_eq!(jump.note(thin(1000)), None);
    }

    #[test]
    fn a_volume_that_stays_at_a_threshold_is_reported_once() {
        let mut gauge = Gauge::default();
        assert_eq!(gauge.note(thin(900)), Some(Level::High));
        for live in [899, 900, 881, 900, 880, 901] {
            assert_eq!(gauge.note(thin(live)), None, "{live}");
        }
        assert_eq!(
            (gauge.note(thin(879)), gauge.level()),
            (None, Level::Filling)
        );
        assert_eq!(gauge.note(thin(900)), Some(Level::High));
        assert_eq!((gauge.note(thin(779)), gauge.level()), (None, Level::Ample));
        assert_eq!((gauge.note(thin(780)), gauge.level()), (None, Level::Ample));
    }

    #[test]
    fn a_volume_that_snapshots_may_fill_has_a_reserve_that_clients_never_need() {
        let mut room = Room {
            live: 0,
            capacity: 3200,
            promised: 3000,
            keeps: true,
        };
        assert_eq!((room.reserve(), room.books()), (50, RESERVE_BOOKS));
        assert!(room.for_anybody() >= room.promised + 200 / BASES_OF_SPARE);
        room.promised = 3200;
        assert_eq!(room.reserve(), 0);
        room.promised = 3000;
        room.keeps = false;
        assert_eq!(room.reserve(), 0);
    }

    #[test]
    fn blocks_kept_by_snapshots_are_reported_before_the_volume_is_full() {
        let mut room = Room {
            live: 0,
            capacity: 3200,
            promised: 3000,
            keeps: true,
        };
        let mut gauge = Gauge::default();
        let told: alloc::vec::Vec<_> = (0..=3200)
            .filter_map(|live| {
                room.live = live;
                Some((live, gauge.note(room)?))
            })
            .collect();
        // Clients may fill 3000 and 50 bases of deltas, and 50 are reserved for upkeep.
        assert_eq!(
            told,
            [
                (3050, Level::Filling),
                (3100, Level::High),
                (3125, Level::Critical)
            ]
        );
        // Each level is left a little below its threshold.
        for (live, level) in [
            (3116, Level::Critical),
            (3114, Level::High),
            (3041, Level::Filling),
            (3039, Level::Ample),
        ] {
            assert_eq!(gauge.note(Room { live, ..room }), None);
            assert_eq!(gauge.level(), level, "{live}");
        }
        assert!(!Room { live: 3139, ..room }.ends_within(10));
        assert!(Room { live: 3140, ..room }.ends_within(10));
    }

    #[test]
    fn only_a_thin_volume_fills_up() {
        let mut gauge = Gauge::default();
        let mut room = Room {
            live: 1000,
            capacity: 1000,
            promised: 1000,
            keeps: false,
        };
        assert_eq!(gauge.note(room), None);
        // Quarantined segments reduce the capacity.
        room.capacity = 999;
        assert_eq!(gauge.note(room), Some(Level::Critical));
        room.capacity = 0;
        assert_eq!(gauge.note(room), None);
    }
}
