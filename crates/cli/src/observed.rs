//! What this user's servers on this machine report about their volumes.

use crate::behind::volume_behind;
use crate::drives::Drives;
use crate::{control, state};
use anyhow::Result;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use vellum_ops::site::Source;
use vellum_ops::view::View;
use vellum_ops::{Observed, metrics};

/// How long a server may take to answer: monitoring programs wait 10 s, and must hear which one does not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What was asked of the servers is also told to whoever asks within this time, while they answer.
const SHARED: Duration = Duration::from_secs(1);

/// All served volumes, by UUID. Remains of dead servers are skipped.
pub fn all() -> Result<Vec<Observed>> {
    let sockets = state::control_sockets()?;
    // A volume that several servers read is one volume.
    let uuids: BTreeSet<String> = sockets.into_iter().map(|(uuid, _)| uuid).collect();
    // At the same time: servers that hang are not waited for one after another.
    thread::scope(|scope| {
        let ask = |uuid| thread::Builder::new().spawn_scoped(scope, move || observed(uuid));
        let asked = uuids.into_iter().map(ask);
        let asked = asked.collect::<std::io::Result<Vec<_>>>()?;
        let told = asked.into_iter().filter_map(|one| one.join().ok());
        told.filter_map(Result::transpose).collect()
    })
}

fn observed(uuid: String) -> Result<Option<Observed>> {
    let socket = state::control_socket(&uuid)?;
    if !control::is_answered(&socket) {
        return Ok(None);
    }
    let told = told(&socket, &uuid);
    let path = match told {
        Some(_) => None,
        None => volume_behind(&uuid, &socket),
    };
    let path = path.map(|path| path.to_string_lossy().into_owned());
    Ok(Some(Observed::new(uuid, told).at(path)))
}

fn told(socket: &Path, uuid: &str) -> Option<Value> {
    let request = json!({"command": "stats"});
    let mut answer = control::request_within(socket, &request, PATIENCE).ok()?;
    let Value::Array(volumes) = answer["volumes"].take() else {
        return None;
    };
    volumes.into_iter().find(|volume| volume["uuid"] == uuid)
}

/// The servers of this machine, and the drives below their volumes.
pub struct Servers {
    drives: Drives,
    last: Mutex<Option<Told>>,
}

/// What all servers reported.
struct Told {
    began: Instant,
    ended: Instant,
    volumes: Arc<Vec<Observed>>,
}

impl Servers {
    /// The servers, with what is known about drives.
    pub fn new(drives: Drives) -> Self {
        let last = Mutex::default();
        Self { drives, last }
    }

    /// All served volumes. Who asks meanwhile hears the same: each server has few seats for clients, and commands need one, too.
    fn all(&self) -> Result<Arc<Vec<Observed>>, String> {
        let asked = Instant::now();
        let mut last = self.last.lock();
        let is_new = |it: &&Told| it.ended >= asked && it.began + SHARED >= asked;
        if let Some(told) = last.as_ref().filter(is_new) {
            return Ok(Arc::clone(&told.volumes));
        }
        let began = Instant::now();
        let volumes = Arc::new(all().map_err(|error| format!("{error:#}"))?);
        *last = Some(Told {
            began,
            ended: Instant::now(),
            volumes: Arc::clone(&volumes),
        });
        Ok(volumes)
    }
}

impl Source for Servers {
    fn metrics(&self) -> Result<String, String> {
        let volumes = self.all()?;
        let drives = self.drives.below(&volumes);
        metrics::text(&volumes, &drives).map_err(|error| error.to_string())
    }

    fn view(&self) -> Result<View, String> {
        let volumes = self.all()?;
        Ok(View::of(&volumes, &self.drives.below(&volumes)))
    }
}
