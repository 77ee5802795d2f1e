//! What `run` and `compare` have in common: the device, the load, and how it is prepared.

use super::drives;
use super::flash::{FlashArgs, number, permille};
use super::hashing::HashArgs;
use super::pattern::PatternArgs;
use super::source;
use super::speeds::SpeedArgs;
use crate::outcome::{out, usage};
use crate::replace;
use crate::size::Size;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vellum_lab::drives::DriveFile;
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::made_up::MadeUp;
use vellum_lab::replay::{Reading, RepeatedContents, TraceFile};
use vellum_lab::report;
use vellum_lab::scenario::{
    CAPACITY_MAX, Device, Load, Precondition, Scenario, Synthetic, TooLarge, UNTIL_WORN_OUT,
};
use vellum_lab::sim::Pace;
use vellum_lab::sizes;
use vellum_lab::svg::Plot;
use vellum_lab::trace::{COLUMNS, Class, Columns, Format, Known, Sizes};
use vellum_lab::workload::{self, Again, Workload};

/// Arguments.
#[derive(clap::Args)]
pub struct Setup {
    /// The trace, or `-` for standard input; its format is found by looking at it.
    #[arg(required_unless_present = "workload", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// A synthetic load instead of a trace (see `vellum lab list`).
    #[arg(long, value_name = "NAME", value_parser = load)]
    workload: Option<Workload>,
    /// The simulated drive: one that is known by name, or a file of your own (see `vellum lab drives`).
    #[arg(
        long,
        visible_alias = "drive",
        value_name = "NAME|FILE.toml",
        default_value = "tlc-nvme"
    )]
    #[arg(value_parser = drives::named)]
    device: Arc<DriveFile>,
    /// Flash to simulate; by default some GiB, and what the trace needs.
    #[arg(long, value_name = "SIZE", value_parser = capacity)]
    capacity: Option<Size>,
    /// Over-provisioning in percent of what the host sees; by default the device's.
    #[arg(long, value_name = "PERCENT", value_parser = over_provisioning)]
    op: Option<u32>,
    /// Erasures that a block endures; by default the device's.
    #[arg(long, value_name = "COUNT", value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    erase_limit: Option<u32>,
    /// What a flush takes, in microseconds, beside the writes that it waits for: in a drive with a page map (by default 0), or in a
    /// block device (by default its own).
    #[arg(long, value_name = "MICROSECONDS", value_parser = number::<u64>(0..=10_000_000))]
    flush_time: Option<u64>,
    /// Serve each die strictly in order, reads too.
    #[arg(long)]
    fcfs: bool,
    #[command(flatten)]
    flash: FlashArgs,
    #[command(flatten)]
    hashing: HashArgs,
    #[command(flatten)]
    speeds: SpeedArgs,
    #[command(flatten)]
    pattern: PatternArgs,
    /// So many requests at a time, each as soon as one is answered. Default for a load: 32; for a trace: its own times, or 32 where these
    /// are made up.
    #[arg(long, value_name = "COUNT", value_parser = number::<u32>(1..=65_536))]
    depth: Option<u32>,
    /// With --depth: let the host think from one request to the next, a load's so many microseconds, a trace's so many or as long as
    /// its own times say (`own`). Nothing is asked before a flush is answered.
    #[arg(long, value_name = "MICROSECONDS", requires = "depth", value_parser = think)]
    think: Option<Think>,
    /// What is done to the drive before the run begins: none, fill (each block written once), load (and then the
    /// load itself, until its write amplification stands still) or steady (and then overwritten at random until it
    /// stays the same).
    #[arg(long, value_name = "WHAT", default_value = "load")]
    #[arg(value_parser = ["none", "fill", "load", "steady"])]
    precondition: String,
    /// Requests of a load; by default as many as write the volume twice.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "workload", value_parser = number::<u64>(0..=u64::MAX))]
    requests: u64,
    /// Bytes of a load's requests, a multiple of 4096.
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "workload", value_parser = request_size)]
    request_size: Size,
    /// Blocks of zeros in a load's writes, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "workload", value_parser = number::<u32>(0..=100))]
    zeros: u32,
    /// Blocks in a load's writes whose content comes again, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "workload", value_parser = number::<u32>(0..=100))]
    duplicates: u32,
    /// Which contents those are: one of a hundredth as many as the volume has blocks, by popularity (popular), or an earlier
    /// write's, mostly not long before (soon).
    #[arg(long, value_name = "WHICH", default_value = "popular", requires = "duplicates", value_parser = ["popular", "soon"])]
    again: String,
    /// In how many bytes blocks can be stored, by a model (see `vellum lab list`): what the policy `compress` goes by.
    #[arg(long, value_name = "MODEL", value_parser = sizes::models().iter().map(|model| model.name).collect::<Vec<_>>())]
    sizes: Option<String>,
    /// A flush after so many of a load's writes.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "workload", value_parser = number::<u64>(0..=u64::MAX))]
    flush_every: u64,
    /// Put a journaling file system between the load and the disk: what jbd2 makes of it (data, ordered or writeback); a flush of the
    /// load is an fsync.
    #[arg(long, value_name = "MODE", requires = "workload", value_parser = ["data", "ordered", "writeback"])]
    journal: Option<String>,
    /// The journal's size.
    #[arg(long, value_name = "SIZE", default_value = "64M", requires = "journal")]
    journal_size: Size,
    /// Commit with one flush instead of two (`journal_async_commit`).
    #[arg(long, requires = "journal")]
    async_commit: bool,
    /// Commit without the first flush: the drive keeps the order (base:oftl, base:stream, vellum).
    #[arg(long, requires = "journal", conflicts_with = "async_commit")]
    drive_orders: bool,
    /// The file grows: blocks that are written for the first time change their group's bitmap and descriptor (ext4), and an
    /// indirect block (ext3).
    #[arg(long, value_name = "WHERE", requires = "journal", value_parser = ["ext4", "ext3"])]
    growing: Option<String>,
    /// Where the journal of the trace's file system was on its disk, in bytes (OFFSET:LENGTH; `debugfs -R 'stat <8>'` says it
    /// in blocks): write-once needs to know.
    #[arg(long, value_name = "OFFSET:LENGTH", conflicts_with = "workload", value_parser = extent)]
    journal_at: Option<(u64, u64)>,
    /// Replay the trace so often.
    #[arg(long, value_name = "COUNT", default_value_t = 1, conflicts_with = "workload", value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    repeat: u32,
    /// With --repeat: each replay writes the same bytes again, so that all of it is a duplicate. Otherwise each writes new ones.
    #[arg(long, requires = "repeat", conflicts_with = "workload")]
    same_contents: bool,
    /// The trace's format, instead of looking.
    #[arg(long, value_name = "NAME", conflicts_with = "workload", value_parser = Format::ALL.map(Format::name))]
    format: Option<String>,
    /// What the columns of a CSV are, like time=0:us,op=2,offset=3:sector,length=4.
    #[arg(long, value_name = "MAP", conflicts_with_all = ["workload", "format"], long_help = format!("What the columns of a CSV are, like time=0:us,op=2,offset=3:sector,length=4. There are {COLUMNS}."))]
    columns: Option<Columns>,
    /// Leave the trace's addresses what they are, on a volume as large as its disk, instead of moving together what is touched.
    #[arg(long, conflicts_with = "workload")]
    in_place: bool,
    /// What the host writes a day, to count years by; by default the trace's own rate, and one volume of a load.
    #[arg(long, value_name = "SIZE")]
    daily: Option<Size>,
    /// Everything that chance decides follows from this number.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = number::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Hold every read against what was written (takes memory).
    #[arg(long)]
    verify: bool,
    /// Let nothing take time: only count what is written, moved and erased.
    #[arg(long)]
    untimed: bool,
}

