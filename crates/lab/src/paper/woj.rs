//! WOJ (Ni et al., 2018): its microbenchmarks, figures 2 to 5, what stands for its programs, figures 6 to 8, and the memory of its
//! section 3.6.

mod programs;

use super::{
    Cell, Claim, Evaluation, Frame, Listed, PaperError, Size, run, scenario, throughput, workload,
};
use crate::journal::{Commit, File, Journal, Mode};
use crate::outcome::Outcome;
use crate::scenario::Synthetic;

const WINDOWS: [u64; 4] = [1, 10, 100, 1000];
const DRIVES: [&str; 3] = ["fast-ssd", "moderate-ssd", "slow-ssd"];
/// The paper's name, and ours.
const SYSTEMS: [(&str, &str); 4] = [
    ("No_Dedup_DJ", "base"),
    ("WOJ_xxh64", "woj"),
    ("Dmdedup_sha1", "dmdedup"),
    ("the engine", "vellum:no-zero,write-once"),
];
const HASHES: [(&str, &str); 6] = [
    ("WOJ_xxh64", "woj"),
    ("WOJ_md5", "woj:md5"),
    ("WOJ_sha1", "woj:sha1"),
    ("Dmdedup_sha1", "dmdedup"),
    ("JFTL", "jftl"),
    (
        "the engine, by descriptors",
        "vellum:no-zero,write-once=descriptor",
    ),
];
/// 256 MB, as in the paper.
const JOURNAL_BLOCKS: u64 = 65_536;

/// What one row of a figure is.
struct Row {
    drive: &'static str,
    window: u64,
    system: &'static str,
    writes: u64,
    outcome: Outcome,
}

impl Row {
    fn amplification(&self) -> f64 {
        self.outcome.medium_blocks() as f64 / self.writes as f64
    }

    fn speed(&self) -> f64 {
        throughput(self.writes, &self.outcome)
    }
}

/// Of one load, for drives and systems, over all windows.
fn rows(
    load: &str,
    drives: &[&'static str],
    systems: &[(&'static str, &'static str)],
    size: Size,
    threads: usize,
) -> Result<Vec<Row>, PaperError> {
    let mut cells = Vec::new();
    for &drive in drives {
        for window in WINDOWS {
            let writes = match (size, window) {
                (Size::Full, _) => 2 << 20,
                (Size::Tiny, _) => 8192,
                // An fsync a write fills the journal five times as fast.
                (Size::Short, 1) => 65_536,
                (Size::Short, _) => 262_144,
            };
            for &(system, policy) in systems {
                let file = Synthetic {
                    requests: writes + writes / window,
                    flush_every: window,
                    journal: Some(Journal {
                        mode: Mode::Data,
                        blocks: JOURNAL_BLOCKS,
                        commit: Commit::TwoFlushes,
                        fsync_flushes: false,
                        file: match load {
                            "sequential" => File::GrowingIndirect,
                            _ => File::Overwritten,
                        },
                    }),
                    ..Synthetic::new(workload(load))
                };
                let mut scenario = scenario(drive, 12 << 30, file);
                scenario.device.over_provisioning = Some(150);
                let what = format!("{load}, {drive}, a flush each {window}");
                let key = (drive, window, system, writes);
                cells.push(Cell::new(key, what, scenario, policy)?);
            }
        }
    }
    let outcomes = run(cells, threads)?.into_iter();
    Ok(outcomes
        .map(|((drive, window, system, writes), outcome)| Row {
            drive,
            window,
            system,
            writes,
            outcome,
        })
        .collect())
}

fn frame(name: &str, setting: &str, rows: &[Row], claims: Vec<Claim>) -> Frame {
    let columns = [
        "SSD",
        "writes a flush",
        "system",
        "WA",
        "MB/s",
        "flush, half within",
        "99% within",
    ];
    let cells = |row: &Row| {
        vec![
            row.drive.into(),
            row.window.to_string(),
            row.system.into(),
            format!("{:.3}", row.amplification()),
            format!("{:.1}", row.speed()),
            format!("{:.2} ms", row.outcome.flushes.p50_ns as f64 / 1e6),
            format!("{:.2} ms", row.outcome.flushes.p99_ns as f64 / 1e6),
        ]
    };
    Frame::new(name, setting, &columns)
        .rows(rows.iter().map(cells))
        .claims(claims)
}

fn find<'a>(rows: &'a [Row], drive: &str, window: u64, system: &str) -> &'a Row {
    let found = rows
        .iter()
        .find(|row| (row.drive, row.window, row.system) == (drive, window, system));
    let Some(row) = found else {
        unreachable!("{drive}, {window}, {system} was run")
    };
    row
}

