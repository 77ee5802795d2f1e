//! The order of a page map's updates (OFTL), and what happens without one.
//!
//! The rules are the core's ([`vellum_core::ordering`]); here they apply to a drive that programs all its dies at the same time.
//! A host that omits a commit's first flush relies on them: its commit block must not be in the map before the blocks that it
//! commits. On a drive without order, each such moment is counted: a power cut in it would have shown the file system a commit
//! without its blocks.

use crate::flash::Die;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vellum_core::ordering::{Class, Ordering, Rule, Ticket};

/// How a drive orders its map updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order in which pages are programmed; nothing is counted.
    #[default]
    Off,
    /// The same order, but violations of the rules are counted.
    Unordered,
    /// Journal pages after everything written before them (OFTL).
    Journal,
    /// Journal pages one after the other, each programmed when the one before is on flash (the stream FTL of OFTL's evaluation).
    Stream,
}

/// The stage between the drive and its map.
pub struct Stage {
    serial: bool,
    order: Ordering,
    journal: std::ops::Range<u64>,
    /// Writes whose unit is not full, by die.
    open: BTreeMap<u32, Vec<Ticket>>,
    /// Writes in units on their way to flash.
    units: BTreeMap<u64, Vec<Ticket>>,
    /// Writes that are not in the map yet.
    held: BTreeSet<Ticket>,
    critical: BTreeSet<Ticket>,
    /// Journal units; the first of them is on its way.
    queue: VecDeque<(u64, Die)>,
    held_most: usize,
    early: u64,
}

impl Stage {
    pub(super) fn new(order: Order) -> Self {
        Self {
            serial: order == Order::Stream,
            order: Ordering::new(match order {
                Order::Journal | Order::Stream => Rule::Journal,
                Order::Off | Order::Unordered => Rule::None,
            }),
            journal: 0..0,
            open: BTreeMap::new(),
            units: BTreeMap::new(),
            held: BTreeSet::new(),
            critical: BTreeSet::new(),
            queue: VecDeque::new(),
            held_most: 0,
            early: 0,
        }
    }

    /// Returns the most writes that waited for their map update at once: each takes a byte in the core's stage, ten in the
    /// paper's.
    #[must_use]
    pub fn held_most(&self) -> usize {
        self.held_most
    }

    /// Returns the number of journal blocks that were in the map before something written before them.
    #[must_use]
    pub fn early(&self) -> u64 {
        self.early
    }

    pub(super) fn watch(&mut self, start: u64, blocks: u64) {
        self.journal = start..start + blocks;
    }

    /// Records the write of a block to a die.
    pub(super) fn begin(&mut self, lba: u64, die: Die) {
        let class = match self.journal.contains(&lba) {
            true => Class::Journal,
            false => Class::Normal,
        };
        let ticket = self.order.begin(class);
        if class == Class::Journal {
            self.critical.insert(ticket);
        }
        self.held.insert(ticket);
        self.held_most = self.held_most.max(self.held.len());
        self.open.entry(die.0).or_default().push(ticket);
    }

    /// Records the unit that holds what was written to a die. Returns whether it may be programmed now.
    pub(super) fn programs(&mut self, unit: u64, die: Die) -> bool {
        let tickets = self.open.remove(&die.0).unwrap_or_default();
        let critical = tickets.iter().any(|ticket| self.critical.contains(ticket));
        self.units.insert(unit, tickets);
        if !self.serial || !critical {
            return true;
        }
        self.queue.push_back((unit, die));
        self.queue.len() == 1
    }

    /// Records that a unit is on flash.
    pub(super) fn written(&mut self, unit: u64) {
        for ticket in self.units.remove(&unit).unwrap_or_default() {
            let (held, critical, early) = (&mut self.held, &mut self.critical, &mut self.early);
            self.order.written(ticket, |ticket| {
                held.remove(&ticket);
                let waits = held.first().is_some_and(|first| *first < ticket);
                *early += u64::from(critical.remove(&ticket) && waits);
            });
        }
    }

    /// Returns the journal unit that follows `unit`, which was the first in the queue.
    pub(super) fn serial_next(&mut self, unit: u64) -> Option<(u64, Die)> {
        if self.queue.front().is_none_or(|&(first, _)| first != unit) {
            return None;
        }
        self.queue.pop_front();
        self.queue.front().copied()
    }
}
