//! `vellum list`: shows what is served and attached now.

use crate::behind::volume_behind;
use crate::control::Silent;
use crate::keys::Key;
use crate::outcome::{out, plain};
use crate::peek;
use crate::size::Size;
use crate::state::{self, Process, State};
use crate::{bound, control, properties, snapshots, views};
use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  sudo vellum list\n  vellum list --json | jq -r '.[].path'\n\n\
    Each user has volumes of his own: root's are what `sudo vellum attach` has attached."
)]
pub struct Args {
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
}

/// A volume that is served, or whose dead server has left it bound; or a snapshot or clone of one.
#[derive(Clone, Default, Serialize)]
struct Running {
    path: PathBuf,
    /// The name of the snapshot or clone that it is. `None`: it is the volume.
    view: Option<String>,
    uuid: String,
    label: Option<String>,
    /// `serving`, `busy` (its server is opening volumes or stopping), `silent` (its server does not answer) or `dead`.
    state: &'static str,
    pid: Option<i32>,
    bytes: Option<u64>,
    used_percent: Option<u64>,
    /// How it is attached: `ublk`, `nbd` or `fuse`.
    via: Option<String>,
    device: Option<PathBuf>,
    mounts: Vec<PathBuf>,
    /// Where clients reach it.
    places: Vec<String>,
    /// Why its server is silent.
    #[serde(skip)]
    silence: Option<String>,
}

impl Running {
    /// Its name for other commands.
    fn shown(&self) -> PathBuf {
        match &self.view {
            Some(name) => views::named(&self.path, name),
            None => self.path.clone(),
        }
    }
}

/// Lists the volumes.
pub fn run(args: &Args) -> Result<()> {
    let all = running()?;
    if args.json {
        writeln!(out(), "{}", serde_json::to_value(&all)?)?;
        return Ok(());
    }
    if all.is_empty() {
        writeln!(out(), "nothing is served or attached")?;
        return Ok(());
    }
    let mut rows = vec![["VOLUME", "SIZE", "USED", "PID", "WHERE"].map(str::to_owned)];
    rows.extend(all.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..4).map(|column| width(column).unwrap_or(0)).collect();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            write!(out(), "{cell:<width$}  ")?;
        }
        writeln!(out(), "{}", row[4])?;
    }
    Ok(())
}

fn row(it: &Running) -> [String; 5] {
    let path = match it.path.as_os_str().is_empty() {
        // Only its server knows more, and does not tell.
        true => format!("UUID {}", it.uuid).into(),
        false => it.shown(),
    };
    let path = path.display();
    let name = match &it.label {
        Some(label) => format!("{path} ({label})"),
        None => path.to_string(),
    };
    let or = |told: Option<String>| told.unwrap_or_else(|| "-".to_owned());
    let mut places: Vec<String> = it.mounts.iter().map(|m| m.display().to_string()).collect();
    let via = it.via.as_deref().unwrap_or("?");
    places.extend(it.device.iter().map(|d| format!("{} ({via})", d.display())));
    if it.device.is_none() {
        places.extend(it.places.iter().cloned());
    }
    match it.state {
        "busy" => places.push("opening, or stopping".to_owned()),
        "silent" => {
            let why = it.silence.as_deref().unwrap_or("it hangs");
            places.push(format!("its server does not answer: {why}"));
        }
        "dead" => places.push(format!("its server is dead: vellum detach {path}")),
        _ => {}
    }
    let cells = [
        name,
        or(it.bytes.map(|bytes| Size(bytes).to_string())),
        or(it.used_percent.map(|percent| format!("{percent} %"))),
        or(it.pid.map(|pid| pid.to_string())),
        places.join(" "),
    ];
    cells.map(|cell| plain(&cell).into_owned())
}

/// All of them, by path. Servers that answer are queried. A record counts if its server lives, or if the kernel has its device.
fn running() -> Result<Vec<Running>> {
    let mut records: BTreeMap<String, State> = state::records()?.into_iter().collect();
    let sockets = state::control_sockets()?.into_iter();
    let (served, left): (Vec<_>, Vec<_>) =
        sockets.partition(|(_, socket)| control::is_answered(socket));
    for (uuid, _) in left {
        // Left behind by a killed server. What it had attached is for `detach`; without a record there is only the socket.
        if !records.contains_key(&uuid) {
            control::clear_up(&uuid);
        }
    }
    let mut all = Vec::new();
    let mut servers = asked(served)?;
    while let Some(uuid) = servers.first().map(|server| server.uuid.clone()) {
        let (mut its, others): (Vec<_>, _) = servers.into_iter().partition(|one| one.uuid == uuid);
        servers = others;
        let record = records.remove(&uuid);
        if let Some(record) = record.filter(|record| record.server.is_some_and(Process::alive)) {
            // Others may only read the same volume.
            let is_its = |one: &Server| one.pid == record.server.map(|server| server.pid);
            let one = its.remove(its.iter().position(is_its).unwrap_or(0));
            all.extend(attached(one.running(Some(&record)), &record));
        }
        all.extend(its.iter().map(|one| one.running(None)));
    }
    all.extend(records.into_iter().flat_map(|(uuid, it)| dead(&uuid, it)));
    all.sort_by(|a, b| (&a.path, &a.view, a.pid).cmp(&(&b.path, &b.view, b.pid)));
    Ok(all)
}

