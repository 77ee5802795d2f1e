//! The options of a job, one by one.

use super::said::{FioError, Said};
use crate::jobs::{Amount, Lengths};
use crate::workload::Pattern;
use crate::zipf::SKEW_MAX;
use crate::zones::Zones;

pub(super) const DEPTH_MAX: u64 = 65_536;

/// Options that do not change the requests to a device.
const WITHOUT_EFFECT: [&str; 54] = [
    "name",
    "description",
    "directory",
    "group_reporting",
    "new_group",
    "thread",
    "randrepeat",
    "allrandrepeat",
    "randseed",
    "random_generator",
    "invalidate",
    "unlink",
    "fallocate",
    "overwrite",
    "create_on_open",
    "create_serialize",
    "create_fsync",
    "file_service_type",
    "refill_buffers",
    "scramble_buffers",
    "gtod_reduce",
    "clocksource",
    "end_fsync",
    "lat_percentiles",
    "clat_percentiles",
    "percentile_list",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "disk_util",
    "significant_figures",
    "unified_rw_reporting",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "write_hist_log",
    "per_job_logs",
    "log_avg_msec",
    "log_hist_msec",
    "bwavgtime",
    "iopsavgtime",
    "cpus_allowed",
    "cpus_allowed_policy",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "nice",
    "prio",
    "prioclass",
    "iomem",
    "mem",
    "hipri",
    "fixedbufs",
    "registerfiles",
    "sqthread_poll",
];
/// Engines that keep several requests in flight.
const ENGINES: [&str; 4] = ["libaio", "io_uring", "posixaio", "io_uring_cmd"];
/// Engines that wait for each request.
const ENGINES_SYNC: [&str; 5] = ["sync", "psync", "vsync", "pvsync", "pvsync2"];

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    Reads,
    Writes,
    Trims,
    Mixed,
    TrimWrites,
}

/// How random requests are distributed.
#[derive(Clone, Copy)]
pub(super) enum Spread {
    Alike,
    Of(Pattern),
}

/// What requests do, and where they go.
#[derive(Clone)]
pub(super) struct What {
    pub asks: Asks,
    pub random: bool,
    pub mix: u32,
    /// Of reads, writes and trims.
    pub lengths: [Lengths; 3],
    pub spread: Spread,
    pub no_map: bool,
    pub flush_every: u64,
    pub durable: bool,
    pub duplicates: u32,
    pub zeros: bool,
}

/// How much, and where.
#[derive(Clone)]
pub(super) struct Space {
    pub size: Option<Amount>,
    pub file_size: Option<u64>,
    pub io: Option<Amount>,
    pub offset: Amount,
    pub increment: Amount,
    pub file: Option<String>,
    pub count: Option<u64>,
    pub loops: u64,
}

/// When requests are sent.
#[derive(Clone)]
pub(super) struct Paced {
    pub depth: u64,
    pub waits: bool,
    pub jobs: u64,
    pub rate: Option<u64>,
    pub iops: Option<u64>,
    pub think: Option<u64>,
    pub think_blocks: u64,
    pub runtime: Option<u64>,
    pub time_based: bool,
    pub ramp: u64,
}

/// What a job waits for.
#[derive(Clone, Default)]
pub(super) struct After {
    /// All jobs before it.
    pub stonewall: bool,
    /// A job, and the line that says so.
    pub job: Option<(String, usize)>,
    /// The line that ends all jobs when one ends.
    pub ends_all: Option<usize>,
}

/// The options read so far.
#[derive(Clone)]
pub(super) struct Reading {
    pub what: What,
    pub space: Space,
    pub paced: Paced,
    pub after: After,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            what: What {
                asks: Asks::Reads,
                random: false,
                mix: 50,
                lengths: [Lengths::one(1); 3],
                spread: Spread::Alike,
                no_map: false,
                flush_every: 0,
                durable: false,
                duplicates: 0,
                zeros: false,
            },
            space: Space {
                size: None,
                file_size: None,
                io: None,
                offset: Amount::NONE,
                increment: Amount::NONE,
                file: None,
                count: None,
                loops: 1,
            },
            paced: Paced {
                depth: 1,
                waits: true,
                jobs: 1,
                rate: None,
                iops: None,
                think: None,
                think_blocks: 1,
                runtime: None,
                time_based: false,
                ramp: 0,
            },
            after: After::default(),
        }
    }
}

