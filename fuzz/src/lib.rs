//! The bodies of the fuzz targets. `cargo +nightly fuzz run <target>` from the project's root; tests elsewhere run the same
//! functions over seeded inputs, so that they stay in order.

pub mod archive;
pub mod boot;
pub mod codec;
pub mod config;
pub mod control;
mod disk;
pub mod envelope;
pub mod ext4;
pub mod format;
mod frames;
pub mod life;
pub mod mounts;
pub mod ops;
pub mod options;
pub mod snapshots;
pub mod stream;
pub mod tables;
pub mod trace;
pub mod watch;
