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

/// What a log asks about a block that it does not share: is it zeros, is there room for it, may it be a delta, and which page takes it if
/// it is stored in fewer bytes?
pub(crate) struct Placing {
    pub zero: Zero,
    pub reserve: Reserve,
    pub delta: Delta,
    pub pack: Pack,
}
