//! Volumes attached at each boot: the tab that lists them, and the units that attach them (docs/decisions/0028-boot.md).

mod entry;
pub mod systemd;
mod tab;

pub use entry::{Entry, Name, Target};
pub use tab::Tab;
