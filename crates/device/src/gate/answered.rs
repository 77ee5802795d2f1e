//! A commit block that is answered before all that it commits has come.
//!
//! There are clients that send nothing more before they have an answer: nbdfuse holds its connection while it waits for one. They would
//! wait for us, and we for them. An answer to a write says nothing of when it takes effect, as long as nobody can tell: so
//! it is given, and the block waits on. jbd2 does not flush before all of a transaction is answered, so it loses nothing.
//! Who could tell makes the block go on, judged or not:
//!
//! 1. a read, a write or a discard of its blocks;
//! 2. the end of the volume's life.
//!
//! A flush does not, be it of another file system on the volume: jbd2 counts a transaction, and flushes for it, when all of it is answered. That flush
//! is one of those in `flushes.rs`.
//!
//! If a block that it commits is refused, it has no effect: the client was told of that one. If the block itself is refused, no flush succeeds
//! from then on, and no later commit block of its log (`Gate::lose`). For want of room that should not be: where there may be none, there is no answer
//! before it has taken effect.

use crate::block::{Op, Request};

/// Whether a request could tell that a write has not taken effect.
pub(super) fn is_told_by(write: &Request, request: &Request) -> bool {
    let is_near = write.lba.0 < request.lba.0.saturating_add(request.blocks)
        && request.lba.0 < write.lba.0 + write.blocks;
    request.op != Op::Flush && is_near
}
