//! The workloads, the systems, and what the runs of one under the other show.

use crate::journal::{Commit, File, Journal, Mode};
use crate::outcome::Outcome;
use crate::paper::cell::{Cell, run};
use crate::paper::claim::{Claim, Stated};
use crate::paper::failure::PaperError;
use crate::paper::scenarios::{scenario, working, workload};
use crate::scenario::{Precondition, Scenario, Synthetic};
use crate::sizes;
use crate::workload::Again;

/// A workload of the paper and our substitute: load, sizes, writes per commit, percent of duplicates, and the paper's
/// figures: less traffic, fewer erasures.
pub struct Work {
    pub name: &'static str,
    pub load: &'static str,
    pub sizes: &'static str,
    pub window: u64,
    pub duplicates: u32,
    pub file: File,
    traffic: f64,
    erases: f64,
    pub speed: Speed,
    /// Thousands of hash entries, of dedupfs and of CSA-FS.
    pub entries: (u32, u32),
}

impl Work {
    /// The names of the claims about what is written.
    pub fn claims(&self) -> [String; 2] {
        ["less write traffic", "fewer erasures"].map(|what| format!("{}: {what}", self.name))
    }

    pub fn speed_claim(&self) -> String {
        format!("{}: speed, over the plain drive", self.name)
    }

    pub fn entries_claim(&self) -> String {
        format!("{}: fewer hash entries than dedupfs", self.name)
    }
}

/// What the paper states of a speed over the plain drive's.
pub struct Speed {
    theirs: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// The statement about a run that is so many percent faster.
    pub stated: fn(f64) -> Stated,
}

const FASTER: Speed = Speed {
    theirs: "12 to 14% faster",
    unit: "% faster",
    stated: |percent| Stated::range((12.0, 14.0), (percent, percent)).over(0.0),
};

const NOT_MUCH_SLOWER: Speed = Speed {
    theirs: "at most 7% slower",
    unit: "% slower",
    stated: |percent| Stated::AtMost {
        theirs: 7.0,
        ours: -percent,
    },
};

pub const WORKS: [Work; 3] = [
    Work {
        name: "TPC-C",
        load: "hot-cold",
        sizes: "database",
        window: 8,
        duplicates: 10,
        file: File::Overwritten,
        traffic: 77.0,
        erases: 73.0,
        speed: FASTER,
        entries: (65, 12),
    },
    Work {
        name: "TPC-W",
        load: "hot-cold",
        sizes: "mail",
        window: 16,
        duplicates: 10,
        file: File::Overwritten,
        traffic: 65.0,
        erases: 69.0,
        speed: FASTER,
        entries: (48, 17),
    },
    Work {
        name: "kernel build",
        load: "sequential",
        sizes: "source",
        window: 64,
        duplicates: 15,
        file: File::Growing,
        traffic: 55.0,
        erases: 64.0,
        speed: NOT_MUCH_SLOWER,
        entries: (111, 59),
    },
];

/// The system, how the host journals, the policy, and whether the application's data is compressible as well.
pub const SYSTEMS: [System; 10] = [
    ("plain drive, data=ordered", Mode::Ordered, "base", false),
    (
        "metadata as deltas, data once, data=ordered",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta",
        false,
    ),
    (
        "and data small",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta",
        true,
    ),
    (
        "dedupfs: metadata and data once, data=ordered",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup",
        false,
    ),
    ("plain drive, data=journal", Mode::Data, "base", false),
    (
        "all small, written once, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta,write-once",
        true,
    ),
    (
        "all small, but no deltas, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,write-once",
        true,
    ),
    (
        "metadata as deltas in buckets, data once, data=ordered",
        Mode::Ordered,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta=log",
        false,
    ),
    (
        "all small, written once, deltas in buckets, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta=log,write-once",
        true,
    ),
    (
        "all small, written once and replayed by the volume, data=journal",
        Mode::Data,
        "vellum:victim=cost-benefit,zero=off,dedup,compress,delta,write-once,replay",
        true,
    ),
];

