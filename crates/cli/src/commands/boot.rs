//! `vellum boot`: what is attached at boot, and the commands that the boot itself runs.

use crate::boot::{Entry, Name, Tab, Target, systemd};
use crate::bound;
use crate::commands::{attach, detach};
use crate::host;
use crate::outcome::{counted, out, tell};
use crate::peek;
use crate::signals::Stop;
use crate::state::{self, Process, State};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vellum boot list
  sudo systemctl stop vellum@photos      # where systemd runs; its services are these commands
  sudo vellum boot start photos          # where it does not
  sudo vellum boot stop                  # all of them")]
pub struct Args {
    #[command(subcommand)]
    order: Order,
}

#[derive(clap::Subcommand)]
enum Order {
    /// Show what is attached at boot, and what is wrong with that.
    List {
        #[command(flatten)]
        of: Of,
        /// As JSON, one line.
        #[arg(long)]
        json: bool,
    },
    /// Attach an entry's volume, and mount it; all of them, if none is named.
    Start {
        /// Which.
        name: Option<Name>,
        #[command(flatten)]
        of: Of,
    },
    /// Unmount and detach what `start` has attached; all of it, if nothing is named.
    Stop {
        /// Which.
        name: Option<Name>,
        /// For a unit: if nothing is attached by that name, that is fine, even if nothing is enabled by it.
        #[arg(long, hide = true)]
        if_attached: bool,
    },
    /// Write the units that follow from the entries: a systemd generator.
    #[command(hide = true)]
    Generate {
        /// Where to.
        folder: PathBuf,
        #[command(flatten)]
        of: Of,
    },
    /// Write the entries that the root file system waits for into the folder of an initramfs, and what is looked for there: a line with
    /// the name and the device of each. Prints those lines.
    #[command(hide = true)]
    Initramfs {
        /// The folder.
        folder: PathBuf,
        #[command(flatten)]
        of: Of,
    },
    /// Write what is the same for all entries, for a package: a unit's template, and the generator.
    #[command(hide = true)]
    Install {
        /// systemd's folder, like /usr/lib/systemd.
        folder: PathBuf,
        /// The program that they shall run.
        #[arg(long, default_value = "/usr/bin/vellum")]
        program: String,
    },
}

#[derive(clap::Args)]
struct Of {
    /// Of the system in this folder.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
}

