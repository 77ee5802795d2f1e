//! `vellum restart`: makes a new program serve what is attached, while what is mounted stays mounted.

use crate::commands::detach::served_by;
use crate::keys::Key;
use crate::lookup;
use crate::outcome::{out, tell, usage};
use crate::peek;
use crate::restart::restart;
use crate::signals::Stop;
use crate::state::{self, Process};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo vellum restart disk.vellum        # with the program that is installed now
  sudo vellum restart --all              # after an update")]
pub struct Args {
    /// The volume, its block device, or where it is mounted.
    volume: Option<PathBuf>,
    /// All that are attached and can be restarted.
    #[arg(long, conflicts_with_all = ["volume", "key_file"])]
    all: bool,
    /// The program that goes on; this one, if not given.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    #[command(flatten)]
    key: Key,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if args.volume.is_none() && !args.all {
        return Err(usage(
            "say which: VOLUME, or --all for all that are attached (`vellum list`)",
        ));
    }
    // A partial restart is worse than a complete one.
    let _stop = Stop::on_signals(true)?;
    let program = match &args.program {
        Some(program) => program
            .canonicalize()
            .map_err(|error| usage(format!("--program {}: {error}", program.display())))?,
        None => std::env::current_exe().context("cannot find the vellum program itself")?,
    };
    let Some(volume) = &args.volume else {
        return all(&program);
    };
    let path = volume.canonicalize().unwrap_or_else(|_| volume.clone());
    let uuid = peek::uuid_of(&path).ok();
    let Some(id) = lookup::find(&path, uuid.as_deref())? else {
        let shown = path.display();
        match uuid
            .map(|uuid| served_by(&uuid, &path))
            .transpose()?
            .flatten()
        {
            Some(pid) => bail!(
                "nothing is attached as {shown}: process {pid} serves it, which `vellum attach` did not \
                 start: stop it (`kill {pid}`), and start it again"
            ),
            None => bail!("nothing is attached as {shown}: `vellum list` shows what is"),
        }
    };
    one(&id, volume, &program, &args.key)
}

fn one(id: &str, shown: &Path, program: &Path, key: &Key) -> Result<()> {
    let done = restart(id, program, key)?;
    writeln!(
        out(),
        "{}: process {} took over from {}; requests waited {} ms",
        shown.display(),
        done.new,
        done.old,
        done.pause.as_millis()
    )?;
    Ok(())
}

/// Restarts each separately, so that one failure does not affect the others.
fn all(program: &Path) -> Result<()> {
    let mut failed = 0;
    for (id, state) in state::records()? {
        let shown = state.volume.display();
        if !state.server.is_some_and(Process::alive) {
            continue;
        }
        if state.via != "fuse" {
            tell(format_args!(
                "{shown} is attached by {}: its server goes on with the version that it has",
                state.via
            ));
            continue;
        }
        if let Err(error) = one(&id, &state.volume, program, &Key::none()) {
            tell(format_args!("vellum: {shown}: {error:#}"));
            failed += 1;
        }
    }
    match failed {
        0 => Ok(()),
        1 => bail!("1 server goes on with the version that it has"),
        _ => bail!("{failed} servers go on with the version that they have"),
    }
}
