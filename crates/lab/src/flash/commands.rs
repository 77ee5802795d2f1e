//! A die that does more than run one command after the other: programs and erasures that stop for reads, cache commands, reads
//! that are retried. With all of that off it behaves like a plain queue, to the nanosecond.
//!
//! A die has two registers: one at the cells and, with cache commands, a second one at the channel. Then the next program's data
//! cross while the cells are busy with the one before, and sensed data cross while the cells sense the next unit.
//!
//! A read that a host request waits for stops a program or an erasure. It is served together with the reads that arrive in the
//! meantime, then the stopped operation resumes. Reads that no request waits for (the collector's) keep their place among
//! programs and erasures. Stopping and resuming each take time. After a maximum number of stops an operation runs to its end, so
//! that it always completes.

use super::cells::{Cell, CellTimes};
use super::options::Options;
use super::shape::{Die, Shape};
use crate::timeline::{Job, Tag, Timeline};
use serde::Serialize;
use std::collections::VecDeque;

/// What dies were busy with, in virtual time, and how often operations were stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Busy {
    /// Programs that ended.
    pub programs: u64,
    /// Time from the beginning of each to its end, including the time it was stopped.
    pub programs_ns: u64,
    /// Erasures that ended.
    pub erases: u64,
    /// Time from the beginning of each to its end, including the time it was stopped.
    pub erases_ns: u64,
    /// Programs and erasures stopped for a read.
    pub suspensions: u64,
    /// Time spent on stopping and resuming.
    pub suspensions_ns: u64,
    /// Programs whose data had begun to cross before the cells were free.
    pub loaded_early: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Work {
    Read {
        blocks: u32,
        cell: Cell,
        retries: u32,
    },
    Program(Cell),
    /// A block's summary.
    Summary,
    Copy,
    Erase,
    /// A block with one bit a cell.
    EraseSlc,
}

impl Work {
    fn is_program(self) -> bool {
        matches!(self, Self::Program(_) | Self::Summary)
    }
}

#[derive(Clone, Copy)]
struct Task {
    work: Work,
    job: Option<Job>,
}

/// What the cells and their register are doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The data cross to the register.
    Loading,
    /// Sensing, programming, erasing.
    Cells,
    /// Sensed; the data wait for the register at the channel.
    Held,
    /// Sensed; the data cross from the register at the cells.
    Leaving,
    /// Stopping.
    Stopping,
}

#[derive(Clone, Copy)]
struct Doing {
    task: Task,
    phase: Phase,
    began: u64,
    /// When the cells began, and when they end; the time left once stopped.
    cells_from: u64,
    ends: u64,
    left: u64,
    stops: u32,
}

#[derive(Default)]
struct State {
    doing: Option<Doing>,
    /// The number of the event that is valid; earlier ones are ignored.
    turn: u32,
    stopped: Option<Doing>,
    /// A program whose data are in the register at the channel, or are crossing to it.
    loaded: Option<(Task, u64)>,
    /// A read whose data cross from the register at the channel.
    leaving: Option<Task>,
    first: VecDeque<Task>,
    then: VecDeque<Task>,
}

/// How long operations take.
pub(super) struct Timing {
    pub cells: CellTimes,
    pub erase_ns: u64,
    pub erase_slc_ns: u64,
    /// Transfer time by the number of blocks.
    pub transfer_ns: Vec<u64>,
    pub read_priority: bool,
}

/// The extended dies; see the module.
pub(super) struct Commands {
    options: Options,
    dies: Vec<State>,
    busy: Busy,
}

/// What the dies share: the times, and the channels.
pub(super) struct Bus<'a> {
    pub timing: &'a Timing,
    pub shape: &'a Shape,
    /// The time at which each channel becomes free.
    pub channels: &'a mut [u64],
}

