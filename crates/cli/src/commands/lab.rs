//! `vellum lab`: the engine on simulated flash, in virtual time.

use crate::outcome::usage;
use crate::size::Size;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum_lab::base::Victim;
use vellum_lab::flash::{self, Kind};
use vellum_lab::journal::{Journal, Mode};
use vellum_lab::oracle::{self, Effort, Row};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::{NAMES, Policy};
use vellum_lab::replay::TraceFile;
use vellum_lab::report;
use vellum_lab::scenario::{Device, Load, Precondition, Scenario};
use vellum_lab::sim::Pace;
use vellum_lab::svg::{Line, Plot};
use vellum_lab::trace::Format;
use vellum_lab::workload;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Replay a trace, or run a synthetic load, under several policies side by side.
    Run(Box<Run>),
    /// Write amplification under uniform random overwrites, against the closed forms.
    Oracle(Oracle),
    /// List the devices, the loads and the trace formats.
    List,
}

#[derive(clap::Args)]
struct Run {
    /// The trace; its format is found by looking at it.
    #[arg(required_unless_present = "workload", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// A synthetic load instead of a trace (see `vellum lab list`).
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// The simulated device (see `vellum lab list`).
    #[arg(long, value_name = "NAME", default_value = "tlc-nvme")]
    device: String,
    /// A policy; give it several times. Default: base, vellum, and vellum:cost-benefit where there is flash.
    #[arg(long, value_name = "POLICY", long_help = format!("A policy; give it several times. There are {NAMES}."))]
    policy: Vec<Policy>,
    /// Flash to simulate; by default some GiB, and what the trace needs.
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Size>,
    /// Over-provisioning in percent of what the host sees; by default the device's.
    #[arg(long, value_name = "PERCENT")]
    op: Option<f64>,
    /// Erasures that a block endures; by default the device's.
    #[arg(long, value_name = "COUNT")]
    erase_limit: Option<u32>,
    /// Serve each die strictly in order, reads too.
    #[arg(long)]
    fcfs: bool,
    /// So many requests at a time, each as soon as one is answered. Default for a load: 32; for a trace: its own times.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: Option<u32>,
    /// What is done to the drive before the run begins: none, fill (each block written once) or steady (and overwritten
    /// until the amplification stays the same).
    #[arg(long, value_name = "WHAT", default_value = "fill", value_parser = ["none", "fill", "steady"])]
    precondition: String,
    /// Requests of a load; by default as many as write the volume twice.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "workload")]
    requests: u64,
    /// Bytes of a load's requests, a multiple of 4096.
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "workload")]
    request_size: Size,
    /// Blocks of zeros in a load's writes, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "workload", value_parser = clap::value_parser!(u32).range(0..=100))]
    zeros: u32,
    /// A flush after so many of a load's writes.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "workload")]
    flush_every: u64,
    /// Put a journaling file system between the load and the disk: what jbd2 makes of it (data or ordered); a flush of the
    /// load is an fsync.
    #[arg(long, value_name = "MODE", requires = "workload", value_parser = ["data", "ordered"])]
    journal: Option<String>,
    /// The journal's size.
    #[arg(long, value_name = "SIZE", default_value = "64M", requires = "journal")]
    journal_size: Size,
    /// Commit with one flush instead of two (`journal_async_commit`).
    #[arg(long, requires = "journal")]
    async_commit: bool,
    /// Replay the trace so often.
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "workload", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// The trace's format, instead of looking.
    #[arg(long, value_name = "NAME", conflicts_with = "workload", value_parser = Format::ALL.map(Format::name))]
    format: Option<String>,
    /// What the host writes a day, to count years by; by default the trace's own rate.
    #[arg(long, value_name = "SIZE")]
    daily: Option<Size>,
    /// Everything that chance decides follows from this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Hold every read against what was written (takes memory).
    #[arg(long)]
    verify: bool,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Write a plot of the write latencies' distribution here (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Oracle {
    /// Over-provisionings, in percent.
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "7,14.29,15,28"
    )]
    op: Vec<f64>,
    /// The page maps' volume.
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    size: Size,
    /// The engine's volume.
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    engine_size: Size,
    /// Everything that chance decides follows from this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Write a plot of amplification over over-provisioning here (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Does it.
pub fn run(args: &Args) -> Result<()> {
    match &args.what {
        What::Run(run) => run.run(),
        What::Oracle(oracle) => oracle.run(),
        What::List => list(),
    }
}

fn permille(percent: f64) -> Result<u32> {
    if !(2.0..=90.0).contains(&percent) {
        return Err(usage(format!(
            "over-provisioning of {percent}%: it is from 2 to 90"
        )));
    }
    Ok((percent * 10.0).round() as u32)
}

