//! `vellum dedup`: what is stored twice is stored once, on a volume that is served.

use crate::control;
use crate::outcome::out;
use crate::policy::Change;
use crate::size::Size;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; its server is found by itself.
    volume: PathBuf,
    /// What it may read in a second, from now on, clients or not: `full`, or a size; the same as `vellum policy VOLUME
    /// sweep=RATE`.
    #[arg(long, value_name = "RATE", conflicts_with = "status")]
    rate: Option<String>,
    /// Only show how far it is, and what has been found so far.
    #[arg(long)]
    status: bool,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
}

/// Starts a sweep and waits for its end.
pub fn run(args: &Args) -> Result<()> {
    let (socket, volume) = control::server_of(&args.volume)?;
    if let Some(rate) = &args.rate {
        let change = format!("sweep={rate}");
        change.parse::<Change>().map_err(crate::outcome::usage)?;
        let request = json!({"command": "policy", "volume": volume, "change": change});
        control::request(&socket, &request)?;
    }
    let ask = |now: bool| -> Result<Value> {
        let request = json!({"command": "dedup", "volume": volume, "now": now});
        let answer = control::request(&socket, &request)?;
        Ok(answer.get("dedup").cloned().unwrap_or_default())
    };
    let before = ask(false)?;
    if args.status {
        return show(args, &before, &before);
    }
    // One that runs already has passed what was written behind it: wait for one more.
    let wanted = number(&before, "sweeps") + 1 + u64::from(!before["permille"].is_null());
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent}% {msg}") {
        bar.set_style(style);
    }
    let mut told = ask(true)?;
    while number(&told, "sweeps") < wanted {
        bar.set_position(number(&told, "permille"));
        bar.set_message(format!("{} blocks freed", freed(&before, &told)));
        std::thread::sleep(Duration::from_millis(100));
        told = ask(false)?;
    }
    bar.finish_and_clear();
    show(args, &before, &told)
}

fn number(told: &Value, key: &str) -> u64 {
    told.get(key).and_then(Value::as_u64).unwrap_or(0)
}

fn core(told: &Value, key: &str) -> u64 {
    number(&told["core"], key)
}

fn freed(before: &Value, now: &Value) -> u64 {
    core(now, "merged_blocks").saturating_sub(core(before, "merged_blocks"))
}

fn show(args: &Args, before: &Value, now: &Value) -> Result<()> {
    if args.json {
        writeln!(out(), "{now}")?;
        return Ok(());
    }
    match now["permille"].as_u64() {
        Some(permille) => writeln!(
            out(),
            "  sweep            {}.{}%",
            permille / 10,
            permille % 10
        )?,
        None if !args.status => writeln!(out(), "  blocks freed     {}", freed(before, now))?,
        None => writeln!(out(), "  sweeps           {}", number(now, "sweeps"))?,
    }
    writeln!(out(), "  blocks stored    {}", core(now, "live_blocks"))?;
    let saved = number(&now["space"], "saved_bytes");
    writeln!(out(), "  saved            {}", Size(saved))?;
    writeln!(out(), "  shared in line   {}", core(now, "dedup_blocks"))?;
    writeln!(out(), "  shared later     {}", core(now, "merged_blocks"))?;
    writeln!(
        out(),
        "  index            {} of {} contents",
        core(now, "index_entries"),
        core(now, "index_capacity")
    )?;
    let asked = core(now, "dedup_lookups");
    let percent = 100.0 * core(now, "dedup_blocks") as f64 / asked.max(1) as f64;
    writeln!(
        out(),
        "  found there      {percent:.1}% of {asked} blocks looked up"
    )?;
    writeln!(
        out(),
        "  hints wrong      {}",
        core(now, "dedup_false_hints")
    )?;
    let seconds = |key| number(&now["medium"], key) as f64 / 1e6;
    writeln!(
        out(),
        "  time             {:.3} s comparing, {:.3} s hashing",
        seconds("compare_micros"),
        seconds("fingerprint_micros")
    )?;
    Ok(())
}