impl Bus<'_> {
    fn cross(&mut self, now: u64, die: Die, blocks: u32) -> u64 {
        self.take(now, die, self.timing.transfer_ns[blocks as usize])
    }

    /// Transfers a program's data. Returns when they have crossed.
    fn load(&mut self, now: u64, die: Die, work: Work) -> u64 {
        let takes = match work {
            Work::Summary => self.timing.summary_ns(),
            _ => self.timing.transfer_ns[self.shape.unit_blocks as usize],
        };
        self.take(now, die, takes)
    }

    fn take(&mut self, now: u64, die: Die, takes: u64) -> u64 {
        let free = &mut self.channels[(die.0 % self.shape.channels) as usize];
        *free = now.max(*free) + takes;
        *free
    }
}

impl Timing {
    /// Returns the sensing time of a page of the first type.
    pub fn read_ns(&self) -> u64 {
        self.cells.read(Cell::FIRST)
    }

    /// Returns the sensing time with all retries. The data of a try cross before the next try, but that is counted only as time
    /// of the die.
    fn reads(&self, work: Work) -> u64 {
        let Work::Read {
            blocks,
            cell,
            retries,
        } = work
        else {
            return 0;
        };
        let read_ns = self.cells.read(cell);
        read_ns + u64::from(retries) * (read_ns + self.transfer_ns[blocks as usize])
    }

    /// Returns the time the cells need to be programmed.
    fn programs(&self, work: Work) -> u64 {
        match work {
            Work::Program(cell) => self.cells.program(cell),
            _ => self.program_ns(),
        }
    }

    /// Returns the programming time of a page of the first type.
    pub fn program_ns(&self) -> u64 {
        self.cells.program(Cell::FIRST)
    }

    /// Returns the transfer time of a block's summary: one of the eight sectors of 4 KiB.
    pub fn summary_ns(&self) -> u64 {
        self.transfer_ns[1] / 8
    }
}

impl Commands {
    pub fn new(options: Options, dies: u32) -> Self {
        Self {
            options,
            dies: (0..dies).map(|_| State::default()).collect(),
            busy: Busy::default(),
        }
    }

    pub fn busy(&self) -> Busy {
        self.busy
    }

    pub fn reset(&mut self) {
        self.busy = Busy::default();
    }

    /// Queues a request on a die.
    pub fn ask(
        &mut self,
        bus: &mut Bus<'_>,
        time: &mut Timeline,
        die: Die,
        work: Work,
        job: Option<Job>,
    ) {
        let state = &mut self.dies[die.0 as usize];
        let task = Task { work, job };
        let overtakes = bus.timing.read_priority
            && match self.options.suspend {
                Some(_) => job.is_some(),
                None => true,
            };
        match work {
            Work::Read { .. } if overtakes => state.first.push_back(task),
            _ => state.then.push_back(task),
        }
        if state.doing.is_none() {
            self.begin_next(bus, time, die);
            return;
        }
        self.stop(time, die);
        self.load_early(bus, time, die);
    }

    /// Stops the cells' operation if a read waits and stopping is worthwhile.
    fn stop(&mut self, time: &mut Timeline, die: Die) {
        let state = &mut self.dies[die.0 as usize];
        let (Some(how), Some(doing)) = (self.options.suspend, &mut state.doing) else {
            return;
        };
        let may = match doing.task.work {
            Work::Program(_) | Work::Summary => how.program,
            Work::Erase | Work::EraseSlc => how.erase,
            Work::Read { .. } | Work::Copy => false,
        };
        if !may
            || doing.phase != Phase::Cells
            || doing.stops >= how.most
            || state.stopped.is_some()
            || state.first.is_empty()
        {
            return;
        }
        let from = time.now().max(doing.cells_from);
        let left = doing.ends.saturating_sub(from);
        if left <= how.each_ns {
            return;
        }
        (doing.left, doing.phase) = (left, Phase::Stopping);
        doing.stops += 1;
        self.busy.suspensions += 1;
        self.busy.suspensions_ns += 2 * how.each_ns;
        set(state, time, die, from + how.each_ns);
    }

