//! `vellum stats`: shows a running server's counters.

mod screen;
mod summary;

use crate::outcome::{out, usage};
use crate::signals::Stop;
use crate::size::Size;
use crate::{control, whose};
use anyhow::Result;
use screen::Screen;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use summary::Counted;
use vellum_ops::health;

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  vellum stats disk.vellum\n  vellum stats disk.vellum --watch\n  \
    vellum stats disk.vellum --all | grep dedup\n  vellum stats disk.vellum --json | jq '.[0].stats.medium'"
)]
pub struct Args {
    /// The volume; its server is found by itself.
    #[arg(required_unless_present = "control")]
    volume: Option<PathBuf>,
    /// The server's control socket.
    #[arg(long, value_name = "PATH", conflicts_with = "volume")]
    control: Option<PathBuf>,
    /// All counters, a line each.
    #[arg(long)]
    all: bool,
    /// As JSON, one line, all of it.
    #[arg(long, conflicts_with = "all")]
    json: bool,
    /// Again and again, every so many seconds, until q or Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// Shows the counters.
pub fn run(args: &Args) -> Result<()> {
    let (socket, name) = match (&args.control, &args.volume) {
        (Some(socket), _) => (socket.clone(), None),
        (None, Some(path)) => {
            let (socket, volume) = whose::server_of(path)?;
            (socket, Some(volume))
        }
        (None, None) => return Err(usage("name a volume or a control socket")),
    };
    let Some(seconds) = args.watch else {
        let volumes = ask(&socket, name.as_deref())?;
        write!(out(), "{}", shown(args, &volumes, None))?;
        return Ok(out().flush()?);
    };
    let stop = Stop::with_terminal()?;
    let mut screen = Screen::begin();
    let mut before: Option<Vec<Value>> = None;
    loop {
        let volumes = ask(&socket, name.as_deref())?;
        screen.draw(&shown(args, &volumes, before.as_deref()))?;
        before = Some(volumes);
        if screen.wait(Duration::from_secs(seconds), &|| stop.asked()) {
            return Ok(());
        }
    }
}

/// A server's counters, for all its volumes or for one.
fn ask(socket: &Path, name: Option<&Path>) -> Result<Vec<Value>> {
    // As the server reports it: a path need not be UTF-8, but JSON is.
    let name_told = name.map(Path::to_string_lossy);
    let request = json!({"command": "stats", "volume": name_told});
    let mut answer = control::request(socket, &request)?;
    let all = match answer["volumes"].take() {
        Value::Array(all) => all,
        _ => Vec::new(),
    };
    let ours = |v: &Value| {
        let name = name_told.as_deref();
        name.is_none_or(|name| v["path"].as_str() == Some(name))
    };
    let volumes: Vec<Value> = all.into_iter().filter(ours).collect();
    match name {
        Some(name) if volumes.is_empty() => Err(served_elsewhere(name)),
        _ => Ok(volumes),
    }
}

fn shown(args: &Args, volumes: &[Value], before: Option<&[Value]>) -> String {
    if args.json {
        return format!("{}\n", Value::from(volumes));
    }
    let each = volumes.iter().enumerate().map(|(i, volume)| {
        let earlier = before.and_then(|before| before.get(i));
        match args.all {
            true => text(volume, earlier, args.watch),
            false => Counted::new(volume, earlier, args.watch.unwrap_or(1)).lines(),
        }
    });
    each.collect()
}

/// The error for a copy: servers are found by UUID, which a copy shares.
fn served_elsewhere(volume: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is not being served, but a volume with its UUID is: the same by another path, or one of them is \
         a copy",
        volume.display()
    )
}

/// All numbers below a value, with their full names.
fn flat(value: &Value, name: String, into: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = if name.is_empty() {
                    key.clone()
                } else {
                    format!("{name}.{key}")
                };
                flat(value, name, into);
            }
        }
        // Described in words, at the end.
        Value::Array(_) => {}
        other => into.push((name, other.clone())),
    }
}

fn counters(volume: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    flat(
        volume.get("stats").unwrap_or(&Value::Null),
        String::new(),
        &mut found,
    );
    found
}

fn text(volume: &Value, before: Option<&Value>, every: Option<u64>) -> String {
    use std::fmt::Write;
    let get = |key: &str| volume.get(key).and_then(Value::as_str).unwrap_or("?");
    let bytes = Size(volume.get("bytes").and_then(Value::as_u64).unwrap_or(0));
    let mut text = format!("{} ({bytes}, {})\n", get("name"), get("path"));
    let earlier = before.map(counters).unwrap_or_default();
    for (name, now) in counters(volume) {
        let was = earlier
            .iter()
            .find(|(n, _)| *n == name)
            .and_then(|(_, v)| v.as_u64());
        let _ = match (now.as_u64(), was, every) {
            (Some(now), Some(was), Some(every)) => {
                writeln!(
                    text,
                    "  {name:<36}{now:>18}{:>14}/s",
                    now.saturating_sub(was) / every
                )
            }
            (Some(now), ..) => writeln!(text, "  {name:<36}{now:>18}"),
            _ if now.is_f64() => {
                writeln!(text, "  {name:<36}{:>18.3}", now.as_f64().unwrap_or(0.0))
            }
            _ => writeln!(
                text,
                "  {name:<36}{:>18}",
                now.as_str().map_or_else(|| now.to_string(), str::to_owned)
            ),
        };
    }
    if let Some(known) = volume.pointer("/stats/write_once") {
        text += &super::journal::text(known);
    }
    let _ = writeln!(text, "  confined: {}", get("confined"));
    if let Some(recording) = volume.get("recording").filter(|r| r.is_object()) {
        let mut counted = Vec::new();
        flat(recording, "recording".to_owned(), &mut counted);
        for (name, value) in counted.iter().filter(|(_, value)| !value.is_null()) {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(text, "  {name:<36}{value:>18}");
        }
    }
    for event in volume
        .get("events")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let _ = writeln!(text, "  {}", health::trouble(event));
    }
    text
}
