//! The event loop: a host, a link, a drive, and virtual time.

mod beside;
mod front;
mod host;
mod jobs;
mod open;
mod pace;
mod parts;
pub mod running;
mod sender;
mod tags;
mod timers;
pub mod written;

pub use host::Host;
use open::{Parent, Part, Waiting};
pub use pace::Pace;
use sender::Sender;
pub use tags::Tags;

use crate::admission::Admit;
use crate::base::{Drive, Io, Wanted};
use crate::flash::{Die, Flash, PART_BLOCKS, Preset};
use crate::journal::Disk;
use crate::latency::Latencies;
use crate::queues::Front;
use crate::raw::Raw;
use crate::series::Series;
use crate::timeline::{Tag, Timeline};
use crate::trace::Op;
use crate::vellum::{Backing, Submitted, Vellum};
use crate::watching::Watching;
use crate::workload::Request;
use crate::zoned::ZoneError;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::seam::{Refusal, Region, WriteOnce};
use vellum_watch::Wants;

/// The most requests an open-loop host may have open: with more, the drive does not keep up at all.
pub const OPEN_MAX: usize = 1 << 20;

/// What serves the requests.
pub enum Ftl {
    /// A drive with a page map.
    Page(Box<Drive>),
    /// A device of which only the speed is known.
    Raw(Box<Raw>),
    /// The engine.
    Vellum(Box<Vellum>),
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The engine refused a request.
    #[error("after {served} requests one was refused: {refusal}")]
    Refused {
        /// Requests answered before.
        served: u64,
        /// The reason.
        refusal: Refusal,
    },
    /// Requests are open and nothing more can happen.
    #[error("{open} requests are open and nothing happens any more")]
    Stalled {
        /// How many.
        open: usize,
    },
    /// A read did not return what was written.
    #[error("{blocks} blocks were read and were not what had been written")]
    Wrong {
        /// How many.
        blocks: u64,
    },
    /// The host's requests arrive faster than they are served.
    #[error(
        "{OPEN_MAX} requests are open: the drive is too slow for this trace at its own pace; use --depth"
    )]
    Overrun,
    /// A rule of the drive's zones was broken.
    #[error("the log broke a rule of the drive's zones: {0}")]
    Zone(#[from] ZoneError),
    /// A die needed a spare block and had none.
    #[error("the drive is worn out")]
    WornOut,
}

/// What the host saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes and discards.
    pub writes: Latencies,
    /// Latencies of flushes.
    pub flushes: Latencies,
    /// Blocks written.
    pub blocks_written: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Requests answered.
    pub served: u64,
    /// Writes with FUA.
    pub durable_writes: u64,
    /// The course of the run.
    pub series: Series,
}

/// The simulation; see the module.
pub struct Sim {
    /// Virtual time.
    pub time: Timeline,
    /// The flash, if there is any.
    pub flash: Flash,
    /// What serves.
    pub ftl: Ftl,
    /// What the host saw.
    pub seen: Seen,
    /// The tenants, if there are any.
    pub tenants: Vec<Host>,
    /// Says what each write may use; none: everything.
    pub admission: Option<Box<dyn Admit>>,
    /// Names the placement handle of each write; none: the host names none.
    pub tags: Option<Box<Tags>>,
    preset: Preset,
    part_blocks: u32,
    link_free: u64,
    /// The time that a number of blocks takes on the link.
    link_ns: Vec<u64>,
    parents: Vec<Parent>,
    free_parents: Vec<u32>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    refused: Option<Refusal>,
    /// The drive's submission queues, if it has any.
    front: Option<Box<Front<Waiting>>>,
    /// When the host stops, whatever it still has to send.
    ends: u64,
}

/// The parts of the simulation that a drive works with.
macro_rules! io {
    ($self:ident) => {
        &mut Io {
            flash: &mut $self.flash,
            time: &mut $self.time,
        }
    };
}

use io;