impl Of {
    fn tab(&self) -> Tab {
        Tab::of(self.root.as_deref())
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    match args.order {
        Order::List { of, json } => list(&of, json),
        Order::Start {
            name: Some(name),
            of,
        } => start(&of.tab(), &name),
        Order::Start { name: None, of } => start_all(&of),
        Order::Stop { name, if_attached } => {
            let is_stopped = stop(name.as_ref())?;
            let tab = Tab::of(None);
            match name.filter(|_| !is_stopped && !if_attached) {
                Some(name) if !tab.path(&name).exists() => Err(tab.lacks(&name)),
                Some(name) => {
                    tell(format_args!("{name} is not attached"));
                    Ok(())
                }
                None => Ok(()),
            }
        }
        Order::Generate { folder, of } => systemd::generate(&of.tab(), &folder),
        Order::Initramfs { folder, of } => initramfs(&of.tab(), &folder),
        Order::Install { folder, program } => systemd::install(&folder, &program),
    }
}

fn list(of: &Of, json: bool) -> Result<()> {
    let entries = of.tab().entries()?;
    // The volumes of a system in a folder may not be here.
    let wrong = |name: &Name, entry: &Entry| match of.root {
        // Nobody but root can read them.
        None if host::is_root() => checked(&of.tab(), name, entry)
            .and_then(|_| has_key(entry))
            .err(),
        _ => None,
    };
    if json {
        let told = entries.iter().map(|(stem, read)| match read {
            Ok((name, entry)) => match wrong(name, entry) {
                None => serde_json::json!({"name": stem, "entry": entry}),
                Some(error) => {
                    serde_json::json!({"name": stem, "entry": entry, "error": format!("{error:#}")})
                }
            },
            Err(error) => serde_json::json!({"name": stem, "error": format!("{error:#}")}),
        });
        writeln!(out(), "{}", told.collect::<serde_json::Value>())?;
        return Ok(());
    }
    if entries.is_empty() {
        writeln!(out(), "nothing is attached at boot")?;
    }
    for (stem, read) in entries {
        match read {
            Ok((name, entry)) => {
                let on = |dir: &PathBuf| format!(" on {}", dir.display());
                let mount = entry.mount.as_ref().map_or(String::new(), on);
                let wrong = wrong(&name, &entry);
                let wrong = wrong.map_or(String::new(), |error| format!("; wrong: {error:#}"));
                writeln!(out(), "{stem}: {}{mount}{wrong}", entry.volume.display())?;
            }
            Err(error) => writeln!(out(), "{stem}: damaged: {error:#}")?,
        }
    }
    Ok(())
}

/// The file of an initramfs that says what to attach there: words for a shell.
const EARLY: &str = "etc/vellum/initramfs";

fn initramfs(tab: &Tab, folder: &Path) -> Result<()> {
    let mut lines = String::new();
    for (stem, read) in tab.entries()? {
        // A damaged entry may be the root's: no new initramfs is better than one that does not boot.
        let (name, entry) = read.with_context(|| format!("the entry {stem} is damaged"))?;
        if entry.before != Target::Root {
            continue;
        }
        Tab::of(Some(folder)).add(&name, &entry)?;
        lines += &format!("{name} {}\n", entry.volume.display());
    }
    if !lines.is_empty() {
        let path = folder.join(EARLY);
        std::fs::write(&path, &lines)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    write!(out(), "{lines}")?;
    Ok(())
}

/// Attaches each volume separately, so that one failure does not affect the others, and in a process of its own, because
/// a process attaches one volume.
fn start_all(of: &Of) -> Result<()> {
    let entries = of.tab().entries()?;
    let mut failed = 0;
    for (stem, read) in &entries {
        let started = match read {
            Ok(_) => started_apart(of, stem)?,
            Err(error) => {
                tell(format_args!("vellum: {stem}: {error:#}"));
                false
            }
        };
        failed += usize::from(!started);
    }
    match failed {
        0 => Ok(()),
        failed => {
            let all = counted(entries.len() as u64, "volume");
            let are = if failed == 1 { "is" } else { "are" };
            bail!("{failed} of {all} {are} not attached")
        }
    }
}

fn started_apart(of: &Of, name: &str) -> Result<bool> {
    let program = std::env::current_exe().context("cannot find the vellum program itself")?;
    let mut command = Command::new(program);
    command.args(["boot", "start", name]);
    if let Some(root) = &of.root {
        command.arg("--root").arg(root);
    }
    let status = command
        .status()
        .context("cannot run the vellum program itself")?;
    Ok(status.success())
}

/// Checks that the entry of an encrypted volume names a key, as one that `enable` writes does.
fn has_key(entry: &Entry) -> Result<()> {
    match entry.key_file.is_none() && peek::envelope_of(&entry.volume)?.is_some() {
        true => bail!(
            "{} is encrypted, and the entry names no key (key_file)",
            entry.volume.display()
        ),
        false => Ok(()),
    }
}

/// The UUID of an entry's volume, if it is the one that was enabled.
fn checked(tab: &Tab, name: &Name, entry: &Entry) -> Result<String> {
    let file = tab.path(name);
    let uuid = peek::uuid_of(&entry.volume)
        .with_context(|| format!("the volume of {} cannot be attached", file.display()))?;
    if let Some(expected) = entry.uuid.as_ref().filter(|expected| **expected != uuid) {
        bail!(
            "{} is not the volume that was enabled: its UUID is {uuid}, and {} says {expected}. If it \
             should be attached, `vellum disable {name}` and enable it again",
            entry.volume.display(),
            file.display()
        );
    }
    Ok(uuid)
}

/// Attaches the volume of an entry. If it is already attached by that entry, that is fine.
pub fn start(tab: &Tab, name: &Name) -> Result<()> {
    let entry = tab.read(name)?;
    let file = tab.path(name);
    let uuid = checked(tab, name, &entry)?;
    for (id, state) in state::records()? {
        if id != uuid || !state.server.is_some_and(Process::alive) {
            continue;
        }
        match state.boot.as_deref() {
            Some(other) if other == name.as_str() => {
                is_mounted(name, &entry, &id, &state)?;
                tell(format_args!("{name} is attached already"));
                return Ok(());
            }
            Some(other) => bail!(
                "{} is attached already, as {other}: disable one of the two",
                entry.volume.display()
            ),
            None => bail!(
                "{0} was attached by hand: `vellum detach {0}` first",
                entry.volume.display()
            ),
        }
    }
    if let Some(dir) = &entry.mount {
        let is_there = |(id, state): &(String, State)| bound::mounts(id, state).contains(dir);
        let other = state::records()?.into_iter().find(is_there);
        if let Some(other) = other.and_then(|(_, state)| state.boot) {
            bail!(
                "{} is where {other} is mounted: change one of the two, or disable it ({})",
                dir.display(),
                file.display()
            );
        }
    }
    if let Some(dir) = &entry.mount
        && host::mounts().iter().any(|mounted| mounted.target == *dir)
    {
        bail!(
            "{} has something mounted on it already: unmount that, or change {}",
            dir.display(),
            file.display()
        );
    }
    // What was checked to be root's alone is what is attached, wherever a link may lead by then.
    let volume = entry.volume.canonicalize();
    let volume = volume.with_context(|| format!("cannot find {}", entry.volume.display()))?;
    attach::run(attach::Args::at_boot(
        name.as_str(),
        volume,
        entry.mount,
        entry.via,
        entry.key_file,
    ))
}

/// Checks that an attached volume is mounted, if its entry says so: a start may have been killed before that. Otherwise services
/// would write into the bare folder.
fn is_mounted(name: &Name, entry: &Entry, id: &str, state: &State) -> Result<()> {
    match &entry.mount {
        Some(dir) if bound::mounts(id, state).is_empty() => bail!(
            "{name} is attached, but not mounted on {}: `vellum boot stop {name}`, then start it again",
            dir.display()
        ),
        _ => Ok(()),
    }
}

/// Detaches what was attached for an entry, even if that entry is gone or damaged. Returns false if nothing was.
pub fn stop(name: Option<&Name>) -> Result<bool> {
    let is_meant = |boot: &str| name.is_none_or(|name| name.as_str() == boot);
    let stop = Stop::on_signals(true)?;
    let (mut found, mut failed) = (false, 0);
    for (id, state) in state::records()? {
        let Some(boot) = state.boot.as_deref().filter(|boot| is_meant(boot)) else {
            continue;
        };
        if name.is_none() && bound::has_root(&id, &state) {
            continue;
        }
        found = true;
        if let Err(error) = detach::detach(&id, &stop) {
            tell(format_args!("vellum: {boot}: {error:#}"));
            failed += 1;
        }
    }
    match failed {
        0 => Ok(found),
        _ => bail!("what is in use stays attached"),
    }
}