const SEQUENTIAL: &str = "Figure 2 and 4: sequential writes, and how long a flush takes";
const HASH: &str = "Figure 3: other hash functions";
const RANDOM: &str = "Figure 5: random writes on the fast SSD";
const MEMORY: &str = "Section 3.6: memory";

const LIST: &[Listed] = &[
    Listed::not(
        "Table 1",
        "throughput of hash functions",
        "a measurement of the paper's processor: taken as the setting",
    ),
    Listed::not(
        "Table 2",
        "the SSDs",
        "the setting: fast-ssd, moderate-ssd and slow-ssd",
    ),
    Listed::run(
        "Figure 2",
        "sequential writes: throughput and blocks written",
        SEQUENTIAL,
    ),
    Listed::run("Figure 3", "the same with other hash functions", HASH),
    Listed::run("Figure 4", "latency of sequential writes", SEQUENTIAL)
        .but("of its curves what half and 99% of the flushes take"),
    Listed::run("Figure 5", "random writes", RANDOM),
    Listed::run("Figure 6", "Filebench", programs::FILEBENCH)
        .but("models of the loads; its copies are not run"),
    Listed::run(
        "Figure 7",
        "LevelDB's puts, by the size of values",
        programs::PUTS,
    )
    .but("models of what they leave on a disk; not by size, which is the processor's"),
    Listed::run("Figure 8", "real files", programs::REAL)
        .but("models without the files' contents; on a real ext4: `make bench-journal`"),
    Listed::run("Section 3.6", "memory", MEMORY),
];

const SETTING: &str = "4 KiB writes to one file on ext3 in data=journal with a journal of 256 MB, a flush after each window; block devices of the \
paper's speeds, hash functions of its table 1, tables in RAM. Synthetic: the file system is the lab's model of jbd2. Ours is of a file of 1 GiB (256 MiB at a \
flush each write) where the paper's has 8 GB; --full has the paper's. The time of the processor is hashing alone.";

const NO_KERNEL: &str = "the lab has no kernel: neither page cache, nor system calls, nor device mapper take time, so the drive and the hash \
decide alone, and the systems lie further apart than on the paper's machine";

/// The whole evaluation, as far as there are parts for it.
///
/// # Errors
/// When a run fails.
pub fn evaluate(size: Size, threads: usize) -> Result<Evaluation, PaperError> {
    let sequential = rows("sequential", &DRIVES, &SYSTEMS, size, threads)?;
    let hashes = rows("sequential", &DRIVES[..2], &HASHES, size, threads)?;
    let random = rows("uniform", &DRIVES[..1], &SYSTEMS, size, threads)?;
    let mut frames = vec![
        frame(
            SEQUENTIAL,
            SETTING,
            &sequential,
            sequential_claims(&sequential),
        ),
        frame(
            HASH,
            &format!(
                "{SETTING} JFTL, which the paper discusses and does not run, reads home addresses from the journal's descriptor blocks and hashes nothing; \
                 the engine does so with write-once=descriptor, and compares bytes before it believes them."
            ),
            &hashes,
            hash_claims(&hashes),
        ),
        frame(
            RANDOM,
            "As above; the file is there before, so a commit's metadata is its inode alone.",
            &random,
            random_claims(&random, &sequential),
        ),
    ];
    frames.extend(programs::frames(size, threads)?);
    frames.push(memory(&sequential));
    Ok(Evaluation {
        paper: "WOJ: Enabling Write-Once Full-data Journaling in SSDs by Using Weak-Hashing-based Deduplication (Ni et al., 2018)",
        frames,
        missing: vec![],
        list: LIST,
    })
}

fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values
        .into_iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        })
}

fn sequential_claims(rows: &[Row]) -> Vec<Claim> {
    let amplification = |window, system| find(rows, "fast-ssd", window, system).amplification();
    let mut claims = Vec::new();
    for (window, theirs) in [(1000, "about 2"), (10, "2.6")] {
        let ours = amplification(window, "No_Dedup_DJ");
        let stated = if window == 10 { 2.6 } else { 2.0 };
        claims.push(Claim {
            what: format!("WA of No_Dedup_DJ at {window} writes a flush"),
            theirs: theirs.into(),
            ours: format!("{ours:.2}"),
            met: (ours - stated).abs() < 0.1,
            why: String::new(),
        });
    }
    for system in ["WOJ_xxh64", "the engine"] {
        let share = |window| amplification(window, system) / amplification(window, "No_Dedup_DJ");
        let (low, high) = range([10, 100, 1000].into_iter().map(|w| 1.0 - share(w)));
        claims.push(Claim {
            what: format!("blocks removed by {system}, at 10 to 1000 writes a flush"),
            theirs: "about half; 38 to 50%".into(),
            ours: format!("{:.0} to {:.0}%", low * 100.0, high * 100.0),
            met: low > 0.365,
            why: match system {
                "the engine" => {
                    "it writes a header a chunk, and a flush ends a chunk; in the paper's way of counting metadata is free".into()
                }
                _ => String::new(),
            },
        });
    }
    let ratio = |drive, window, one, other| {
        find(rows, drive, window, one).speed() / find(rows, drive, window, other).speed()
    };
    let (low, high) = range(
        WINDOWS
            .into_iter()
            .map(|w| ratio("fast-ssd", w, "WOJ_xxh64", "Dmdedup_sha1")),
    );
    claims.push(Claim {
        what: "throughput of WOJ_xxh64 over Dmdedup_sha1 on the fast SSD".into(),
        theirs: "1.85 to 2.03 times".into(),
        ours: format!("{low:.2} to {high:.2} times"),
        met: high >= 1.85,
        why: format!("at small windows two flushes a commit are all the time there is, with any hash; {NO_KERNEL}"),
    });
    let ours = ratio("fast-ssd", 1000, "Dmdedup_sha1", "No_Dedup_DJ");
    claims.push(Claim {
        what: "throughput of Dmdedup_sha1 over No_Dedup_DJ, fast SSD, 1000 writes a flush".into(),
        theirs: "about 60%".into(),
        ours: format!("{:.0}%", ours * 100.0),
        met: ours < 1.0,
        why: "hashing at 470 MiB/s against writing at 900 MB/s; the paper's other costs are the same for both".into(),
    });
    for drive in DRIVES {
        let (low, _) = range(
            WINDOWS
                .into_iter()
                .map(|w| ratio(drive, w, "WOJ_xxh64", "No_Dedup_DJ")),
        );
        claims.push(Claim {
            what: format!("WOJ_xxh64 is no slower than No_Dedup_DJ on {drive}"),
            theirs: "never slower".into(),
            ours: format!("at least {low:.2} times as fast"),
            met: low >= 0.999,
            why: String::new(),
        });
    }
    claims
}

