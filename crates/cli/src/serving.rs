//! The volumes of a server, and its answers about them on the control socket.

use crate::confine;
use crate::control::{Answers, HandedOver, Sending};
use crate::handover;
use crate::host;
use crate::properties::{Change, Research, parsed};
use crate::sent::Sent;
use crate::served::Served;
use crate::snapshots::{Clones, Order, RUNS_MAX};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vellum_device::{Growable, Haste, NewSize, Sought};
use vellum_frontend::fuse::FuseServer;

/// How long the kernel may take to report that a file was closed.
const CLOSING: Duration = Duration::from_secs(1);
/// How long a client may take to send what a commit block waits for.
const COMMITTING: Duration = Duration::from_secs(10);

/// All volumes of one server.
pub struct Volumes {
    /// The volumes.
    pub all: Vec<Served>,
    /// The FUSE directory that shows them as files, if any.
    pub fuse: OnceLock<FuseServer>,
    /// The clones that clients use.
    pub clones: Arc<Clones>,
    successor: Mutex<Successor>,
}

/// Whether another process may take over.
struct Successor {
    /// Why not, if not.
    refused: Option<&'static str>,
}

impl Volumes {
    /// The volumes of a starting server. `refused` says why no other process can take over.
    pub fn new(refused: Option<&'static str>) -> Self {
        Self {
            all: Vec::new(),
            fuse: OnceLock::new(),
            clones: Arc::default(),
            successor: Mutex::new(Successor { refused }),
        }
    }

    /// The volumes that have snapshots, by the names of their exports.
    pub fn growable(&self) -> Vec<(String, Arc<Growable>)> {
        let volumes = self.all.iter();
        volumes
            .filter_map(|v| Some((v.name.clone(), v.growable()?)))
            .collect()
    }

    /// The same, without volumes of which only a snapshot or a clone is served: their clients may see nothing else of the volume.
    pub fn whole(&self) -> Vec<(String, Arc<Growable>)> {
        let whole = self.all.iter().filter(|v| v.view.is_none());
        whole
            .filter_map(|v| Some((v.name.clone(), v.growable()?)))
            .collect()
    }

    /// Notes where clients reach each volume.
    pub fn are_at(&self, place: impl Fn(&Served) -> String) {
        self.all.iter().for_each(|v| v.is_at(place(v)));
    }

    /// The volume with this path, or the only one if no path is given.
    fn one(&self, path: &Value) -> Result<&Served, String> {
        // As clients name it: a path need not be UTF-8, but JSON is.
        let path = path.as_str();
        let mut ours = self
            .all
            .iter()
            .filter(|v| path.is_none_or(|path| v.path.to_string_lossy() == path));
        match (ours.next(), ours.next()) {
            (Some(served), None) => Ok(served),
            (Some(_), Some(_)) => Err("say which volume".to_owned()),
            (None, _) => Err(format!(
                "the server has no volume {}: it serves one with this UUID by another path, or one of them \
                 is a copy. Name it by the path that `vellum list` shows",
                path.unwrap_or_default()
            )),
        }
    }
}

impl Volumes {
    /// Refuses while a snapshot is attached: another server would show it without what was written to it.
    fn shows_no_snapshot(&self, fuse: &FuseServer) -> Result<(), String> {
        host::eventually(CLOSING, || fuse.in_use().is_none());
        let Some(file) = fuse.in_use() else {
            return Ok(());
        };
        let (name, snapshot) = file.rsplit_once('@').unwrap_or((&file, ""));
        let of = self.all.iter().find(|volume| volume.name == name);
        let shown = of.map_or(file.clone(), |volume| {
            format!("{}@{snapshot}", volume.path.display())
        });
        Err(format!(
            "{shown} is attached: `vellum detach {shown}` first"
        ))
    }
}

impl Volumes {
    /// Refuses while a volume has no room below it: a stop would wait for some, and nobody would serve meanwhile.
    fn have_room(&self) -> Result<(), String> {
        let lacks = |served: &&Served| served.volume().is_some_and(|it| it.lacks_room());
        match self.all.iter().find(lacks) {
            None => Ok(()),
            Some(served) => Err(format!(
                "{0}: no room on its file system or device for what was written: free some (`df {0}`), and \
                 give the same command again",
                served.path.display()
            )),
        }
    }
}

