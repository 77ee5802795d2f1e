//! The side of the core that clients and the runtime see, the same for every layout: its course, what leaves it, what waits, and the way
//! of a request ([`admit`], [`refuse`]) to the layout behind it ([`Back`]).

pub(crate) mod admit;
mod back;
mod course;
mod extents;
mod held;
mod in_flight;
mod in_parts;
mod outbox;
mod queue;
pub(crate) mod refuse;
mod verdict;
mod waiters;
mod waiting;
mod whole;
mod write;

pub(crate) use back::{Back, Ended};
pub(crate) use extents::extents;
pub(crate) use outbox::Outbox;
pub(crate) use queue::Noted;
pub(crate) use verdict::Verdict;
pub(crate) use waiters::{Waiter, Waiters};
pub(crate) use waiting::Waiting;
pub(crate) use whole::Front;
pub(crate) use write::{Placed, Write};