/// Requests at a time, where neither the user nor the load says when they come.
const DEPTH: u32 = 32;

/// What is read before anything is run.
pub struct Ready {
    pub device: Arc<DriveFile>,
    pub trace: Option<Arc<TraceFile>>,
}

/// How long a host thinks, in nanoseconds; none: as its own times say.
#[derive(Clone, Copy)]
struct Think(Option<u64>);

fn think(text: &str) -> Result<Think, String> {
    const MOST: u64 = 3_600_000_000;
    if text == "own" {
        return Ok(Think(None));
    }
    let micros = number::<u64>(0..=MOST)(text);
    let micros = micros.map_err(|_| format!("it is own, or microseconds from 0 to {MOST}"))?;
    Ok(Think(Some(micros * 1000)))
}

fn extent(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text:?} is not OFFSET:LENGTH in bytes, like 1G:64M");
    let (offset, length) = text.split_once(':').ok_or_else(wrong)?;
    let (Size(offset), Size(length)) = (offset.parse()?, length.parse()?);
    if offset % 4096 != 0 || length == 0 || length % 4096 != 0 || length > 64 << 30 {
        return Err(format!(
            "{text:?}: a journal begins at a multiple of 4096 bytes and is one of up to 64G long"
        ));
    }
    offset.checked_add(length).ok_or_else(wrong)?;
    Ok((offset, length))
}