impl Reading {
    /// Takes an option. False if it changes nothing.
    pub fn take(&mut self, said: &Said<'_>) -> Result<bool, FioError> {
        if said.value.contains("${") {
            return Err(said.wrong("variables of the environment are not read: say the value"));
        }
        let taken = self.what.take(said)?
            || self.space.take(said)?
            || self.paced.take(said)?
            || self.after.take(said)?;
        match said.key {
            _ if taken => Ok(true),
            "direct" => match said.on()? {
                true => Ok(false),
                false => Err(said.wrong("a page cache is not modelled: it is 1")),
            },
            "buffered" => match said.on()? {
                false => Ok(false),
                true => Err(said.wrong("a page cache is not modelled: it is 0")),
            },
            "buffer_compress_percentage" => Err(said.wrong(
                "it is not modelled: leave it out, and say --sizes, a model of how blocks compress",
            )),
            key if WITHOUT_EFFECT.contains(&key) => Ok(false),
            _ => Err(said.wrong("it is not modelled: leave it out, if it does not matter here")),
        }
    }
}

impl What {
    fn take(&mut self, said: &Said<'_>) -> Result<bool, FioError> {
        match said.key {
            "rw" | "readwrite" => self.direction(said)?,
            "bs" | "blocksize" => said.of_each(&mut self.lengths, |text| said.one(text))?,
            "bssplit" => said.of_each(&mut self.lengths, |text| said.split(text))?,
            "norandommap" => self.no_map = said.on()?,
            "rwmixread" => self.mix = said.number(0, 100)? as u32,
            "rwmixwrite" => self.mix = 100 - said.number(0, 100)? as u32,
            "random_distribution" => self.distribution(said)?,
            "fsync" | "fdatasync" => self.flush_every = said.number(0, u64::MAX)?,
            "sync" => {
                self.durable = match said.value {
                    "0" | "none" => false,
                    "" | "1" | "sync" | "dsync" => true,
                    _ => return Err(said.wrong("there are none, sync and dsync")),
                }
            }
            "dedupe_percentage" => self.duplicates = said.number(0, 100)? as u32,
            "zero_buffers" => self.zeros = said.on()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn direction(&mut self, said: &Said<'_>) -> Result<(), FioError> {
        (self.random, self.asks) = match said.value {
            "read" => (false, Asks::Reads),
            "write" => (false, Asks::Writes),
            "trim" => (false, Asks::Trims),
            "rw" | "readwrite" => (false, Asks::Mixed),
            "trimwrite" => (false, Asks::TrimWrites),
            "randread" => (true, Asks::Reads),
            "randwrite" => (true, Asks::Writes),
            "randtrim" => (true, Asks::Trims),
            "randrw" => (true, Asks::Mixed),
            "randtrimwrite" => (true, Asks::TrimWrites),
            _ => {
                return Err(said.wrong(
                    "there are read, write, trim, rw (readwrite), trimwrite, and randread, randwrite, \
                     randtrim, randrw, randtrimwrite",
                ));
            }
        };
        Ok(())
    }

    fn distribution(&mut self, said: &Said<'_>) -> Result<(), FioError> {
        let (name, of) = said.value.split_once(':').unwrap_or((said.value, ""));
        let share = |most: f64| {
            let number = of.parse::<f64>().ok();
            number.filter(|number| *number > 0.0 && *number <= most)
        };
        let pattern = match name {
            "random" if of.is_empty() => {
                self.spread = Spread::Alike;
                return Ok(());
            }
            "zipf" => share(SKEW_MAX).map(|skew| Pattern::Zipf { skew }),
            "pareto" => share(0.999).map(|share| Pattern::Pareto { share }),
            "zoned" => {
                // fio names the share of the requests first.
                let zone = |zone: &str| {
                    let (requests, space) = zone.split_once('/')?;
                    Some(format!("{space}:{requests}"))
                };
                let zones: Option<Vec<String>> = of.split(':').map(zone).collect();
                let zones = zones.and_then(|zones| zones.join(",").parse::<Zones>().ok());
                zones.map(Pattern::Zones)
            }
            _ => None,
        };
        let pattern = pattern.ok_or_else(|| {
            said.wrong(
                "there are random, zipf:THETA (to 5), pareto:H (below 1), and zoned:REQUESTS/SPACE:... \
                 of up to 8 zones, in percent, each 100% together",
            )
        })?;
        self.spread = Spread::Of(pattern);
        Ok(())
    }

    /// Where requests go; none if the options do not fit this rw.
    pub fn pattern(&self) -> Option<Pattern> {
        match (self.random, self.spread) {
            (false, Spread::Alike) => Some(Pattern::Sequential),
            (false, _) => None,
            (true, Spread::Alike) if self.no_map => Some(Pattern::Uniform),
            (true, Spread::Alike) => Some(Pattern::Shuffled),
            (true, Spread::Of(pattern)) => Some(pattern),
        }
    }

    /// The lengths of its reads and of its other requests.
    pub fn used(&self) -> (Lengths, Lengths) {
        let [reads, writes, trims] = self.lengths;
        match self.asks {
            Asks::Reads => (reads, reads),
            Asks::Writes => (writes, writes),
            Asks::Mixed => (reads, writes),
            Asks::Trims | Asks::TrimWrites => (trims, trims),
        }
    }
}

impl Space {
    fn take(&mut self, said: &Said<'_>) -> Result<bool, FioError> {
        match said.key {
            "size" => self.size = Some(said.amount()?),
            "filesize" => match said.amount()? {
                Amount::Blocks(blocks) => self.file_size = Some(blocks),
                Amount::Percent(_) => return Err(said.wrong("it is bytes")),
            },
            "io_size" | "io_limit" => self.io = Some(said.amount()?),
            "offset" => self.offset = said.amount()?,
            "offset_increment" => self.increment = said.amount()?,
            "loops" => self.loops = said.number(1, 1_000_000)?,
            "number_ios" => self.count = Some(said.number(1, 1 << 50)?),
            "filename" => {
                if said.value.contains(':') {
                    return Err(
                        said.wrong("several files of one job are not modelled: there is one")
                    );
                }
                self.file = Some(said.value.into());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Paced {
    fn take(&mut self, said: &Said<'_>) -> Result<bool, FioError> {
        match said.key {
            "iodepth" => self.depth = said.number(1, DEPTH_MAX)?,
            "numjobs" => self.jobs = said.number(1, 1024)?,
            "rate" => self.rate = Some(said.bytes()?.max(1)),
            "rate_iops" => self.iops = Some(said.number(1, 1_000_000_000)?),
            "thinktime" => {
                self.think = match said.value {
                    "0" => None,
                    _ => Some(said.micros()?),
                };
            }
            "thinktime_blocks" => self.think_blocks = said.number(1, 1 << 50)?,
            "runtime" | "timeout" => self.runtime = Some(said.nanos()?),
            "time_based" => self.time_based = said.on()?,
            "ramp_time" => self.ramp = said.nanos()?,
            "ioengine" => {
                self.waits = ENGINES_SYNC.contains(&said.value);
                if !self.waits && !ENGINES.contains(&said.value) {
                    let all = [&ENGINES[..], &ENGINES_SYNC].concat().join(", ");
                    return Err(said.wrong(format!("there are {all}")));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The time between requests of this mean length in blocks, for this many jobs, if a rate was given.
    pub fn gap(&self, blocks: f64, jobs: u64) -> Option<u64> {
        let each = blocks * 4096.0;
        let per_second = match (self.rate, self.iops) {
            (Some(bytes), _) => bytes as f64 / each,
            (None, iops) => iops? as f64,
        };
        Some((1e9 / (per_second * jobs as f64)) as u64)
    }

    /// Checks that its rate can be modelled; the error says what is wrong.
    pub fn check(&self, mixed: bool) -> Result<(), &'static str> {
        let paces = [self.rate, self.iops].into_iter().flatten().count();
        match (paces, mixed) {
            (2, _) => Err("there is rate or rate_iops, not both"),
            (1, true) => Err(
                "reads and writes each at a rate of their own, as fio has it in a mix, are not modelled",
            ),
            _ => Ok(()),
        }
    }
}

impl After {
    fn take(&mut self, said: &Said<'_>) -> Result<bool, FioError> {
        match said.key {
            "stonewall" | "wait_for_previous" => self.stonewall = said.on()?,
            "wait_for" => self.job = Some((said.value.into(), said.line)),
            "exitall" => self.ends_all = said.on()?.then_some(said.line),
            _ => return Ok(false),
        }
        Ok(true)
    }
}
