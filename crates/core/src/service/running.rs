//! A fold or a sweep, whichever is at work.

use super::fold::Fold;
use super::pace::Around;
use super::sweep::Sweep;
use super::{Answers, Machine, Seen, Step};
use crate::addr::Nanos;
use alloc::boxed::Box;

/// One of the two that look through all that is stored and ask the core to store it better.
#[derive(Debug)]
pub enum Running {
    /// Sparse pages are folded.
    Fold(Box<Fold>),
    /// What is stored twice is looked for.
    Sweep(Box<Sweep>),
}

/// The same of either.
macro_rules! either {
    ($self:expr, $machine:ident => $then:expr) => {
        match $self {
            Running::Fold($machine) => $then,
            Running::Sweep($machine) => $then,
        }
    };
}

impl Machine for Running {
    fn next(&mut self, now: Nanos, around: &Around) -> Step {
        either!(self, machine => machine.next(now, around))
    }

    fn ask(&mut self, volume: &impl Answers) {
        either!(self, machine => machine.ask(volume));
    }

    fn read(&mut self, seen: Seen<'_>) {
        either!(self, machine => machine.read(seen));
    }

    fn permille(&self) -> u64 {
        either!(self, machine => machine.permille())
    }
}