/// Thousandths, of percents.
pub fn over_provisioning(text: &str) -> Result<u32, String> {
    permille(text, 20..=10_000)
}

fn load(text: &str) -> Result<Workload, String> {
    workload::find(text).copied().ok_or_else(|| {
        let names: Vec<_> = workload::workloads().iter().map(|w| w.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn capacity(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0 > CAPACITY_MAX {
        true => Err(TooLarge { bytes: size.0 }.to_string()),
        false => Ok(size),
    }
}

fn request_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0 == 0 || !size.0.is_multiple_of(4096) || size.0 > 16 << 20 {
        true => Err("it is a multiple of 4096, up to 16M".into()),
        false => Ok(size),
    }
}

pub fn spinner(text: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.set_message(text);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Prints a table below what has to be known of it.
pub fn print(about: &[String], warnings: &[String], table: &str) -> Result<()> {
    let mut out = out();
    for line in about {
        writeln!(out, "{line}")?;
    }
    for line in warnings {
        writeln!(out, "WARNING: {line}")?;
    }
    Ok(write!(out, "{table}")?)
}

pub fn save(path: &Path, plot: &Plot) -> Result<()> {
    write(path, &plot.render())
}

/// Replaces a report. What is no file (a terminal, a pipe) is written to as it is: nothing may take its place.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let name = || path.display().to_string();
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return std::fs::write(path, text).with_context(name);
    }
    replace::file(path, 0o644, text.as_bytes()).with_context(name)
}

impl Setup {
    /// Reads the trace, if it is one.
    pub fn ready(&self) -> Result<Ready> {
        let trace = self.read_trace()?.map(Arc::new);
        Ok(self.ready_with(trace))
    }

    /// The same, with a trace that was read.
    pub fn ready_with(&self, trace: Option<Arc<TraceFile>>) -> Ready {
        Ready {
            device: Arc::clone(&self.device),
            trace,
        }
    }

    /// The drive.
    pub fn drive(&self) -> &DriveFile {
        &self.device
    }

    /// Reads the trace, if it is one.
    pub fn read_trace(&self) -> Result<Option<TraceFile>> {
        let Some(path) = &self.trace else {
            return Ok(None);
        };
        let named = |name: &str| Format::ALL.into_iter().find(|f| f.name() == name);
        let reading = Reading {
            format: self.format.as_deref().and_then(named),
            journal: self.journal_at,
            columns: self.columns.clone(),
            in_place: self.in_place,
        };
        source::read(path, &reading).map(Some)
    }

    /// What is run.
    pub fn scenario<'a>(&self, ready: &'a Ready) -> Result<Scenario<'a>> {
        self.flash.check(&ready.device)?;
        let flush_ns = self.flush_time.map(|micros| micros * 1000);
        let device = Device {
            preset: self.speeds.measured(&ready.device, flush_ns)?,
            capacity: self.capacity.map(|size| size.0),
            over_provisioning: self.op,
            erase_limit: self.erase_limit,
            flush_ns: flush_ns.unwrap_or(0),
            read_priority: !self.fcfs,
            options: self.flash.options(),
        };
        let load = match (&ready.trace, self.workload) {
            (Some(trace), _) => Load::Trace {
                trace,
                times: self.repeat,
                repeated: match self.same_contents {
                    true => RepeatedContents::Same,
                    false => RepeatedContents::New,
                },
            },
            (None, Some(workload)) => self.synthetic(workload)?,
            (None, None) => return Err(usage("a trace or a --workload is needed")),
        };
        let think = match self.think {
            Some(Think(None)) if ready.trace.is_none() => {
                return Err(usage("--think own: a load has no times of its own"));
            }
            think => think,
        };
        let timed = |trace: &Arc<TraceFile>| trace.summary().made_up_times().is_none();
        let own_times = ready.trace.as_ref().map_or(self.pattern.is_timed(), timed);
        let pace = match (self.depth, think) {
            (Some(depth), Some(Think(think))) => Pace::Elastic { depth, think },
            (Some(depth), None) => Pace::Closed { depth },
            (None, _) if own_times => Pace::Open,
            (None, _) => Pace::Closed { depth: DEPTH },
        };
        Ok(Scenario {
            device,
            load,
            pace,
            precondition: match self.precondition.as_str() {
                "none" => Precondition::None,
                "fill" => Precondition::Fill,
                "load" => Precondition::Load,
                _ => Precondition::Steady,
            },
            seed: self.seed,
            daily_bytes: self.daily.map(|size| size.0),
            verify: self.verify,
            timed: !self.untimed,
            sizes: self.sizes.as_deref().and_then(sizes::find).copied(),
            hashing: self.hashing.hashing(),
            watch: None,
        })
    }

    fn synthetic(&self, workload: Workload) -> Result<Load<'static>> {
        if self.zeros + self.duplicates > 100 {
            return Err(usage("--zeros and --duplicates are more than all blocks"));
        }
        let mode = match self.journal.as_deref() {
            None => None,
            Some("data") => Some(Mode::Data),
            Some("writeback") => Some(Mode::Writeback),
            Some(_) => Some(Mode::Ordered),
        };
        let load = self.pattern.of(Synthetic {
            workload,
            requests: match self.flash.until_worn_out() {
                true => UNTIL_WORN_OUT,
                false => self.requests,
            },
            request_blocks: (self.request_size.0 / 4096) as u32,
            zeros: self.zeros,
            duplicates: self.duplicates,
            again: match self.again.as_str() {
                "soon" => Again::Soon,
                _ => Again::Popular,
            },
            flush_every: self.flush_every,
            journal: mode.map(|mode| Journal {
                mode,
                blocks: self.journal_size.0 / 4096,
                commit: match (self.async_commit, self.drive_orders) {
                    (true, _) => Commit::Async,
                    (_, true) => Commit::DriveOrders,
                    _ => Commit::TwoFlushes,
                },
                fsync_flushes: true,
                file: match self.growing.as_deref() {
                    None => File::Overwritten,
                    Some("ext4") => File::Growing,
                    Some(_) => File::GrowingIndirect,
                },
            }),
            ..Synthetic::new(workload)
        });
        Ok(Load::Synthetic(load?))
    }

    /// What a reader has to know of the device and the load, and what speaks against the figures.
    pub fn about(&self, ready: &Ready) -> (Vec<String>, Vec<String>) {
        let drive = &ready.device;
        let mut about = vec![
            format!("{}: {}", drive.name, drive.about),
            format!("figures: {}", drive.source),
        ];
        about.extend(self.speeds.about());
        about.extend(self.flash.about());
        let mut warnings = Vec::new();
        if let Some(trace) = &ready.trace {
            describe(trace, &mut about, &mut warnings);
            warnings.extend(self.made_up(trace));
        }
        let load = self.workload.map(|workload| self.synthetic(workload));
        if let Some(Ok(Load::Synthetic(load))) = load {
            let mut line = format!("load: {}", load.told());
            if self.duplicates > 0 {
                line += &format!(
                    ", {}% of the blocks with a content that comes again ({})",
                    self.duplicates, self.again
                );
            }
            if let Some(mode) = &self.journal {
                let mode = mode.replace("data", "journal");
                line += &format!(", through a modelled journal (data={mode})");
            }
            about.push(line);
        }
        if let Some(model) = self.sizes.as_deref().and_then(sizes::find) {
            about.push(format!(
                "sizes: {} (synthetic): {}",
                model.name, model.about
            ));
        }
        (about, warnings)
    }

    /// What a reader has to know of times that nobody measured, and what to do.
    fn made_up(&self, trace: &TraceFile) -> Option<String> {
        let times = match trace.summary().made_up_times()? {
            MadeUp::Same => "all its requests have one time",
            MadeUp::Falling => "most of its requests are dated before the one before them",
        };
        let asked = match self.depth {
            Some(_) => "--depth says how many are asked at a time".into(),
            None => format!("{DEPTH} requests are asked at a time (another: --depth)"),
        };
        let years = match self.daily {
            Some(_) => "",
            None => "; years need what the host writes a day (--daily)",
        };
        Some(format!(
            "the trace's times are made up: {times}. {asked}{years}"
        ))
    }
}

