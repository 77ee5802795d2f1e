//! The NBD server, as its clients see it.

mod client;
mod disks;
mod hostile;
mod options;
mod real_clients;
mod sectors;
mod server;
mod tls;
mod transmission;
