//! The states of zones, and the rules that a host must keep (NVMe, Zoned Namespace Command Set).
//!
//! A zone is empty, open, closed or full. Writing opens it, filling or finishing it makes it full, and only a reset makes it empty.
//! Open and closed zones are *active*: the drive keeps something for them, and there is a limit. There is a lower limit for open
//! ones. A zone that a write opened is closed by the drive when another one needs its place; one that the host opened is not.

/// A zone's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is written.
    Empty,
    /// A write opened it.
    Open,
    /// The host opened it.
    OpenedByHost,
    /// Partly written, and not open.
    Closed,
    /// It takes no more writes.
    Full,
}

/// The figures of a drive's zones, in blocks of 4 KiB and in zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the beginning of one zone to the next.
    pub size: u64,
    /// What a zone holds.
    pub capacity: u32,
    /// The most open zones.
    pub open: u32,
    /// The most active zones.
    pub active: u32,
}

/// A rule that the host broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// There is no such zone.
    #[error("there is no zone {zone}: the drive has {zones}")]
    NoZone {
        /// The zone.
        zone: u32,
        /// How many there are.
        zones: u32,
    },
    /// A write is not at the write pointer.
    #[error(
        "zone {zone} is written at block {at}, and its write pointer is at {pointer}: \
         write there, or reset it"
    )]
    Pointer {
        /// The zone.
        zone: u32,
        /// Where the write begins.
        at: u32,
        /// Where it would have to.
        pointer: u32,
    },
    /// A write goes past the zone's capacity.
    #[error("{blocks} blocks do not fit zone {zone} at block {at}: it holds {capacity}")]
    Capacity {
        /// The zone.
        zone: u32,
        /// Where the write begins.
        at: u32,
        /// How long it is.
        blocks: u32,
        /// What the zone holds.
        capacity: u32,
    },
    /// The zone is full.
    #[error("zone {zone} is full: reset it first")]
    Full {
        /// The zone.
        zone: u32,
    },
    /// Too many zones are active.
    #[error(
        "zone {zone} would be one active zone more than the drive's {most}: finish or reset another one first"
    )]
    Active {
        /// The zone.
        zone: u32,
        /// The limit.
        most: u32,
    },
    /// The host has opened as many zones as may be open.
    #[error(
        "zone {zone} would be one open zone more than the drive's {most}: close another one first"
    )]
    Open {
        /// The zone.
        zone: u32,
        /// The limit.
        most: u32,
    },
    /// A zone in this state cannot be opened or closed.
    #[error("zone {zone} is {state:?}: it cannot be opened or closed")]
    State {
        /// The zone.
        zone: u32,
        /// Its state.
        state: State,
    },
}

#[derive(Clone, Copy)]
struct Zone {
    state: State,
    pointer: u32,
    /// When it was written last, in writes.
    used: u64,
}

/// All zones of a drive; see the module.
pub struct Zones {
    limits: Limits,
    zones: Vec<Zone>,
    open: u32,
    active: u32,
    active_most: u32,
    clock: u64,
}

impl Zones {
    /// Returns so many empty zones.
    #[must_use]
    pub fn new(count: u32, limits: Limits) -> Self {
        let empty = Zone {
            state: State::Empty,
            pointer: 0,
            used: 0,
        };
        Self {
            limits,
            zones: vec![empty; count as usize],
            open: 0,
            active: 0,
            active_most: 0,
            clock: 0,
        }
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns how many zones are active.
    #[must_use]
    pub fn active(&self) -> u32 {
        self.active
    }

    /// Returns the most zones that were active at a time.
    #[must_use]
    pub fn active_most(&self) -> u32 {
        self.active_most
    }

    /// Returns a zone's state and its write pointer.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn get(&self, zone: u32) -> Result<(State, u32), ZoneError> {
        let found = self.zones.get(zone as usize);
        found
            .map(|found| (found.state, found.pointer))
            .ok_or(self.no_zone(zone))
    }

    fn no_zone(&self, zone: u32) -> ZoneError {
        ZoneError::NoZone {
            zone,
            zones: self.zones.len() as u32,
        }
    }

    /// Writes blocks at `at`, which must be the write pointer. A zone that this fills is full.
    ///
    /// # Errors
    /// With the rule that this breaks; then nothing is written.
    pub fn write(&mut self, zone: u32, at: u32, blocks: u32) -> Result<(), ZoneError> {
        let (state, pointer) = self.get(zone)?;
        let capacity = self.limits.capacity;
        if state == State::Full {
            return Err(ZoneError::Full { zone });
        }
        if at != pointer {
            return Err(ZoneError::Pointer { zone, at, pointer });
        }
        if blocks > capacity - at {
            return Err(ZoneError::Capacity {
                zone,
                at,
                blocks,
                capacity,
            });
        }
        if blocks == 0 {
            return Ok(());
        }
        self.open_as(zone, state, State::Open)?;
        self.clock += 1;
        let written = &mut self.zones[zone as usize];
        written.pointer += blocks;
        written.used = self.clock;
        if written.pointer == capacity {
            self.leave(zone, State::Full);
        }
        Ok(())
    }

    /// Opens a zone, so that the drive does not close it by itself.
    ///
    /// # Errors
    /// With the rule that this breaks.
    pub fn open(&mut self, zone: u32) -> Result<(), ZoneError> {
        match self.get(zone)?.0 {
            state @ State::Full => Err(ZoneError::State { zone, state }),
            State::Open => {
                self.zones[zone as usize].state = State::OpenedByHost;
                Ok(())
            }
            state => self.open_as(zone, state, State::OpenedByHost),
        }
    }

