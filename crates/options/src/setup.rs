//! The options of every run: the device, the load, and the preparation of the drive.

use crate::drives;
use crate::fio::FioArgs;
use crate::flash::FlashArgs;
use crate::hashing::HashArgs;
use crate::number::{number, over_provisioning};
use crate::pattern::PatternArgs;
use crate::size::Size;
use crate::speeds::SpeedArgs;
use crate::tenants::TenantArgs;
use crate::wrong::OptionError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_lab::drives::DriveFile;
use vellum_lab::fio_job::FioFile;
use vellum_lab::jobs::Jobs;
use vellum_lab::journal::{Commit, File, Journal, Mode};
use vellum_lab::queues::plan::Assigned;
use vellum_lab::replay::{Reading, RepeatedContents, TraceFile};
use vellum_lab::scenario::{
    CAPACITY_MAX, Device, Load, Own, Precondition, Scenario, Synthetic, TooLarge, UNTIL_WORN_OUT,
};
use vellum_lab::sim::Pace;
use vellum_lab::sizes;
use vellum_lab::tenants::Tenants;
use vellum_lab::trace::{COLUMNS, Columns, Format};
use vellum_lab::workload::{self, Again, Workload};

/// Help for `--columns`.
const ABOUT_COLUMNS: &str =
    "What the columns of a CSV are, like time=0:us,op=2,offset=3:sector,length=4.";

/// Arguments.
#[derive(clap::Args)]
pub struct Setup {
    /// The trace, or `-` for standard input; its format is found by looking at it.
    #[arg(required_unless_present_any = ["workload", "tenant", "fio"], conflicts_with = "workload")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tenants: TenantArgs,
    #[command(flatten)]
    pub(crate) fio: FioArgs,
    /// A synthetic load instead of a trace (see `vellum lab list`).
    #[arg(long, value_name = "NAME", value_parser = load)]
    pub(crate) workload: Option<Workload>,
    /// The simulated drive: one that is known by name, or a file of your own (see `vellum lab drives`).
    #[arg(
        long,
        visible_alias = "drive",
        value_name = "NAME|FILE.toml",
        default_value = "tlc-nvme"
    )]
    #[arg(value_parser = drives::named)]
    pub(crate) device: Arc<DriveFile>,
    /// Flash to simulate; by default some GiB, and what the trace needs.
    #[arg(long, value_name = "SIZE", value_parser = capacity)]
    capacity: Option<Size>,
    /// Over-provisioning in percent of what the host sees; by default the device's.
    #[arg(long, value_name = "PERCENT", value_parser = over_provisioning)]
    op: Option<u32>,
    /// Erasures that a block endures; by default the device's.
    #[arg(long, value_name = "COUNT", value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    erase_limit: Option<u32>,
    /// The time of a flush in microseconds, without the writes that it waits for. Default: 0 for a drive with a page map, and a block
    /// device's own.
    #[arg(long, value_name = "MICROSECONDS", value_parser = number::<u64>(0..=10_000_000))]
    flush_time: Option<u64>,
    /// Serve each die strictly in order, reads too.
    #[arg(long)]
    fcfs: bool,
    #[command(flatten)]
    pub(crate) flash: FlashArgs,
    #[command(flatten)]
    hashing: HashArgs,
    #[command(flatten)]
    pub(crate) speeds: SpeedArgs,
    #[command(flatten)]
    pub(crate) pattern: PatternArgs,
    /// Keep this many requests in flight. Default for a load: 32; for a trace: its own times, or 32 if those are
    /// made up.
    #[arg(long, value_name = "COUNT", value_parser = number::<u32>(1..=65_536))]
    pub(crate) depth: Option<u32>,
    /// With --depth: wait this long between requests; for a trace, `own` waits as long as its times say. After a
    /// flush, wait for its answer.
    #[arg(long, value_name = "MICROSECONDS", requires = "depth", value_parser = think)]
    think: Option<Think>,
    /// How to prepare the drive. none: not at all. fill: write each block once. load: fill, then run the load until its write
    /// amplification is stable. steady: fill, then overwrite at random until it is stable.
    #[arg(long, value_name = "WHAT", default_value = "load")]
    #[arg(value_parser = ["none", "fill", "load", "steady"])]
    precondition: String,
    /// Requests of a load; by default as many as write the volume twice.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "workload")]
    #[arg(value_parser = number::<u64>(0..=u64::MAX))]
    requests: u64,
    /// Bytes of a load's requests, a multiple of 4096.
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "workload")]
    #[arg(value_parser = request_size)]
    request_size: Size,
    /// Blocks of zeros in a load's writes, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0,
        requires = "workload"
    )]
    #[arg(value_parser = number::<u32>(0..=100))]
    zeros: u32,
    /// Blocks in a load's writes whose content comes again, in percent.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0,
        requires = "workload"
    )]
    #[arg(value_parser = number::<u32>(0..=100))]
    pub(crate) duplicates: u32,
    /// Which contents come again: popular ones, of which there are a hundredth as many as blocks (popular), or those
    /// that were written a short time before (soon).
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "popular",
        requires = "duplicates"
    )]
    #[arg(value_parser = ["popular", "soon"])]
    pub(crate) again: String,
    /// The model of compressed sizes that the policy `compress` uses (see `vellum lab list`).
    #[arg(long, value_name = "MODEL")]
    #[arg(value_parser = sizes::models().iter().map(|model| model.name).collect::<Vec<_>>())]
    pub(crate) sizes: Option<String>,
    /// A flush after so many of a load's writes.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "workload")]
    #[arg(value_parser = number::<u64>(0..=u64::MAX))]
    flush_every: u64,
    /// Put a journaling file system between the load and the disk: what jbd2 makes of it (data, ordered or writeback); a flush of the
    /// load is an fsync.
    #[arg(long, value_name = "MODE", requires = "workload", value_parser = ["data", "ordered", "writeback"])]
    pub(crate) journal: Option<String>,
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
    /// After so many commits, write home what they have, as Linux does some seconds later; by default only when three quarters of the
    /// journal are taken.
    #[arg(
        long,
        value_name = "COMMITS",
        requires = "journal",
        default_value_t = 0
    )]
    #[arg(value_parser = number::<u64>(0..=u64::MAX))]
    write_back: u64,
    /// Where the journal of the trace's file system was on its disk, in bytes (OFFSET:LENGTH; `debugfs -R 'stat <8>'` says it
    /// in blocks): write-once needs to know.
    #[arg(long, value_name = "OFFSET:LENGTH", conflicts_with = "workload", value_parser = extent)]
    journal_at: Option<(u64, u64)>,
    /// Replay the trace so often.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        conflicts_with = "workload"
    )]
    #[arg(value_parser = number::<u32>(1..=u64::from(u32::MAX)))]
    repeat: u32,
    /// With --repeat: each replay writes the same bytes again, so that all of it is a duplicate. Otherwise each writes new ones.
    #[arg(long, requires = "repeat", conflicts_with = "workload")]
    same_contents: bool,
    /// The trace's format, instead of looking.
    #[arg(long, value_name = "NAME", conflicts_with = "workload")]
    #[arg(value_parser = Format::ALL.map(Format::name))]
    format: Option<String>,
    /// What the columns of a CSV are, like time=0:us,op=2,offset=3:sector,length=4.
    #[arg(long, value_name = "MAP", conflicts_with_all = ["workload", "format"])]
    #[arg(long_help = format!("{ABOUT_COLUMNS} There are {COLUMNS}."))]
    columns: Option<Columns>,
    /// Leave the trace's addresses what they are, on a volume as large as its disk, instead of moving together what is touched.
    #[arg(long, conflicts_with = "workload")]
    in_place: bool,
    /// What the host writes a day, to count years by; by default the trace's own rate, and one volume of a load.
    #[arg(long, value_name = "SIZE")]
    pub(crate) daily: Option<Size>,
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

