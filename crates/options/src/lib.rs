//! The options of a lab run: one list, for the command line and for Python.
//!
//! [`setup::Setup`] holds them all and makes a [`vellum_lab::scenario::Scenario`]. Nothing here reads a trace or runs anything:
//! the caller does, and shows the progress in its terminal or notebook.
#![forbid(unsafe_code)]

mod about;
pub mod drives;
mod fio;
mod flash;
mod hashing;
pub mod number;
mod pattern;
pub mod setup;
pub use vellum_policies::size;
mod speeds;
pub mod tenants;
pub mod words;
pub mod wrong;
