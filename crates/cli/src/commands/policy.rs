//! `vellum policy`: what a volume that is served does with what is written to it.

use crate::control;
use crate::outcome::out;
use crate::policy::{self, Change};
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; its server is found by itself.
    volume: PathBuf,
    /// What shall be otherwise.
    #[arg(value_name = "NAME=VALUE,...", help = policy::help("What shall be otherwise from now on, until the server ends"))]
    change: Vec<String>,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
}

/// Shows them, and switches them if told to.
pub fn run(args: &Args) -> Result<()> {
    let mut request = json!({"command": "policy"});
    if !args.change.is_empty() {
        let change = args.change.join(",");
        change.parse::<Change>().map_err(crate::outcome::usage)?;
        request["change"] = change.into();
    }
    let (socket, volume) = control::server_of(&args.volume)?;
    request["volume"] = json!(volume);
    let answer = control::request(&socket, &request)?;
    let policy = answer
        .pointer("/volumes/0/policy")
        .cloned()
        .unwrap_or_default();
    if args.json {
        writeln!(out(), "{policy}")?;
        return Ok(());
    }
    for (name, value) in policy::written(&policy) {
        writeln!(out(), "  {name:<14}{value}")?;
    }
    Ok(())
}
