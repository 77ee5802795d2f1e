//! A medium that records every operation.
//!
//! An operation is recorded before the medium below sees it, and its end is recorded before its submitter learns of it. So every
//! operation that a submitter knew to have ended when it requested a sync has also ended on the tape. The tape allows exactly the losses
//! that the real medium could have.

use super::tape::{Asked, Tape};
use crate::error::MediumError;
use crate::io::{Done, Io, Kind};
use crate::medium::Medium;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
use vellum_core::addr::Pba;

/// Wraps another medium, and records what passes through.
#[derive(Debug)]
pub struct Recorder<M> {
    base: M,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    tape: Tape,
    /// When each operation in flight was issued, by its address in memory: it does not move before it is given back.
    flights: HashMap<usize, usize>,
}

impl<M: Medium> Recorder<M> {
    /// Wraps a medium that nothing else writes.
    #[must_use]
    pub fn new(base: M) -> Self {
        Self {
            base,
            log: Mutex::default(),
        }
    }

    /// The medium below.
    pub fn base(&self) -> &M {
        &self.base
    }

    /// The present instant: everything that ended before has a smaller one.
    #[must_use]
    pub fn now(&self) -> usize {
        self.log.lock().tape.len()
    }

    /// Returns the tape so far, and starts a new one. Nothing may be in flight.
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
                    // SAFETY: the code that pushed the piece promised that it is valid and is not written until the Io is given back.
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

    /// Records a synchronous operation.
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
                // It will be submitted, and is recorded then.
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