impl Sim {
    /// An idle simulation.
    #[must_use]
    pub fn new(preset: Preset, flash: Flash, ftl: Ftl) -> Self {
        let part_blocks = match ftl {
            Ftl::Page(_) => (preset.request_bytes / BLOCK_BYTES as u64) as u32,
            Ftl::Raw(_) | Ftl::Vellum(_) => PART_BLOCKS,
        };
        Self {
            time: Timeline::default(),
            flash,
            ftl,
            seen: Seen::default(),
            tenants: Vec::new(),
            admission: None,
            tags: None,
            part_blocks,
            link_ns: (0..=u64::from(part_blocks))
                .map(|blocks| blocks * BLOCK_BYTES as u64 * 1_000_000_000 / preset.link_bytes_per_s)
                .collect(),
            preset,
            link_free: 0,
            parents: Vec::new(),
            free_parents: Vec::new(),
            parts: vec![Part::NONE, Part::NONE],
            free_parts: Vec::new(),
            refused: None,
            front: None,
            ends: u64::MAX,
        }
    }

    /// Serves all requests; at the end nothing is open.
    ///
    /// # Errors
    /// When a request is refused, or not answered.
    pub fn run(
        &mut self,
        requests: &mut dyn Iterator<Item = Request>,
        pace: Pace,
    ) -> Result<(), RunError> {
        let mut requests = requests.fuse();
        let mut sender = Sender::new(&mut requests, pace, self.time.now());
        self.prepare(&mut sender);
        while match pace {
            Pace::Closed { depth } => self.keep_open(&mut sender, depth as usize)?,
            _ => self.advance(&mut sender)?,
        } {}
        self.all_right()
    }

    /// Sends what may be open at once, then lets time pass to the next answer. False when nothing is left to do.
    fn keep_open(&mut self, sender: &mut Sender<'_>, depth: usize) -> Result<bool, RunError> {
        let served = self.seen.served;
        while self.open() < depth
            && !self.flash.is_worn_out()
            && sender.may_send(self.open())
            && let Some(request) = sender.send(self.time.now())
        {
            self.issue(request);
            self.prepare(sender);
        }
        // The host waits for an answer: until one arrives, only events happen.
        while self.seen.served == served && self.step() {}
        self.refusal()?;
        match (self.open(), sender.has_sent_all()) {
            _ if self.seen.served > served => Ok(true),
            (0, true) => Ok(false),
            _ => Err(self.stalled()),
        }
    }

    /// Lets the next thing happen: an event, the sending of a request, or a timer. False when nothing is left to do.
    fn advance(&mut self, sender: &mut Sender<'_>) -> Result<bool, RunError> {
        if self.time.is_due()
            && let Some(tag) = self.time.pop()
        {
            self.happen(tag);
            self.refusal()?;
            return Ok(true);
        }
        let event = self.time.next();
        let timer = self.timeout();
        let arrival = sender.due(self.open(), self.time.now());
        let first = [event, timer, arrival].into_iter().flatten().min();
        if event.is_some() && event == first {
            if let Some(tag) = self.time.pop() {
                self.happen(tag);
            }
        } else if let Some(arrival) = arrival.filter(|&arrival| Some(arrival) == first) {
            self.time.pass(arrival);
            if let Some(request) = sender.send(self.time.now()) {
                self.issue(request);
            }
            self.prepare(sender);
        } else if self.open() == 0 && sender.has_sent_all() {
            return Ok(false);
        } else if let Some(due) = timer {
            self.tick(due);
        } else {
            return Err(self.stalled());
        }
        self.refusal()?;
        match self.open() > OPEN_MAX {
            true => Err(RunError::Overrun),
            false => Ok(true),
        }
    }

