//! The side of the core that clients and the runtime see, the same for every layout.

mod course;
mod held;
mod in_flight;
mod in_parts;
mod outbox;
mod queue;
mod verdict;
mod waiters;
mod waiting;
mod write;

pub(crate) use course::Course;
pub(crate) use outbox::Outbox;
pub(crate) use queue::{Noted, Queue};
pub(crate) use verdict::Verdict;
pub(crate) use waiters::{Waiter, Waiters};
pub(crate) use waiting::Waiting;
pub(crate) use write::{Placed, Placing, Write};
