//! Records the requests that clients send to a volume into a trace (`docs/TRACE.md`), off the request path.
//!
//! A [`Recorder`] is a [`BlockDevice`](vellum_device::block::BlockDevice) in front of another. It passes each request
//! on at once and puts a copy into a queue; a thread describes the copies and writes the trace. The rules are:
//!
//! 1. No request waits for the trace, and none fails because of it. The queue is bounded ([`limits`]). When it fills up,
//!    the recorder first leaves out the blocks' sizes, then their contents, then whole requests; the trace says how many
//!    requests are missing.
//! 2. When the trace cannot be written any more, recording ends, once and loudly, and the volume goes on.
//! 3. No user data is in the trace. A block is represented by a hash under a key that is drawn anew for each recording and
//!    stored nowhere. A reader of the trace can see that two blocks are equal, but cannot test guesses of their content.
//!
//! A request is recorded when it arrives, not when it is answered, so the trace also has requests that fail.

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
