//! A drive with zones, and a log for what a host would overwrite.
//!
//! A zone is some erase blocks on each of a few dies. It is written in order, at its write pointer, and reset as a whole. The
//! drive has no collector and moves nothing: its own amplification is 1 by construction. A host that breaks a rule gets an error.

mod drive;
mod metalog;
mod zones;

pub use drive::{Stripe, ZonedDrive};
pub use metalog::MetaLog;
pub use zones::{Limits, State, ZoneError, Zones};
