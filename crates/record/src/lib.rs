//! Records what clients ask of a volume into a trace (`docs/TRACE.md`), beside the way of the requests.
//!
//! A [`Recorder`] is a [`BlockDevice`](vellum_device::block::BlockDevice) before another. What is asked goes on at once; a copy
//! goes into a queue, and a thread of its own looks at it and writes. So the rules are:
//!
//! 1. No request waits for the trace, and none fails because of it. The queue is bounded ([`limits`]): when it fills, first
//!    the blocks' sizes are not looked for, then their contents are left out, then requests are, and the trace says
//!    how many.
//! 2. When the trace cannot be written any more, recording ends, once and loudly, and the volume goes on.
//! 3. No user data is in the trace. A block is told by a hash under a key that is drawn anew for each recording and kept
//!    nowhere: who has the trace can see that two blocks are equal, and cannot try what is in them.
//!
//! A request is recorded when it is asked, not when it is answered: one that fails is in the trace as well.

mod classes;
mod client;
mod describe;
pub mod limits;
mod logs;
mod queue;
mod recorder;
mod state;
mod thread;

pub use recorder::{RecordError, Recorder};
pub use state::{OnEvent, State};
pub use vellum_trace::Sizes;
