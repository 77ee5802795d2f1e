//! The NBD server, as its clients see it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod client;
mod disks;
mod hostile;
mod options;
mod real_clients;
mod sectors;
mod server;
mod tls;
mod transmission;