impl Volumes {
    /// The connection to the kernel, when no commit block waits: it would go on without what it commits, which the kernel may still have.
    fn connection(&self, fuse: &FuseServer) -> Result<OwnedFd, String> {
        let waits = |served: &Served| Some((served.path.clone(), served.volume()?.uncommitted()?));
        let mut taken = Err(String::new());
        host::eventually(COMMITTING, || {
            taken = fuse.hand_over().map_err(|error| error.to_string());
            let waiting = self.all.iter().find_map(waits).filter(|_| taken.is_ok());
            if let Some((path, why)) = &waiting {
                taken = Err(format!("{}: {why}", path.display()));
                fuse.go_on();
            }
            waiting.is_none()
        });
        taken
    }
}

/// The arguments with which this server was started, without those for a takeover.
fn words() -> Result<Vec<String>, String> {
    let words = std::env::args_os().map(std::ffi::OsString::into_string);
    let words: Result<Vec<_>, _> = words.collect();
    let mut words = words.map_err(|word| {
        format!(
            "{} is no UTF-8, and cannot be handed over",
            word.to_string_lossy()
        )
    })?;
    words.retain(|word| !word.starts_with(handover::OPTION));
    Ok(words)
}

impl Answers for Volumes {
    fn stats(&self) -> Value {
        self.all
            .iter()
            .map(|v| {
                json!({
                    "name": v.name,
                    "path": v.path.to_string_lossy(),
                    "uuid": v.uuid(),
                    "view": v.view,
                    "bytes": v.device().bytes(),
                    "places": v.places(),
                    "drive": v.drive(),
                    "file": v.file(),
                    "stats": v.stats(),
                    "recording": v.recording(),
                    "events": v.events(),
                    "confined": confine::told(),
                })
            })
            .collect()
    }

    fn properties(&self, volume: &Value, set: &Value, study: &Value) -> Result<Value, String> {
        let (volume, chosen) = self
            .one(volume)?
            .chosen()
            .ok_or("a plain file has no properties")?;
        if !set.is_null() {
            let changes: Vec<Change> = parsed(set)?;
            let done = chosen.set(volume, &changes);
            done.map_err(|error| format!("{error:#}"))?;
        }
        if !study.is_null() {
            let changes: Vec<Research> = parsed(study)?;
            let changes: Vec<Change> = changes.into_iter().flat_map(|r| r.0).collect();
            let done = chosen.study(volume, &changes);
            done.map_err(|error| format!("{error:#}"))?;
        }
        Ok(chosen.told(volume))
    }

    fn sweep(&self, sought: Sought, volume: &Value, order: &Value) -> Result<Value, String> {
        let served = self.one(volume)?;
        let volume = served
            .volume()
            .ok_or("a plain file stores every block as it comes")?;
        let done = match order.as_str() {
            Some("beside") => volume.sweep(sought, Haste::Beside),
            Some("now") => volume.sweep(sought, Haste::Now),
            Some("stop") => volume.halt_sweep(sought),
            _ if order.is_null() => Ok(()),
            _ => return Err("\"sweep\" is \"beside\", \"now\" or \"stop\"".to_owned()),
        };
        done.map_err(|error| error.to_string())?;
        let progress = volume.sweep_progress(sought);
        let stats = served.stats();
        Ok(json!({
            "sweeps": progress.ended,
            "halted": progress.halted,
            "permille": progress.permille,
            "left_at": progress.left_at,
            "core": stats.get("core").cloned().unwrap_or_default(),
            "medium": stats.get("medium").cloned().unwrap_or_default(),
            "space": stats.get("space").cloned().unwrap_or_default(),
        }))
    }

