//! What is asked of a volume's snapshots: of its server if it has one, else of the volume itself.

use crate::claim::claim;
use crate::keys::Key;
use crate::outcome::usage;
use crate::size::Size;
use crate::{ago, control, host, whose};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::BlockDevice;
use vellum_device::{Growable, OpenOptions, SnapshotError, SnapshotInfo, Volume};
use vellum_frontend::changes::{Changes, Since};
use vellum_frontend::finder::{Finder, Found};

/// How long a server may take: to delete a snapshot, it gives up each block that the snapshot alone keeps.
const SERVER_PATIENCE: Duration = Duration::from_secs(3600);

/// Runs that a server tells at once: a line has room for them.
pub const RUNS_MAX: usize = 16 << 10;

/// Where less than this part of what is stored can be written over, that is little.
const LITTLE: u64 = 10;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Which there are.
    #[default]
    List,
    /// To take one of this name.
    Take(String),
    /// To make a clone of a snapshot.
    Clone {
        /// The snapshot.
        of: String,
        /// What the clone is called.
        name: String,
    },
    /// To delete the one of this name.
    Delete(String),
    /// To delete all of them: of a volume that nobody serves without a look at what says which there are.
    DeleteAll,
    /// To go back to the one of this name: of a volume that nobody serves.
    #[serde(skip)]
    ReturnTo(String),
    /// What has changed.
    Diff {
        /// Since this one.
        since: String,
        /// Until this one; if not given, until now.
        to: Option<String>,
        /// From which byte of the volume on.
        #[serde(default)]
        from: u64,
    },
}

/// All snapshots of a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct All {
    /// Each of them, the oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Bytes that they keep in all.
    pub kept_bytes: u64,
    /// Bytes that they can keep.
    pub room_bytes: u64,
    /// Bytes that are stored. Servers of before tell 0.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Of these, so many can be written over before there is no room for what they were.
    #[serde(default)]
    pub left_bytes: u64,
}

impl All {
    /// What to say if little can be written over, and what to do.
    pub fn warning(&self) -> Option<String> {
        if self.left_bytes >= self.stored_bytes / LITTLE {
            return None;
        }
        let (stored, left) = (Size(self.stored_bytes), Size(self.left_bytes));
        let then = match self.snapshots.iter().any(|one| one.scheduled) {
            true => "then those of the schedule go, and at last writes fail",
            false => "then writes fail",
        };
        Some(format!(
            "warning: of {stored} that are stored {left} can be written over, {then}: \
             delete snapshots that you do not need, or files that are newer than them, or enlarge the volume \
             (vellum grow)"
        ))
    }
}

/// A run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Where it begins.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Order {
    /// What a client of a control socket asks; nothing, to be told which there are.
    pub fn read(order: &Value) -> Result<Self, String> {
        if order.is_null() {
            return Ok(Self::default());
        }
        let read: Result<Self, _> = serde_json::from_value(order.clone());
        read.map_err(|error| format!("\"order\" of snapshots: {error}"))
    }

    /// Whether it changes nothing.
    fn reads(&self) -> bool {
        matches!(self, Self::List | Self::Diff { .. })
    }

    /// Does it; what is asked for, of runs so many at most, or all snapshots as they are then.
    pub fn carry_out(&self, volume: &Volume, most: usize) -> Result<Value, SnapshotError> {
        match self {
            Self::List => {}
            Self::Take(name) => {
                volume.take_snapshot(name, seconds())?;
            }
            Self::Clone { of, name } => volume.clone_snapshot(of, name, seconds())?,
            Self::Delete(name) => volume.delete_snapshot(name)?,
            Self::DeleteAll => {
                let mut all = volume.snapshots()?;
                // A snapshot stays for as long as it has clones.
                all.sort_by_key(|one| one.clone_of.is_none());
                for one in all {
                    volume.delete_snapshot(&one.name)?;
                }
            }
            Self::ReturnTo(name) => volume.roll_back(name)?,
            Self::Diff { since, to, from } => {
                let runs = volume.changed_since(since, to.as_deref())?;
                let runs = runs.into_iter().map(run);
                let asked = runs.skip_while(|run| run.start < *from).take(most);
                return Ok(json!(asked.collect::<Vec<_>>()));
            }
        }
        let (kept, room) = volume.snapshot_room()?;
        let (stored, left) = volume.snapshot_left()?;
        let all = All {
            stored_bytes: stored * BLOCK_BYTES as u64,
            left_bytes: left * BLOCK_BYTES as u64,
            snapshots: volume.snapshots()?,
            kept_bytes: kept * BLOCK_BYTES as u64,
            room_bytes: room * BLOCK_BYTES as u64,
        };
        Ok(json!(all))
    }
}

