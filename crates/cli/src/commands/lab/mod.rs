//! `vellum lab`: runs the engine on simulated flash, in virtual time.

mod compare;
mod drives;
mod list;
mod oracle;
mod output;
mod paper;
mod progress;
mod run;
mod shares;
mod source;
mod sweep;

use anyhow::Result;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Replay a trace, or run a synthetic load, under several policies side by side; as a table, JSON, CSV or one HTML report.
    Run(Box<run::Args>),
    /// All policies over one trace or load, alone and together; as a table, JSON, CSV or one HTML report.
    Compare(Box<compare::Args>),
    /// Run a grid over any options of a run, on all cores; ended, it goes on where it was.
    Sweep(sweep::Args),
    /// Hold the lab against the closed forms of write amplification under uniform random overwrites, and against DiskSim's responses.
    Validate(oracle::Args),
    /// Run a paper's evaluation again: ours beside theirs.
    Paper(paper::Args),
    /// How much of what traces write they have written before.
    Shares(shares::Args),
    /// List the drives, or print one as a file: a start for one of your own.
    Drives(drives::Args),
    /// List the drives, loads, sizes, policies and trace formats.
    List,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Run(run) => run.run(),
        What::Compare(compare) => compare.run(),
        What::Sweep(sweep) => sweep.run(),
        What::Validate(oracle) => oracle.run(),
        What::Paper(paper) => paper.run(),
        What::Shares(shares) => shares.run(),
        What::Drives(drives) => drives.run(),
        What::List => list::run(),
    }
}
