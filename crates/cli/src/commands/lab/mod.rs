//! `vellum lab`: the engine on simulated flash, in virtual time.

mod compare;
mod list;
mod oracle;
mod paper;
mod progress;
mod run;
mod setup;

use anyhow::Result;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Replay a trace, or run a synthetic load, under several policies side by side.
    Run(Box<run::Args>),
    /// All policies over one trace or load, alone and together; as a table, JSON, CSV or one HTML report.
    Compare(Box<compare::Args>),
    /// Write amplification under uniform random overwrites, against the closed forms.
    Oracle(oracle::Args),
    /// A paper's evaluation, run again: ours beside theirs.
    Paper(paper::Args),
    /// List the devices, the loads and the trace formats.
    List,
}

/// Does it.
pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Run(run) => run.run(),
        What::Compare(compare) => compare.run(),
        What::Oracle(oracle) => oracle.run(),
        What::Paper(paper) => paper.run(),
        What::List => list::run(),
    }
}