fn spinner(text: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.set_message(text);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl Run {
    fn run(&self) -> Result<()> {
        let preset = flash::find(&self.device).ok_or_else(|| {
            let names: Vec<_> = flash::presets().iter().map(|p| p.name).collect();
            usage(format!(
                "no device {:?}: there are {}",
                self.device,
                names.join(", ")
            ))
        })?;
        let device = Device {
            preset: *preset,
            capacity: self.capacity.map(|size| size.0),
            over_provisioning: self.op.map(permille).transpose()?,
            erase_limit: self.erase_limit,
            read_priority: !self.fcfs,
        };
        let trace = match &self.trace {
            Some(path) => Some(self.read(path)?),
            None => None,
        };
        let load = match &trace {
            Some(trace) => Load::Trace {
                trace,
                times: self.repeat,
            },
            None => self.synthetic()?,
        };
        let pace = match (self.depth, &trace) {
            (Some(depth), _) => Pace::Closed { depth },
            (None, Some(_)) => Pace::Open,
            (None, None) => Pace::Closed { depth: 32 },
        };
        let scenario = Scenario {
            device,
            load,
            pace,
            precondition: match self.precondition.as_str() {
                "none" => Precondition::None,
                "fill" => Precondition::Fill,
                _ => Precondition::Steady,
            },
            seed: self.seed,
            daily_bytes: self.daily.map(|size| size.0),
            verify: self.verify,
        };
        let mut outcomes = Vec::new();
        for policy in self.policies(preset)? {
            let bar = spinner(format!("{policy} on {}", preset.name));
            let ran = scenario.run(&policy);
            bar.finish_and_clear();
            outcomes.push(ran.with_context(|| policy.to_string())?);
        }
        if let Some(path) = &self.plot {
            save(path, &latency_plot(&outcomes))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(&outcomes)?);
            return Ok(());
        }
        println!("{}: {}", preset.name, preset.about);
        println!("figures: {}", preset.source);
        match (&trace, &self.workload) {
            (Some(trace), _) => describe(trace),
            (None, Some(name)) => println!(
                "load: {name}, synthetic{}",
                match &self.journal {
                    Some(mode) => format!(
                        ", through a modelled journal (data={})",
                        mode.replace("data", "journal")
                    ),
                    None => String::new(),
                }
            ),
            (None, None) => {}
        }
        print!("{}", report::table(&outcomes));
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<TraceFile> {
        let format = self.format.as_deref();
        let format = format.and_then(|name| Format::ALL.into_iter().find(|f| f.name() == name));
        let bar = spinner(format!("reading {}", path.display()));
        let trace = TraceFile::read(path, format);
        bar.finish_and_clear();
        Ok(trace?)
    }

    fn synthetic(&self) -> Result<Load<'static>> {
        let name = self.workload.as_deref().unwrap_or_default();
        let workload = workload::find(name).ok_or_else(|| {
            let names: Vec<_> = workload::workloads().iter().map(|w| w.name).collect();
            usage(format!("no load {name:?}: there are {}", names.join(", ")))
        })?;
        let Size(bytes) = self.request_size;
        if bytes == 0 || bytes % 4096 != 0 || bytes > 16 << 20 {
            return Err(usage("--request-size is a multiple of 4096, up to 16M"));
        }
        let mode = match self.journal.as_deref() {
            None => None,
            Some("data") => Some(Mode::Data),
            Some(_) => Some(Mode::Ordered),
        };
        Ok(Load::Synthetic {
            workload: *workload,
            requests: self.requests,
            request_blocks: (bytes / 4096) as u32,
            zeros: self.zeros,
            flush_every: self.flush_every,
            journal: mode.map(|mode| Journal {
                mode,
                blocks: self.journal_size.0 / 4096,
                async_commit: self.async_commit,
            }),
        })
    }

    fn policies(&self, preset: &flash::Preset) -> Result<Vec<Policy>> {
        if !self.policy.is_empty() {
            return Ok(self.policy.clone());
        }
        let names: &[&str] = match preset.kind {
            Kind::Nand(_) => &["base", "vellum", "vellum:cost-benefit"],
            Kind::Block(_) => &["base", "vellum"],
        };
        Ok(names
            .iter()
            .map(|name| name.parse())
            .collect::<Result<_, _>>()?)
    }
}

fn describe(trace: &TraceFile) {
    let summary = trace.summary();
    println!(
        "trace: {}, {} requests in {} lines: {} reads, {} writes, {} discards, {} flushes; over {:.1} s; {} touched",
        trace.format().name(),
        summary.seen.records,
        summary.seen.lines,
        summary.reads,
        summary.writes,
        summary.discards,
        summary.flushes,
        (summary.last_at - summary.first_at) as f64 / 1e9,
        report::bytes(trace.blocks() * 4096),
    );
    let content = match (summary.blocks_told, summary.blocks_written) {
        (_, 0) => "it writes nothing",
        (0, _) => "it does not say what is written: every block is taken to be new",
        (told, all) if told == all => "it says what is written",
        _ => "of some blocks it says what is written; the others are taken to be new",
    };
    println!("       {content}");
    if summary.unaligned > 0 {
        println!(
            "       {} requests were not of whole blocks of 4 KiB and are made so",
            summary.unaligned
        );
    }
    if summary.seen.backwards > 0 {
        println!(
            "       WARNING: {} requests are dated before the one before them and are taken to come with it",
            summary.seen.backwards
        );
    }
}

