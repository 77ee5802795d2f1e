//! The subcommands.

mod attach;
mod boot;
mod check;
mod clone;
mod completions;
mod create;
mod dedup;
mod delete;
mod demo;
mod detach;
mod diff;
mod disable;
mod dump;
mod enable;
mod estimate;
mod fold;
mod get;
mod grow;
mod health;
mod info;
mod journal;
pub mod key;
mod lab;
mod list;
mod man;
mod metrics;
mod migrate;
mod pack;
mod receive;
mod record;
mod rescue;
mod restart;
mod restore;
mod rollback;
mod scrub;
mod send;
mod serve;
mod set;
mod shrink;
mod snapshot;
mod snapshots;
mod stats;
mod sweep;
mod top;

use crate::remover;
use anyhow::Result;
use clap::Subcommand;
use std::path::PathBuf;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Make a volume in a file or on a block device.
    Create(create::Args),
    /// Serve volumes over NBD, ublk or FUSE, in the foreground, until SIGTERM.
    Serve(Box<serve::Args>),
    /// Serve a plain file or a block device as it is, and record what is asked of it: a trace for `vellum lab`.
    Record(record::Args),
    /// Make a volume a block device of this machine, by the best way its kernel has.
    Attach(attach::Args),
    /// Undo an attach, also after a crash.
    Detach(detach::Args),
    /// Replace the server of an attached volume by the installed program, while its file systems stay mounted.
    Restart(restart::Args),
    /// Attach a volume at each boot from now on, and mount it.
    Enable(enable::Args),
    /// Attach a volume at boot no more.
    Disable(disable::Args),
    /// Show what is attached at boot; attach or detach all of it.
    Boot(boot::Args),
    /// Show what a volume is.
    Info(info::Args),
    /// Show what is served and attached now.
    List(list::Args),
    /// Show what a volume that is being served has written, spared and found.
    Stats(stats::Args),
    /// Report the health of served volumes in the exit code, for monitoring programs.
    Health(health::Args),
    /// Export the servers' counters to Prometheus and similar; once, or over HTTP.
    Metrics(metrics::Args),
    /// Watch all volumes that are served now, in a terminal: what is written, how long an fsync waits, how long the drive will last.
    Top(top::Args),
    /// Show the properties of a volume: what it does with what is written, and what its user has chosen.
    Get(get::Args),
    /// Change properties of a volume, for good; also while it is served.
    Set(set::Args),
    /// Show and change who can open an encrypted volume.
    Key(key::Args),
    /// Show and set where the journals on a volume that is being served are.
    Journal(journal::Args),
    /// Find blocks that are stored twice on a volume that is being served, and store them once.
    Dedup(dedup::Args),
    /// Store anew what is left in sparse pages of a volume that is being served, and give them up.
    Fold(fold::Args),
    /// Read data that is there already, and say what storing every content once would save.
    Estimate(estimate::Args),
    /// Read and check all that is stored, on a volume that is being served or not; mend what has another copy.
    Scrub(scrub::Args),
    /// Check every invariant of a volume, changing nothing.
    Check(check::Args),
    /// Make a volume larger.
    Grow(grow::Args),
    /// Make a volume smaller for those who use it.
    Shrink(shrink::Args),
    /// Keep what a volume holds at this instant, to read it or go back to it later.
    Snapshot(snapshot::Args),
    /// Show the snapshots of a volume.
    Snapshots(snapshots::Args),
    /// Make a volume what it was when a snapshot was taken.
    Rollback(rollback::Args),
    /// Make a second disk of a snapshot, which is written and shares all that it does not change.
    Clone(clone::Args),
    /// Delete a snapshot or a clone.
    Delete(delete::Args),
    /// Show what has changed on a volume since a snapshot.
    Diff(diff::Args),
    /// Write a snapshot, or what changed between two, as a stream: for a backup, or for another machine.
    Send(send::Args),
    /// Apply a stream to a volume, and take the snapshot that it contains.
    Receive(receive::Args),
    /// Copy a volume into a new one, of another layout or geometry; compared, and resumable.
    Migrate(migrate::Args),
    /// Copy everything readable from a damaged volume into a new one, and list what is lost.
    Rescue(rescue::Args),
    /// Show a volume's structures, or write all of it to an archive.
    Dump(dump::Args),
    /// Make a volume what it was when an archive was made of it.
    Restore(restore::Args),
    /// Write a volume's metadata, without its data, to an archive for a bug report.
    Pack(pack::Args),
    /// Run real applications on ext4 on a volume, compared with a plain file.
    Demo(demo::Args),
    /// Run the engine on simulated flash, in virtual time: traces, policies side by side, years of life.
    Lab(lab::Args),
    /// Print a completion script for a shell.
    Completions(completions::Args),
    /// Write the manual pages.
    Man(man::Args),
    /// What a server starts beside itself when it becomes another user: see `remover`.
    #[command(hide = true, name = remover::COMMAND)]
    RemoveSockets {
        /// Files.
        files: Vec<PathBuf>,
    },
}

