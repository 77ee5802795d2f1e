//! The policies for clients' writes, the same for every layout, without the state machines that use them.

pub mod dedup;
pub mod once;
mod proposers;

pub(crate) use proposers::{Answer, Proposer, Proposers};