    /// Closes an open zone.
    ///
    /// # Errors
    /// If it is not open.
    pub fn close(&mut self, zone: u32) -> Result<(), ZoneError> {
        match self.get(zone)?.0 {
            State::Open | State::OpenedByHost => {
                self.open -= 1;
                self.zones[zone as usize].state = State::Closed;
                Ok(())
            }
            State::Closed => Ok(()),
            state => Err(ZoneError::State { zone, state }),
        }
    }

    /// Makes a zone full, whatever is written.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn finish(&mut self, zone: u32) -> Result<(), ZoneError> {
        self.get(zone)?;
        self.leave(zone, State::Full);
        Ok(())
    }

    /// Empties a zone.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn reset(&mut self, zone: u32) -> Result<(), ZoneError> {
        self.get(zone)?;
        self.leave(zone, State::Empty);
        self.zones[zone as usize].pointer = 0;
        Ok(())
    }

    /// Opens a zone that is not full.
    fn open_as(&mut self, zone: u32, from: State, to: State) -> Result<(), ZoneError> {
        if matches!(from, State::Open | State::OpenedByHost) {
            return Ok(());
        }
        let Limits { open, active, .. } = self.limits;
        if from == State::Empty && self.active == active {
            return Err(ZoneError::Active { zone, most: active });
        }
        if self.open == open && !self.close_oldest() {
            return Err(ZoneError::Open { zone, most: open });
        }
        self.open += 1;
        self.active += u32::from(from == State::Empty);
        self.active_most = self.active_most.max(self.active);
        self.zones[zone as usize].state = to;
        Ok(())
    }

    /// Closes the zone that was written the longest time ago, of those that writes opened. Returns whether there was one.
    fn close_oldest(&mut self) -> bool {
        let open = self
            .zones
            .iter_mut()
            .filter(|zone| zone.state == State::Open);
        let Some(oldest) = open.min_by_key(|zone| zone.used) else {
            return false;
        };
        oldest.state = State::Closed;
        self.open -= 1;
        true
    }

    /// Makes a zone full or empty.
    fn leave(&mut self, zone: u32, to: State) {
        let zone = &mut self.zones[zone as usize];
        let is_open = matches!(zone.state, State::Open | State::OpenedByHost);
        self.open -= u32::from(is_open);
        self.active -= u32::from(is_open || zone.state == State::Closed);
        zone.state = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(open: u32, active: u32) -> Zones {
        let limits = Limits {
            size: 16,
            capacity: 12,
            open,
            active,
        };
        Zones::new(5, limits)
    }

    #[test]
    fn a_zone_is_written_at_its_pointer_alone_until_it_is_full() {
        let mut zones = zones(3, 3);
        zones.write(2, 0, 5).unwrap();
        assert_eq!(zones.get(2), Ok((State::Open, 5)));
        for at in [0, 4, 6] {
            let error = ZoneError::Pointer {
                zone: 2,
                at,
                pointer: 5,
            };
            assert_eq!(zones.write(2, at, 1), Err(error));
        }
        let error = ZoneError::Capacity {
            zone: 2,
            at: 5,
            blocks: 8,
            capacity: 12,
        };
        assert_eq!(zones.write(2, 5, 8), Err(error));
        zones.write(2, 5, 7).unwrap();
        assert_eq!(zones.get(2), Ok((State::Full, 12)));
        assert_eq!(zones.write(2, 12, 1), Err(ZoneError::Full { zone: 2 }));
        zones.reset(2).unwrap();
        assert_eq!(zones.get(2), Ok((State::Empty, 0)));
        zones.write(2, 0, 1).unwrap();
        zones.finish(2).unwrap();
        assert_eq!(zones.write(2, 1, 1), Err(ZoneError::Full { zone: 2 }));
        assert_eq!(
            zones.write(5, 0, 1),
            Err(ZoneError::NoZone { zone: 5, zones: 5 })
        );
        assert_eq!(zones.reset(9), Err(ZoneError::NoZone { zone: 9, zones: 5 }));
    }

    #[test]
    fn no_more_zones_are_active_than_the_limit() {
        let mut zones = zones(2, 3);
        (0..3).for_each(|zone| zones.write(zone, 0, 1).unwrap());
        assert_eq!(
            zones.write(3, 0, 1),
            Err(ZoneError::Active { zone: 3, most: 3 })
        );
        // A full zone is not active, and neither is an empty one.
        zones.finish(1).unwrap();
        zones.write(3, 0, 1).unwrap();
        zones.reset(0).unwrap();
        zones.write(4, 0, 12).unwrap();
        zones.write(0, 0, 1).unwrap();
        assert_eq!(zones.active_most(), 3);
    }

    #[test]
    fn the_drive_closes_what_writes_opened_but_not_what_the_host_did() {
        let mut zones = zones(2, 5);
        (0..3).for_each(|zone| zones.write(zone, 0, 1).unwrap());
        let states = |zones: &Zones| [0, 1, 2].map(|zone| zones.get(zone).unwrap().0);
        assert_eq!(states(&zones), [State::Closed, State::Open, State::Open]);
        // A closed zone continues at its pointer.
        zones.write(0, 1, 1).unwrap();
        assert_eq!(states(&zones), [State::Open, State::Closed, State::Open]);
        zones.open(0).unwrap();
        zones.open(2).unwrap();
        assert_eq!(
            zones.write(1, 1, 1),
            Err(ZoneError::Open { zone: 1, most: 2 })
        );
        assert_eq!(zones.open(3), Err(ZoneError::Open { zone: 3, most: 2 }));
        zones.close(2).unwrap();
        zones.write(1, 1, 1).unwrap();
        let state = State::Empty;
        assert_eq!(zones.close(4), Err(ZoneError::State { zone: 4, state }));
    }
}
