//! `vellum dedup`: what is stored twice is stored once, on a volume that is served.

use crate::control;
use crate::outcome::out;
use crate::policy::Change;
use crate::size::Size;
use anyhow::{Result, bail};
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
    /// Waits for no gap between clients' requests, and reads as much as it can.
    #[arg(long, conflicts_with_all = ["rate", "stop", "status"])]
    now: bool,
    /// What it may read in a second, from now on, clients or not: `full`, or a size; the same as `vellum policy VOLUME
    /// sweep=RATE`.
    #[arg(long, value_name = "RATE", conflicts_with_all = ["stop", "status"])]
    rate: Option<String>,
    /// Ends a sweep where it is; the next one goes on there.
    #[arg(long, conflicts_with = "status")]
    stop: bool,
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
    let ask = |order: Option<&str>| -> Result<Value> {
        let request = json!({"command": "dedup", "volume": volume, "sweep": order});
        let answer = control::request(&socket, &request)?;
        Ok(answer.get("dedup").cloned().unwrap_or_default())
    };
    let before = ask(None)?;
    if args.status {
        return show(args, &before, &before);
    }
    if args.stop {
        ask(Some("stop"))?;
        let told = wait(&ask, |told| told["permille"].is_null())?;
        return show(args, &before, &told);
    }
    // One that runs already has passed what was written behind it: wait for one more.
    let wanted = number(&before, "sweeps") + 1 + u64::from(!before["permille"].is_null());
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent}% {msg}") {
        bar.set_style(style);
    }
    ask(Some(if args.now { "now" } else { "beside" }))?;
    let halts = |told: &Value| number(told, "halted") > number(&before, "halted");
    let told = wait(&ask, |told| {
        bar.set_position(number(told, "permille"));
        bar.set_message(format!("{} blocks freed", freed(&before, told)));
        number(told, "sweeps") >= wanted || halts(told)
    })?;
    bar.finish_and_clear();
    show(args, &before, &told)?;
    if number(&told, "sweeps") < wanted {
        bail!("the sweep was stopped before its end; the next one goes on where it was");
    }
    Ok(())
}

/// Asks until it is so.
fn wait(
    ask: &impl Fn(Option<&str>) -> Result<Value>,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    loop {
        let told = ask(None)?;
        if is_so(&told) {
            return Ok(told);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
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
    let percent = |permille: u64| format!("{}.{}%", permille / 10, permille % 10);
    if let Some(permille) = now["permille"].as_u64() {
        writeln!(out(), "  sweep            {}", percent(permille))?;
    }
    if let Some(permille) = now["left_at"].as_u64() {
        writeln!(
            out(),
            "  sweep            left at {}: the next one goes on there",
            percent(permille)
        )?;
    }
    if args.status {
        writeln!(out(), "  sweeps           {}", number(now, "sweeps"))?;
    } else {
        writeln!(out(), "  blocks freed     {}", freed(before, now))?;
    }
    if let (false, Some(permille)) = (args.status || args.stop, before["left_at"].as_u64()) {
        writeln!(
            out(),
            "  went on at       {}: what was written since then is the next one's",
            percent(permille)
        )?;
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