/// The first of [`SYSTEMS`] that claims are about. The others are variants.
pub const CLAIMED: usize = 6;

/// Indexes into [`SYSTEMS`]: the plain drive, the system with deltas, the same with data that gets small, and dedupfs.
pub const PLAIN: usize = 0;
pub const AS_DELTAS: usize = 1;
const DATA_SMALL: usize = 2;
pub const DEDUPFS: usize = 3;

/// What the runs of a workload have in common.
#[derive(Clone, Copy)]
pub struct Setting {
    pub writes: u64,
    /// Blocks of metadata that a commit changes beside those of the file.
    pub metadata: u64,
    /// What a block that is written takes the application.
    pub write_ns: u64,
}

impl Setting {
    /// What all runs have but those of an experiment.
    pub const fn new(writes: u64) -> Self {
        Self {
            writes,
            metadata: 0,
            write_ns: 0,
        }
    }
}

/// A system: see [`SYSTEMS`].
pub type System = (&'static str, Mode, &'static str, bool);

/// What some workloads do under some systems, in one setting.
pub struct Runs {
    pub setting: Setting,
    pub outcomes: Vec<((usize, &'static str), Outcome)>,
}

impl Runs {
    pub fn of(
        works: &[usize],
        systems: &[System],
        setting: Setting,
        threads: usize,
    ) -> Result<Self, PaperError> {
        let mut cells = Vec::new();
        for &index in works {
            let work = &WORKS[index];
            for &(system, mode, policy, data) in systems {
                let mut scenario = run_of(work, mode, setting);
                let model = if data { work.sizes } else { "random" };
                scenario.sizes = sizes::find(model).copied();
                let key = (index, system);
                cells.push(Cell::new(key, work.name.into(), scenario, policy)?);
            }
        }
        let outcomes = run(cells, threads)?;
        Ok(Self { setting, outcomes })
    }

    fn find(&self, work: usize, system: usize) -> Option<&Outcome> {
        let key = (work, SYSTEMS[system].0);
        let found = self.outcomes.iter().find(|(other, _)| *other == key);
        found.map(|(_, outcome)| outcome)
    }

    fn figures(&self, work: usize, system: usize) -> Figures {
        let found = self.find(work, system);
        found.map_or(Figures::NONE, |o| Figures::of(o, self.setting.writes))
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.outcomes.iter().map(|((index, system), outcome)| {
            let own = Figures::of(outcome, self.setting.writes);
            let base = self.figures(*index, PLAIN);
            vec![
                WORKS[*index].name.into(),
                (*system).into(),
                format!("{:.2}", own.traffic),
                less(own.traffic, base.traffic),
                format!("{:.0}", own.erases * self.setting.writes as f64),
                less(own.erases, base.erases),
                format!("{:.2}", own.speed / base.speed),
            ]
        });
        rows.collect()
    }

    /// How much less is written, and how many fewer erasures there are.
    pub fn written(&self, index: usize) -> [Stated; 2] {
        let work = &WORKS[index];
        let (base, ours) = (self.figures(index, PLAIN), self.figures(index, AS_DELTAS));
        [
            (work.traffic, ours.traffic / base.traffic),
            (work.erases, ours.erases / base.erases),
        ]
        .map(|(theirs, left)| Stated::figure(theirs, 100.0 * (1.0 - left)).over(0.0))
    }

    /// By how many per cent it is faster than the plain drive.
    pub fn faster(&self, work: usize) -> f64 {
        100.0 * (self.figures(work, AS_DELTAS).speed / self.figures(work, PLAIN).speed - 1.0)
    }

    /// What is compared with the paper's statements about a workload.
    pub fn claims(&self, index: usize) -> Vec<Claim> {
        let work = &WORKS[index];
        let more = self.figures(index, DATA_SMALL);
        let base = self.figures(index, PLAIN);
        let small = [
            less(more.traffic, base.traffic),
            less(more.erases, base.erases),
        ];
        let theirs = [work.traffic, work.erases];
        let mut claims = Vec::new();
        for (i, stated) in self.written(index).into_iter().enumerate() {
            claims.push(Claim::new(
                work.claims()[i].clone(),
                format!("{:.0}%", theirs[i]),
                format!("{:.0}%; data small as well: {}", stated.ours().0, small[i]),
                stated,
                "how much of the paper's traffic was metadata is not known: here a commit has three \
                    blocks of it (five where a file grows) beside its data, and \
                 so little can be saved; headers and the map are counted, and a chunk ends with each flush",
            ));
        }
        let faster = self.faster(index);
        claims.push(Claim::new(
            work.speed_claim(),
            work.speed.theirs,
            match faster < 0.0 {
                true => format!("{:.0}% slower", -faster),
                false => format!("{faster:.0}% faster"),
            },
            (work.speed.stated)(faster),
            "encoding takes no time here; reading back to compare and to move does, and a chunk goes to \
                the dies of one segment, half of the drive's, where the plain \
             drive writes to all",
        ));
        claims
    }

    /// Contents that got an entry: if all blocks are deduplicated, and if blocks stored in parts of pages are not.
    pub fn entries(&self, work: usize) -> (f64, f64) {
        let count = |system: usize, counter| {
            let found = self.find(work, system);
            found.map_or(0, |outcome| outcome.counted(counter))
        };
        let all = count(DEDUPFS, "dedup_lookups") - count(DEDUPFS, "dedup_blocks");
        let data = all.saturating_sub(count(AS_DELTAS, "packed_blocks")) as f64;
        (all as f64, data)
    }

    /// How many fewer entries there are.
    pub fn fewer_entries(&self, work: usize) -> Stated {
        let (theirs_all, theirs) = WORKS[work].entries;
        let fewer = |ours: f64, all: f64| 100.0 * (1.0 - ours / all.max(1.0));
        let (all, data) = self.entries(work);
        Stated::figure(fewer(theirs.into(), theirs_all.into()), fewer(data, all)).over(0.0)
    }
}

fn run_of(work: &Work, mode: Mode, setting: Setting) -> Scenario<'static> {
    let file = Synthetic {
        requests: setting.writes + setting.writes / work.window,
        duplicates: work.duplicates,
        again: Again::Soon,
        flush_every: work.window,
        metadata: setting.metadata,
        journal: Some(Journal {
            mode,
            blocks: 8192,
            commit: Commit::TwoFlushes,
            fsync_flushes: false,
            write_back: 0,
            file: work.file,
        }),
        ..Synthetic::new(workload(work.load))
    };
    let mut scenario = scenario("csafs", 1 << 30, file);
    scenario.device.over_provisioning = Some(150);
    scenario.precondition = Precondition::Fill;
    working(&mut scenario, setting.write_ns);
    scenario
}

/// Blocks written to flash and erasures per write of the application, and writes per second.
#[derive(Clone, Copy)]
struct Figures {
    traffic: f64,
    erases: f64,
    speed: f64,
}

impl Figures {
    const NONE: Self = Self {
        traffic: 1.0,
        erases: 1.0,
        speed: 1.0,
    };

    fn of(outcome: &Outcome, writes: u64) -> Self {
        let each = |count: u64| count as f64 / writes as f64;
        let erases = outcome.life.as_ref().map_or(0, |life| life.erases);
        Self {
            traffic: each(outcome.medium_blocks()),
            erases: each(erases),
            speed: writes as f64 / outcome.seconds.max(1e-9),
        }
    }
}

pub fn less(ours: f64, theirs: f64) -> String {
    match theirs > 0.0 {
        true => format!("{:.0}%", (1.0 - ours / theirs) * 100.0),
        false => "-".into(),
    }
}
