//! What a run of the lab is made of, as options: one list, for the command line and for Python.
//!
//! [`setup::Setup`] is all of them; it makes a [`vellum_lab::scenario::Scenario`]. Nothing here reads a trace or runs
//! anything: whoever asks has a terminal or a notebook, and shows in it how far that is.
#![forbid(unsafe_code)]

mod about;
pub mod drives;
mod flash;
mod hashing;
pub mod number;
mod pattern;
pub mod setup;
pub use vellum_policies::size;
mod speeds;
pub mod words;
pub mod wrong;
