//! The policies for clients' writes, the same for every layout, without the state machines that use them.

pub mod dedup;
pub mod delta;
pub mod once;
pub(crate) mod pack;
mod proposers;
pub mod zero;

use crate::reserve::Reserve;
use delta::Delta;
use pack::Pack;
pub(crate) use proposers::{Answer, Proposer, Proposers};
use zero::Zero;

/// The policies that decide how a log stores a block that it does not share: as zeros, as a delta, in a page of parts, or whole.
pub(crate) struct Placing {
    pub zero: Zero,
    pub reserve: Reserve,
    pub delta: Delta,
    pub pack: Pack,
}