    /// Lets the next program's data cross while the cells are busy.
    fn load_early(&mut self, bus: &mut Bus<'_>, time: &mut Timeline, die: Die) {
        let state = &mut self.dies[die.0 as usize];
        if !self.options.cache_commands || state.loaded.is_some() || state.leaving.is_some() {
            return;
        }
        let programs = |doing: &Doing| doing.task.work.is_program() && doing.phase == Phase::Cells;
        if !state.doing.as_ref().is_some_and(programs) || !state.first.is_empty() {
            return;
        }
        if let Some(task) = state.then.pop_front_if(|task| task.work.is_program()) {
            let crossed = bus.load(time.now(), die, task.work);
            state.loaded = Some((task, crossed));
            self.busy.loaded_early += 1;
        }
    }

    fn begin_next(&mut self, bus: &mut Bus<'_>, time: &mut Timeline, die: Die) {
        let options = self.options;
        let state = &mut self.dies[die.0 as usize];
        let now = time.now();
        if state.first.is_empty()
            && let Some(mut doing) = state.stopped.take()
        {
            let each = options.suspend.map_or(0, |how| how.each_ns);
            doing.cells_from = now + each;
            doing.ends = doing.cells_from + doing.left;
            doing.phase = Phase::Cells;
            state.doing = Some(doing);
            set(state, time, die, doing.ends);
            return;
        }
        let (task, ready) = match (state.first.pop_front(), state.loaded) {
            (Some(read), _) => (read, None),
            (None, Some((program, ready))) => {
                state.loaded = None;
                (program, Some(ready))
            }
            (None, None) => {
                let held = state.leaving.is_some();
                // A program's data need the register that a read's data still occupy.
                let may = |task: &mut Task| !held || !task.work.is_program();
                match state.then.pop_front_if(may) {
                    Some(task) => (task, None),
                    None => return,
                }
            }
        };
        let mut doing = Doing {
            task,
            phase: Phase::Cells,
            began: now,
            cells_from: now,
            ends: now,
            left: 0,
            stops: 0,
        };
        match task.work {
            Work::Read { .. } => doing.ends += bus.timing.reads(task.work),
            Work::Copy => doing.ends += bus.timing.read_ns() + bus.timing.program_ns(),
            Work::Erase => doing.ends += bus.timing.erase_ns,
            Work::EraseSlc => doing.ends += bus.timing.erase_slc_ns,
            Work::Program(_) | Work::Summary => {
                doing.cells_from = match ready {
                    Some(ready) => ready.max(now),
                    None => bus.load(now, die, task.work),
                };
                doing.ends = doing.cells_from + bus.timing.programs(task.work);
                if options.cache_commands && doing.cells_from > now {
                    doing.phase = Phase::Loading;
                }
            }
        }
        let until = match doing.phase {
            Phase::Loading => doing.cells_from,
            _ => doing.ends,
        };
        state.doing = Some(doing);
        set(state, time, die, until);
        self.load_early(bus, time, die);
    }

    /// Handles the event set for a die.
    pub fn happen(&mut self, bus: &mut Bus<'_>, time: &mut Timeline, die: Die, turn: u32) {
        let state = &mut self.dies[die.0 as usize];
        if turn != state.turn {
            return;
        }
        let Some(doing) = &mut state.doing else {
            return;
        };
        match (doing.phase, doing.task.work) {
            (Phase::Loading, _) => {
                doing.phase = Phase::Cells;
                let ends = doing.ends;
                set(state, time, die, ends);
                self.stop(time, die);
                self.load_early(bus, time, die);
                return;
            }
            (Phase::Stopping, _) => state.stopped = state.doing.take(),
            (Phase::Cells, Work::Read { blocks, .. }) => {
                let two = self.options.cache_commands && state.loaded.is_none();
                if !two {
                    doing.phase = Phase::Leaving;
                    let crossed = bus.cross(time.now(), die, blocks);
                    set(state, time, die, crossed);
                    return;
                }
                if state.leaving.is_some() {
                    doing.phase = Phase::Held;
                    return;
                }
                let task = doing.task;
                state.doing = None;
                Self::leave(state, bus, time, die, task);
            }
            _ => {
                let ended = *doing;
                state.doing = None;
                self.end(time, &ended);
            }
        }
        self.begin_next(bus, time, die);
    }

