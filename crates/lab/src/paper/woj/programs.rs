//! Figures 6 to 8: the writes of programs, file by file, instead of one file in windows of one size.

use super::kernel::{assumption, nanos};
use super::setting::{DRIVES, JOURNAL_BLOCKS, NO_KERNEL, SYSTEMS};
use crate::applications::Application;
use crate::journal::{Commit, File, Journal, Mode};
use crate::outcome::Outcome;
use crate::paper::cell::{Cell, run};
use crate::paper::claim::{Claim, Stated, in_percent, percents, range};
use crate::paper::evaluation::Frame;
use crate::paper::experiment::Experiment;
use crate::paper::failure::PaperError;
use crate::paper::scenarios::{scenario, working, workload};
use crate::paper::size::Size;
use crate::scenario::Synthetic;
use crate::workload::{Pattern, Workload};

pub const FILEBENCH: &str = "Figure 6: Filebench";
pub const PUTS: &str = "Figure 7: LevelDB's puts";
pub const REAL: &str = "Figure 8: real files";

/// Our substitute for a program of the paper.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    load: Workload,
    file: File,
    /// Writes per fsync; 0: the program's own fsyncs, or none.
    window: u64,
    /// Requests of a short run: about half a gigabyte of writes, where fsyncs are rare.
    requests: u64,
}

impl Program {
    fn synthetic(&self, size: Size) -> Synthetic {
        Synthetic {
            requests: match size {
                Size::Tiny => self.requests / 16,
                Size::Short => self.requests,
                Size::Full => self.requests * 8,
            },
            flush_every: self.window,
            journal: Some(Journal {
                mode: Mode::Data,
                blocks: JOURNAL_BLOCKS,
                commit: Commit::TwoFlushes,
                fsync_flushes: false,
                write_back: 0,
                file: self.file,
            }),
            ..Synthetic::new(self.load)
        }
    }
}

/// A workload that only makes files of this mean size in blocks.
const fn files(name: &'static str, blocks: u64) -> Workload {
    Workload {
        name,
        about: "files are made",
        pattern: Pattern::Application(Application::Made {
            mean_blocks: blocks,
        }),
        reads: 0,
    }
}

fn filebench() -> [Program; 8] {
    let program = |name, load, file, window, requests| Program {
        name,
        load,
        file,
        window,
        requests,
    };
    let new = File::GrowingIndirect;
    let there = File::Overwritten;
    let sequential = workload("sequential");
    [
        program("cr_L", sequential, new, 0, 131_072),
        program("cr_S", files("small files", 16), new, 0, 10_000),
        program("ws_w1", sequential, new, 1, 32_768),
        program("ws_w1000", sequential, new, 1000, 131_072),
        program("ws_pa_w1", sequential, there, 1, 32_768),
        program("ws_pa_w1000", sequential, there, 1000, 131_072),
        program(VARMAIL, workload("varmail"), new, 0, 32_768),
        program(FILESERVER, workload("fileserver"), new, 0, 32_768),
    ]
}

const VARMAIL: &str = "varmail";
const FILESERVER: &str = "fileserver";
/// The programs with the fewest fsyncs, for which the paper has its greatest figure.
const WIDE: [&str; 3] = ["cr_L", "ws_w1000", "ws_pa_w1000"];
/// The programs that write much that only the journal needs.
const NARROW: [&str; 3] = [VARMAIL, "ws_w1", "ws_pa_w1"];

/// The result of one run.
struct ProgramRun {
    program: &'static str,
    drive: &'static str,
    system: &'static str,
    outcome: Outcome,
}

struct ProgramRuns(Vec<ProgramRun>);

