//! What a person or program that monitors a machine sees of its volumes: metrics, health, how many years the
//! drive below has left, and a page.
//!
//! Nothing here reads a clock, a file or a socket. Server answers and drive reports go in, text comes out; `vellum-cli` fetches
//! the former and delivers the latter.
#![forbid(unsafe_code)]

pub mod causes;
pub mod drive;
pub mod health;
pub mod http;
pub mod metrics;
mod observed;
pub mod site;
pub mod units;
pub mod view;
pub mod years;

pub use observed::{Observed, counter};
