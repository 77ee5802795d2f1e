//! Snapshots into streams and back.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../../../fuzz/src/stream.rs"]
mod fuzz;

use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    /// What the fuzz target does, so that it does not rot.
    #[test]
    fn anything_is_read_within_bounds(bytes in vec(any::<u8>(), 0..300)) {
        fuzz::read(&bytes);
    }
}
