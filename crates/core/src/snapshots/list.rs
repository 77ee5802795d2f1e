//! The list of snapshots.

use crate::addr::BLOCK_BYTES;
use crate::format::FormatError;
use crate::format::history::{
    BLOCK_ENTRIES, ENTRY_BYTES, Identity, LIST_BLOCKS, Name, Number, SNAPSHOTS_MAX, Snapshot, Stage,
};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Why the list cannot be changed as requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The name is taken.
    #[error("there is a snapshot or a clone `{0}` already")]
    Exists(Name),
    /// The name does not exist.
    #[error("there is no snapshot or clone `{0}`: `vellum snapshots VOLUME` lists them")]
    Unknown(String),
    /// No place is free.
    #[error(
        "there are {SNAPSHOTS_MAX} snapshots, which is as many as a volume can have: delete one"
    )]
    Full,
}

impl ListError {
    /// The error about a name that does not exist.
    #[must_use]
    pub fn unknown(name: &str) -> Self {
        Self::Unknown(name.to_owned())
    }
}

/// What is wrong with an entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// It is no snapshot.
    #[error("entry {place}: {why}")]
    Entry {
        /// Its place in the list.
        place: u64,
        /// Why it is none.
        why: FormatError,
    },
    /// Another snapshot has its name or its number.
    #[error("entry {place}: another snapshot has the name {name} or the number {} too", number.0)]
    Twice {
        /// Its place in the list.
        place: u64,
        /// Its name.
        name: Name,
        /// Its number.
        number: Number,
    },
    /// No snapshot can have such a number.
    #[error("entry {place}: snapshot {name} has the number {}, which is too high", number.0)]
    Number {
        /// Its place in the list.
        place: u64,
        /// Its name.
        name: Name,
        /// Its number.
        number: Number,
    },
    /// A clone without its snapshot.
    #[error("clone {name} has no snapshot: number {} is none that a clone can have", of.0)]
    Alone {
        /// The name of the clone.
        name: Name,
        /// The number of the snapshot that it says it is a clone of.
        of: Number,
    },
}

/// Snapshots, each with its place, the oldest first.
#[derive(Debug)]
pub(super) struct List {
    all: Vec<(Snapshot, usize)>,
    /// One more than the highest number seen so far.
    next: u32,
    /// The highest number that a snapshot can have.
    last: Number,
}

impl List {
    pub fn new(last: Number) -> Self {
        Self {
            all: Vec::new(),
            next: 0,
            last,
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.all.iter().map(|(snapshot, _)| snapshot)
    }

    pub fn by_number(&self, number: Number) -> Option<&Snapshot> {
        let at = self
            .all
            .binary_search_by_key(&number, |(one, _)| one.number);
        at.ok().map(|at| &self.all[at].0)
    }

    /// Loads all entries of a block that are right.
    pub fn load(&mut self, block: u64, bytes: &[u8; BLOCK_BYTES]) -> Result<(), BadEntry> {
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let places = block as usize * BLOCK_ENTRIES..;
        let mut wrong = Ok(());
        for (entry, at) in entries.iter().zip(places) {
            wrong = wrong.and(self.load_entry(entry, at));
        }
        wrong
    }

    fn load_entry(&mut self, entry: &[u8; ENTRY_BYTES], at: usize) -> Result<(), BadEntry> {
        let place = at as u64;
        let Some(snapshot) =
            Snapshot::decode(entry).map_err(|why| BadEntry::Entry { place, why })?
        else {
            return Ok(());
        };
        let (number, name) = (snapshot.number, snapshot.identity.name);
        if number > self.last {
            return Err(BadEntry::Number {
                place,
                name,
                number,
            });
        }
        let is_it = |one: &Snapshot| one.number == number || one.identity.name == name;
        if self.iter().any(is_it) {
            return Err(BadEntry::Twice {
                place,
                name,
                number,
            });
        }
        self.insert(snapshot, at);
        Ok(())
    }

    pub fn encode(&self, block: u64, out: &mut [u8]) {
        out.fill(0);
        let first = block as usize * BLOCK_ENTRIES;
        for (snapshot, place) in &self.all {
            if let Some(index) = place
                .checked_sub(first)
                .filter(|index| *index < BLOCK_ENTRIES)
            {
                out[index * ENTRY_BYTES..][..ENTRY_BYTES].copy_from_slice(&snapshot.encode());
            }
        }
    }

    pub fn propose(&self, identity: Identity) -> Result<(Snapshot, u64), ListError> {
        let name = identity.name;
        if self.iter().any(|other| other.identity.name == name) {
            return Err(ListError::Exists(name));
        }
        let is_free = |place: &usize| self.all.iter().all(|(_, other)| other != place);
        let place = (0..SNAPSHOTS_MAX).find(is_free).ok_or(ListError::Full)?;
        let number = self.next.max(1);
        if number >= self.last.0 {
            return Err(ListError::Full);
        }
        let snapshot = Snapshot {
            number: Number(number),
            identity,
            stage: Stage::Kept,
        };
        Ok((snapshot, place as u64))
    }

    /// Adds a snapshot at the `place` that `propose` returned.
    pub fn add(&mut self, snapshot: Snapshot, place: u64) -> u64 {
        debug_assert!(place < LIST_BLOCKS * BLOCK_ENTRIES as u64);
        self.insert(snapshot, place as usize);
        place / BLOCK_ENTRIES as u64
    }

    fn insert(&mut self, snapshot: Snapshot, place: usize) {
        let at = self
            .all
            .partition_point(|(one, _)| one.number < snapshot.number);
        self.all.insert(at, (snapshot, place));
        self.next = self.next.max(snapshot.number.0.saturating_add(1));
    }

    pub fn set_stage(&mut self, name: &str, stage: Stage) -> Result<u64, ListError> {
        let is_it = |(one, _): &&mut (Snapshot, usize)| one.identity.name.as_str() == name;
        let found = self.all.iter_mut().find(is_it);
        let (snapshot, place) = found.ok_or_else(|| ListError::unknown(name))?;
        snapshot.stage = stage;
        Ok((*place / BLOCK_ENTRIES) as u64)
    }

    /// A snapshot with its place.
    pub fn entry(&self, number: Number) -> Option<(Snapshot, u64)> {
        let entry = self.all.iter().find(|(one, _)| one.number == number)?;
        Some((entry.0, entry.1 as u64))
    }

    pub fn remove(&mut self, number: Number) -> Option<u64> {
        let at = self.all.iter().position(|(one, _)| one.number == number)?;
        let (_, place) = self.all.remove(at);
        Some((place / BLOCK_ENTRIES) as u64)
    }
}
