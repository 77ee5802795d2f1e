//! Sizes as people write them: `10G`, `512M`, `4096`.

pub use vellum_core::size::{Size, exact};
