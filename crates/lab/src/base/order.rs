//! In what order a page map's updates are made (OFTL), and what comes of it when they are made in none.
//!
//! The rules are the core's ([`vellum_core::ordering`]); here they stand behind a drive that programs all its dies at the same
//! time. A host that leaves a commit's first flush out relies on them: its commit block must not be in the map before the blocks
//! that it commits. Where nobody sees to that, each such moment is counted: a power cut in it would have shown the file system a
//! commit without its blocks.

use crate::flash::Die;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vellum_core::ordering::{Class, Ordering, Rule, Ticket};

/// How a drive orders its map updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As pages are programmed; nothing is counted.
    #[default]
    Off,
    /// The same, and it is counted what that breaks.
    Unordered,
    /// Journal pages after all that came before them (OFTL).
    Journal,
    /// Journal pages one after the other, each programmed when the last one has been (the stream FTL of OFTL's evaluation).
    Stream,
}

/// The stage.
pub struct Stage {
    serial: bool,
    order: Ordering,
    journal: std::ops::Range<u64>,
    /// Writes whose unit is not full, by die.
    open: BTreeMap<u32, Vec<Ticket>>,
    /// Writes in units on their way.
    units: BTreeMap<u64, Vec<Ticket>>,
    /// Writes that the map does not have yet.
    held: BTreeSet<Ticket>,
    critical: BTreeSet<Ticket>,
    /// Journal units, the first of them on its way.
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

    /// Writes that waited for their map update at the same time, at most: a byte each in the core's stage, ten in the paper's.
    #[must_use]
    pub fn held_most(&self) -> usize {
        self.held_most
    }

    /// Journal blocks that were in the map before something that was written before them.
    #[must_use]
    pub fn early(&self) -> u64 {
        self.early
    }

    pub(super) fn watch(&mut self, start: u64, blocks: u64) {
        self.journal = start..start + blocks;
    }

    /// A block is written, to a die.
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

    /// A unit with what was written to a die is to be programmed; says whether it may be now.
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

    /// A unit is on flash.
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

    /// The journal unit whose turn it is, when the one before it was `unit`.
    pub(super) fn serial_next(&mut self, unit: u64) -> Option<(u64, Die)> {
        if self.queue.front().is_none_or(|&(first, _)| first != unit) {
            return None;
        }
        self.queue.pop_front();
        self.queue.front().copied()
    }
}
