//! What the servers of this machine, of this user, tell of their volumes.

use crate::{control, state};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use vellum_ops::Observed;

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
