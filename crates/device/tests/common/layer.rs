//! A medium on top of another: it passes everything on, except what a test wants to see or to change.

use std::ops::Deref;
use std::time::Duration;
use vellum_core::addr::Pba;
use vellum_medium::{Done, Io, Medium, MediumError};

/// What a test wants to see or to change.
pub trait Layer: Send + Sync {
    /// The medium below.
    fn below(&self) -> &dyn Medium;

    #[expect(
        clippy::vec_box,
        reason = "operations change hands by pointer, as the medium wants them"
    )]
    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        self.below().submit(ios);
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        Err(io)
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        self.below().wait(done, timeout);
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.below().read(at, bytes)
    }
}

/// A layer as a medium.
pub struct Layered<L>(pub L);

impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}

impl<L: Layer> Medium for Layered<L> {
    fn name(&self) -> &str {
        self.below().name()
    }

    fn blocks(&self) -> u64 {
        self.below().blocks()
    }

    fn wants_discard(&self) -> bool {
        self.below().wants_discard()
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        self.0.submit(ios);
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        self.0.do_now(io)
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        self.0.wait(done, timeout);
    }

    fn wake(&self) {
        self.below().wake();
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.0.read(at, bytes)
    }

    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        self.below().write(at, bytes)
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.below().sync()
    }

    fn drop_cache(&self) -> Result<(), MediumError> {
        self.below().drop_cache()
    }
}
