//! Background work, as small machines without I/O: what to do next, how fast, and where it is. Who carries it out tells what came of
//! it, so that each is tried out alone.

pub mod scrub;
