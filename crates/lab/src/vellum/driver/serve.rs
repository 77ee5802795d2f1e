//! Services in virtual time: folds and sweeps, by the core's state machines.
//!
//! As in the device, except for when one begins: clients may never be quiet here, so it begins when they have written
//! enough, and runs beside them. When the load is over each runs once more, for what is left.

use super::Vellum;
use super::services::{OURS, Tidying, Waits};
use crate::base::Io;
use crate::content::Content;
use crate::timeline::Tag;
use vellum_core::addr::{BLOCK_BYTES, Buf, Lba, Nanos, RequestId};
use vellum_core::seam::{Input, Payload, Service};
use vellum_core::service::fold::{self, Fold, Folded};
use vellum_core::service::pace::{Around, Haste, NEWS, RATE};
use vellum_core::service::running::Running;
use vellum_core::service::sweep::Sweep;
use vellum_core::service::{Machine, Seen, Step};

impl Vellum {
    /// True if a service is running or due.
    #[must_use]
    pub fn is_tidying(&self) -> bool {
        self.services.running.is_some() || self.services.last != [false; 2]
    }

    /// The load is over: runs each service once more.
    pub fn tidy(&mut self, io: &mut Io<'_>) {
        if !io.time.is_instant() {
            let Tidying { fold, sweep } = self.services.which;
            self.services.last = [fold.is_some(), sweep.is_some()];
            self.serve(io);
        }
    }

    /// Continues after a service's read of the medium has completed.
    pub fn service_read(&mut self, io: &mut Io<'_>) {
        let Waits::Read(at, blocks) = std::mem::replace(&mut self.services.waits, Waits::No) else {
            unreachable!("a service has read what it did not ask for")
        };
        let Some(running) = &mut self.services.running else {
            unreachable!("no service is at work")
        };
        if self.core.superblock().segment_of(at).is_none() {
            let len = blocks as usize * BLOCK_BYTES;
            let bytes = self.summaries.read(at, len, &self.medium);
            running.read(Seen::Bytes(&bytes));
        } else {
            let places = (at.0..at.0 + u64::from(blocks)).map(|at| at as usize);
            let directories: Vec<_> = places
                .map(|at| self.pages.directory(self.medium[at]).to_vec())
                .collect();
            running.read(Seen::Directories(&directories));
        }
        self.serve(io);
    }

    /// Continues a service, or begins one.
    pub(super) fn serve(&mut self, io: &mut Io<'_>) {
        if self.services.serving || !self.services.are_on() || io.time.is_instant() {
            return;
        }
        self.services.serving = true;
        while self.serve_once(io) {}
        self.services.serving = false;
    }

    /// Runs one step; true if another can follow now.
    fn serve_once(&mut self, io: &mut Io<'_>) -> bool {
        if let Some(well) = self.services.answered.take() {
            self.service_answered(io, well);
        }
        if !matches!(self.services.waits, Waits::No) {
            return false;
        }
        if self.services.running.is_none() {
            self.services.running = self.begin_service(io);
        }
        let Some(running) = &mut self.services.running else {
            return false;
        };
        self.services.due = None;
        let around = Around {
            busy: self.services.open > 0,
            came: self.services.came,
            rate: RATE,
            haste: Haste::Idle,
            uncounted: !self.core.is_counted(),
        };
        match running.next(Nanos(io.time.now()), &around) {
            Step::Wait(until) => {
                self.services.due = Some(until.0);
                return false;
            }
            Step::Ask => running.ask(&self.core),
            Step::Read { at, blocks } => {
                self.services.waits = Waits::Read(at, blocks);
                self.backing.read(io, Tag::Service, at, blocks);
            }
            // A step of a walk: the sweep or fold that walks uses it and never returns it.
            Step::Found => unreachable!("what a service finds is its own"),
            Step::Fold { lba, blocks } => {
                self.services.waits = Waits::ToFold(lba, vec![None; blocks as usize]);
                let id = RequestId(OURS);
                let read = Service::ReadToFold { id, lba, blocks };
                self.feed(io, Input::Service(read));
            }
            Step::Merge { lba, of } => {
                self.services.waits = Waits::Merge(Box::new(self.core.stats()));
                let id = RequestId(OURS);
                self.feed(io, Input::Service(Service::Merge { id, lba, of }));
            }
            Step::Keep { to, keep } => {
                self.feed(io, Input::Service(Service::Swept { to, keep }));
            }
            Step::End(_) => self.services.running = None,
        }
        true
    }

    fn begin_service(&mut self, io: &Io<'_>) -> Option<Running> {
        let written = self.core.stats().host_blocks_written;
        let Tidying { fold, sweep } = self.services.which;
        // A fold in a hurry does not wait until space is short.
        let is_short = fold == Some(Haste::Now) || fold::is_wanted(self.core.room());
        let services = &mut self.services;
        let superblock = self.core.superblock().clone();
        let (crc, now) = (crc32c::crc32c, Nanos(io.time.now()));
        for (index, haste, is_wanted) in [(0, fold, is_short), (1, sweep, true)] {
            let news = written - services.written[index] >= NEWS;
            let is_last = services.last[index];
            if let Some(haste) = haste
                && ((news && is_wanted) || is_last)
            {
                (services.written[index], services.last[index]) = (written, false);
                return Some(match index {
                    0 => Running::Fold(Box::new(Fold::new(superblock, crc, haste, now))),
                    _ => {
                        let at = (haste, self.core.swept());
                        Running::Sweep(Box::new(Sweep::new(superblock, crc, at, u64::MAX, now)))
                    }
                });
            }
        }
        None
    }

    /// Continues after the engine has answered a service's request.
    fn service_answered(&mut self, io: &mut Io<'_>, well: bool) {
        match std::mem::replace(&mut self.services.waits, Waits::No) {
            Waits::ToFold(lba, got) => {
                let row = well.then(|| self.fold_row(io, lba, &got)).flatten();
                if let Some(Running::Fold(fold)) = &mut self.services.running {
                    fold.folded(row.map_or(Folded::Stays, |()| Folded::Told));
                }
            }
            Waits::Merge(before) => match &mut self.services.running {
                Some(Running::Sweep(sweep)) if well => {
                    sweep.merged(&before, &self.core.stats());
                }
                _ => self.services.running = None,
            },
            Waits::No | Waits::Read(..) => unreachable!("nothing was asked for"),
        }
    }

    /// Hands over what has been read, if all of it can be stored smaller.
    fn fold_row(&mut self, io: &mut Io<'_>, lba: Lba, got: &[Option<Content>]) -> Option<()> {
        if self.free.len() < got.len() + self.reserved() {
            return None;
        }
        let mut payloads = Vec::with_capacity(got.len());
        for (lba, content) in (lba.0..).map(Lba).zip(got) {
            let content = (*content)?;
            let mut digest = content.digest();
            digest.packed = Some(self.pack_anew(lba, content)?);
            payloads.push((content, digest));
        }
        let payloads: Vec<_> = payloads
            .into_iter()
            .filter_map(|(content, digest)| {
                let buf = Buf(self.free.pop()?);
                self.bufs[buf.0 as usize] = content;
                self.unwanted(buf);
                Some(Payload { buf, digest })
            })
            .collect();
        let blocks = &payloads;
        self.feed(io, Input::Service(Service::Fold { lba, blocks }));
        Some(())
    }
}