impl ProgramRuns {
    fn run(
        programs: &[Program],
        drives: &[&'static str],
        size: Size,
        threads: usize,
    ) -> Result<Self, PaperError> {
        Self::of(programs, (drives, &SYSTEMS), (size, 0), threads)
    }

    /// The rows of some systems when a write takes the processor this long.
    fn of(
        programs: &[Program],
        (drives, systems): (&[&'static str], &[(&'static str, &'static str)]),
        (size, write_ns): (Size, u64),
        threads: usize,
    ) -> Result<Self, PaperError> {
        let mut cells = Vec::new();
        for program in programs {
            for &drive in drives {
                for &(system, policy) in systems {
                    let mut scenario = scenario(drive, 12 << 30, program.synthetic(size));
                    scenario.device.over_provisioning = Some(150);
                    working(&mut scenario, write_ns);
                    let what = format!("{}, {drive}", program.name);
                    let key = (program.name, drive, system);
                    cells.push(Cell::new(key, what, scenario, policy)?);
                }
            }
        }
        let outcomes = run(cells, threads)?.into_iter();
        let rows = outcomes.map(|((program, drive, system), outcome)| ProgramRun {
            program,
            drive,
            system,
            outcome,
        });
        Ok(Self(rows.collect()))
    }

    fn find(&self, program: &str, drive: &str, system: &str) -> &Outcome {
        let key =
            |row: &&ProgramRun| (row.program, row.drive, row.system) == (program, drive, system);
        let Some(row) = self.0.iter().find(key) else {
            unreachable!("{program}, {drive}, {system} was run")
        };
        &row.outcome
    }

    /// How many times as fast one system is as another.
    fn faster(&self, program: &str, drive: &str, one: &str, other: &str) -> f64 {
        self.find(program, drive, other).seconds / self.find(program, drive, one).seconds.max(1e-9)
    }

    /// How many times as fast WOJ is as Dmdedup on the fast drive where fsyncs are rare.
    fn wide(&self) -> (f64, f64) {
        range(WIDE.map(|p| self.faster(p, DRIVES[0], "WOJ_xxh64", "Dmdedup_sha1")))
    }

    /// By how much WOJ's run times are less than Dmdedup's.
    fn cut(&self, programs: &[Program], drive: &str) -> (f64, f64) {
        let less =
            |p: &Program| 1.0 - 1.0 / self.faster(p.name, drive, "WOJ_xxh64", "Dmdedup_sha1");
        range(programs.iter().map(less))
    }

    /// The share of No_Dedup_DJ's blocks that a system does not write. The drive makes no difference.
    fn removed(&self, program: &str, system: &str) -> f64 {
        let blocks = |system| self.find(program, "fast-ssd", system).medium_blocks() as f64;
        1.0 - blocks(system) / blocks("No_Dedup_DJ").max(1.0)
    }

    /// A row per load and drive: each system's speed over No_Dedup_DJ's, and the share it does not write.
    fn frame(&self, name: &str, setting: &str, claims: Vec<Claim>) -> Frame {
        let (plain, _) = SYSTEMS[0];
        let (_, others) = SYSTEMS.split_at(1);
        let columns = ["load", "SSD", plain].into_iter();
        let columns: Vec<&str> = columns
            .chain(others.iter().map(|(name, _)| *name))
            .collect();
        let firsts = self.0.iter().filter(|row| row.system == plain);
        let cells = firsts.map(|row| {
            let (program, drive) = (row.program, row.drive);
            let time = format!("{:.2} s", row.outcome.seconds);
            let each = others.iter().map(|(system, _)| {
                let faster = self.faster(program, drive, system, plain);
                let removed = self.removed(program, system) * 100.0;
                format!("{faster:.2} ({removed:.1}%)")
            });
            let row = [program.into(), drive.into(), time].into_iter();
            row.chain(each).collect()
        });
        Frame::new(name, setting, &columns)
            .rows(cells)
            .claims(claims)
    }
}

fn times((low, high): (f64, f64)) -> String {
    format!("{low:.2} to {high:.2} times")
}

const ONE_FILE: &str = "Data=journal with a journal of 256 MB, the lab's model of jbd2, which journals \
    all files' metadata as one file's: an inode, bitmaps, indirect blocks. Synthetic, no \
content comes twice. No page cache: what is read is read from the drive. No_Dedup_DJ's time; the others' \
speed over its, and in brackets how many of its blocks they do not write.";

/// Filebench, LevelDB, and real files.
pub fn frames(size: Size, threads: usize) -> Result<Vec<Frame>, PaperError> {
    Ok(vec![
        figure_6(size, threads)?,
        figure_7(size, threads)?,
        figure_8(size, threads)?,
    ])
}

fn figure_6(size: Size, threads: usize) -> Result<Frame, PaperError> {
    let programs = filebench();
    let rows = ProgramRuns::run(&programs, &DRIVES, size, threads)?;
    let setting = format!(
        "{ONE_FILE} The paper's names: cr: create; L: a file (of 512 MiB, the paper's 1 GB; --full: 4 \
            GiB), S: files of 64 KB; ws_w: written with a sync after each so many; pa: the file is there \
            before; varmail and fileserver after Filebench's. \
         A quarter of the writes for a sync each write. Not here: cp, which makes the writes of cr where \
         what is copied is in memory."
    );
    let mut frame = rows.frame(FILEBENCH, &setting, filebench_claims(&rows, &programs));
    let wide: Vec<Program> = programs
        .into_iter()
        .filter(|p| WIDE.contains(&p.name))
        .collect();
    frame.try_out(by_kernel(
        &wide,
        LARGE_WINDOWS,
        " times",
        (size, threads),
        |rows| Stated::figure(2.44, rows.wide().1).over(1.0),
    )?);
    Ok(frame)
}

fn filebench_claims(rows: &ProgramRuns, programs: &[Program]) -> Vec<Claim> {
    let told = "WOJ_xxh64";
    let wide = rows.wide();
    let half = |p: &Program| !NARROW.contains(&p.name);
    let removed =
        |programs: &[&Program]| range(programs.iter().map(|p| rows.removed(p.name, told)));
    let (many, few): (Vec<&Program>, Vec<&Program>) = programs.iter().partition(|p| half(p));
    let (removed, less) = (removed(&many), removed(&few));
    let served = [VARMAIL, FILESERVER].map(|p| rows.faster(p, "fast-ssd", told, "Dmdedup_sha1"));
    let slow = rows.faster(VARMAIL, "slow-ssd", "Dmdedup_sha1", told);
    let more = rows.removed(VARMAIL, "Dmdedup_sha1") - rows.removed(VARMAIL, told);
    let first = programs.iter().flat_map(|p| {
        let others = ["No_Dedup_DJ", "Dmdedup_sha1"];
        DRIVES.into_iter().map(move |drive| {
            let faster = others.map(|other| rows.faster(p.name, drive, told, other));
            faster[0].min(faster[1])
        })
    });
    let first: Vec<f64> = first.collect();
    let ahead = first.iter().filter(|&&times| times >= 0.999).count();
    let within = "in the paper a journal holds blocks with equal contents; here each commit's metadata is \
        new, and nothing comes again within the journal for a full deduplication to find";
    vec![
        Claim::new(
            LARGE_WINDOWS,
            "up to 2.44 times",
            times(wide),
            Stated::figure(2.44, wide.1).over(1.0),
            NO_KERNEL,
        ),
        Claim::words(
            "the same, varmail and fileserver",
            "high: reads gain, too",
            format!("{:.2} and {:.2} times", served[0], served[1]),
            served.into_iter().all(|times| times > 1.0),
        ),
        Claim::new(
            "blocks removed by WOJ_xxh64, but for varmail and a sync each write",
            "38 to 50%",
            format!("{}; those: {}", percents(removed), percents(less)),
            Stated::range((38.0, 50.0), in_percent(removed)).over(0.0),
            "files that are deleted before they are checkpointed are written once in any case",
        ),
        Claim::new(
            "varmail: what Dmdedup_sha1 removes more than WOJ_xxh64",
            "about 10% of the data",
            format!("{:.1}%", more * 100.0),
            Stated::figure(10.0, more * 100.0).over(0.0),
            within,
        ),
        Claim::words(
            "varmail, slow SSD: Dmdedup_sha1 over WOJ_xxh64",
            "a little faster",
            format!("{slow:.3} times"),
            slow > 1.0,
        )
        .because(within),
        Claim::words(
            "WOJ_xxh64 is the fastest of the three",
            "in almost all cases",
            format!("in {ahead} of {}", first.len()),
            ahead * 10 >= first.len() * 9,
        ),
    ]
}

const LARGE_WINDOWS: &str = "throughput of WOJ_xxh64 over Dmdedup_sha1, fast SSD, large windows (cr_L, \
    ws_w1000, ws_pa_w1000)";
const RUN_TIME: &str = "run time of WOJ_xxh64, less than Dmdedup_sha1's: fast SSD";

/// A claim about WOJ and Dmdedup on the fast drive, by what a write takes the processor.
fn by_kernel(
    programs: &[Program],
    claim: &str,
    unit: &str,
    (size, threads): (Size, usize),
    stated: impl Fn(&ProgramRuns) -> Stated,
) -> Result<Experiment, PaperError> {
    let assumption = assumption(&[1.0, 2.0, 4.0]);
    Experiment::vary(&assumption, &[(claim.into(), unit)], |us| {
        let run = (&DRIVES[..1], &SYSTEMS[1..3]);
        let rows = ProgramRuns::of(programs, run, (size, nanos(us)), threads)?;
        Ok(vec![stated(&rows)])
    })
}

fn figure_7(size: Size, threads: usize) -> Result<Frame, PaperError> {
    let program = |name, load, window, requests| Program {
        name,
        load: workload(load),
        file: File::GrowingIndirect,
        window,
        requests,
    };
    // 2 MiB per table.
    let programs = [
        program("puts in order", "sequential", 512, 131_072),
        program("puts at random", "key-value", 0, 32_768),
    ];
    let rows = ProgramRuns::run(&programs, &DRIVES[..1], size, threads)?;
    let setting = format!(
        "{ONE_FILE} What db_bench's puts leave on a disk: in order, tables of 2 MiB, each written and \
            synced; at random, the lab's `key-value`: tables are read and merged as well, and given up, \
         most of them before a checkpoint. LevelDB's log, which db_bench does not sync, is not in it, nor \
         what a put costs the processor, by which the paper's figures differ with the size of values."
    );
    let faster = |p: &Program| rows.faster(p.name, "fast-ssd", "WOJ_xxh64", "Dmdedup_sha1");
    let ours = range(programs.iter().map(faster));
    let claims = vec![Claim::new(
        "throughput of WOJ_xxh64 over Dmdedup_sha1",
        "1.38 to 2.7 times, more with larger values",
        times(ours),
        Stated::range((1.38, 2.7), ours).over(1.0),
        "reads are served alike by all systems, and of a table that is given up before its checkpoint \
            there is no second write to save",
    )];
    Ok(rows.frame(PUTS, &setting, claims))
}

fn figure_8(size: Size, threads: usize) -> Result<Frame, PaperError> {
    let program = |name, load, requests| Program {
        name,
        load,
        file: File::GrowingIndirect,
        window: 0,
        requests,
    };
    // A gcc of 3.1 GB in more than 4000 files; for a clone, the small files it checks out.
    let programs = [
        program("copy image", workload("sequential"), 131_072),
        program("copy source", files("source", 190), 5000),
        program("git clone", files("checkout", 4), 32_768),
    ];
    let rows = ProgramRuns::run(&programs, &DRIVES, size, threads)?;
    let setting = format!(
        "{ONE_FILE} Half a gigabyte (--full: 4) of a file (the paper's image has 3.7 GB), of files of 760 \
            KiB (the gcc source's mean), or of 16 KiB (the small files that a clone checks out), without \
            a sync. The paper's \
         point, real contents, is not made here: on a real ext4 it is in docs/benchmarks/journal.md."
    );
    let (fast, slow) = (
        rows.cut(&programs, DRIVES[0]),
        rows.cut(&programs, DRIVES[2]),
    );
    let removed = range(programs.iter().map(|p| rows.removed(p.name, "WOJ_xxh64")));
    let claims = vec![
        Claim::new(
            RUN_TIME,
            "54.5 to 56.3%",
            percents(fast),
            Stated::range((54.5, 56.3), in_percent(fast)).over(0.0),
            NO_KERNEL,
        ),
        Claim::new(
            "the same, slow SSD",
            "5.4 to 9.3%",
            percents(slow),
            Stated::range((5.4, 9.3), in_percent(slow)).over(0.0),
            "here hashing goes on beside the drive, and the slow drive never waits for it; how much of it \
                the paper's kernel does in the way of a write is not stated",
        ),
        Claim::new(
            "blocks removed by WOJ_xxh64",
            "about 50%",
            percents(removed),
            Stated::range((50.0, 50.0), in_percent(removed)).over(0.0),
            "",
        ),
    ];
    let mut frame = rows.frame(REAL, &setting, claims);
    frame.try_out(by_kernel(
        &programs,
        RUN_TIME,
        "%",
        (size, threads),
        |rows| {
            let cut = rows.cut(&programs, DRIVES[0]);
            Stated::range((54.5, 56.3), in_percent(cut)).over(0.0)
        },
    )?);
    Ok(frame)
}
