//! The event loop: a host, a link, a drive, and virtual time.

mod parts;
pub mod written;

use parts::{Parent, Part};

use crate::admission::Admit;
use crate::base::{Drive, Io, Wanted};
use crate::flash::{Die, Flash, Preset};
use crate::latency::Latencies;
use crate::raw::Raw;
use crate::series::Series;
use crate::timeline::{Tag, Timeline};
use crate::trace::Op;
use crate::vellum::{Asked, Vellum};
use crate::workload::Request;
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::seam::{Refusal, Region};

/// Requests are cut into parts of so many blocks, as a drive's interface does, unless a drive with a page map says otherwise.
pub const PART_BLOCKS: u32 = 256;
/// Requests of an open-loop host that are open at once, at most: more is a drive that does not keep up at all.
pub const OPEN_MAX: usize = 1 << 20;

/// Requests are taken from the host so many at a time, so that what they need of a map is there when they are served.
const AHEAD: usize = 16;

/// What serves the requests.
pub enum Ftl {
    /// A drive with a page map.
    Page(Box<Drive>),
    /// A device of which only the speed is known.
    Raw(Box<Raw>),
    /// The engine.
    Vellum(Box<Vellum>),
}

/// When the host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At the requests' own times.
    Open,
    /// So many at a time, each as soon as one is answered.
    Closed {
        /// How many.
        depth: u32,
    },
    /// Some time after the one before, but so many at a time: an application that thinks, and waits for a slow drive. Nothing is
    /// asked before a flush is answered.
    Elastic {
        /// How many.
        depth: u32,
        /// How long after the one before, in nanoseconds; none: as their own times say.
        think: Option<u64>,
    },
}

/// Why a run ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The engine refused.
    #[error("after {served} requests one was refused: {refusal}")]
    Refused {
        /// Answered before.
        served: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Requests are open and nothing happens any more.
    #[error("{open} requests are open and nothing happens any more")]
    Stalled {
        /// How many.
        open: usize,
    },
    /// A read that did not give what was written.
    #[error("{blocks} blocks were read and were not what had been written")]
    Wrong {
        /// How many.
        blocks: u64,
    },
    /// The host's requests come faster than they are served.
    #[error(
        "{OPEN_MAX} requests are open: the drive is too slow for this trace at its own pace; use --depth"
    )]
    Overrun,
    /// A die needed a spare block and had none.
    #[error("the drive is worn out")]
    WornOut,
}

/// What the host saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Reads' latencies.
    pub reads: Latencies,
    /// Writes' and discards'.
    pub writes: Latencies,
    /// Flushes'.
    pub flushes: Latencies,
    /// Blocks written.
    pub blocks_written: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Requests answered.
    pub served: u64,
    /// Writes with FUA.
    pub durable_writes: u64,
    /// How it went.
    pub series: Series,
}

/// See the module.
pub struct Sim {
    /// Virtual time.
    pub time: Timeline,
    /// The flash, if there is any.
    pub flash: Flash,
    /// What serves.
    pub ftl: Ftl,
    /// What the host saw.
    pub seen: Seen,
    /// Who says what each write may use; none: it may use all.
    pub admission: Option<Box<dyn Admit>>,
    preset: Preset,
    part_blocks: u32,
    link_free: u64,
    /// What so many blocks take on the link.
    link_ns: Vec<u64>,
    parents: Vec<Parent>,
    free_parents: Vec<u32>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    refused: Option<Refusal>,
}

