//! Volumes that are attached at each boot: the tab that says which, and the units that do it (docs/decisions/0028-boot.md).

mod entry;
pub mod systemd;
mod tab;

pub use entry::{Entry, Name, Target};
pub use tab::Tab;
