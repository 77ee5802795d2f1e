//! The rows of `vellum lab validate` that the engine is in, at the bound that it holds them to.
#![allow(clippy::unwrap_used, reason = "a failure is a test's")]

#[path = "common/sized.rs"]
mod sized;

use sized::sized;
use vellum_lab::oracle::{self, Effort};

/// How far the engine's amplification may be from a log's without anything else, in percent.
const OFF_MAX: f64 = 1.0;

#[test]
fn the_engine_amplifies_as_a_log_of_two_heads_does() {
    // At the command's own size in the long set: a smaller volume has few segments, and each of them counts.
    let (volume, over_provisionings) =
        sized((1 << 30, &[280][..]), (2 << 30, &[70, 143, 150, 280]));
    for &over in over_provisionings {
        let effort = Effort {
            logical: volume / 4096,
            warm: 6,
            measure: 3,
            seed: 1,
        };
        let row = oracle::engine(over, effort).unwrap();
        assert!(row.off_percent.abs() < OFF_MAX, "{row:?}");
    }
}