impl Command {
    /// Runs the subcommand. `whole`: the command line that it is of.
    pub fn run(self, whole: fn() -> clap::Command) -> Result<()> {
        if !matches!(
            self,
            Self::Serve(_)
                | Self::Record(_)
                | Self::Demo(_)
                | Self::Attach(_)
                | Self::Detach(_)
                | Self::Restart(_)
                | Self::Boot(_)
                | Self::Enable(_)
                | Self::Disable(_)
        ) {
            crate::signals::die_on_closed_pipe();
        }
        match self {
            Self::Create(args) => create::run(args),
            Self::Serve(args) => serve::run(*args),
            Self::Record(args) => record::run(args),
            Self::Attach(args) => attach::run(args),
            Self::Detach(args) => detach::run(&args),
            Self::Restart(args) => restart::run(&args),
            Self::Enable(args) => enable::run(&args),
            Self::Disable(args) => disable::run(&args),
            Self::Boot(args) => boot::run(args),
            Self::Info(args) => info::run(&args),
            Self::List(args) => list::run(&args),
            Self::Stats(args) => stats::run(&args),
            Self::Health(args) => health::run(&args),
            Self::Metrics(args) => metrics::run(args),
            Self::Top(args) => top::run(args),
            Self::Get(args) => get::run(&args),
            Self::Set(args) => set::run(&args),
            Self::Key(args) => key::run(&args),
            Self::Journal(args) => journal::run(&args),
            Self::Estimate(args) => estimate::run(&args),
            Self::Dedup(args) => dedup::run(&args),
            Self::Fold(args) => fold::run(&args),
            Self::Scrub(args) => scrub::run(&args),
            Self::Check(args) => check::run(&args),
            Self::Grow(args) => grow::run(&args),
            Self::Shrink(args) => shrink::run(&args),
            Self::Snapshot(args) => snapshot::run(&args),
            Self::Snapshots(args) => snapshots::run(&args),
            Self::Rollback(args) => rollback::run(&args),
            Self::Clone(args) => clone::run(&args),
            Self::Delete(args) => delete::run(&args),
            Self::Diff(args) => diff::run(&args),
            Self::Send(args) => send::run(&args),
            Self::Receive(args) => receive::run(&args),
            Self::Migrate(args) => migrate::run(&args),
            Self::Rescue(args) => rescue::run(&args),
            Self::Dump(args) => dump::run(&args),
            Self::Restore(args) => restore::run(&args),
            Self::Pack(args) => pack::run(&args),
            Self::Demo(args) => demo::run(args),
            Self::Lab(args) => lab::run(&args),
            Self::Completions(args) => completions::run(&args, &whole()),
            Self::Man(args) => man::run(&args, whole()),
            Self::RemoveSockets { files } => remover::run(&files),
        }
    }
}