/// What a drive works with, of the simulation's.
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
    /// An idle one.
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
            admission: None,
            part_blocks,
            link_ns: (0..=u64::from(part_blocks))
                .map(|blocks| blocks * BLOCK_BYTES as u64 * 1_000_000_000 / preset.link_bytes_per_s)
                .collect(),
            preset,
            link_free: 0,
            parents: Vec::new(),
            free_parents: Vec::new(),
            parts: vec![Part::NONE],
            free_parts: Vec::new(),
            refused: None,
        }
    }

    /// Serves all requests; at the end nothing is open.
    ///
    /// # Errors
    /// When one is refused, or not answered.
    pub fn run(
        &mut self,
        requests: &mut dyn Iterator<Item = Request>,
        pace: Pace,
    ) -> Result<(), RunError> {
        let start = self.time.now();
        let requests: &mut dyn Iterator<Item = Request> = &mut requests.fuse();
        let mut ahead = VecDeque::with_capacity(AHEAD);
        let mut next = self.next(&mut ahead, requests);
        let mut waits = false;
        let mut last = (start, 0);
        loop {
            if let Pace::Closed { depth } = pace {
                let served = self.seen.served;
                while self.open() < depth as usize
                    && !self.flash.is_worn_out()
                    && let Some(request) = next.take_if(|next| {
                        // A host that flushes waits for what it wrote before, and for the flush.
                        let barrier = matches!(next.op, Op::Flush | Op::Write { fua: true });
                        (!barrier && !waits) || self.open() == 0
                    })
                {
                    waits = matches!(request.op, Op::Flush | Op::Write { fua: true });
                    self.issue(request);
                    next = self.next(&mut ahead, requests);
                }
                // The host waits for an answer: until there is one nothing but events happens.
                while self.seen.served == served && self.step() {}
                self.refusal()?;
                if self.seen.served > served {
                    continue;
                }
                if self.open() == 0 && next.is_none() {
                    break;
                }
                let open = self.open();
                return Err(RunError::Stalled { open });
            }
            if self.time.is_due()
                && let Some(tag) = self.time.pop()
            {
                self.happen(tag);
                self.refusal()?;
                continue;
            }
            let event = self.time.next();
            let timer = match &self.ftl {
                Ftl::Vellum(vellum) => vellum.timeout(),
                _ => None,
            };
            let arrival = next.as_ref().and_then(|request| match pace {
                Pace::Elastic { depth, think } => {
                    let open = self.open();
                    let free = match waits || request.op == Op::Flush {
                        true => open == 0,
                        false => open < depth as usize,
                    };
                    let (at, own) = last;
                    let think = think.unwrap_or(request.at.saturating_sub(own));
                    let due = at.saturating_add(think);
                    free.then_some(due.max(self.time.now()))
                }
                _ => Some(start.saturating_add(request.at)),
            });
            let first = [event, timer, arrival].into_iter().flatten().min();
            if event.is_some() && event == first {
                if let Some(tag) = self.time.pop() {
                    self.happen(tag);
                }
            } else if arrival.is_some() && arrival == first {
                self.time.pass(arrival.unwrap_or(0));
                if let Some(request) = next {
                    waits = request.op == Op::Flush;
                    last = (self.time.now(), request.at);
                    self.issue(request);
                }
                next = self.next(&mut ahead, requests);
            } else if self.open() == 0 && next.is_none() {
                break;
            } else if let Some(due) = timer {
                self.tick(due);
            } else {
                let open = self.open();
                return Err(RunError::Stalled { open });
            }
            self.refusal()?;
            if self.open() > OPEN_MAX {
                return Err(RunError::Overrun);
            }
        }
        match &self.ftl {
            Ftl::Vellum(vellum) if vellum.wrong_reads() > 0 => Err(RunError::Wrong {
                blocks: vellum.wrong_reads(),
            }),
            _ => Ok(()),
        }
    }

    /// Lets time pass until tables in place hold nothing back any more, and services have gone through all that there is; a log holds
    /// nothing back that it would have to write.
    ///
    /// # Errors
    /// When something fails meanwhile.
    pub fn settle(&mut self) -> Result<(), RunError> {
        if let Ftl::Vellum(vellum) = &mut self.ftl {
            vellum.tidy(io!(self));
        }
        loop {
            let Ftl::Vellum(vellum) = &self.ftl else {
                return Ok(());
            };
            if !vellum.is_in_place() && !vellum.is_tidying() {
                return Ok(());
            }
            match (self.time.next(), vellum.timeout()) {
                (None, None) => return Ok(()),
                (Some(event), due) if due.is_none_or(|due| event <= due) => {
                    if let Some(tag) = self.time.pop() {
                        self.happen(tag);
                    }
                }
                (_, Some(due)) => self.tick(due),
                (Some(_), None) => {}
            }
            self.refusal()?;
        }
    }

    /// Lets the next thing happen, while anything is open; whether there was one.
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

    /// The engine's time has come.
    fn tick(&mut self, due: u64) {
        self.time.pass(due);
        if let Ftl::Vellum(vellum) = &mut self.ftl {
            vellum.tick(io!(self));
        }
        self.collect();
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

    fn next(
        &self,
        ahead: &mut VecDeque<Request>,
        requests: &mut dyn Iterator<Item = Request>,
    ) -> Option<Request> {
        if ahead.is_empty() {
            ahead.extend(requests.take(AHEAD));
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
        ahead.pop_front()
    }

    /// Tells what serves where journals are.
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

    fn serve(&mut self, asked: Asked) {
        let tag = Tag::Client(asked.id);
        match &mut self.ftl {
            Ftl::Vellum(vellum) => {
                vellum.ask(io!(self), asked);
                self.collect();
            }
            Ftl::Page(drive) => {
                let wanted = match asked.op {
                    Op::Read => Wanted::Read,
                    Op::Write { fua } => Wanted::Write {
                        fua,
                        through: !asked.admitted.buffer,
                    },
                    Op::Discard => Wanted::Discard,
                    Op::Flush => Wanted::Flush,
                };
                drive.ask(io!(self), tag, wanted, asked.lba, u64::from(asked.blocks));
            }
            Ftl::Raw(raw) => match asked.op {
                Op::Read => raw.device().read(&mut self.time, tag, asked.blocks),
                Op::Write { fua } => {
                    raw.journaled(asked.lba, &asked.contents, asked.homes.as_deref());
                    raw.write(&mut self.time, tag, asked.lba, &asked.contents, fua);
                }
                Op::Discard => self.time.done(tag),
                Op::Flush => raw.device().flush(&mut self.time, tag),
            },
        }
    }

    fn happen(&mut self, tag: Tag) {
        match tag {
            Tag::Arrival(part) => {
                if let Some(asked) = self.parts[part as usize].asked.take() {
                    self.serve(asked);
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

    /// Takes the engine's answers.
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
                    // It had been answered.
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
    fn an_answer_that_never_comes_ends_the_run_with_a_word_on_it() {
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
            kind: Kind::Block(figures),
        };
        // Flash beside it that nothing is asked of.
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
