//! What somebody who watches a machine is told of its volumes: metrics, health, how many years the drive below has left,
//! and a page.
//!
//! Nothing here reads a clock, a file or a socket. Servers' answers and what drives tell of themselves go in, text
//! goes out; `vellum-cli` fetches the one and delivers the other.
#![forbid(unsafe_code)]

pub mod causes;
pub mod drive;
pub mod health;
pub mod http;
pub mod metrics;
mod observed;
pub mod page;
pub mod units;
pub mod view;
pub mod years;

pub use observed::{Observed, counter};