    fn scrub(&self, volume: &Value, order: &Value, rate: &Value) -> Result<Value, String> {
        let volume = self
            .one(volume)?
            .volume()
            .ok_or("a plain file has nothing to check its blocks by")?;
        match order.as_str() {
            Some("start") => {
                let rate = rate.as_u64().and_then(|rate| u32::try_from(rate).ok());
                volume.scrub(rate.ok_or("\"rate\" is blocks a second, or 0")?);
            }
            Some("stop") => volume.halt_scrub(),
            _ if order.is_null() => {}
            _ => return Err("\"scrub\" is \"start\" or \"stop\"".to_owned()),
        }
        serde_json::to_value(volume.scrub_report()).map_err(|error| error.to_string())
    }

    fn grow(&self, volume: &Value, size: NewSize) -> Result<Value, String> {
        let grown = self.one(volume)?.grow(size);
        let grown = grown.map_err(|error| format!("{error:#}"))?;
        serde_json::to_value(grown).map_err(|error| error.to_string())
    }

    fn shrink(&self, volume: &Value, blocks: u64) -> Result<Value, String> {
        let shrunk = self.one(volume)?.shrink(blocks);
        let shrunk = shrunk.map_err(|error| format!("{error:#}"))?;
        serde_json::to_value(shrunk).map_err(|error| error.to_string())
    }

    fn snapshots(&self, volume: &Value, order: &Value) -> Result<Value, String> {
        let volume = self.one(volume)?.with_snapshots()?;
        let done = Order::read(order)?.carry_out(&volume, RUNS_MAX);
        done.map_err(|error| error.to_string())
    }

    fn send(&self, volume: &Value, order: &Value) -> Result<Sending, String> {
        Sent::read(order)?.sending(&*self.one(volume)?.with_snapshots()?)
    }

    fn hand_over(&self, order: &Value) -> Result<HandedOver, String> {
        let mut successor = self.successor.lock();
        let fuse = match (successor.refused, self.fuse.get()) {
            (Some(why), _) => return Err(why.to_owned()),
            (None, None) => return Err("it is not serving yet".to_owned()),
            (None, Some(fuse)) => fuse,
        };
        self.have_room()?;
        match order.as_str() {
            Some("ask") => {
                self.shows_no_snapshot(fuse)?;
                Ok(HandedOver {
                    told: json!({"version": handover::VERSION, "words": words()?}),
                    file: None,
                    ends: false,
                })
            }
            Some("now") => {
                let connection = self.connection(fuse)?;
                successor.refused = Some("another server goes on with it already");
                Ok(HandedOver {
                    told: json!({"version": handover::VERSION}),
                    file: Some(connection),
                    ends: true,
                })
            }
            _ => Err("\"order\" is \"ask\" or \"now\"".to_owned()),
        }
    }

    fn go_on(&self) {
        // Held throughout: the next request for a handover waits.
        let mut successor = self.successor.lock();
        if let Some(fuse) = self.fuse.get() {
            fuse.go_on();
        }
        successor.refused = None;
    }

    fn journal(&self, volume: &Value, change: &Value) -> Result<Value, String> {
        let served = self.one(volume)?;
        let (volume, chosen) = served
            .chosen()
            .ok_or("a plain file has no journals that are watched")?;
        if !change.is_null() && chosen.has_journals_by_flag() {
            return Err(
                "in this run its journals are those that --journal names: start it without, or \
                `vellum set VOLUME journals=...` \
                 for the next one"
                    .to_owned(),
            );
        }
        let told = |error: anyhow::Error| format!("{error:#}");
        let number = |key: &str| change.get(key).and_then(Value::as_u64);
        match (change.as_str(), number("start"), number("bytes")) {
            (_, Some(start), Some(bytes)) => {
                chosen.add_journal(volume, start, bytes).map_err(told)?;
            }
            (Some("clear"), ..) => {
                let change: Change = "journals=default".parse()?;
                chosen.set(volume, &[change]).map_err(told)?;
            }
            _ if change.is_null() => {}
            _ => return Err("a change is \"clear\", or start and bytes".to_owned()),
        }
        let stats = served.stats();
        let mut told = stats.get("write_once").cloned().unwrap_or_default();
        if let Some(told) = told.as_object_mut() {
            let looking = stats.pointer("/commits/looking");
            told.insert("looking".to_owned(), looking.cloned().unwrap_or_default());
        }
        Ok(told)
    }
}
