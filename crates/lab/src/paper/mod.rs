//! The papers' evaluations, run again: our results beside what the paper states, in the paper's setting.
//!
//! A paper's figures are drawn, not printed, so ours are compared with what it states in its text. What the lab cannot
//! run is listed, not left out.

pub mod caftl;
mod cell;
mod claim;
pub mod csafs;
mod evaluation;
mod experiment;
mod failure;
mod list;
pub mod oftl;
pub mod omd;
mod page;
mod scenarios;
mod size;
pub mod woj;

pub use claim::{BAND, Claim, MatchingValue, Range, Stated, Verdict, count};
pub use evaluation::{Evaluation, Frame};
pub use experiment::{Column, Experiment, Trial};
pub use failure::PaperError;
pub use list::Listed;
pub use page::page;
pub use size::Size;

use std::path::Path;

/// The names of the papers with an evaluation.
pub const NAMES: [&str; 5] = ["woj", "caftl", "omd", "oftl", "csafs"];

/// Runs the evaluation with this name; none if there is none. OrderMergeDedup's takes traces in place of its loads.
///
/// # Errors
/// When a run of it fails.
pub fn evaluate(
    name: &str,
    size: Size,
    threads: usize,
    traces: Option<&Path>,
) -> Option<Result<Evaluation, PaperError>> {
    match name {
        "woj" => Some(woj::evaluate(size, threads)),
        "caftl" => Some(caftl::evaluate(size, threads)),
        "omd" => Some(omd::evaluate(size, threads, traces)),
        "oftl" => Some(oftl::evaluate(size, threads)),
        "csafs" => Some(csafs::evaluate(size, threads)),
        _ => None,
    }
}
