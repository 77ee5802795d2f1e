//! A commit block that is answered before all that it commits has arrived.
//!
//! Some clients send nothing more before they have an answer: nbdfuse holds its connection while it waits for one. The client
//! would wait for the volume, and the volume for the client. The answer to a write does not say when the write takes effect, as
//! long as no request can observe it. So the answer is given, and the block keeps waiting. jbd2 does not flush before all of a
//! transaction is answered, so it loses nothing. The block goes on, judged or not, when something could observe that it waits:
//!
//! 1. a read, a write or a discard of its blocks;
//! 2. the end of the volume's life.
//!
//! A flush does not make it go on, not even a flush for another file system on the volume: jbd2 flushes for a transaction only after
//! all of it is answered. `flushes.rs` deals with that flush.
//!
//! If a block that it commits is refused, the commit block has no effect; the client got the error for the other block. If the
//! commit block itself is refused, no flush succeeds from then on, and no later commit block of its log (`Gate::lose`). Lack of
//! room should not cause that: where room may be short, the answer is given only after the block has taken effect.

use crate::block::{Op, Request};

/// True if a request could observe that a write has not taken effect.
pub(super) fn is_told_by(write: &Request, request: &Request) -> bool {
    let is_near = write.lba.0 < request.lba.0.saturating_add(request.blocks)
        && request.lba.0 < write.lba.0 + write.blocks;
    request.op != Op::Flush && is_near
}