/// Since 1970.
fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn run((lba, blocks): (Lba, u64)) -> Run {
    Run {
        start: lba.0 * BLOCK_BYTES as u64,
        bytes: blocks * BLOCK_BYTES as u64,
    }
}

/// What differs between a snapshot and a later one, or the volume as it is.
pub fn diff(volume: &Path, key: &Key, since: &str, to: Option<&str>) -> Result<Vec<Run>> {
    let mut all: Vec<Run> = Vec::new();
    loop {
        let order = Order::Diff {
            since: since.to_owned(),
            to: to.map(str::to_owned),
            from: all.last().map_or(0, |last| last.start + last.bytes),
        };
        let runs: Vec<Run> = ask(volume, key, &order)?;
        all.extend(&runs);
        if runs.len() != RUNS_MAX {
            return Ok(all);
        }
    }
}

/// Asks whoever has the volume.
pub fn ask<T: for<'a> Deserialize<'a>>(volume: &Path, key: &Key, order: &Order) -> Result<T> {
    let told = match whose::find_server(volume)? {
        Some((socket, path)) => {
            let request = json!({"command": "snapshots", "volume": path, "order": order});
            let mut answer = control::request_within(&socket, &request, SERVER_PATIENCE)?;
            answer["snapshots"].take()
        }
        None => at_rest(volume, key, order)?,
    };
    serde_json::from_value(told).context("the server's answer makes no sense")
}

fn at_rest(path: &Path, key: &Key, order: &Order) -> Result<Value> {
    let claimed = claim(path, order.reads(), key)?;
    let options = OpenOptions {
        read_only: order.reads(),
        without_snapshots: matches!(order, Order::DeleteAll),
        receiving: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::from(claimed.medium), &options)?;
    let done = order.carry_out(&volume, usize::MAX);
    let stopped = volume.stop();
    let told = done.with_context(|| path.display().to_string())?;
    stopped?;
    Ok(told)
}

/// The name of the snapshot that a text means, a name or an age, of a volume that whoever has it is asked about. As an argument of its own it may be given as `@-15m`.
pub fn found(volume: &Path, key: &Key, text: &str) -> Result<String> {
    let text = match text.strip_prefix('@') {
        Some(age) if ago::is_age(age) => age,
        _ => text,
    };
    if !ago::is_age(text) {
        return Ok(text.to_owned());
    }
    let all: All = ask(volume, key, &Order::List)?;
    ago::meant(text, &all.snapshots).map_err(|error| anyhow::anyhow!("{}{error}", volume.display()))
}

/// A volume's path, and which of its snapshots is meant: `VOLUME@NAME`, unless there is a file of that name.
pub fn split(given: &Path) -> (PathBuf, Option<String>) {
    let text = given.to_string_lossy();
    match text.rsplit_once('@') {
        Some((volume, name)) if !name.is_empty() && !name.contains('/') && !given.exists() => {
            (volume.into(), Some(name.to_owned()))
        }
        _ => (given.to_owned(), None),
    }
}

/// The same of a command that takes the name as an argument of its own, too.
pub fn meant(given: &Path, name: Option<&str>) -> Result<(PathBuf, String)> {
    match (name, split(given)) {
        (Some(name), _) => Ok((given.to_owned(), name.to_owned())),
        (None, (volume, Some(name))) => Ok((volume, name)),
        (None, (volume, None)) => {
            let volume = volume.display();
            Err(usage(format!(
                "{volume}: say which snapshot: {volume}@NAME; `vellum snapshots {volume}` lists them"
            )))
        }
    }
}

/// Whether this is the name of a clone.
pub fn is_clone(volume: &Path, key: &Key, name: &str) -> Result<bool> {
    let all: All = ask(volume, key, &Order::List)?;
    let mut all = all.snapshots.iter();
    Ok(all.any(|one| one.name == name && one.clone_of.is_some()))
}

/// Volumes by the names of their exports: each, and each of its snapshots, can be compared with its snapshots.
pub struct Compared(pub Vec<(String, Arc<Growable>)>);

