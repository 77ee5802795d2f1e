//! The dies with their queues, and the channels that they share.
//!
//! A die does one thing at a time, in the order of the requests. With read priority a read overtakes programs and erasures that
//! have not begun (nothing is suspended). A read senses the unit into the die's register, and the data then cross the channel; a
//! program's data cross first. A channel carries one transfer at a time, first ready, first served. A register stays busy until
//! its data have crossed. Everything beyond that is in [`super::commands`], and costs nothing when it is off.

use super::cells::{Cell, CellTimes};
use super::commands::{Bus, Busy, Commands, Timing, Work};
use super::endurance::{Blocks, NoSpare, Worn};
use super::energy::{Counts, Energy, Taken};
use super::errors::{Errors, Reads};
use super::options::Options;
use super::preset::Nand;
use super::shape::{Die, EraseBlock, Shape};
use super::stress::{Due, PastDue, Refresh, Stress};
use super::wear::Wear;
use crate::timeline::{Job, Tag, Timeline};
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

#[derive(Clone, Copy)]
enum Kind {
    Read { blocks: u32, cell: Cell },
    Program(Cell),
    Summary,
    Copy,
    Erase,
    EraseSlc,
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

/// The flash; see the module.
pub struct Flash {
    shape: Shape,
    /// Page types.
    types: u32,
    timing: Timing,
    dies: Vec<Queue>,
    /// The time at which each channel becomes free.
    channels: Vec<u64>,
    wear: Wear,
    counts: Counts,
    page_blocks: u32,
    energy: Option<Energy>,
    commands: Option<Box<Commands>>,
    errors: Option<Box<Errors>>,
    blocks: Option<Box<Blocks>>,
    stress: Option<Box<Stress>>,
}

impl Flash {
    /// Returns erased, unworn, idle flash.
    #[must_use]
    pub fn new(nand: &Nand, shape: Shape, read_priority: bool) -> Self {
        Self {
            shape,
            types: nand.page_types.count().max(1),
            timing: Timing {
                cells: CellTimes::new(
                    (nand.read_ns, nand.program_ns),
                    &nand.page_types,
                    nand.slc.as_ref(),
                ),
                erase_ns: nand.erase_ns,
                erase_slc_ns: nand.slc.map_or(nand.erase_ns, |slc| slc.erase_ns),
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
            page_blocks: nand.page_bytes / BLOCK_BYTES as u32,
            energy: nand.energy,
            commands: None,
            errors: None,
            blocks: None,
            stress: nand
                .refresh
                .is_on()
                .then(|| Box::new(Stress::new(nand.refresh, shape.dies * shape.erase_blocks))),
        }
    }

    /// Applies options to it. Blocks are rated for `rated` erasures.
    ///
    /// # Errors
    /// If a die would have more bad blocks than spare ones before the first write.
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

    /// Returns its geometry.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the number of page types that take different times.
    #[must_use]
    pub fn types(&self) -> u32 {
        self.types
    }

    /// Returns its erase counts.
    #[must_use]
    pub fn wear(&self) -> &Wear {
        &self.wear
    }

    /// Returns what was done since the start, or since [`reset`](Self::reset).
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the energy that took, if the drive's figures are known.
    #[must_use]
    pub fn energy(&self) -> Option<Taken> {
        let energy = self.energy?;
        Some(energy.taken(&self.counts, self.planes()))
    }

    fn planes(&self) -> u32 {
        self.shape.unit_blocks / self.page_blocks
    }

    /// Returns what the dies were busy with, if more than plain queues are simulated.
    #[must_use]
    pub fn busy(&self) -> Option<Busy> {
        self.commands.as_ref().map(|commands| commands.busy())
    }

    /// Returns how the reads went, if bit errors are simulated.
    #[must_use]
    pub fn errors(&self) -> Option<Reads> {
        self.errors.as_ref().map(|errors| errors.counts())
    }

    /// Returns how blocks wore out, if they can.
    #[must_use]
    pub fn worn(&self) -> Option<Worn> {
        self.blocks.as_ref().map(|blocks| blocks.worn())
    }

    /// True if a die needed a spare block and had none.
    #[must_use]
    pub fn is_worn_out(&self) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.is_over())
    }

    /// Clears counts and wear.
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