fn hash_claims(rows: &[Row]) -> Vec<Claim> {
    let best = DRIVES[..2]
        .iter()
        .flat_map(|drive| WINDOWS.map(|window| (*drive, window)))
        .map(|(drive, window)| {
            find(rows, drive, window, "WOJ_xxh64").speed()
                / find(rows, drive, window, "WOJ_sha1").speed()
        });
    let (_, best) = range(best);
    let told = |of: fn(&Row) -> f64| {
        let each = DRIVES[..2].iter().flat_map(|drive| {
            WINDOWS.map(|window| {
                of(find(rows, drive, window, "JFTL")) / of(find(rows, drive, window, "WOJ_xxh64"))
            })
        });
        range(each)
    };
    let (fewest, most) = told(Row::amplification);
    let (slowest, fastest) = told(Row::speed);
    let alike = range([10, 100, 1000].into_iter().map(|window| {
        find(rows, "fast-ssd", window, "WOJ_sha1").amplification()
            / find(rows, "fast-ssd", window, "WOJ_xxh64").amplification()
    }));
    vec![
        Claim {
            what: "throughput of WOJ_xxh64 over WOJ_sha1, at most".into(),
            theirs: "2.24 times".into(),
            ours: format!("{best:.2} times"),
            met: best >= 2.24,
            why: NO_KERNEL.into(),
        },
        Claim {
            what: "the hash does not change what is written".into(),
            theirs: "collisions are rare".into(),
            ours: format!("{:.4} to {:.4} of it", alike.0, alike.1),
            met: alike.1 - alike.0 < 0.001,
            why: "contents here are all different, so no hash collides; on real data the 64 bytes do: docs/benchmarks/journal.md".into(),
        },
        Claim {
            what: "JFTL finds the same second writes as WOJ, by another way".into(),
            theirs: "stated in section 4.1; not run".into(),
            ours: format!("{fewest:.4} to {most:.4} of WOJ_xxh64's blocks"),
            met: (fewest - 1.0).abs() < 0.001 && (most - 1.0).abs() < 0.001,
            why: String::new(),
        },
        Claim {
            what: "throughput of JFTL over WOJ_xxh64".into(),
            theirs: "not run".into(),
            ours: format!("{slowest:.4} to {fastest:.4} times"),
            met: slowest >= 0.999,
            why: "what JFTL saves is 11 ns of hashing a block, and reading the descriptors takes no time here; what it costs is that the drive must know \
                  the journal's format, the paper's reason for WOJ"
                .into(),
        },
    ]
}

fn random_claims(random: &[Row], sequential: &[Row]) -> Vec<Claim> {
    let speed = |rows, window| find(rows, "fast-ssd", window, "WOJ_xxh64").speed();
    let slower = speed(random, 1000) < speed(sequential, 1000);
    let removed = |window| {
        1.0 - find(random, "fast-ssd", window, "WOJ_xxh64").amplification()
            / find(random, "fast-ssd", window, "No_Dedup_DJ").amplification()
    };
    let (low, high) = range([10, 100, 1000].into_iter().map(removed));
    vec![
        Claim {
            what: "blocks removed by WOJ_xxh64, at 10 to 1000 writes a flush".into(),
            theirs: "almost the same as full deduplication".into(),
            ours: format!("{:.0} to {:.0}%", low * 100.0, high * 100.0),
            met: low > 0.365,
            why: String::new(),
        },
        Claim {
            what: "WOJ_xxh64 at 1000 writes a flush, random and sequential".into(),
            theirs: "165 and 290 MB/s".into(),
            ours: format!("{:.0} and {:.0} MB/s", speed(random, 1000), speed(sequential, 1000)),
            met: slower,
            why: "home writes of random blocks are remapped and cost nothing here, wherever they are; the block device knows no difference \
                  between random and sequential writes"
                .into(),
        },
    ]
}

fn memory(rows: &[Row]) -> Frame {
    let ours = find(rows, "fast-ssd", 1000, "the engine");
    let part = |name: &str| {
        let found = ours.outcome.memory.iter().find(|part| part.name == name);
        found.map_or(0, |part| part.bytes)
    };
    let pool = part("journal pool");
    let setting = "A journal of 256 MB: 65,536 blocks. Ours: the engine, at the end of figure 2's run at 1000 writes a flush.";
    let shared = part("shared pages") >> 10;
    Frame::new(MEMORY, setting, &["table", "theirs", "ours"])
        .rows([
            ["fingerprint pool", "768 KB (12 B a journal block)", &format!("{} KB (6 B)", pool >> 10)],
            ["second owners", "512 KB (8 B a block)", &format!("{shared} KB (17 B a page that is shared now)")],
        ].map(|row| row.map(str::to_owned).to_vec()))
        .claims([Claim {
            what: "the pool is bounded by the journal, whatever the device's size".into(),
            theirs: "768 KB".into(),
            ours: format!("{} KB", pool >> 10),
            met: pool <= 768 << 10,
            why: "a page of two owners has an entry by its number, with a count for as many owners as deduplication may give it".into(),
        }])
}