/// Queries servers, all at the same time: one that hangs is not waited for longer than others.
fn asked(sockets: Vec<(String, PathBuf)>) -> Result<Vec<Server>> {
    thread::scope(|scope| {
        let ask = |(uuid, socket): (String, PathBuf)| {
            thread::Builder::new().spawn_scoped(scope, move || Server::ask(uuid, &socket))
        };
        let asked = sockets.into_iter().map(ask);
        let asked = asked.collect::<std::io::Result<Vec<_>>>()?;
        Ok(asked
            .into_iter()
            .filter_map(|one| one.join().ok())
            .collect())
    })
}

/// A server of a volume, and what it says.
struct Server {
    uuid: String,
    pid: Option<i32>,
    /// Its report about the volume, if it gives one.
    told: Option<Value>,
    /// What it is without a report: `busy` or `silent`.
    otherwise: &'static str,
    /// Why it is silent.
    silence: Option<String>,
    /// The volume of a silent one.
    path: Option<PathBuf>,
}

impl Server {
    fn ask(uuid: String, socket: &Path) -> Self {
        // If it hangs, other commands may have filled its queue.
        let pid = control::server_pid(socket);
        let answer = control::request_within(socket, &json!({"command": "stats"}), PATIENCE);
        let otherwise = match &answer {
            Err(error) if error.is::<Silent>() => "silent",
            _ => "busy",
        };
        let is_silent = otherwise == "silent";
        let silence = is_silent.then(|| control::silence(socket));
        let path = is_silent.then(|| volume_behind(&uuid, socket));
        let told = answer.ok().and_then(|mut answer| {
            let volumes = answer["volumes"].as_array_mut()?;
            volumes
                .iter_mut()
                .find(|volume| volume["uuid"] == *uuid)
                .map(Value::take)
        });
        Self {
            uuid,
            pid,
            told,
            otherwise,
            silence,
            path: path.flatten(),
        }
    }

    /// The volume as it tells, or as it is recorded.
    fn running(&self, record: Option<&State>) -> Running {
        let (mut path, view) = record.map(recorded).unwrap_or_default();
        if let Some(found) = self.path.clone().filter(|_| record.is_none()) {
            path = found;
        }
        let mut it = Running {
            uuid: self.uuid.clone(),
            pid: self.pid,
            state: self.otherwise,
            silence: self.silence.clone(),
            path,
            view,
            ..Running::default()
        };
        let Some(told) = &self.told else {
            return it;
        };
        it.state = "serving";
        it.path = told["path"].as_str().unwrap_or("?").into();
        // Servers of before this field do not tell it.
        if let Some(view) = told.get("view") {
            it.view = view.as_str().map(str::to_owned);
        }
        it.bytes = told["bytes"].as_u64();
        let stats = |at: &str| told.pointer(at).and_then(Value::as_u64);
        // A large volume is still being counted right after it was opened.
        let is_counted = stats("/stats/core/uncounted_leaves").is_none_or(|left| left == 0);
        it.used_percent = stats("/stats/room/used_percent").filter(|_| is_counted);
        let places = told["places"].as_array().into_iter().flatten();
        it.places = places
            .filter_map(|p| p.as_str().map(str::to_owned))
            .collect();
        it.label = label(&it.path);
        it
    }
}

/// The path of a recorded volume, and the name of the snapshot or clone of it that has a server of its own, if it is one.
fn recorded(record: &State) -> (PathBuf, Option<String>) {
    snapshots::split(&record.volume)
}

/// Adds what the kernel has bound to it. The snapshots and clones that its server shows too, and that are attached, follow it.
fn attached(mut it: Running, record: &State) -> Vec<Running> {
    it.via = Some(record.via.clone());
    let devices = bound::devices(&it.uuid, record);
    let view = |device: PathBuf| {
        Some(Running {
            view: Some(bound::view(&device)?),
            bytes: bound::bytes(&device),
            mounts: bound::mounts_of(&device),
            device: Some(device),
            places: Vec::new(),
            ..it.clone()
        })
    };
    let others: Vec<Running> = devices.iter().cloned().filter_map(view).collect();
    it.device = devices
        .into_iter()
        .find(|device| bound::view(device).is_none());
    it.mounts = bound::mounts(&it.uuid, record);
    it.mounts
        .retain(|dir| !others.iter().any(|other| other.mounts.contains(dir)));
    let mut all = vec![it];
    all.extend(others);
    all
}

/// A volume whose server is dead, if its device or its mount still exists.
fn dead(uuid: &str, record: State) -> Vec<Running> {
    if record.server.is_some_and(Process::alive) {
        return Vec::new();
    }
    let (path, view) = recorded(&record);
    let it = Running {
        uuid: uuid.to_owned(),
        state: "dead",
        path,
        view,
        ..Running::default()
    };
    let mut all = attached(it, &record);
    all.retain(|it| it.device.is_some() || !it.mounts.is_empty());
    all
}

fn label(path: &Path) -> Option<String> {
    let (superblock, _) = peek::superblock_of(path, &Key::none()).ok()?;
    let stored = superblock.properties().get("label")?;
    // Without anything that a terminal would interpret.
    let label = properties::named("label")?.kind.text(stored)?;
    (!label.is_empty()).then_some(label)
}