    /// Ends preconditioning: from here on erasures wear blocks out.
    pub fn begin_life(&mut self) {
        if let Some(blocks) = &mut self.blocks {
            blocks.begin();
        }
    }

    /// Returns when the data of a block must be refreshed.
    #[must_use]
    pub fn refresh(&self) -> Refresh {
        self.stress
            .as_ref()
            .map_or_else(Refresh::default, |stress| stress.how())
    }

    /// A block's number over all dies.
    fn number(&self, die: Die, block: EraseBlock) -> u32 {
        die.0 * self.shape.erase_blocks + block.0
    }

    /// Counts `times` reads of a page. Pages with one bit a cell are ignored.
    #[inline]
    fn disturb(&mut self, (die, block, cell): (Die, EraseBlock, Cell), times: u32) {
        let number = self.number(die, block);
        if let Some(stress) = &mut self.stress
            && cell != Cell::SLC
        {
            stress.read(number, times);
        }
    }

    /// Records that a block holds data from now on.
    pub fn filled(&mut self, now: u64, die: Die, block: EraseBlock) {
        let number = self.number(die, block);
        if let Some(stress) = &mut self.stress {
            stress.filled(number, now);
        }
    }

    /// Returns why a block is due for a refresh, if it is.
    #[must_use]
    pub fn why_due(&self, now: u64, die: Die, block: EraseBlock) -> Option<Due> {
        self.stress.as_ref()?.why(self.number(die, block), now)
    }

    /// Takes a block that became due. It may have been erased since.
    pub fn take_due(&mut self, now: u64) -> Option<(Die, EraseBlock)> {
        let number = self.stress.as_mut()?.take(now)?;
        let blocks = self.shape.erase_blocks;
        Some((Die(number / blocks), EraseBlock(number % blocks)))
    }

