//! `vellum policy`: what a volume that is served does with what is written to it.

use crate::control;
use crate::policy::Change;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; its server is found by itself.
    volume: PathBuf,
    /// What shall be otherwise from now on, until the server ends: write-once=on|off|paper|descriptor,
    /// hash=xxh3|head64|crc32c|md5|sha1, replay=on|off, zero=on|off, compress=off|lz4|zstd, dedup=on|off, index=SIZE, sample=off|SIZE,
    /// store=compact|caftl, decide=compare|blake3|sha256|sha1|md5, sweep=full|SIZE,
    /// semantics=on|off, freed=on|off; several with commas.
    #[arg(value_name = "NAME=VALUE,...")]
    change: Vec<String>,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
}

/// Shows them, and switches them if told to.
pub fn run(args: &Args) -> Result<()> {
    let mut request = json!({"command": "policy", "volume": args.volume.canonicalize()?});
    if !args.change.is_empty() {
        let change = args.change.join(",");
        change.parse::<Change>().map_err(crate::outcome::usage)?;
        request["change"] = change.into();
    }
    let answer = control::request(&control::socket_of(&args.volume)?, &request)?;
    let policy = answer
        .pointer("/volumes/0/policy")
        .cloned()
        .unwrap_or_default();
    if args.json {
        println!("{policy}");
        return Ok(());
    }
    for (name, value) in policy.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Bool(true) => "on".to_owned(),
            Value::Bool(false) => "off".to_owned(),
            other => other.to_string(),
        };
        println!("  {:<14}{value}", name.replace('_', "-"));
    }
    Ok(())
}
