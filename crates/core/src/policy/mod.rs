//! What is done with what clients write, whatever the layout: the policies, without the state machines that ask them.

pub mod dedup;
pub mod once;