    /// Handles the end of a transfer of a read's data from the register at the channel.
    pub fn crossed(&mut self, bus: &mut Bus<'_>, time: &mut Timeline, die: Die) {
        let state = &mut self.dies[die.0 as usize];
        if let Some(job) = state.leaving.take().and_then(|task| task.job) {
            time.end(job);
        }
        if let Some(held) = state.doing.take_if(|doing| doing.phase == Phase::Held) {
            Self::leave(state, bus, time, die, held.task);
        }
        match state.doing {
            None => self.begin_next(bus, time, die),
            Some(_) => self.load_early(bus, time, die),
        }
    }

    fn leave(state: &mut State, bus: &mut Bus<'_>, time: &mut Timeline, die: Die, task: Task) {
        let Work::Read { blocks, .. } = task.work else {
            return;
        };
        state.leaving = Some(task);
        let crossed = bus.cross(time.now(), die, blocks);
        time.at(crossed, Tag::Crossed(die.0));
    }

    fn end(&mut self, time: &mut Timeline, ended: &Doing) {
        let took = time.now() - ended.began;
        match ended.task.work {
            Work::Program(_) | Work::Summary | Work::Copy => {
                self.busy.programs += 1;
                self.busy.programs_ns += took;
            }
            Work::Erase | Work::EraseSlc => {
                self.busy.erases += 1;
                self.busy.erases_ns += took;
            }
            Work::Read { .. } => {}
        }
        if let Some(job) = ended.task.job {
            time.end(job);
        }
    }
}

/// Sets the die's next event. Events set before become invalid.
fn set(state: &mut State, time: &mut Timeline, die: Die, at: u64) {
    state.turn = state.turn.wrapping_add(1);
    let turn = state.turn;
    time.at(at, Tag::Array { die: die.0, turn });
}

#[cfg(test)]
mod tests {
    use super::super::{BitErrors, EraseBlock, Flash, Nand, Suspend};
    use super::*;

    const AT: (Die, EraseBlock, Cell) = (Die(0), EraseBlock(0), Cell::FIRST);
    const EACH: u64 = 20_000;

    fn nand() -> Nand {
        Nand {
            channels: 2,
            dies_per_channel: 4,
            planes: 1,
            pages_per_block: 128,
            page_bytes: 4096,
            read_ns: 50_000,
            program_ns: 600_000,
            erase_ns: 3_000_000,
            bus_bytes_per_s: 166_000_000,
            ..Nand::default()
        }
    }

    fn flash(options: Options) -> Flash {
        let shape = Shape::of(&nand(), 64 << 20);
        let flash = Flash::new(&nand(), shape, true);
        flash.with(&options, 100, 1).unwrap()
    }

    const TRANSFER: u64 = 4096 * 1_000_000_000 / 166_000_000;

    fn suspend(most: u32) -> Options {
        Options {
            suspend: Some(Suspend {
                program: true,
                erase: true,
                each_ns: EACH,
                most,
            }),
            ..Options::default()
        }
    }

    /// Runs all events up to a moment. Appends each job that ended, with the time.
    fn until(flash: &mut Flash, time: &mut Timeline, end: u64, ended: &mut Vec<(u32, u64)>) {
        while time.next().is_some_and(|next| next <= end) {
            match time.pop().unwrap() {
                Tag::Array { die, turn } => flash.array(time, Die(die), turn),
                Tag::Crossed(die) => flash.crossed(time, Die(die)),
                Tag::Sensed(die) => flash.sensed(time, Die(die)),
                Tag::Idle(die) => flash.idle(time, Die(die)),
                Tag::Client(job) => ended.push((job, time.now())),
                other => unreachable!("{other:?}"),
            }
        }
    }