/// Requests at a time, if neither the user nor the load sets when requests arrive.
pub(crate) const DEPTH: u32 = 32;

/// What is read before a run starts.
pub struct Ready {
    /// The drive.
    pub device: Arc<DriveFile>,
    /// The trace, if the load is one.
    pub trace: Option<Arc<TraceFile>>,
    /// The tenants, if there are any.
    pub tenants: Option<Arc<Tenants>>,
    /// The jobs, if the load has several.
    pub jobs: Option<Arc<Jobs>>,
    /// The submission queues that the user names.
    pub queues: Vec<Assigned>,
}

impl Ready {
    /// The traces, if the load is recorded.
    pub fn traces(&self) -> impl Iterator<Item = &TraceFile> {
        let tenants = self.tenants.iter().flat_map(|tenants| tenants.traces());
        self.trace.as_deref().into_iter().chain(tenants)
    }
}

/// How long the host thinks, in nanoseconds; `None` if the trace's own times decide.
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

fn load(text: &str) -> Result<Workload, String> {
    workload::find(text).copied().ok_or_else(|| {
        let names: Vec<_> = workload::workloads().iter().map(|w| w.name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn capacity(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0 {
        0 => Err("a drive without flash cannot be simulated".into()),
        1..=CAPACITY_MAX => Ok(size),
        bytes => Err(TooLarge { bytes }.to_string()),
    }
}

fn request_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size.0 == 0 || !size.0.is_multiple_of(4096) || size.0 > 16 << 20 {
        true => Err("it is a multiple of 4096, up to 16M".into()),
        false => Ok(size),
    }
}

impl Setup {
    /// Combines these options with the trace, or the tenants' traces, that the caller has read.
    pub fn ready_with(
        &self,
        trace: Option<Arc<TraceFile>>,
        tenants: Option<Arc<Tenants>>,
    ) -> Ready {
        Ready {
            device: Arc::clone(&self.device),
            trace,
            tenants,
            jobs: self.fio.fio.as_ref().and_then(FioFile::jobs).cloned(),
            queues: self.tenants.queues().to_vec(),
        }
    }

    /// The same options on a drive that has no name here.
    #[must_use]
    pub fn on(self, device: Arc<DriveFile>) -> Self {
        Self { device, ..self }
    }

    /// The drive.
    #[must_use]
    pub fn drive(&self) -> &DriveFile {
        &self.device
    }

    /// The trace's file and how to read it, if the load is a trace.
    #[must_use]
    pub fn trace(&self) -> Option<(&Path, Reading)> {
        Some((self.trace.as_deref()?, self.reading()))
    }

    /// The tenants' names and their traces' files.
    pub fn tenants(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.tenants.paths()
    }

    /// The files of all its traces.
    pub fn trace_files(&self) -> impl Iterator<Item = &Path> {
        let tenants = self.tenants().map(|(_, path)| path);
        self.trace.as_deref().into_iter().chain(tenants)
    }

    /// A checksum of the job file, if the load is one.
    #[must_use]
    pub fn job_file(&self) -> Option<u32> {
        self.fio.fio.as_ref().map(FioFile::digest)
    }

    /// How to read traces.
    #[must_use]
    pub fn reading(&self) -> Reading {
        let named = |name: &str| Format::ALL.into_iter().find(|f| f.name() == name);
        Reading {
            format: self.format.as_deref().and_then(named),
            journal: self.journal_at,
            columns: self.columns.clone(),
            in_place: self.in_place,
        }
    }

    /// Makes the scenario to run.
    ///
    /// # Errors
    /// If options contradict each other.
    pub fn scenario<'a>(&self, ready: &'a Ready) -> Result<Scenario<'a>, OptionError> {
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
        let load = self.load(ready)?;
        let think = match self.think {
            Some(Think(None)) if ready.trace.is_none() => {
                return Err(OptionError::new(
                    "--think own: a load has no times of its own",
                ));
            }
            think => think,
        };
        let pace = match (self.depth, think) {
            (Some(depth), Some(Think(think))) => Pace::Elastic { depth, think },
            (Some(depth), None) => Pace::Closed { depth },
            (None, _) if self.has_times(ready) => Pace::Open,
            (None, _) => Pace::Closed { depth: DEPTH },
        };
        let pace = self
            .fio
            .fio
            .as_ref()
            .and_then(FioFile::one)
            .map_or(pace, |(_, pace)| pace);
        let scenario = Scenario {
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
            own: Own::default(),
            queues: &ready.queues,
            watch: None,
        };
        let planned = scenario.plan();
        planned.map_err(|error| OptionError::new(error.to_string()))?;
        Ok(scenario)
    }

    /// Where the requests come from.
    fn load<'a>(&self, ready: &'a Ready) -> Result<Load<'a>, OptionError> {
        let times = self.repeat;
        let repeated = match self.same_contents {
            true => RepeatedContents::Same,
            false => RepeatedContents::New,
        };
        match (&ready.trace, &ready.tenants, self.workload) {
            (Some(trace), _, _) => Ok(Load::Trace {
                trace,
                times,
                repeated,
            }),
            (_, Some(tenants), _) => Ok(Load::Tenants {
                tenants,
                times,
                repeated,
            }),
            (_, _, Some(workload)) => self.synthetic(workload),
            _ => match (&ready.jobs, self.fio.fio.as_ref().and_then(FioFile::one)) {
                (Some(jobs), _) => Ok(Load::Jobs(jobs)),
                (None, Some((load, _))) => Ok(Load::Synthetic(load)),
                (None, None) => Err(OptionError::new(
                    "a trace, a --tenant, a --workload or a --fio is needed",
                )),
            },
        }
    }

    /// True if the load sets when its requests arrive.
    fn has_times(&self, ready: &Ready) -> bool {
        let timed = |trace: &TraceFile| trace.summary().made_up_times().is_none();
        match (&ready.trace, &ready.tenants) {
            (Some(trace), _) => timed(trace),
            (_, Some(tenants)) => tenants.traces().all(timed),
            (None, None) => self.pattern.is_timed(),
        }
    }

    pub(crate) fn synthetic(&self, workload: Workload) -> Result<Load<'static>, OptionError> {
        if self.zeros + self.duplicates > 100 {
            return Err(OptionError::new(
                "--zeros and --duplicates are more than all blocks",
            ));
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
                write_back: self.write_back,
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
}
