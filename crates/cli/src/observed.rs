//! What the servers of this machine, of this user, tell of their volumes.

use crate::drives::Drives;
use crate::{control, state};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use vellum_ops::page::Source;
use vellum_ops::view::View;
use vellum_ops::{Observed, metrics};

/// All volumes that somebody serves, by their UUIDs. What a dead server has left behind is left out.
pub fn all() -> Result<Vec<Observed>> {
    let mut all = Vec::new();
    for uuid in state::control_sockets()? {
        let socket = state::control_socket(&uuid)?;
        if control::server_pid(&socket).is_some() {
            let told = told(&socket, &uuid);
            all.push(Observed::new(uuid, told));
        }
    }
    Ok(all)
}

fn told(socket: &Path, uuid: &str) -> Option<Value> {
    let mut answer = control::ask(socket, "stats").ok()?;
    let Value::Array(volumes) = answer["volumes"].take() else {
        return None;
    };
    volumes.into_iter().find(|volume| volume["uuid"] == uuid)
}

/// The servers of this machine, and the drives below their volumes.
pub struct Servers(Drives);

impl Servers {
    /// Those, with what is known of drives.
    pub fn new(drives: Drives) -> Self {
        Self(drives)
    }
}

impl Source for Servers {
    fn metrics(&self) -> Result<String, String> {
        let volumes = all().map_err(|error| format!("{error:#}"))?;
        let drives = self.0.below(&volumes);
        metrics::text(&volumes, &drives).map_err(|error| error.to_string())
    }

    fn view(&self) -> Result<View, String> {
        let volumes = all().map_err(|error| format!("{error:#}"))?;
        Ok(View::of(&volumes, &self.0.below(&volumes)))
    }
}