fn save(path: &Path, plot: &Plot) -> Result<()> {
    std::fs::write(path, plot.render()).with_context(|| path.display().to_string())
}

fn latency_plot(outcomes: &[Outcome]) -> Plot {
    let line = |outcome: &Outcome| Line {
        name: outcome.policy.clone(),
        points: outcome
            .writes_cumulative
            .iter()
            .map(|&(nanos, share)| (nanos as f64 / 1000.0, share))
            .collect(),
        theory: false,
    };
    Plot {
        title: "write latency, cumulative share of requests".into(),
        x: "microseconds (virtual)".into(),
        y: "share".into(),
        log_x: true,
        lines: outcomes.iter().map(line).collect(),
    }
}

impl Oracle {
    fn run(&self) -> Result<()> {
        let blocks = |size: Size| size.0 / 4096;
        for (name, size) in [("--size", self.size), ("--engine-size", self.engine_size)] {
            if !((256 << 20)..=(64 << 30)).contains(&size.0) {
                return Err(usage(format!("{name} is from 256M to 64G")));
            }
        }
        let effort = |logical, warm, measure| Effort {
            logical,
            warm,
            measure,
            seed: self.seed,
        };
        let mut rows = Vec::new();
        for &percent in &self.op {
            let over = permille(percent)?;
            let kinds = [
                (Victim::Greedy, 64),
                (Victim::Greedy, 256),
                (Victim::Fifo, 256),
                (Victim::Choices(1), 256),
            ];
            for (victim, pages) in kinds {
                let bar = spinner(format!("{percent}%: page map, {victim:?}, {pages} pages"));
                // A random victim's amplification is a mean over much chance: it needs more of it.
                let measure = if victim == Victim::Choices(1) { 12 } else { 3 };
                let effort = effort(blocks(self.size), 6, measure);
                let row = oracle::page_map(victim, pages, over, effort);
                bar.finish_and_clear();
                rows.push(row?);
            }
            let bar = spinner(format!("{percent}%: the engine"));
            let row = oracle::engine(over, effort(blocks(self.engine_size), 6, 3));
            bar.finish_and_clear();
            rows.push(row?);
        }
        if let Some(path) = &self.plot {
            save(path, &oracle_plot(&rows))?;
        }
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(&rows)?),
            false => print!("{}", oracle::table(&rows)),
        }
        // What the lab is held to: see docs/LAB.md.
        for (policy, allowed) in [
            ("base", 0.5),
            ("base:fifo", 0.5),
            ("base:random", 2.0),
            ("vellum", 5.0),
        ] {
            let of = rows.iter().filter(|row| row.policy == policy);
            let worst = of.map(|row| row.off_percent.abs()).fold(0.0, f64::max);
            if worst > allowed {
                bail!("{policy} is off by up to {worst:.2}%, and {allowed}% is allowed");
            }
        }
        Ok(())
    }
}

fn oracle_plot(rows: &[Row]) -> Plot {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        // What there was, not what was asked for: of the engine's flash some is not for data.
        let x = (row.alpha - 1.0) * 100.0;
        let pages = match row.policy.as_str() {
            "vellum" => String::new(),
            _ => format!(", {:.0} pages", row.pages),
        };
        let measured = format!("{}{pages}", row.policy);
        let computed = format!("{} closed form{pages}", row.form);
        let pairs = [
            (measured, row.measured, false),
            (computed, row.computed, true),
        ];
        for (name, y, theory) in pairs {
            if row.policy == "vellum" && theory {
                continue;
            }
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push((x, y)),
                None => lines.push(Line {
                    name,
                    points: vec![(x, y)],
                    theory,
                }),
            }
        }
    }
    Plot {
        title: "write amplification of data, uniform random overwrites".into(),
        x: "over-provisioning as it was (alpha - 1), %".into(),
        y: "write amplification".into(),
        log_x: false,
        lines,
    }
}

fn list() -> Result<()> {
    println!("devices");
    for preset in flash::presets() {
        println!(
            "  {:<14}{}\n{:16}figures: {}",
            preset.name, preset.about, "", preset.source
        );
    }
    println!("loads (synthetic)");
    for workload in workload::workloads() {
        println!("  {:<14}{}", workload.name, workload.about);
    }
    println!("policies\n  {NAMES}");
    let formats = Format::ALL.map(Format::name).join(", ");
    println!("trace formats\n  {formats}");
    Ok(())
}