impl Compared {
    /// The volume of an export, and its snapshot if it is of one.
    fn find(&self, export: &str) -> Option<(&Arc<Growable>, Option<String>)> {
        let volume = |name: &str| {
            let mut volumes = self.0.iter();
            volumes.find(|(other, _)| other == name).map(|(_, one)| one)
        };
        match volume(export) {
            Some(whole) => Some((whole, None)),
            None => {
                let (name, snapshot) = export.rsplit_once('@')?;
                let volume = volume(name)?;
                Some((volume, Some(named(volume, snapshot)?)))
            }
        }
    }
}

impl Changes for Compared {
    fn points(&self, export: &str) -> Vec<String> {
        let Some((volume, until)) = self.find(export) else {
            return Vec::new();
        };
        let mut all = volume.volume().snapshots().unwrap_or_default();
        let is_it = |one: &SnapshotInfo| Some(&one.name) == until.as_ref();
        // Those before it; and none of a clone, which has no place among them.
        match all.iter().position(is_it) {
            Some(at) if all[at].clone_of.is_some() => all.clear(),
            Some(at) => all.truncate(at),
            None => {}
        }
        let snapshots = all.into_iter().filter(|one| one.clone_of.is_none());
        snapshots.map(|one| one.name).collect()
    }

    fn since(&self, export: &str, point: &str) -> Option<Since> {
        let (volume, until) = self.find(export)?;
        // Only with what was taken before it.
        let number = |name| volume.volume().seen_at(name).map(|seen| seen.number());
        let since = number(point).ok()?;
        let is_older = until
            .as_ref()
            .is_none_or(|until| number(until).is_ok_and(|until| since < until));
        let (volume, point) = (Arc::clone(volume), point.to_owned());
        is_older.then(|| {
            let told: Since = Arc::new(move |lba, blocks, max| {
                let volume = volume.volume();
                // Another one of that name is another point.
                let is_it = volume
                    .seen_at(&point)
                    .is_ok_and(|seen| seen.number() == since);
                let told = || volume.changed_within(&point, until.as_deref(), (lba, blocks), max);
                is_it.then(told)?.ok()
            });
            told
        })
    }
}

/// The name of a snapshot that is asked for by it, or by its age.
fn named(volume: &Growable, asked: &str) -> Option<String> {
    match ago::is_age(asked) {
        true => ago::meant(asked, &volume.volume().snapshots().ok()?).ok(),
        false => Some(asked.to_owned()),
    }
}

/// Finds snapshots by what they are called among these volumes: `NAME@SNAPSHOT`. What is written to one `in_memory` is forgotten
/// with its server; others are read alone.
pub fn finder(volumes: Vec<(String, Arc<Growable>)>, in_memory: bool) -> Finder {
    Arc::new(move |asked| {
        let (name, snapshot) = asked.rsplit_once('@')?;
        let (_, volume) = volumes.iter().find(|(other, _)| other == name)?;
        let name_of_one = named(volume, snapshot)?;
        let volume = volume.volume();
        let (device, number) = device(&volume, &name_of_one, in_memory).ok()?;
        Some(Found {
            of: name.to_owned(),
            // Of a volume that has grown it is another device.
            number: number | volume.superblock().life().0 << 32,
            device: device.into(),
        })
    })
}

/// A clone, to be written; or a snapshot, of which what is written stays `in_memory`, or which is read alone. And its number.
pub fn device(
    volume: &Volume,
    name: &str,
    in_memory: bool,
) -> Result<(Arc<dyn BlockDevice>, u64), SnapshotError> {
    if let Some(clone) = volume.clone_at(name)? {
        let number = clone.number().into();
        return Ok((Arc::new(clone), number));
    }
    let seen = volume.seen_at(name)?;
    let number = seen.number().into();
    Ok(match in_memory {
        true => (Arc::new(seen.with_memory()), number),
        false => (Arc::new(seen), number),
    })
}

/// What these are mounted on is made whole on the volume, and changes no more, until this is dropped.
pub struct Frozen(Vec<std::fs::File>);

impl Frozen {
    /// Freezes the file systems mounted here.
    pub fn new(mounts: &[PathBuf]) -> Result<Self> {
        let mut frozen = Self(Vec::new());
        for mount in mounts {
            let shown = mount.display();
            let dir = std::fs::File::open(mount).with_context(|| format!("cannot open {shown}"))?;
            host::freeze(&dir).with_context(|| format!("cannot freeze {shown}"))?;
            frozen.0.push(dir);
        }
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for dir in self.0.drain(..).rev() {
            // Who has thawed it meanwhile has done no harm.
            let _ = host::thaw(&dir);
        }
    }
}
