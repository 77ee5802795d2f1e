//! A running fold or sweep.

use super::fold::Fold;
use super::pace::Around;
use super::sweep::Sweep;
use super::{Answers, Machine, Seen, Step};
use crate::addr::Nanos;
use alloc::boxed::Box;

/// One of the two services that look through everything stored, and make the core store it in less room.
#[derive(Debug)]
pub enum Running {
    /// Folds sparse pages.
    Fold(Box<Fold>),
    /// Looks for blocks stored twice.
    Sweep(Box<Sweep>),
}

/// Applies the same to either.
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