    /// Runs an erasure at 0, and reads at the given moments. Returns when each ended, the erasure first.
    fn erase_and_read(options: Options, reads: &[u64]) -> (Vec<u64>, Busy) {
        let (mut flash, mut time) = (flash(options), Timeline::default());
        let mut ended = Vec::new();
        let job = time.begin(Tag::Client(0));
        flash.erase(&mut time, AT.0, AT.1, Some(job));
        time.end(job);
        for (number, &at) in reads.iter().enumerate() {
            until(&mut flash, &mut time, at, &mut ended);
            time.pass(at);
            let job = time.begin(Tag::Client(number as u32 + 1));
            flash.read(&mut time, AT, 1, Some(job));
            time.end(job);
        }
        until(&mut flash, &mut time, u64::MAX, &mut ended);
        ended.sort_unstable();
        let ended = ended.into_iter().map(|(_, at)| at).collect();
        (ended, flash.busy().unwrap_or_default())
    }

    #[test]
    fn an_erasure_stops_for_a_read_and_takes_that_much_longer() {
        let (erase, read) = (3_000_000, 50_000 + TRANSFER);
        let (waits, _) = erase_and_read(Options::default(), &[1_000_000]);
        assert_eq!(waits, [erase, erase + read]);
        let (stops, busy) = erase_and_read(suspend(16), &[1_000_000]);
        assert_eq!(stops, [erase + read + 2 * EACH, 1_000_000 + EACH + read]);
        assert_eq!((busy.suspensions, busy.suspensions_ns), (1, 2 * EACH));
        assert_eq!((busy.erases, busy.erases_ns), (1, erase + read + 2 * EACH));
        // A second read while the erasure is stopped costs no second stop.
        let (stops, busy) = erase_and_read(suspend(16), &[1_000_000, 1_030_000]);
        assert_eq!(stops[0], erase + 2 * read + 2 * EACH);
        assert_eq!(busy.suspensions, 1);
    }

    #[test]
    fn an_erasure_ends_however_many_reads_come() {
        let reads: Vec<u64> = (0..60).map(|n| 100_000 + n * 150_000).collect();
        let (ends, busy) = erase_and_read(suspend(5), &reads);
        assert_eq!(busy.suspensions, 5);
        let read = 50_000 + TRANSFER;
        assert_eq!(ends[0], 3_000_000 + 5 * (read + 2 * EACH));
        // An erasure that is nearly done is not stopped: stopping would take as long.
        let (ends, busy) = erase_and_read(suspend(5), &[3_000_000 - EACH]);
        assert_eq!((ends[0], busy.suspensions), (3_000_000, 0));
    }

    /// Requests `count` programs, or reads, at once. Returns when the last one ended.
    fn at_once(options: Options, count: u32, programs: bool) -> u64 {
        let (mut flash, mut time) = (flash(options), Timeline::default());
        let mut ended = Vec::new();
        for number in 0..count {
            let job = time.begin(Tag::Client(number));
            match programs {
                true => flash.program(&mut time, (AT.0, Cell::FIRST), Some(job)),
                false => flash.read(&mut time, AT, 1, Some(job)),
            }
            time.end(job);
        }
        until(&mut flash, &mut time, u64::MAX, &mut ended);
        assert_eq!(ended.len(), count as usize);
        time.now()
    }

    #[test]
    fn cache_commands_hide_transfers_behind_the_cells() {
        let cache = Options {
            cache_commands: true,
            ..Options::default()
        };
        let (program, sense) = (600_000, 50_000);
        assert_eq!(
            at_once(Options::default(), 10, true),
            10 * (TRANSFER + program)
        );
        assert_eq!(at_once(cache, 10, true), TRANSFER + 10 * program);
        assert_eq!(
            at_once(Options::default(), 10, false),
            10 * (sense + TRANSFER)
        );
        assert_eq!(at_once(cache, 10, false), 10 * sense + TRANSFER);
    }

    #[test]
    fn each_retry_makes_a_read_longer() {
        let hopeless = BitErrors {
            fresh: 0.1,
            worn: 0.1,
            correctable: 1,
            retries: 3,
        };
        let options = Options {
            errors: Some(hopeless),
            ..Options::default()
        };
        let once = 50_000 + TRANSFER;
        assert_eq!(at_once(options, 1, false), 4 * once);
    }
}
