//! Requests about a volume's snapshots: sent to its server if it has one, or else done on the volume itself.

use crate::claim::claim;
use crate::keys::Key;
use crate::outcome::{Special, usage};
use crate::size::Size;
pub use crate::whole::split;
use crate::{ago, control, host, whose};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::{BadName, Name};
use vellum_device::block::BlockDevice;
use vellum_device::{Growable, OpenOptions, SnapshotError, SnapshotInfo, Volume};
use vellum_frontend::changes::{Changes, Since};
use vellum_frontend::finder::{Finder, Found};
use vellum_frontend::unaligned::{ByteDevice, WeakByteDevice};

/// How long a server may take: to delete a snapshot, it frees each block that only the snapshot keeps.
const SERVER_PATIENCE: Duration = Duration::from_secs(3600);

/// Runs that a server reports at once: as many as fit in a line.
pub const RUNS_MAX: usize = 16 << 10;

/// A warning is given if less than one part in this many of what is stored can be overwritten.
const LITTLE: u64 = 10;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// To list the snapshots.
    #[default]
    List,
    /// To take one with this name.
    Take(String),
    /// To make a clone of a snapshot.
    Clone {
        /// The snapshot.
        of: String,
        /// The name of the clone.
        name: String,
    },
    /// To delete the one with this name.
    Delete(String),
    /// To delete all of them; on an unserved volume this does not read which snapshots exist.
    DeleteAll,
    /// To return to the one with this name; only on an unserved volume.
    #[serde(skip)]
    ReturnTo(String),
    /// To list what has changed.
    Diff {
        /// Since this snapshot.
        since: String,
        /// Until this snapshot, or until now.
        to: Option<String>,
        /// From this byte of the volume on.
        #[serde(default)]
        from: u64,
    },
}

/// All snapshots of a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct All {
    /// The snapshots, the oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Bytes that they keep in total.
    pub kept_bytes: u64,
    /// Bytes that they can keep.
    pub room_bytes: u64,
    /// Bytes that are stored. Older servers report 0.
    #[serde(default)]
    pub stored_bytes: u64,
    /// Bytes of these that can be overwritten before there is no room to keep the old data.
    #[serde(default)]
    pub left_bytes: u64,
}

