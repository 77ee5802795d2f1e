//! WOJ (Ni et al., 2018): its microbenchmarks (figures 2 to 5), substitutes for its programs (figures 6 to 8), and the
//! memory of its section 3.6.

mod kernel;
mod programs;
mod rows;
mod setting;

use super::claim::{BAND, Claim, Stated, percents, range};
use super::evaluation::{Evaluation, Frame};
use super::failure::PaperError;
use super::list::Listed;
use super::size::Size;
use rows::{FigureRow, HASHES, WINDOWS, by_fast_hash, find, rows};
use setting::{BY_HASH, DRIVES, NO_KERNEL, SPEEDS, SYSTEMS, speed_claim};

fn frame(name: &str, setting: &str, rows: &[FigureRow], claims: Vec<Claim>) -> Frame {
    let columns = [
        "SSD",
        "writes a flush",
        "system",
        "WA",
        "MB/s",
        "flush, half within",
        "99% within",
    ];
    let cells = |row: &FigureRow| {
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

const SEQUENTIAL: &str = "Figure 2 and 4: sequential writes, and how long a flush takes";
const HASH: &str = "Figure 3: other hash functions";
const RANDOM: &str = "Figure 5: random writes on the fast SSD";
const MEMORY: &str = "Section 3.6: memory";

fn listed() -> Vec<Listed> {
    vec![
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
    ]
}

const SETTING: &str = "4 KiB writes to one file on ext3 in data=journal with a journal of 256 MB, a flush \
                       after each window; block devices of the paper's speeds, hash functions of its table \
                       1, tables in RAM. Synthetic: the file system is the lab's model of jbd2. Ours is of a \
                       file of 1 GiB (256 MiB at a flush each write) where the paper's has 8 GB; --full has \
                       the paper's. The time of the processor is hashing alone.";

/// Runs the evaluation, as far as the lab can.
///
/// # Errors
/// When a run fails.
pub fn evaluate(size: Size, threads: usize) -> Result<Evaluation, PaperError> {
    let sequential = rows("sequential", &DRIVES, &SYSTEMS, size, threads)?;
    let hashes = rows("sequential", &DRIVES[..2], &HASHES, size, threads)?;
    let random = rows("uniform", &DRIVES[..1], &SYSTEMS, size, threads)?;
    let mut by_hash = frame(
        HASH,
        &format!(
            "{SETTING} JFTL, which the paper discusses and does not run, reads home addresses from the \
             journal's descriptor blocks and hashes nothing; the engine does so with write-once=descriptor, \
             and compares bytes before it believes them. What JFTL saves is 11 ns of hashing a block, and \
             reading the descriptors takes no time here; what it costs is that the drive must know the \
             journal's format, the paper's reason for WOJ."
        ),
        &hashes,
        hash_claims(&hashes),
    );
    by_hash.try_out(kernel::hashes(size, threads)?);
    let mut at_random = frame(
        RANDOM,
        "As above; the file is there before, so a commit's metadata is its inode alone.",
        &random,
        random_claims(&random, &sequential),
    );
    at_random.try_out(kernel::speeds(size, threads)?);
    let mut frames = vec![
        frame(
            SEQUENTIAL,
            SETTING,
            &sequential,
            sequential_claims(&sequential),
        ),
        by_hash,
        at_random,
    ];
    frames.extend(programs::frames(size, threads)?);
    frames.push(memory(&sequential));
    Ok(Evaluation {
        paper: "WOJ: Enabling Write-Once Full-data Journaling in SSDs by Using Weak-Hashing-based \
                Deduplication (Ni et al., 2018)"
            .into(),
        frames,
        missing: vec![],
        list: listed(),
    })
}

fn sequential_claims(rows: &[FigureRow]) -> Vec<Claim> {
    let mut claims = amplification_claims(rows);
    claims.extend(throughput_claims(rows));
    claims
}

fn amplification_claims(rows: &[FigureRow]) -> Vec<Claim> {
    let amplification = |window, system| find(rows, "fast-ssd", window, system).amplification();
    let mut claims = Vec::new();
    for (window, theirs) in [(1000, "about 2"), (10, "2.6")] {
        let ours = amplification(window, "No_Dedup_DJ");
        let stated = if window == 10 { 2.6 } else { 2.0 };
        claims.push(Claim::new(
            format!("WA of No_Dedup_DJ at {window} writes a flush"),
            theirs,
            format!("{ours:.2}"),
            Stated::figure(stated, ours).over(1.0),
            "",
        ));
    }
    for system in ["WOJ_xxh64", "the engine"] {
        let share = |window| amplification(window, system) / amplification(window, "No_Dedup_DJ");
        let removed = range([10, 100, 1000].map(|w| 100.0 * (1.0 - share(w))));
        claims.push(Claim::new(
            format!("blocks removed by {system}, at 10 to 1000 writes a flush"),
            "about half; 38 to 50%",
            format!("{:.0} to {:.0}%", removed.0, removed.1),
            Stated::range((38.0, 50.0), removed).over(0.0),
            match system {
                "the engine" => {
                    "it writes a header a chunk, and a flush ends a chunk; in the paper's way of counting \
                     metadata is free"
                }
                _ => "",
            },
        ));
    }
    claims
}

fn throughput_claims(rows: &[FigureRow]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let ratio = |drive, window, one, other| {
        find(rows, drive, window, one).speed() / find(rows, drive, window, other).speed()
    };
    let (low, high) = range(
        WINDOWS
            .into_iter()
            .map(|w| ratio("fast-ssd", w, "WOJ_xxh64", "Dmdedup_sha1")),
    );
    claims.push(Claim::new(
        "throughput of WOJ_xxh64 over Dmdedup_sha1 on the fast SSD",
        "1.85 to 2.03 times",
        format!("{low:.2} to {high:.2} times"),
        Stated::range((1.85, 2.03), (low, high)).over(1.0),
        format!(
            "at small windows two flushes a commit are all the time there is, with any hash; \
             {NO_KERNEL}"
        ),
    ));
    let ours = 100.0 * ratio("fast-ssd", 1000, "Dmdedup_sha1", "No_Dedup_DJ");
    claims.push(Claim::new(
        "throughput of Dmdedup_sha1 over No_Dedup_DJ, fast SSD, 1000 writes a flush",
        "about 60%",
        format!("{ours:.0}%"),
        Stated::figure(60.0, ours).over(100.0),
        "hashing at 470 MiB/s against writing at 900 MB/s; the paper's other costs are the same for both",
    ));
    for drive in DRIVES {
        let (low, _) = range(
            WINDOWS
                .into_iter()
                .map(|w| ratio(drive, w, "WOJ_xxh64", "No_Dedup_DJ")),
        );
        claims.push(Claim::words(
            format!("WOJ_xxh64 is no slower than No_Dedup_DJ on {drive}"),
            "never slower",
            format!("at least {low:.2} times as fast"),
            low >= 0.999,
        ));
    }
    claims
}

fn hash_claims(rows: &[FigureRow]) -> Vec<Claim> {
    let best = by_fast_hash(rows);
    let (fewest, most) = range(DRIVES[..2].iter().flat_map(|drive| {
        WINDOWS.map(|window| {
            find(rows, drive, window, "JFTL").amplification()
                / find(rows, drive, window, "WOJ_xxh64").amplification()
        })
    }));
    let alike = range([10, 100, 1000].into_iter().map(|window| {
        find(rows, "fast-ssd", window, "WOJ_sha1").amplification()
            / find(rows, "fast-ssd", window, "WOJ_xxh64").amplification()
    }));
    vec![
        Claim::new(
            BY_HASH,
            "2.24 times",
            format!("{best:.2} times"),
            Stated::figure(2.24, best).over(1.0),
            NO_KERNEL,
        ),
        Claim::words(
            "the hash does not change what is written",
            "collisions are rare",
            format!("{:.4} to {:.4} of it", alike.0, alike.1),
            alike.1 - alike.0 < 0.001,
        )
        .because(
            "contents here are all different, so no hash collides; on real data the 64 bytes do: \
                  docs/benchmarks/journal.md",
        ),
        Claim::words(
            "JFTL finds the same second writes as WOJ, by another way",
            "stated in section 4.1; not run",
            format!("{fewest:.4} to {most:.4} of WOJ_xxh64's blocks"),
            (fewest - 1.0).abs() < 0.001 && (most - 1.0).abs() < 0.001,
        ),
    ]
}

fn random_claims(random: &[FigureRow], sequential: &[FigureRow]) -> Vec<Claim> {
    let speed = |rows, window| find(rows, "fast-ssd", window, "WOJ_xxh64").speed();
    let removed = |system| {
        range([10, 100, 1000].map(|window| {
            1.0 - find(random, "fast-ssd", window, system).amplification()
                / find(random, "fast-ssd", window, "No_Dedup_DJ").amplification()
        }))
    };
    let (woj, all) = (removed("WOJ_xxh64"), removed("Dmdedup_sha1"));
    let mut claims = vec![Claim::words(
        "blocks removed by WOJ_xxh64, at 10 to 1000 writes a flush",
        "almost the same as full deduplication",
        format!("{}; Dmdedup_sha1 {}", percents(woj), percents(all)),
        woj.0 >= all.0 * (1.0 - BAND) && woj.1 >= all.1 * (1.0 - BAND),
    )];
    for ((load, theirs), rows) in SPEEDS.into_iter().zip([random, sequential]) {
        let ours = speed(rows, 1000);
        claims.push(Claim::new(
            speed_claim(load),
            format!("{theirs} MB/s"),
            format!("{ours:.0} MB/s"),
            Stated::figure(theirs, ours),
            format!(
                "home writes are remapped and cost nothing here, wherever they are; the block device knows \
                 no difference between random and sequential writes; {NO_KERNEL}"
            ),
        ));
    }
    claims
}

fn memory(rows: &[FigureRow]) -> Frame {
    let ours = find(rows, "fast-ssd", 1000, "the engine");
    let kib = |name: &str| {
        let found = ours.outcome.memory.iter().find(|part| part.name == name);
        found.map_or(0, |part| part.bytes) >> 10
    };
    let (pool, shared) = (kib("journal pool"), kib("shared pages"));
    let setting = "A journal of 256 MB: 65,536 blocks. Ours: the engine, at the end of figure 2's run at \
                   1000 writes a flush.";
    let owners = format!("{shared} KB (17 B a page that is shared now)");
    let table = [
        [
            "fingerprint pool",
            "768 KB (12 B a journal block)",
            &format!("{pool} KB (6 B)"),
        ],
        ["second owners", "512 KB (8 B a block)", &owners],
    ];
    let claim = |what: &str, theirs: f64, ours: u64, why: &str| {
        let stated = Stated::AtMost {
            theirs,
            ours: ours as f64,
        };
        let ours = format!("{ours} KB");
        Claim::new(what, format!("{theirs} KB"), ours, stated, why)
    };
    let owner = "a page of two owners has an entry by its number, with a count for as many owners as \
                 deduplication may give it";
    Frame::new(MEMORY, setting, &["table", "theirs", "ours"])
        .rows(table.map(|row| row.map(str::to_owned).to_vec()))
        .claims([
            claim(
                "the pool is bounded by the journal, whatever the device's size",
                768.0,
                pool,
                "",
            ),
            claim("memory for second owners", 512.0, shared, owner),
            claim(
                "memory for both (the paper rounds: 1.28 MB)",
                1280.0,
                pool + shared,
                owner,
            ),
        ])
}
