//! `vellum scrub`: reads and checks everything that is stored, on a served volume or not; exit code 3 if some of it is lost.

use crate::claim::{claim, is_served};
use crate::keys::Key;
use crate::outcome::{damage, out, tell as say, usage};
use crate::peek;
use crate::size::Size;
use crate::{control, state};
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::{Finding, OpenError, OpenOptions, ScrubReport, Severity, Volume};

/// The default rate, beside clients.
const GENTLY: u32 = vellum_device::limits::SCRUB_RATE;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    vellum scrub disk.vellum               all of it, beside whoever uses it; waits for the end\n  \
    vellum scrub disk.vellum --rate 200M   faster, also one that is under way\n  \
    vellum scrub disk.vellum --stop        the next one goes on there\n  \
    vellum scrub disk.vellum --status      how far it is, and what the last one found\n\n\
Exit code 3: something is damaged, and there was no other copy of it.")]
pub struct Args {
    /// The volume; if it is being served, its server does it.
    volume: PathBuf,
    /// What it may read in a second: a size, or `full`; 32M beside a server's clients, and `full` without a server.
    #[arg(long, value_name = "RATE", conflicts_with_all = ["stop", "status"])]
    rate: Option<String>,
    /// Ends the one under way where it is; what it has found so far is shown.
    #[arg(long, conflicts_with = "status")]
    stop: bool,
    /// Only show how far it is, and what it, or the last one, has found.
    #[arg(long)]
    status: bool,
    /// Only report, and change nothing. For a volume that no server has open.
    #[arg(long)]
    read_only: bool,
    /// As JSON, one line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Parses blocks a second.
fn rate_of(text: &str) -> Result<u32> {
    if text == "full" {
        return Ok(0);
    }
    let size: Size = text
        .parse()
        .map_err(|error| usage(format!("--rate: {error}; or `full`")))?;
    match u32::try_from(size.0 / BLOCK_BYTES as u64) {
        Ok(blocks @ 1..) => Ok(blocks),
        _ => Err(usage("--rate: from 4K to 16T a second, or `full`")),
    }
}

/// Scrubs, and waits for the end.
pub fn run(args: &Args) -> Result<()> {
    let rate = args.rate.as_deref().map(rate_of).transpose()?;
    if is_served(&peek::uuid_of(&args.volume)?) {
        return on_line(args, rate.unwrap_or(GENTLY));
    }
    if args.stop || args.status {
        bail!(
            "{} is not being served: there is no scrub under way",
            args.volume.display()
        );
    }
    off_line(args, rate.unwrap_or(0))
}

fn on_line(args: &Args, rate: u32) -> Result<()> {
    let (socket, volume) = (
        state::control_socket(&peek::uuid_of(&args.volume)?)?,
        args.volume.canonicalize()?,
    );
    let ask = |order: Option<&str>| -> Result<ScrubReport> {
        let volume = volume.to_string_lossy();
        let request = json!({"command": "scrub", "volume": volume, "scrub": order, "rate": rate});
        let answer = control::request(&socket, &request)?;
        let told = answer.get("scrub").cloned().unwrap_or(Value::Null);
        Ok(serde_json::from_value(told)?)
    };
    if args.status {
        return tell(args, &ask(None)?);
    }
    let before = ask(None)?;
    ask(Some(if args.stop { "stop" } else { "start" }))?;
    let report = wait(|| ask(None))?;
    tell(args, &report)?;
    if !args.stop && report.halted > before.halted {
        bail!("it was stopped before its end; the next one goes on where it was");
    }
    Ok(())
}

fn off_line(args: &Args, rate: u32) -> Result<()> {
    let claimed = claim(&args.volume, args.read_only, &args.key)?;
    let options = OpenOptions {
        read_only: args.read_only,
        ..OpenOptions::default()
    };
    let volume = match Volume::open(Arc::new(claimed.medium), &options) {
        Ok(volume) => volume,
        Err(error @ OpenError::Recovery { .. }) => {
            return Err(damage(format!(
                "{error}: so it cannot be scrubbed; `vellum check` tells more"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    volume.scrub(rate);
    let report = wait(|| Ok(volume.scrub_report()));
    volume.stop_telling(|| {
        say(format_args!(
            "{}: no room for what is to be written last: waiting for it",
            args.volume.display()
        ))
    })?;
    tell(args, &report?)
}

/// Polls until it is over.
fn wait(ask: impl Fn() -> Result<ScrubReport>) -> Result<ScrubReport> {
    let bar = ProgressBar::new(1000);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent}% {msg}") {
        bar.set_style(style);
    }
    loop {
        let report = ask()?;
        let Some(permille) = report.permille else {
            bar.finish_and_clear();
            return Ok(report);
        };
        bar.set_position(permille);
        let found = report.damaged + report.mended + report.second_copies;
        bar.set_message(format!("{} read, {found} found", Size(report.read_bytes)));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn tell(args: &Args, report: &ScrubReport) -> Result<()> {
    if args.json {
        writeln!(out(), "{}", serde_json::to_string(report)?)?;
    } else {
        show(&args.volume, report)?;
    }
    match report.damaged {
        0 => Ok(()),
        count => Err(damage(format!(
            "{}: {count} damaged, and no other copy of it found",
            args.volume.display()
        ))),
    }
}

fn show(volume: &Path, report: &ScrubReport) -> Result<()> {
    for finding in &report.findings {
        let severity = match finding {
            Finding {
                mended: Some(_), ..
            } => "mended",
            Finding {
                severity: Severity::SecondCopy,
                ..
            } => "second copy",
            _ => "DAMAGE",
        };
        writeln!(out(), "{severity}: {finding}")?;
    }
    let all = report.damaged + report.mended + report.second_copies;
    let unlisted = all - all.min(report.findings.len() as u64);
    if unlisted > 0 && report.permille.is_none() {
        writeln!(out(), "and {unlisted} more")?;
    }
    let percent = |permille: u64| format!("{}.{}%", permille / 10, permille % 10);
    if let Some(permille) = report.went_on_at {
        let from = percent(permille);
        writeln!(out(), "it went on at {from}, where one was stopped before")?;
    }
    writeln!(
        out(),
        "{}: {} read, {} damaged, {} mended, {} second copies damaged",
        volume.display(),
        Size(report.read_bytes),
        report.damaged,
        report.mended,
        report.second_copies
    )?;
    match (report.permille, report.left_at) {
        (Some(permille), _) => writeln!(out(), "under way: {}", percent(permille))?,
        (None, Some(permille)) => {
            let at = percent(permille);
            writeln!(out(), "left at {at}: the next one goes on there")?;
        }
        (None, None) => {}
    }
    Ok(())
}
