//! The dies and their queues, the channels and who has them.
//!
//! A die does one thing at a time, in the order asked; with read priority a read overtakes programs and
//! erasures that have not begun (nothing is suspended). A read senses the unit into the die's register and
//! then crosses the channel; a program crosses first. A channel carries one transfer at a time; who is ready first gets
//! it first. A register stays busy until its data have crossed. What goes beyond that is in [`super::commands`], and in no one's way here.

use super::commands::{Bus, Busy, Commands, Timing, Work};
use super::endurance::{Blocks, NoSpare, Worn};
use super::errors::{Errors, Reads};
use super::options::Options;
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
    Summary,
    Copy,
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
    timing: Timing,
    dies: Vec<Queue>,
    /// When each channel is free.
    channels: Vec<u64>,
    wear: Wear,
    counts: Counts,
    commands: Option<Box<Commands>>,
    errors: Option<Box<Errors>>,
    blocks: Option<Box<Blocks>>,
}

impl Flash {
    /// Erased, unworn, idle.
    #[must_use]
    pub fn new(nand: &Nand, shape: Shape, read_priority: bool) -> Self {
        Self {
            shape,
            timing: Timing {
                read_ns: nand.read_ns,
                program_ns: nand.program_ns,
                erase_ns: nand.erase_ns,
                transfer_ns: (0..=u64::from(shape.unit_blocks))
                    .map(|blocks| {
                        blocks * BLOCK_BYTES as u64 * 1_000_000_000 / nand.bus_bytes_per_s
                    })
                    .collect(),
                read_priority,
            },
            dies: (0..shape.dies).map(|_| Queue::default()).collect(),
            channels: vec![0; shape.channels as usize],
            wear: Wear::new(&shape),
            counts: Counts::default(),
            commands: None,
            errors: None,
            blocks: None,
        }
    }

    /// The same with options, where blocks are rated for so many erasures.
    ///
    /// # Errors
    /// When it would have more bad blocks than spare ones before its first write.
    pub fn with(mut self, options: &Options, rated: u32, seed: u64) -> Result<Self, NoSpare> {
        if options.is_extended() {
            let commands = Commands::new(*options, self.shape.dies);
            self.commands = Some(Box::new(commands));
        }
        let errors = options.errors.map(|how| Errors::new(how, rated, seed));
        self.errors = errors.map(Box::new);
        if let Some(how) = options.endurance {
            let blocks = Blocks::new(how, rated, &self.shape, seed)?;
            self.blocks = Some(Box::new(blocks));
        }
        Ok(self)
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

    /// What its dies were busy with, where more than plain queues are simulated.
    #[must_use]
    pub fn busy(&self) -> Option<Busy> {
        self.commands.as_ref().map(|commands| commands.busy())
    }

    /// How its reads went, where bits can be wrong.
    #[must_use]
    pub fn errors(&self) -> Option<Reads> {
        self.errors.as_ref().map(|errors| errors.counts())
    }

    /// How its blocks wore out, where they can.
    #[must_use]
    pub fn worn(&self) -> Option<Worn> {
        self.blocks.as_ref().map(|blocks| blocks.worn())
    }

    /// Whether a die needed a spare block and had none.
    #[must_use]
    pub fn is_worn_out(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.is_over())
    }

    /// Forgets counts and wear.
    pub fn reset(&mut self) {
        self.wear.reset();
        self.counts = Counts::default();
        if let Some(commands) = &mut self.commands {
            commands.reset();
        }
        if let Some(errors) = &mut self.errors {
            errors.reset();
        }
    }

