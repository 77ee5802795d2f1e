//! A medium on which operations of some kinds can be held back, and whose reads are counted.
#![allow(dead_code, reason = "each test binary uses its part")]

#[path = "layer.rs"]
mod layer;

use layer::{Layer, Layered};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vellum_core::addr::Pba;
use vellum_medium::{Io, Kind, Medium, MediumError};

/// Decides whether an operation of this kind is held back.
pub type Holds = fn(Kind) -> bool;

pub const READS: Holds = |kind| matches!(kind, Kind::Read);
/// A sync, or a chunk that is written durably.
pub const MAKES_DURABLE: Holds = |kind| matches!(kind, Kind::Sync | Kind::Write { durable: true });

/// See the module.
#[expect(
    clippy::vec_box,
    reason = "operations change hands by pointer, as the medium wants them"
)]
pub struct Holding {
    medium: Arc<dyn Medium>,
    holds: Holds,
    closed: AtomicBool,
    held: Mutex<Vec<Box<Io>>>,
    reads: AtomicU64,
}

/// The medium.
pub type Gate = Layered<Holding>;

impl Gate {
    pub fn new(medium: Arc<dyn Medium>, holds: Holds) -> Self {
        Layered(Holding {
            medium,
            holds,
            closed: AtomicBool::new(false),
            held: Mutex::default(),
            reads: AtomicU64::new(0),
        })
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.medium.submit(&mut self.held.lock());
    }

    /// True if it holds anything back.
    pub fn holds(&self) -> bool {
        !self.held.lock().is_empty()
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Layer for Holding {
    fn below(&self) -> &dyn Medium {
        &*self.medium
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        let reads = ios.iter().filter(|io| matches!(io.kind, Kind::Read));
        self.reads.fetch_add(reads.count() as u64, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            let is_held = |io: &mut Box<Io>| (self.holds)(io.kind);
            self.held.lock().extend(ios.extract_if(.., is_held));
        }
        self.medium.submit(ios);
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.medium.read(at, bytes)
    }
}