fn describe(trace: &TraceFile, about: &mut Vec<String>, warnings: &mut Vec<String>) {
    let summary = trace.summary();
    about.push(format!(
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
    ));
    let content = match (summary.blocks_told, summary.blocks_written) {
        (_, 0) => "it writes nothing",
        (0, _) => "it does not say what is written: every block is taken to be new",
        (told, all) if told == all => "it says what is written",
        _ => "of some blocks it says what is written; the others are taken to be new",
    };
    about.push(format!("       {content}"));
    if summary.unaligned > 0 {
        about.push(format!(
            "       {} requests were not of whole blocks of 4 KiB and are made so",
            summary.unaligned
        ));
    }
    if let Some(known) = &summary.known {
        about.push(format!("       {}", described(known)));
    }
    if summary.journals > 0 {
        let (first, blocks) = trace.journal().unwrap_or_default();
        about.push(format!(
            "       a journal of {blocks} blocks at block {first}"
        ));
    }
    if summary.journals > 1 {
        warnings.push(format!(
            "the trace has {} journals; the first one is watched (another: --journal-at)",
            summary.journals
        ));
    }
    if summary.seen.lost > 0 {
        warnings.push(format!(
            "{} requests are missing in the trace: they came faster than they could be recorded",
            summary.seen.lost
        ));
    }
    if summary.seen.cut {
        warnings.push("the trace breaks off: the recording did not end in order".into());
    }
    if summary.seen.backwards > 0 {
        warnings.push(format!(
            "{} requests are dated before the one before them and are taken to come with it",
            summary.seen.backwards
        ));
    }
}

/// What a trace of ours says of the blocks, beside their digests.
fn described(known: &Known) -> String {
    let mean = |(blocks, bytes): (u64, u64)| {
        (blocks > 0).then(|| 100.0 * bytes as f64 / (blocks * 4096) as f64)
    };
    let mut parts = Vec::new();
    if let Some(percent) = mean(known.packed) {
        let by = match known.sizes {
            Sizes::None => "",
            Sizes::Lz4 => " by LZ4",
            Sizes::Zstd => " by zstd",
        };
        parts.push(format!("compressed{by} to {percent:.0}%"));
    }
    if let Some(percent) = mean(known.delta) {
        let blocks = known.delta.0;
        parts.push(format!(
            "{blocks} whose version before is known, as a difference to it {percent:.0}%"
        ));
    }
    let classes = Class::ALL.iter().zip(known.classes);
    parts.extend(
        classes
            .filter(|(class, blocks)| *blocks > 0 && **class != Class::Unknown)
            .map(|(class, blocks)| format!("{blocks} {}", class.name())),
    );
    match parts.is_empty() {
        true => "nothing is known of the blocks but their contents".into(),
        false => format!("blocks written: {}", parts.join(", ")),
    }
}
