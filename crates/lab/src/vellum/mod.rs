//! The engine that is served, on simulated media. This driver takes the place of the device's runtime; nothing of the
//! flash translation layer is written a second time.

mod backing;
mod driver;
mod layout;
mod log;
mod pages;
mod summaries;
mod zones;

pub use backing::Backing;
pub use driver::{BUFS_MIN, Handles, Hashing, Placing, Settings, Submitted, Tidying, Vellum};
pub use layout::{Layout, LayoutError};
pub use log::OnFlash;
pub use zones::OnZones;
