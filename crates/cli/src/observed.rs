//! What the servers of this machine, of this user, tell of their volumes.

use crate::{control, state};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;

/// A volume that somebody serves.
pub struct Observed {
    /// Its UUID.
    pub uuid: String,
    /// Its server's answer for it: its path, counters and troubles. None when the server does not answer: it opens its volumes, stops or is stuck.
    pub told: Option<Value>,
}

impl Observed {
    /// All of them, by their UUIDs. What a dead server has left behind is left out.
    pub fn all() -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for uuid in state::control_sockets()? {
            let socket = state::control_socket(&uuid)?;
            if control::server_pid(&socket).is_some() {
                let told = told(&socket, &uuid);
                all.push(Self { uuid, told });
            }
        }
        Ok(all)
    }

    /// Its file; its UUID when that is not known.
    pub fn name(&self) -> String {
        let path = self.told.as_ref().and_then(|told| told["path"].as_str());
        path.unwrap_or(&self.uuid).to_owned()
    }
}

fn told(socket: &Path, uuid: &str) -> Option<Value> {
    let mut answer = control::ask(socket, "stats").ok()?;
    let Value::Array(volumes) = answer["volumes"].take() else {
        return None;
    };
    volumes.into_iter().find(|volume| volume["uuid"] == uuid)
}
