//! Shared by `vellum dedup` and `vellum fold`: starts a sweep of a served volume, waits for it, or ends it.

use crate::outcome::out;
use crate::properties::Change;
use crate::{control, whose};
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// The volume; its server is found by itself.
    volume: PathBuf,
    /// Waits for no gap between clients' requests, and reads as much as it can.
    #[arg(long, conflicts_with_all = ["rate", "stop", "status"])]
    now: bool,
    /// What it may read in a second, from now on, clients or not: `full`, or a size; the same as `vellum set VOLUME
    /// sweep-rate=RATE`.
    #[arg(long, value_name = "RATE", conflicts_with_all = ["stop", "status"])]
    rate: Option<String>,
    /// Ends a sweep where it is.
    #[arg(long, conflicts_with = "status")]
    pub stop: bool,
    /// Only show how far it is, and what has been found so far.
    #[arg(long)]
    pub status: bool,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
}

/// A kind of sweep.
pub struct Kind {
    /// Its name on the control socket.
    pub command: &'static str,
    /// The counter of what it frees, and a word for that.
    pub freed: (&'static str, &'static str),
    /// The message for a sweep that was stopped early.
    pub stopped: &'static str,
    /// Shows the results from the answers before and after it.
    pub show: fn(&Args, &Value, &Value) -> Result<()>,
}

impl Kind {
    /// How much it has freed.
    pub fn freed(&self, before: &Value, now: &Value) -> u64 {
        let (counter, _) = self.freed;
        core(now, counter).saturating_sub(core(before, counter))
    }

    /// Starts a sweep and waits for its end.
    pub fn run(&self, args: &Args) -> Result<()> {
        let (socket, volume) = whose::server_of(&args.volume)?;
        if let Some(rate) = &args.rate {
            let change = format!("sweep-rate={rate}");
            change.parse::<Change>().map_err(crate::outcome::usage)?;
            let volume = volume.to_string_lossy();
            let request = json!({"command": "properties", "volume": volume, "set": [change]});
            control::request(&socket, &request)?;
        }
        let ask = |order: Option<&str>| -> Result<Value> {
            let volume = volume.to_string_lossy();
            let request = json!({"command": self.command, "volume": volume, "sweep": order});
            let answer = control::request(&socket, &request)?;
            Ok(answer.get(self.command).cloned().unwrap_or_default())
        };
        let before = ask(None)?;
        if args.status {
            return self.tell(args, &before, &before);
        }
        if args.stop {
            ask(Some("stop"))?;
            let told = wait(&ask, |told| told["permille"].is_null())?;
            return self.tell(args, &before, &told);
        }
        // A running sweep may have passed data that was written since, so wait for one more.
        let wanted = number(&before, "sweeps") + 1 + u64::from(!before["permille"].is_null());
        let bar = ProgressBar::new(1000);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent}% {msg}") {
            bar.set_style(style);
        }
        ask(Some(if args.now { "now" } else { "beside" }))?;
        let halts = |told: &Value| number(told, "halted") > number(&before, "halted");
        let told = wait(&ask, |told| {
            bar.set_position(number(told, "permille"));
            bar.set_message(format!("{} {}", self.freed(&before, told), self.freed.1));
            number(told, "sweeps") >= wanted || halts(told)
        })?;
        bar.finish_and_clear();
        self.tell(args, &before, &told)?;
        if number(&told, "sweeps") < wanted {
            bail!("{}", self.stopped);
        }
        Ok(())
    }

    fn tell(&self, args: &Args, before: &Value, now: &Value) -> Result<()> {
        if args.json {
            writeln!(out(), "{now}")?;
            return Ok(());
        }
        if let Some(permille) = now["permille"].as_u64() {
            writeln!(out(), "  sweep            {}", percent(permille))?;
        }
        (self.show)(args, before, now)
    }
}

/// Polls until a condition holds.
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

/// A number in the server's answer; 0 if it is missing.
pub fn number(told: &Value, key: &str) -> u64 {
    told.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The same for the core's counters.
pub fn core(told: &Value, key: &str) -> u64 {
    number(&told["core"], key)
}

/// Formats thousandths as a percentage.
pub fn percent(permille: u64) -> String {
    format!("{}.{}%", permille / 10, permille % 10)
}