    /// Returns when age makes a block due next.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.stress.as_ref()?.next()
    }

    /// Returns how many blocks were due so far, on flash that refreshes none.
    #[must_use]
    pub fn past_due(&self, now: u64) -> Option<PastDue> {
        Some(self.stress.as_ref()?.passed(now))
    }

    /// Reads `blocks` of one unit, in an erase block.
    pub fn read(
        &mut self,
        time: &mut Timeline,
        at: (Die, EraseBlock, Cell),
        blocks: u32,
        job: Option<Job>,
    ) {
        self.counts.reads += 1;
        self.counts.pages_read += u64::from(blocks.div_ceil(self.page_blocks));
        self.disturb(at, 1);
        if self.commands.is_some() {
            return self.read_extended(time, at, blocks, job);
        }
        if !time.is_instant() {
            let (die, _, cell) = at;
            self.ask(time, die, Kind::Read { blocks, cell }, job);
        }
    }

    #[cold]
    fn read_extended(
        &mut self,
        time: &mut Timeline,
        (die, block, cell): (Die, EraseBlock, Cell),
        blocks: u32,
        job: Option<Job>,
    ) {
        let retries = match &mut self.errors {
            Some(errors) if cell != Cell::SLC => {
                let place = match &self.blocks {
                    Some(blocks) => blocks.place(die, block),
                    None => self.wear.place(die, block),
                };
                errors.read(self.wear.count(place), blocks)
            }
            _ => 0,
        };
        self.disturb((die, block, cell), retries);
        let pages = u64::from(blocks.div_ceil(self.page_blocks));
        self.counts.pages_read += u64::from(retries) * pages;
        let work = Work::Read {
            blocks,
            cell,
            retries,
        };
        self.extended(time, die, work, job);
    }

    /// Programs one unit.
    pub fn program(&mut self, time: &mut Timeline, (die, cell): (Die, Cell), job: Option<Job>) {
        self.counts.programs += 1;
        if !time.is_instant() {
            self.ask(time, die, Kind::Program(cell), job);
        }
    }

    /// Programs a block's summary; one sector of it crosses the channel.
    pub fn summary(&mut self, time: &mut Timeline, die: Die, job: Option<Job>) {
        self.counts.programs += 1;
        self.ask(time, die, Kind::Summary, job);
    }

    /// Programs one unit with the contents of another one on the same die. They are read into the register and do not cross the
    /// channel.
    pub fn copy(&mut self, time: &mut Timeline, die: Die, job: Option<Job>) {
        self.counts.reads += 1;
        self.counts.pages_read += u64::from(self.planes());
        self.counts.programs += 1;
        self.ask(time, die, Kind::Copy, job);
    }

    /// Erases one block. Returns true if that was its last erasure and an unworn block replaces it.
    pub fn erase(
        &mut self,
        time: &mut Timeline,
        die: Die,
        block: EraseBlock,
        job: Option<Job>,
    ) -> bool {
        self.counts.erases += 1;
        let place = self.number(die, block);
        if let Some(stress) = &mut self.stress {
            stress.erased(place, time.now());
        }
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

    /// Erases a block with one bit a cell. These blocks do not wear out here.
    pub fn erase_slc(&mut self, time: &mut Timeline, die: Die) {
        self.counts.erases_slc += 1;
        self.ask(time, die, Kind::EraseSlc, None);
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

    /// Handles the event set for a die.
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

    /// Handles the end of a channel transfer of data that a die read with a cache command.
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
                Kind::Read { blocks, cell } => Work::Read {
                    blocks,
                    cell,
                    retries: 0,
                },
                Kind::Program(cell) => Work::Program(cell),
                Kind::Summary => Work::Summary,
                Kind::Copy => Work::Copy,
                Kind::Erase => Work::Erase,
                Kind::EraseSlc => Work::EraseSlc,
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
            Kind::Read { cell, .. } => {
                let takes = self.timing.cells.read(cell);
                time.at(time.now() + takes, Tag::Sensed(die.0));
            }
            Kind::Program(cell) => {
                let takes = self.timing.transfer_ns[self.shape.unit_blocks as usize];
                let crossed = self.cross(time.now(), die, takes);
                time.at(crossed + self.timing.cells.program(cell), Tag::Idle(die.0));
            }
            Kind::Summary => {
                let crossed = self.cross(time.now(), die, self.timing.summary_ns());
                time.at(crossed + self.timing.program_ns(), Tag::Idle(die.0));
            }
            Kind::Copy => {
                let takes = self.timing.read_ns() + self.timing.program_ns();
                time.at(time.now() + takes, Tag::Idle(die.0));
            }
            Kind::Erase => time.at(time.now() + self.timing.erase_ns, Tag::Idle(die.0)),
            Kind::EraseSlc => {
                time.at(time.now() + self.timing.erase_slc_ns, Tag::Idle(die.0));
            }
        }
    }

    /// Occupies the die's channel for `takes` ns. Returns when the transfer ends.
    fn cross(&mut self, now: u64, die: Die, takes: u64) -> u64 {
        let free = &mut self.channels[(die.0 % self.shape.channels) as usize];
        *free = now.max(*free) + takes;
        *free
    }

    /// Handles the end of a die's sensing.
    pub fn sensed(&mut self, time: &mut Timeline, die: Die) {
        if let Some(Task {
            kind: Kind::Read { blocks, .. },
            ..
        }) = self.dies[die.0 as usize].doing
        {
            let takes = self.timing.transfer_ns[blocks as usize];
            let crossed = self.cross(time.now(), die, takes);
            time.at(crossed, Tag::Idle(die.0));
        }
    }

    /// Handles the end of a die's operation.
    pub fn idle(&mut self, time: &mut Timeline, die: Die) {
        if let Some(task) = self.dies[die.0 as usize].doing.take()
            && let Some(job) = task.job
        {
            time.end(job);
        }
        self.begin_next(time, die);
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::BitErrors;
    use super::super::preset::Kind as Inside;
    use super::*;
    use crate::drives;

    #[test]
    fn each_retry_counts_as_a_read_of_the_page() {
        let Inside::Nand(nand) = drives::own("oftl").kind else {
            panic!("a drive of flash");
        };
        let hopeless = Options {
            errors: Some(BitErrors {
                fresh: 0.1,
                worn: 0.1,
                correctable: 1,
                retries: 3,
            }),
            ..Options::default()
        };
        let flash = Flash::new(&nand, Shape::of(&nand, 1 << 20), true);
        let mut flash = flash.with(&hopeless, 1000, 1).unwrap();
        let mut time = Timeline::default();
        time.set_instant(true);
        let at = (Die(0), EraseBlock(0), Cell::FIRST);
        flash.read(&mut time, at, 1, None);
        assert_eq!((flash.counts().reads, flash.counts().pages_read), (1, 4));
    }
}