    /// Fails unless every read returned what was written.
    fn all_right(&self) -> Result<(), RunError> {
        match &self.ftl {
            Ftl::Vellum(vellum) if vellum.wrong_reads() > 0 => Err(RunError::Wrong {
                blocks: vellum.wrong_reads(),
            }),
            Ftl::Vellum(vellum) => match vellum.backing() {
                Backing::Zones(log) => log.broken().map_or(Ok(()), |error| Err(error.into())),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Starts counting what the host and the tenants see. Nothing may be open.
    pub fn begin_seen(&mut self) {
        self.seen = Seen::default();
        self.tenants.fill(Host::default());
    }

    /// Ends preconditioning: from here on erasures wear blocks out, and a drive levels these alone.
    pub fn begin_life(&mut self) {
        self.flash.begin_life();
        if let Some(drive) = self.ftl.drive_mut() {
            drive.begin_life();
        }
    }

    /// Limits how long the host sends requests from now on; none: no limit.
    pub fn lasts(&mut self, nanos: Option<u64>) {
        self.ends = nanos.map_or(u64::MAX, |nanos| self.time.now().saturating_add(nanos));
    }

    /// Lets the next event happen while a request is open. False if there is none.
    fn step(&mut self) -> bool {
        if !self.time.is_due()
            && let Ftl::Vellum(vellum) = &mut self.ftl
            && let Some(due) = vellum.timeout()
            && self.time.next().is_none_or(|next| next > due)
        {
            if self.open() == 0 {
                return false;
            }
            self.tick(due);
            return true;
        }
        let Some(tag) = self.time.pop() else {
            return false;
        };
        self.happen(tag);
        true
    }

    fn refusal(&self) -> Result<(), RunError> {
        match self.refused {
            Some(refusal) => Err(RunError::Refused {
                served: self.seen.served,
                refusal,
            }),
            None if self.flash.is_worn_out() => Err(RunError::WornOut),
            None => Ok(()),
        }
    }

    /// Decides which request the host sends next, unless its time is over. Cache misses of several requests overlap.
    fn prepare(&self, sender: &mut Sender<'_>) {
        if self.time.now() >= self.ends {
            return sender.end();
        }
        let Some(ahead) = sender.look_ahead() else {
            return;
        };
        let lbas = ahead.iter().map(|request| request.lba);
        match &self.ftl {
            Ftl::Page(drive) => drive.look_ahead(lbas),
            Ftl::Vellum(vellum) => {
                vellum.look_ahead(lbas);
                let contents = ahead.iter().flat_map(|request| &request.contents);
                vellum.look_ahead_contents(contents.copied());
            }
            Ftl::Raw(_) => {}
        }
    }

    /// Passes the places of journals to what serves the requests.
    pub fn watch(&mut self, regions: &[Region]) {
        match &mut self.ftl {
            Ftl::Vellum(vellum) => vellum.watch(io!(self), regions),
            Ftl::Raw(raw) => regions
                .iter()
                .for_each(|region| raw.watch(region.start.0, region.blocks)),
            Ftl::Page(drive) => regions
                .iter()
                .for_each(|region| drive.watch(region.start.0, region.blocks)),
        }
    }

    /// Notes that a file system has been made and mounted. What serves it finds its journal and follows `rule` for it.
    pub fn follow(&mut self, disk: &Disk, rule: WriteOnce) {
        match &mut self.ftl {
            Ftl::Vellum(vellum) => vellum.follow(io!(self), disk, rule),
            Ftl::Raw(raw) => raw.follow(disk),
            Ftl::Page(drive) => {
                for (start, blocks) in Watching::new(disk, Wants::default()).journals() {
                    drive.watch(start, blocks);
                }
            }
        }
    }

    fn serve(&mut self, submitted: Submitted) {
        let tag = Tag::Client(submitted.id);
        match &mut self.ftl {
            Ftl::Vellum(vellum) => {
                vellum.ask(io!(self), submitted);
                self.collect();
            }
            Ftl::Page(drive) => {
                let wanted = match submitted.op {
                    Op::Read => Wanted::Read,
                    Op::Write { fua } => Wanted::Write {
                        fua,
                        through: !submitted.admitted.buffer,
                        stream: submitted.stream,
                    },
                    Op::Discard { .. } => Wanted::Discard,
                    Op::Flush => Wanted::Flush,
                };
                drive.ask(
                    io!(self),
                    tag,
                    wanted,
                    submitted.lba,
                    u64::from(submitted.blocks),
                );
            }
            Ftl::Raw(raw) => match submitted.op {
                Op::Read => raw.device().read(&mut self.time, tag, submitted.blocks),
                Op::Write { fua } => {
                    raw.read_along(submitted.lba, &submitted.contents, &submitted.bytes);
                    raw.write(&mut self.time, tag, submitted.lba, &submitted.contents, fua);
                }
                Op::Discard { .. } => self.time.done(tag),
                Op::Flush => raw.device().flush(&mut self.time, tag),
            },
        }
    }

    fn happen(&mut self, tag: Tag) {
        match tag {
            Tag::Arrival(part) => {
                if let Some(submitted) = self.parts[part as usize].submitted.take() {
                    self.serve(submitted);
                }
            }
            Tag::Client(part) => self.answered(part),
            Tag::Answer(part) => self.at_host(part),
            Tag::Sensed(die) => self.flash.sensed(&mut self.time, Die(die)),
            Tag::Idle(die) => {
                self.flash.idle(&mut self.time, Die(die));
                if let Some(unit) = self.time.pop_unit() {
                    self.happen(Tag::Unit(unit));
                }
            }
            Tag::Array { die, turn } => self.flash.array(&mut self.time, Die(die), turn),
            Tag::Crossed(die) => self.flash.crossed(&mut self.time, Die(die)),
            Tag::Looked(place) => {
                if let Ftl::Page(drive) = &mut self.ftl {
                    drive.looked(io!(self), place);
                }
            }
            Tag::Folded => {
                if let Ftl::Page(drive) = &mut self.ftl {
                    drive.folded();
                }
            }
            Tag::Refreshed(die) => {
                if let Some(drive) = self.ftl.drive_mut() {
                    drive.renewed(die);
                }
            }
            Tag::Unit(unit) => match &mut self.ftl {
                Ftl::Page(drive) => drive.programmed(io!(self), unit),
                Ftl::Vellum(vellum) => {
                    vellum.programmed(io!(self), unit);
                    self.collect();
                }
                Ftl::Raw(_) => {}
            },
            Tag::Hashed => {
                if let Ftl::Vellum(vellum) = &mut self.ftl {
                    vellum.hashed(io!(self));
                    self.collect();
                }
            }
            Tag::Service => {
                if let Ftl::Vellum(vellum) = &mut self.ftl {
                    vellum.service_read(io!(self));
                    self.collect();
                }
            }
            Tag::Effect(id) => {
                if let Ftl::Vellum(vellum) = &mut self.ftl {
                    vellum.done(io!(self), id);
                    self.collect();
                }
            }
        }
    }

    /// Collects the engine's answers.
    fn collect(&mut self) {
        loop {
            let Ftl::Vellum(vellum) = &mut self.ftl else {
                return;
            };
            let Some((part, result)) = vellum.answer() else {
                return;
            };
            if let Err(refusal) = result {
                self.refused.get_or_insert(refusal);
                if part as usize >= self.parts.len() {
                    // Already answered.
                    continue;
                }
            }
            self.answered(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blockdev::BlockDevice;
    use crate::flash::{Block, Kind, Nand, Shape, Speed};
    use crate::raw::Saving;

    #[test]
    fn a_missing_answer_ends_the_run_with_an_error() {
        let speed = Speed::Flat {
            latency_ns: 100_000,
            bytes_per_s: 500_000_000,
        };
        let figures = Block {
            read: speed,
            write: speed,
            flush_ns: 0,
        };
        let preset = Preset {
            command_ns: 0,
            link_bytes_per_s: u64::MAX,
            link_in_order: false,
            request_bytes: 1 << 20,
            queues: None,
            kind: Kind::Block(figures),
        };
        // The flash that a drive without one gets: nothing uses it.
        let nand = Nand {
            bus_bytes_per_s: 1,
            ..Nand::default()
        };
        let shape = Shape {
            channels: 1,
            dies: 1,
            erase_blocks: 1,
            units: 1,
            unit_blocks: 1,
        };
        for pace in [
            Pace::Open,
            Pace::Closed { depth: 1 },
            Pace::Elastic {
                depth: 1,
                think: None,
            },
            Pace::Working { depth: 1 },
        ] {
            let device = BlockDevice::new(figures);
            let ftl = Ftl::Raw(Box::new(Raw::new(device, Saving::Nothing)));
            let mut sim = Sim::new(preset, Flash::new(&nand, shape, false), ftl);
            sim.issue(Request::flush(0));
            while sim.time.pop().is_some() {}
            let ended = sim.run(&mut std::iter::empty(), pace);
            assert_eq!(ended, Err(RunError::Stalled { open: 1 }), "{pace:?}");
        }
    }
}
