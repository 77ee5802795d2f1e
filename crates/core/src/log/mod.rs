//! What keeps the log: small machines, each of one thing, that know nothing of each other.

mod durability;
mod head;

pub(crate) use durability::{Durability, Sealed};
pub(crate) use head::{HEADS, Head};
