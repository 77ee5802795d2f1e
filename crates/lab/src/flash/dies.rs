//! The dies and their queues, the channels and who has them.
//!
//! A die does one thing at a time, in the order asked; with read priority a read overtakes programs and
//! erasures that have not begun (nothing is suspended). A read senses the unit into the die's register and
//! then crosses the channel; a program crosses first. A channel carries one transfer at a time; who is ready first gets
//! it first. A register stays busy until its data have crossed, so cache commands are not modelled.

use super::{Die, EraseBlock, Nand, Shape, Wear};
use crate::timeline::{Job, Tag, Timeline};
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units sensed.
    pub reads: u64,
    /// Units programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Read { blocks: u32 },
    Program,
    Erase,
}

#[derive(Clone, Copy)]
struct Task {
    kind: Kind,
    job: Option<Job>,
}

#[derive(Default)]
struct Queue {
    doing: Option<Task>,
    first: VecDeque<Task>,
    then: VecDeque<Task>,
}

/// See the module.
pub struct Flash {
    shape: Shape,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    /// What so many blocks take on a channel.
    transfer_ns: Vec<u64>,
    read_priority: bool,
    dies: Vec<Queue>,
    /// When each channel is free.
    channels: Vec<u64>,
    wear: Wear,
    counts: Counts,
}

impl Flash {
    /// Erased, unworn, idle.
    #[must_use]
    pub fn new(nand: &Nand, shape: Shape, read_priority: bool) -> Self {
        Self {
            shape,
            read_ns: nand.read_ns,
            program_ns: nand.program_ns,
            erase_ns: nand.erase_ns,
            transfer_ns: (0..=u64::from(shape.unit_blocks))
                .map(|blocks| blocks * BLOCK_BYTES as u64 * 1_000_000_000 / nand.bus_bytes_per_s)
                .collect(),
            read_priority,
            dies: (0..shape.dies).map(|_| Queue::default()).collect(),
            channels: vec![0; shape.channels as usize],
            wear: Wear::new(&shape),
            counts: Counts::default(),
        }
    }

    /// How it is addressed.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How worn it is.
    #[must_use]
    pub fn wear(&self) -> &Wear {
        &self.wear
    }

    /// What was done since the start, or [`reset`](Self::reset).
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Forgets counts and wear.
    pub fn reset(&mut self) {
        self.wear.reset();
        self.counts = Counts::default();
    }

    /// Reads `blocks` of one unit.
    pub fn read(&mut self, time: &mut Timeline, die: Die, blocks: u32, job: Option<Job>) {
        self.counts.reads += 1;
        self.ask(time, die, Kind::Read { blocks }, job);
    }

    /// Programs one unit.
    pub fn program(&mut self, time: &mut Timeline, die: Die, job: Option<Job>) {
        self.counts.programs += 1;
        self.ask(time, die, Kind::Program, job);
    }

    /// Erases one block.
    pub fn erase(&mut self, time: &mut Timeline, die: Die, block: EraseBlock, job: Option<Job>) {
        self.counts.erases += 1;
        self.wear.erased(die, block);
        self.ask(time, die, Kind::Erase, job);
    }

    fn ask(&mut self, time: &mut Timeline, die: Die, kind: Kind, job: Option<Job>) {
        if time.is_instant() {
            return;
        }
        if let Some(job) = job {
            time.add(job);
        }
        let queue = &mut self.dies[die.0 as usize];
        let task = Task { kind, job };
        match kind {
            Kind::Read { .. } if self.read_priority => queue.first.push_back(task),
            _ => queue.then.push_back(task),
        }
        if queue.doing.is_none() {
            self.begin_next(time, die);
        }
    }

    fn begin_next(&mut self, time: &mut Timeline, die: Die) {
        let queue = &mut self.dies[die.0 as usize];
        queue.doing = queue.first.pop_front().or_else(|| queue.then.pop_front());
        let Some(task) = queue.doing else { return };
        match task.kind {
            Kind::Read { .. } => time.at(time.now() + self.read_ns, Tag::Sensed(die.0)),
            Kind::Program => {
                let crossed = self.cross(time.now(), die, self.shape.unit_blocks);
                time.at(crossed + self.program_ns, Tag::Idle(die.0));
            }
            Kind::Erase => time.at(time.now() + self.erase_ns, Tag::Idle(die.0)),
        }
    }

    /// Takes the die's channel for so many blocks, returns when they have crossed.
    fn cross(&mut self, now: u64, die: Die, blocks: u32) -> u64 {
        let free = &mut self.channels[(die.0 % self.shape.channels) as usize];
        *free = now.max(*free) + self.transfer_ns[blocks as usize];
        *free
    }

    /// A die has sensed what it reads.
    pub fn sensed(&mut self, time: &mut Timeline, die: Die) {
        if let Some(Task {
            kind: Kind::Read { blocks },
            ..
        }) = self.dies[die.0 as usize].doing
        {
            let crossed = self.cross(time.now(), die, blocks);
            time.at(crossed, Tag::Idle(die.0));
        }
    }

    /// A die has finished what it did.
    pub fn idle(&mut self, time: &mut Timeline, die: Die) {
        if let Some(task) = self.dies[die.0 as usize].doing.take()
            && let Some(job) = task.job
        {
            time.end(job);
        }
        self.begin_next(time, die);
    }
}
