//! Operations on the medium: how many are in flight, and those to use again.

use vellum_core::addr::Pba;
use vellum_medium::{Io, Kind};

/// The operations of a volume.
#[derive(Default)]
#[expect(
    clippy::vec_box,
    reason = "operations change hands by pointer, as the medium wants them"
)]
pub(crate) struct Operations {
    in_flight: usize,
    spare: Vec<Box<Io>>,
}

impl Operations {
    /// The number of operations that the medium has not given back.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns an operation to hand to the medium.
    pub fn begin(&mut self, token: u64, kind: Kind, at: Pba) -> Box<Io> {
        self.in_flight += 1;
        match self.spare.pop() {
            Some(mut io) => {
                io.reset(token, kind, at);
                io
            }
            None => Io::new(token, kind, at),
        }
    }

    /// Takes back an operation that has ended.
    pub fn end(&mut self, io: Box<Io>) {
        self.in_flight -= 1;
        self.spare.push(io);
    }
}