    /// From here on erasures wear it out: it has been prepared.
    pub fn begin_life(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.begin();
        }
    }

    /// Reads `blocks` of one unit, in an erase block.
    pub fn read(
        &mut self,
        time: &mut Timeline,
        (die, block): (Die, EraseBlock),
        blocks: u32,
        job: Option<Job>,
    ) {
        self.counts.reads += 1;
        if self.commands.is_some() {
            return self.read_extended(time, (die, block), blocks, job);
        }
        self.ask(time, die, Kind::Read { blocks }, job);
    }

    #[cold]
    fn read_extended(
        &mut self,
        time: &mut Timeline,
        (die, block): (Die, EraseBlock),
        blocks: u32,
        job: Option<Job>,
    ) {
        let retries = match &mut self.errors {
            Some(errors) => {
                let place = match &self.blocks {
                    Some(blocks) => blocks.place(die, block),
                    None => self.wear.place(die, block),
                };
                errors.read(self.wear.count(place), blocks)
            }
            None => 0,
        };
        self.extended(time, die, Work::Read { blocks, retries }, job);
    }

    /// Programs one unit.
    pub fn program(&mut self, time: &mut Timeline, die: Die, job: Option<Job>) {
        self.counts.programs += 1;
        self.ask(time, die, Kind::Program, job);
    }

    /// Programs a block's summary, of which a sector crosses the channel.
    pub fn summary(&mut self, time: &mut Timeline, die: Die, job: Option<Job>) {
        self.counts.programs += 1;
        self.ask(time, die, Kind::Summary, job);
    }

    /// Programs one unit with what another one of the die holds: it is read into the register and goes no further.
    pub fn copy(&mut self, time: &mut Timeline, die: Die, job: Option<Job>) {
        self.counts.reads += 1;
        self.counts.programs += 1;
        self.ask(time, die, Kind::Copy, job);
    }

    /// Erases one block; whether it was its last time, and an unworn one stands for it now.
    pub fn erase(
        &mut self,
        time: &mut Timeline,
        die: Die,
        block: EraseBlock,
        job: Option<Job>,
    ) -> bool {
        self.counts.erases += 1;
        let replaced = match &mut self.blocks {
            None => {
                self.wear.erased(die, block);
                false
            }
            Some(blocks) => {
                self.wear.erased_at(blocks.place(die, block));
                blocks.erased(&mut self.wear, die, block)
            }
        };
        self.ask(time, die, Kind::Erase, job);
        replaced
    }

    fn extended(&mut self, time: &mut Timeline, die: Die, work: Work, job: Option<Job>) {
        let Some(commands) = self.commands.as_mut().filter(|_| !time.is_instant()) else {
            return;
        };
        if let Some(job) = job {
            time.add(job);
        }
        let mut bus = Bus {
            timing: &self.timing,
            shape: &self.shape,
            channels: &mut self.channels,
        };
        commands.ask(&mut bus, time, die, work, job);
    }

    /// What was set for a die has come.
    pub fn array(&mut self, time: &mut Timeline, die: Die, turn: u32) {
        let mut bus = Bus {
            timing: &self.timing,
            shape: &self.shape,
            channels: &mut self.channels,
        };
        if let Some(commands) = &mut self.commands {
            commands.happen(&mut bus, time, die, turn);
        }
    }

    /// What a die has read with a cache command has crossed its channel.
    pub fn crossed(&mut self, time: &mut Timeline, die: Die) {
        let mut bus = Bus {
            timing: &self.timing,
            shape: &self.shape,
            channels: &mut self.channels,
        };
        if let Some(commands) = &mut self.commands {
            commands.crossed(&mut bus, time, die);
        }
    }

    fn ask(&mut self, time: &mut Timeline, die: Die, kind: Kind, job: Option<Job>) {
        if time.is_instant() {
            return;
        }
        if self.commands.is_some() {
            let work = match kind {
                Kind::Read { blocks } => Work::Read { blocks, retries: 0 },
                Kind::Program => Work::Program,
                Kind::Summary => Work::Summary,
                Kind::Copy => Work::Copy,
                Kind::Erase => Work::Erase,
            };
            return self.extended(time, die, work, job);
        }
        if let Some(job) = job {
            time.add(job);
        }
        let queue = &mut self.dies[die.0 as usize];
        let task = Task { kind, job };
        match kind {
            Kind::Read { .. } if self.timing.read_priority => queue.first.push_back(task),
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
            Kind::Read { .. } => time.at(time.now() + self.timing.read_ns, Tag::Sensed(die.0)),
            Kind::Program => {
                let takes = self.timing.transfer_ns[self.shape.unit_blocks as usize];
                let crossed = self.cross(time.now(), die, takes);
                time.at(crossed + self.timing.program_ns, Tag::Idle(die.0));
            }
            Kind::Summary => {
                let crossed = self.cross(time.now(), die, self.timing.summary_ns());
                time.at(crossed + self.timing.program_ns, Tag::Idle(die.0));
            }
            Kind::Copy => {
                let takes = self.timing.read_ns + self.timing.program_ns;
                time.at(time.now() + takes, Tag::Idle(die.0));
            }
            Kind::Erase => time.at(time.now() + self.timing.erase_ns, Tag::Idle(die.0)),
        }
    }

    /// Takes the die's channel for so long, returns when that is over.
    fn cross(&mut self, now: u64, die: Die, takes: u64) -> u64 {
        let free = &mut self.channels[(die.0 % self.shape.channels) as usize];
        *free = now.max(*free) + takes;
        *free
    }

    /// A die has sensed what it reads.
    pub fn sensed(&mut self, time: &mut Timeline, die: Die) {
        if let Some(Task {
            kind: Kind::Read { blocks },
            ..
        }) = self.dies[die.0 as usize].doing
        {
            let takes = self.timing.transfer_ns[blocks as usize];
            let crossed = self.cross(time.now(), die, takes);
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
