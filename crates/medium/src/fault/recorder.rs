//! A medium that writes down all that is asked of it.
//!
//! An operation is written down before the medium below sees it, and its end before its submitter does. So what a submitter knew to
//! have ended when it asked for a sync had ended on the tape too: the tape is never kinder than the truth, and never harsher.

use super::tape::{Asked, Tape};
use crate::error::MediumError;
use crate::io::{Done, Io, Kind};
use crate::medium::Medium;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use vellum_core::addr::Pba;

/// Lies over another medium, and writes down what goes through.
#[derive(Debug)]
pub struct Recorder<M> {
    base: M,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    tape: Tape,
    /// When each operation in flight was issued, by where it lies in memory: nobody moves it before it is given back.
    flights: HashMap<usize, usize>,
}

impl<M: Medium> Recorder<M> {
    /// Over a medium that nobody else writes.
    #[must_use]
    pub fn new(base: M) -> Self {
        Self {
            base,
            log: Mutex::default(),
        }
    }

    /// What it lies over.
    pub fn base(&self) -> &M {
        &self.base
    }

    /// This instant: what ended before is behind it.
    #[must_use]
    pub fn now(&self) -> usize {
        self.log.lock().tape.len()
    }

    /// What was written down so far; from now on a new tape runs. Nothing may be in flight.
    #[must_use]
    pub fn take(&self) -> Tape {
        std::mem::take(&mut *self.log.lock()).tape
    }

    fn issued(&self, io: &Io) {
        let asked = match io.kind {
            Kind::Read => return,
            Kind::Sync => Asked::Sync,
            Kind::Discard { blocks } => Asked::Discard { at: io.at, blocks },
            Kind::Write { durable } => {
                let mut bytes = Vec::with_capacity(io.len());
                for piece in io.pieces() {
                    // SAFETY: whoever pushed the piece promised that it is valid and nobody writes it until the Io is back.
                    bytes.extend_from_slice(unsafe { piece.bytes() });
                }
                let bytes = bytes.into_boxed_slice();
                let at = io.at;
                Asked::Write { at, bytes, durable }
            }
        };
        let log = &mut *self.log.lock();
        let issued = log.tape.issue(asked);
        log.flights.insert(place(io), issued);
    }

    fn ended(&self, done: &Done) {
        let log = &mut *self.log.lock();
        if let Some(issued) = log.flights.remove(&place(&done.io)) {
            log.tape.end(issued, done.result.is_ok());
        }
    }

    /// What is asked and ends now.
    fn at_once(
        &self,
        asked: Asked,
        carry_out: impl FnOnce(&M) -> Result<(), MediumError>,
    ) -> Result<(), MediumError> {
        let issued = self.log.lock().tape.issue(asked);
        let result = carry_out(&self.base);
        self.log.lock().tape.end(issued, result.is_ok());
        result
    }
}

fn place(io: &Io) -> usize {
    std::ptr::from_ref(io).addr()
}

impl<M: Medium> Medium for Recorder<M> {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn blocks(&self) -> u64 {
        self.base.blocks()
    }

    fn wants_discard(&self) -> bool {
        self.base.wants_discard()
    }

    fn discard_blocks_min(&self) -> u32 {
        self.base.discard_blocks_min()
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        ios.iter().for_each(|io| self.issued(io));
        self.base.submit(ios);
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        self.issued(&io);
        match self.base.do_now(io) {
            Ok(done) => {
                self.ended(&done);
                Ok(done)
            }
            Err(io) => {
                // It will be submitted, and is written down then.
                let log = &mut *self.log.lock();
                if let Some(issued) = log.flights.remove(&place(&io)) {
                    log.tape.take_back(issued);
                }
                Err(io)
            }
        }
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        let before = done.len();
        self.base.wait(done, timeout);
        done[before..].iter().for_each(|done| self.ended(done));
    }

    fn wake(&self) {
        self.base.wake();
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.base.read(at, bytes)
    }

    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        let asked = Asked::Write {
            at,
            bytes: bytes.into(),
            durable: false,
        };
        self.at_once(asked, |base| base.write(at, bytes))
    }

    fn next_data(&self, at: Pba) -> Pba {
        self.base.next_data(at)
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.at_once(Asked::Sync, Medium::sync)
    }

    fn drop_cache(&self) -> Result<(), MediumError> {
        self.at_once(Asked::Sync, Medium::drop_cache)
    }
}
