//! `vellum stats`: a live server's counters.

use crate::control;
use crate::size::Size;
use anyhow::Result;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; its server is found by itself.
    #[arg(required_unless_present = "control")]
    volume: Option<PathBuf>,
    /// The server's control socket.
    #[arg(long, value_name = "PATH", conflicts_with = "volume")]
    control: Option<PathBuf>,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
    /// Again and again, every so many seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// Shows them.
pub fn run(args: &Args) -> Result<()> {
    let (socket, name) = match (&args.control, &args.volume) {
        (Some(socket), _) => (socket.clone(), None),
        (None, Some(path)) => {
            let (socket, volume) = control::server_of(path)?;
            (socket, Some(volume))
        }
        (None, None) => return Err(crate::outcome::usage("name a volume or a control socket")),
    };
    let mut before = None;
    loop {
        let answer = control::ask(&socket, "stats")?;
        let all = answer
            .get("volumes")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let ours = |v: &&Value| {
            name.as_deref()
                .is_none_or(|n| v.get("path").and_then(Value::as_str).map(Path::new) == Some(n))
        };
        let volumes: Vec<Value> = all.iter().filter(ours).cloned().collect();
        if let (Some(name), true) = (&name, volumes.is_empty()) {
            return Err(served_elsewhere(name));
        }
        let mut out = std::io::stdout().lock();
        if args.json {
            writeln!(out, "{}", Value::Array(volumes.clone()))?;
        } else {
            for (i, volume) in volumes.iter().enumerate() {
                let earlier = before.as_ref().and_then(|b: &Vec<Value>| b.get(i));
                write!(out, "{}", text(volume, earlier, args.watch))?;
            }
        }
        out.flush()?;
        let Some(seconds) = args.watch else {
            return Ok(());
        };
        before = Some(volumes);
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// Servers are found by the UUID, which a copy has too.
fn served_elsewhere(volume: &Path) -> anyhow::Error {
    anyhow::anyhow!(
        "{} is not being served, but a volume with its UUID is: the same by another path, or one of them is a copy",
        volume.display()
    )
}

/// All numbers below a value, with the names that lead to them.
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
        // Told in words, at the end.
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
        let message = event.get("message").and_then(Value::as_str).unwrap_or("?");
        let _ = writeln!(
            text,
            "  trouble, {} times: {message}",
            event.get("count").unwrap_or(&Value::Null)
        );
    }
    text
}