impl All {
    /// A warning, with advice, if little can be overwritten.
    pub fn warning(&self) -> Option<String> {
        if self.left_bytes >= self.stored_bytes / LITTLE {
            return None;
        }
        let (stored, left) = (Size(self.stored_bytes), Size(self.left_bytes));
        let then = match self.snapshots.iter().any(|one| one.scheduled) {
            true => "then those of the schedule go, if it is on, and at last writes fail",
            false => "then writes fail",
        };
        Some(format!(
            "warning: {left} of the {stored} that are stored can be written over, {then}. \
             Delete snapshots that you do not need, or files that are newer than them, or enlarge the volume \
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
    /// Parses a request on a control socket. An empty one lists the snapshots.
    pub fn read(order: &Value) -> Result<Self, String> {
        if order.is_null() {
            return Ok(Self::default());
        }
        let read: Result<Self, _> = serde_json::from_value(order.clone());
        read.map_err(|error| format!("\"order\" of snapshots: {error}"))
    }

    /// True if it changes nothing.
    fn reads(&self) -> bool {
        matches!(self, Self::List | Self::Diff { .. })
    }

    /// Carries out the request. Returns at most this many runs, or all snapshots after the change.
    pub fn carry_out(&self, volume: &Volume, most: usize) -> Result<Value, SnapshotError> {
        match self {
            Self::List => {}
            Self::Take(name) => {
                volume.take_snapshot(name, seconds())?;
            }
            Self::Clone { of, name } => volume.clone_snapshot(of, name, seconds())?,
            Self::Delete(name) => volume.delete_snapshot(name)?,
            Self::DeleteAll => {
                let mut all = volume.listed_snapshots()?;
                // A snapshot cannot be deleted while it has clones.
                all.sort_by_key(|one| one.clone_of.is_none());
                for one in all {
                    volume.delete_snapshot(&one.name)?;
                }
            }
            Self::ReturnTo(name) => volume.roll_back(name)?,
            Self::Diff { since, to, from } => {
                let from = Lba(from / BLOCK_BYTES as u64);
                let runs = volume.changed_from(since, to.as_deref(), from, most)?;
                return Ok(json!(runs.into_iter().map(run).collect::<Vec<_>>()));
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

/// Seconds since 1970.
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

/// What differs between a snapshot and a later one, or the present volume.
pub fn diff(volume: &Path, key: &Key, since: &str, to: Option<&str>) -> Result<Vec<Run>> {
    all_runs(since, to, |order| ask(volume, key, order))
}

/// Asks for all that differs, in as many answers as it takes.
fn all_runs(
    since: &str,
    to: Option<&str>,
    ask: impl Fn(&Order) -> Result<Value>,
) -> Result<Vec<Run>> {
    let meant = || -> Result<Vec<(u32, u64)>> {
        let all: All = serde_json::from_value(ask(&Order::List)?)?;
        let is_meant = |one: &&SnapshotInfo| one.name == since || Some(one.name.as_str()) == to;
        let meant = all.snapshots.iter().filter(is_meant);
        Ok(meant.map(|one| (one.number, one.taken)).collect())
    };
    let mut all: Vec<Run> = Vec::new();
    let mut first = None;
    loop {
        let order = Order::Diff {
            since: since.to_owned(),
            to: to.map(str::to_owned),
            from: all.last().map_or(0, |last| last.start + last.bytes),
        };
        let runs: Vec<Run> = serde_json::from_value(ask(&order)?)?;
        let goes_on = runs.len() == RUNS_MAX;
        if goes_on && first.is_none() {
            // Each answer is about what the names mean by then. So they have to mean the same before the first one and after the last.
            first = Some(meant()?);
            continue;
        }
        all.extend(&runs);
        if !goes_on {
            break;
        }
    }
    match first {
        Some(first) if first != meant()? => bail!(
            "a snapshot was deleted while they were compared, and another one has its name: compare again"
        ),
        _ => Ok(all),
    }
}

/// Sends a request to the volume's server, or carries it out on the volume.
pub fn ask<T: for<'a> Deserialize<'a>>(volume: &Path, key: &Key, order: &Order) -> Result<T> {
    let told = match whose::find_server(volume)? {
        // It cannot: a mounted file system would find different data below it.
        Some(_) if matches!(order, Order::ReturnTo(_)) => {
            let shown = volume.display();
            bail!(
                "{shown} is being served: `vellum detach {shown}`, or stop its server, and then go back"
            )
        }
        Some((socket, path)) => {
            let request =
                json!({"command": "snapshots", "volume": path.to_string_lossy(), "order": order});
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
        to_make_room: matches!(order, Order::Delete(_)),
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::from(claimed.medium), &options)?;
    let done = order.carry_out(&volume, usize::MAX);
    let stopped = volume.stop();
    let told = done.with_context(|| path.display().to_string())?;
    stopped?;
    Ok(told)
}

/// The name of the snapshot that a name or an age refers to, according to the volume's server or the volume. As a separate
/// argument an age may be written `@-15m`.
pub fn found(volume: &Path, key: &Key, text: &str) -> Result<String> {
    let text = match text.strip_prefix('@') {
        Some(age) if ago::is_age(age) => age,
        _ => text,
    };
    if !ago::is_age(text) {
        return Ok(text.to_owned());
    }
    let all: All = ask(volume, key, &Order::List)?;
    ago::meant(text, &all.snapshots).map_err(|error| {
        let told = format!("{}{error}", volume.display());
        match error.is::<Special>() {
            true => usage(told),
            false => anyhow::anyhow!(told),
        }
    })
}

/// Checks the name of a new snapshot or clone.
pub fn name(text: &str) -> Result<String, BadName> {
    Name::new(text).map(|_| text.to_owned())
}

/// Like [`split`], for a command that needs a snapshot.
pub fn of_snapshot(given: &Path) -> Result<(PathBuf, String)> {
    match split(given) {
        (volume, Some(name)) => Ok((volume, name)),
        (_, None) => {
            let shown = given.display();
            Err(usage(format!(
                "{shown} names no snapshot: give {shown}@NAME; `vellum snapshot {shown} NAME` takes one, \
                 `vellum snapshots {shown}` lists them"
            )))
        }
    }
}

/// Like [`split`], for a command that also takes the name as a separate argument.
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

/// True if this is the name of a clone, false if of a snapshot.
pub fn is_clone(volume: &Path, key: &Key, name: &str) -> Result<bool> {
    let all: All = ask(volume, key, &Order::List)?;
    let found = all.snapshots.iter().find(|one| one.name == name);
    let found = found.with_context(|| {
        let shown = volume.display();
        format!("{shown}: there is no snapshot {name}: `vellum snapshots {shown}` lists them")
    })?;
    Ok(found.clone_of.is_some())
}

/// Volumes by the names of their exports. Each volume, and each of its snapshots, can be compared with the volume's snapshots.
pub struct Compared(pub Vec<(String, Arc<Growable>)>);

impl Compared {
    /// The volume of an export, and the snapshot if the export is one.
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
        let mut all = volume.volume().listed_snapshots().unwrap_or_default();
        let is_it = |one: &SnapshotInfo| Some(&one.name) == until.as_ref();
        // The earlier ones; none for a clone, which has no place among them.
        match all.iter().position(is_it) {
            Some(at) if all[at].clone_of.is_some() => all.clear(),
            Some(at) => all.truncate(at),
            None => {}
        }
        let snapshots = all.into_iter().filter(|one| one.clone_of.is_none());
        snapshots.map(|one| one.name).collect()
    }

    fn since(&self, export: &str, asked: Option<u64>, point: &str) -> Option<Since> {
        let (volume, until) = self.find(export)?;
        let now = volume.volume();
        let since = seen(&now, point).ok()?;
        let until_is = until.as_deref().map(|name| seen(&now, name));
        let until_is = until_is.transpose().ok()?;
        // Only with snapshots taken before it.
        let is_later = until_is.is_none_or(|until| since < until);
        if !is_later || asked.is_some() && until_is != asked {
            return None;
        }
        let (volume, point) = (Arc::clone(volume), point.to_owned());
        Some(Arc::new(move |lba, blocks, max| {
            let volume = volume.volume();
            let told = volume.changed_within(&point, until.as_deref(), (lba, blocks), max);
            // Checked afterwards: if the name still means the same snapshot, it did all the time. A new snapshot of this name is another
            // point.
            let is = |name: &str, identity| seen(&volume, name).is_ok_and(|seen| seen == identity);
            let is_same = is(&point, since)
                && until
                    .as_deref()
                    .zip(until_is)
                    .is_none_or(|(name, identity)| is(name, identity));
            told.ok().filter(|_| is_same)
        }))
    }
}

/// The identity of a snapshot or clone, by its number. Numbers may be used again after the volume is opened again, as when it grows.
fn identity(volume: &Volume, number: u32) -> u64 {
    u64::from(number) | volume.superblock().life().0 << 32
}

/// The identity of the snapshot of this name.
fn seen(volume: &Volume, name: &str) -> Result<u64, SnapshotError> {
    let seen = volume.seen_at(name)?;
    Ok(identity(volume, seen.number()))
}

/// The name of a snapshot that is requested by name or age.
fn named(volume: &Growable, asked: &str) -> Option<String> {
    match ago::is_age(asked) {
        true => ago::meant(asked, &volume.volume().listed_snapshots().ok()?).ok(),
        false => Some(asked.to_owned()),
    }
}

/// The clones that clients use, over every front end: the edges of unaligned requests must be in one list, or one write undoes
/// another ([`unaligned`](vellum_frontend::unaligned)).
#[derive(Default)]
pub struct Clones(Mutex<Known>);

#[derive(Default)]
struct Known(HashMap<(String, u64), WeakByteDevice>);

impl Known {
    /// The device that others use as this clone; `new`, if nobody does.
    fn of(&mut self, volume: &str, number: u64, new: Arc<dyn BlockDevice>) -> ByteDevice {
        self.0.retain(|_, device| device.upgrade().is_some());
        let key = (volume.to_owned(), number);
        if let Some(device) = self.0.get(&key).and_then(WeakByteDevice::upgrade) {
            return device;
        }
        let device = ByteDevice::from(new);
        self.0.insert(key, device.downgrade());
        device
    }
}

/// Finds snapshots of these volumes by `NAME@SNAPSHOT`. With `in_memory`, writes to one are kept until its server ends;
/// otherwise snapshots are read-only.
pub fn finder(
    volumes: Vec<(String, Arc<Growable>)>,
    clones: &Arc<Clones>,
    in_memory: bool,
) -> Finder {
    let clones = Arc::clone(clones);
    Arc::new(move |asked| {
        let (name, snapshot) = asked.rsplit_once('@')?;
        let (_, volume) = volumes.iter().find(|(other, _)| other == name)?;
        let name_of_one = named(volume, snapshot)?;
        let volume = volume.volume();
        // Held until the device is known to the next one who asks for it.
        let mut known = clones.0.lock();
        let (device, number) = device(&volume, &name_of_one, in_memory).ok()?;
        let is_clone = volume.clone_at(&name_of_one).is_ok_and(|one| one.is_some());
        Some(Found {
            of: name.to_owned(),
            name: format!("{name}@{name_of_one}"),
            number,
            device: match is_clone {
                true => known.of(name, number, device),
                false => device.into(),
            },
        })
    })
}

/// The device of a clone, which is writable, or of a snapshot, which is read-only or keeps its writes
/// `in_memory`. Also returns its identity: after the volume has grown, it is another device.
pub fn device(
    volume: &Volume,
    name: &str,
    in_memory: bool,
) -> Result<(Arc<dyn BlockDevice>, u64), SnapshotError> {
    if let Some(clone) = volume.clone_at(name)? {
        let number = identity(volume, clone.number());
        return Ok((Arc::new(clone), number));
    }
    let seen = volume.seen_at(name)?;
    let number = identity(volume, seen.number());
    Ok(match in_memory {
        true => (Arc::new(seen.with_memory()), number),
        false => (Arc::new(seen), number),
    })
}

/// Keeps the file systems mounted here consistent on the volume, and unchanged, until this is dropped.
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
            // It does no harm if it was thawed meanwhile.
            let _ = host::thaw(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_device::CreateOptions;
    use vellum_device::block::Extent;
    use vellum_medium::MemoryMedium;

    /// The newest snapshot is deleted, and the volume opened again: the next one has its number.
    #[test]
    fn a_point_of_another_life_is_unknown() {
        let medium = Arc::new(MemoryMedium::new(8000));
        let create = CreateOptions {
            history: 1000,
            ..CreateOptions::default()
        };
        Volume::create(&*medium, &create).unwrap();
        let options = OpenOptions::default();
        let volume = Arc::new(Growable::open(medium, &options).unwrap());
        for name in ["a", "b"] {
            volume.volume().take_snapshot(name, 1).unwrap();
        }
        let compared = Compared(vec![("disk".to_owned(), Arc::clone(&volume))]);
        let since = compared.since("disk", None, "b").unwrap();
        let of_a = compared.since("disk@b", None, "a").unwrap();
        let same = vec![Extent {
            blocks: 9,
            mapped: false,
        }];
        for since in [&since, &of_a] {
            assert_eq!(since(Lba(0), 9, 9), Some(same.clone()));
        }
        volume.volume().delete_snapshot("b").unwrap();
        let smaller = volume.blocks() - 1000;
        volume.shrink(smaller, &options).unwrap();
        volume.volume().take_snapshot("b", 1).unwrap();
        for since in [&since, &of_a] {
            assert_eq!(since(Lba(0), 9, 9), None);
        }
        // An export that was found is that one.
        let finder = finder(compared.0.clone(), &Arc::default(), false);
        let found = finder("disk@b").unwrap();
        let asked = Some(found.number);
        assert_eq!(found.name, "disk@b");
        assert!(compared.since(&found.name, asked, "a").is_some());
        let other = Some(found.number + 1);
        assert!(compared.since(&found.name, other, "a").is_none());
    }

    /// A server tells a large difference in several answers. Meanwhile it may be given another snapshot of that name.
    #[test]
    fn answers_about_different_snapshots_are_not_put_together() {
        let ends = RUNS_MAX as u64 * 2;
        for (number_then, is_told) in [(7, true), (8, false)] {
            let lists = std::cell::Cell::new(0);
            let told = all_runs("a", None, |order| match order {
                Order::Diff { from, .. } => {
                    let first = from / BLOCK_BYTES as u64;
                    let odd = (first..=ends).filter(|lba| lba % 2 == 1);
                    let runs = odd.map(|lba| run((Lba(lba), 1))).take(RUNS_MAX);
                    // The last answer has one run.
                    let last = (first > 0).then(|| run((Lba(ends + 1), 1)));
                    Ok(json!(runs.chain(last).collect::<Vec<_>>()))
                }
                _ => {
                    lists.set(lists.get() + 1);
                    let number = if lists.get() == 1 { 7 } else { number_then };
                    let one = json!({
                        "name": "a", "number": number, "taken": 1, "kept_bytes": 0, "leaves": false
                    });
                    Ok(json!({"snapshots": [one], "kept_bytes": 0, "room_bytes": 0}))
                }
            });
            match told {
                Ok(runs) => assert!(is_told && runs.len() == RUNS_MAX + 1),
                Err(error) => assert!(!is_told && error.to_string().contains("compare again")),
            }
        }
    }
}
