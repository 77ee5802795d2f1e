//! `vellum get`: shows the properties of a volume, served or not.

use crate::keys::Key;
use crate::outcome::{out, usage};
use crate::peek;
use crate::properties::{self, Run};
use crate::{control, whose};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  vellum get disk.vellum\n  vellum get disk.vellum compress")]
pub struct Args {
    /// The volume; also beside its server.
    volume: PathBuf,
    /// One property: its value alone.
    name: Option<String>,
    /// All of them, also those that few have a reason to change.
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Shows the properties.
pub fn run(args: &Args) -> Result<()> {
    let told = told(&args.volume, &args.key)?;
    let Some(name) = &args.name else {
        return match args.json {
            true => Ok(writeln!(out(), "{told}")?),
            false => Ok(write!(out(), "{}", properties::written(&told, args.all))?),
        };
    };
    let all = told.get("properties").and_then(Value::as_array);
    let is_it = |p: &&Value| p.get("name").and_then(Value::as_str) == Some(name);
    let Some(property) = all.into_iter().flatten().find(is_it) else {
        return Err(match properties::named(name) {
            Some(property) => usage(format!(
                "{name}: this volume's layout has no such thing; the property is for the layout {}",
                property.has.names()
            )),
            None => usage(format!(
                "no property is called {name:?}: see `vellum get {}`",
                args.volume.display()
            )),
        });
    };
    match args.json {
        true => writeln!(out(), "{property}")?,
        false => writeln!(
            out(),
            "{}",
            property.get("value").and_then(Value::as_str).unwrap_or("")
        )?,
    }
    Ok(())
}

fn told(path: &Path, key: &Key) -> Result<Value> {
    if let Some((socket, volume)) = whose::find_server(path)? {
        let request = json!({"command": "properties", "volume": volume.to_string_lossy()});
        let mut answer = control::request(&socket, &request)?;
        return Ok(answer["volume"].take());
    }
    let (superblock, _) = peek::superblock_of(path, key)?;
    Ok(properties::listed(
        &superblock,
        superblock.properties(),
        &Run::default(),
        None,
    ))
}
