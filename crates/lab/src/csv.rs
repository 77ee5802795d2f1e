//! Results as comma-separated values: a line per policy, a column per figure.

use crate::base::{Folded, Lookups, Refreshed};
use crate::flash::{Busy, Reads, Taken};
use crate::life::{Life, WornOut};
use crate::outcome::{Outcome, Percentiles};
use crate::series::Step;
use std::collections::BTreeSet;

/// The lines, with a header.
#[must_use]
pub fn lines(outcomes: &[Outcome]) -> String {
    let mut causes: Vec<&str> = Vec::new();
    let mut memory: Vec<&str> = Vec::new();
    let mut known = BTreeSet::new();
    for outcome in outcomes {
        causes.extend(
            outcome
                .medium
                .iter()
                .map(|c| c.name)
                .filter(|n| known.insert(("c", *n))),
        );
        memory.extend(
            outcome
                .memory
                .iter()
                .map(|m| m.name)
                .filter(|n| known.insert(("m", *n))),
        );
    }
    let with = outcomes.iter().fold(With::default(), With::and);
    let mut out = String::new();
    for (at, outcome) in outcomes.iter().enumerate() {
        let columns = columns(outcome, (&causes, &memory), with);
        if at == 0 {
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            out += &line(&names);
        }
        let cells: Vec<&str> = columns.iter().map(|(_, cell)| cell.as_str()).collect();
        out += &line(&cells);
    }
    out
}

/// The figures of an outcome, with their names.
#[must_use]
pub fn cells(outcome: &Outcome) -> Vec<(String, String)> {
    let causes: Vec<&str> = outcome.medium.iter().map(|cause| cause.name).collect();
    let memory: Vec<&str> = outcome.memory.iter().map(|part| part.name).collect();
    columns(outcome, (&causes, &memory), With::default().and(outcome))
}

/// The course of runs: a line for each step, with everything counted from the run's start to the step's end, and the
/// mean latency of the requests answered within the step.
#[must_use]
pub fn steps(outcomes: &[Outcome]) -> String {
    let mut counters: Vec<Counter> = Vec::new();
    let mut known = BTreeSet::new();
    for outcome in outcomes {
        let causes = outcome
            .medium
            .iter()
            .map(|cause| Counter::Written(cause.name));
        let engine = outcome.engine.iter().map(|(name, _)| Counter::Engine(name));
        counters.extend(
            causes
                .chain(engine)
                .filter(|&counter| known.insert(counter)),
        );
    }
    let mut heading: Vec<String> = STEP.map(Into::into).into();
    heading.extend(counters.iter().map(|counter| counter.heading()));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut out = line(&heading);
    for outcome in outcomes {
        let mut before = (0, 0);
        for step in &outcome.steps {
            let now = (step.host_written, step.medium_written);
            let within = (now.1 - before.1) as f64 / (now.0 - before.0).max(1) as f64;
            before = now;
            let optional = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
            let mut cells = vec![
                outcome.policy.clone(),
                outcome.load.clone(),
                now.0.to_string(),
                format!("{:.9}", step.seconds),
                now.1.to_string(),
                format!("{within:.4}"),
                step.erases.to_string(),
                optional(step.write_mean_ns),
                optional(step.read_mean_ns),
            ];
            let counted = |counter: &Counter| optional(counter.of(outcome, step));
            cells.extend(counters.iter().map(counted));
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            out += &line(&cells);
        }
    }
    out
}

/// The columns before the counters.
const STEP: [&str; 9] = [
    "policy",
    "load",
    "host_written_blocks",
    "seconds",
    "medium_written_blocks",
    "write_amplification_within",
    "erases",
    "write_mean_ns",
    "read_mean_ns",
];

/// The other counts, by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counter {
    /// Blocks that the medium received for a cause.
    Written(&'static str),
    /// A counter of the engine.
    Engine(&'static str),
}

impl Counter {
    fn heading(self) -> String {
        match self {
            Self::Written(name) => format!("written_{}", name.replace(' ', "_")),
            Self::Engine(name) => format!("engine_{name}"),
        }
    }

    /// The count at the end of a step; none if the policy has no such counter.
    fn of(self, outcome: &Outcome, step: &Step) -> Option<u64> {
        let found = match self {
            Self::Written(name) => {
                let at = outcome.medium.iter().position(|cause| cause.name == name);
                step.by_cause.get(at?)
            }
            Self::Engine(name) => {
                let at = outcome.engine.iter().position(|counter| counter.0 == name);
                step.engine.get(at?)
            }
        };
        found.copied()
    }
}

/// One line.
pub(crate) fn line(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    cells.join(",") + "\n"
}

fn columns(
    outcome: &Outcome,
    (causes, memory): (&[&str], &[&str]),
    with: With,
) -> Vec<(String, String)> {
    let optional = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    let mut all: Vec<(String, String)> = vec![
        ("policy".into(), outcome.policy.clone()),
        ("load".into(), outcome.load.clone()),
        ("partial".into(), outcome.partial.to_string()),
        ("logical_blocks".into(), outcome.logical_blocks.to_string()),
        (
            "physical_blocks".into(),
            outcome.physical_blocks.to_string(),
        ),
        (
            "live_blocks".into(),
            outcome
                .live_blocks
                .map_or(String::new(), |live| live.to_string()),
        ),
        ("requests".into(), outcome.requests.to_string()),
        ("host_written".into(), outcome.host_written.to_string()),
        ("host_read".into(), outcome.host_read.to_string()),
        ("medium_written".into(), outcome.medium_blocks().to_string()),
    ];
    for name in causes {
        let found = outcome.medium.iter().find(|cause| cause.name == *name);
        let blocks = found.map_or(String::new(), |cause| cause.blocks.to_string());
        all.push((format!("written_{}", name.replace(' ', "_")), blocks));
    }
    all.push((
        "write_amplification".into(),
        optional(outcome.write_amplification),
    ));
    sure(outcome, &mut all);
    let stacked = outcome.stacked.as_ref();
    all.push((
        "engine_amplification".into(),
        optional(stacked.map(|s| s.engine)),
    ));
    all.push((
        "drive_amplification".into(),
        optional(stacked.map(|s| s.drive)),
    ));
    let life = outcome.life.as_ref();
    all.push((
        "erases".into(),
        life.map_or(String::new(), |l| l.erases.to_string()),
    ));
    all.push(("erases_mean".into(), optional(life.map(|l| l.erases_mean))));
    all.push((
        "erases_deviation".into(),
        optional(life.map(|l| l.erases_deviation)),
    ));
    all.push((
        "erases_most".into(),
        optional(life.map(|l| f64::from(l.erases_most))),
    ));
    let endurance = life.and_then(|l| l.endurance_bytes);
    all.push((
        "endurance_bytes".into(),
        endurance.map_or(String::new(), |b| b.to_string()),
    ));
    for (name, of) in YEARS {
        all.push((name.into(), optional(life.and_then(of))));
    }
    let kinds = [outcome.reads, outcome.writes, outcome.flushes];
    latencies("", kinds, &mut all);
    extended(outcome, with, &mut all);
    tenants(outcome, &mut all);
    for name in memory {
        let found = outcome.memory.iter().find(|part| part.name == *name);
        let bytes = found.map_or(String::new(), |part| part.bytes.to_string());
        all.push((format!("ram_{}_bytes", name.replace(' ', "_")), bytes));
    }
    all.push(("virtual_seconds".into(), outcome.seconds.to_string()));
    all
}

/// The latencies of reads, writes and flushes.
fn latencies(of_whom: &str, kinds: [Percentiles; 3], all: &mut Vec<(String, String)>) {
    for (kind, of) in ["read", "write", "flush"].into_iter().zip(kinds) {
        for (name, nanos) in [
            ("mean", of.mean_ns),
            ("p50", of.p50_ns),
            ("p99", of.p99_ns),
            ("p999", of.p999_ns),
            ("p9999", of.p9999_ns),
            ("most", of.most_ns),
        ] {
            let cell = match of.count {
                0 => String::new(),
                _ => nanos.to_string(),
            };
            all.push((format!("{of_whom}{kind}_{name}_ns"), cell));
        }
    }
}

/// What each tenant saw: all runs of a comparison have the same tenants.
fn tenants(outcome: &Outcome, all: &mut Vec<(String, String)>) {
    for tenant in &outcome.tenants {
        let of_whom = format!("tenant_{}_", tenant.name);
        for (name, count) in [
            ("requests", tenant.requests),
            ("host_written", tenant.host_written),
            ("host_read", tenant.host_read),
        ] {
            all.push((format!("{of_whom}{name}"), count.to_string()));
        }
        let kinds = [tenant.reads, tenant.writes, tenant.flushes];
        latencies(&of_whom, kinds, all);
        if let Some(own) = &tenant.queue {
            let class = own.class.unwrap_or_default();
            for (name, cell) in [
                ("queue", own.number.to_string()),
                ("class", class.into()),
                ("waited_mean_ns", own.waited.mean_ns.to_string()),
                ("waited_p99_ns", own.waited.p99_ns.to_string()),
                ("waited_p999_ns", own.waited.p999_ns.to_string()),
                ("seconds", own.seconds.to_string()),
                ("requests_per_second", own.requests_per_second.to_string()),
                ("bytes_per_second", own.bytes_per_second.to_string()),
            ] {
                all.push((format!("{of_whom}{name}"), cell));
            }
        }
    }
}

/// Years, and their certainty.
type OfLife = fn(&Life) -> Option<f64>;
const YEARS: [(&str, OfLife); 4] = [
    ("erases_off_percent", |life| life.off_percent),
    ("years", |life| life.years),
    ("years_low", |life| life.years_low),
    ("years_high", |life| life.years_high),
];

/// The certainty of the amplification.
fn sure(outcome: &Outcome, all: &mut Vec<(String, String)>) {
    let mut add = |name: &str, value: Option<String>| {
        all.push((name.into(), value.unwrap_or_default()));
    };
    let number = |value: Option<f64>| value.map(|value| value.to_string());
    let sure = &outcome.sure;
    add(
        "write_amplification_low",
        number(sure.write_amplification_low),
    );
    add(
        "write_amplification_high",
        number(sure.write_amplification_high),
    );
    add("settled", sure.settled.map(|settled| settled.to_string()));
    add("drift_percent", number(sure.drift_percent));
}

/// Which optional parts are simulated in any of the runs.
#[derive(Clone, Copy, Default)]
struct With {
    hashing: bool,
    worn: bool,
    errors: bool,
    lookups: bool,
    slc: bool,
    refreshed: bool,
    energy: bool,
    busy: bool,
}

impl With {
    fn and(self, outcome: &Outcome) -> Self {
        Self {
            hashing: self.hashing || outcome.hash_ns.is_some(),
            worn: self.worn || worn(outcome).is_some(),
            errors: self.errors || outcome.read_errors.is_some(),
            lookups: self.lookups || outcome.lookups.is_some(),
            slc: self.slc || outcome.slc.is_some(),
            refreshed: self.refreshed || outcome.refreshed.is_some(),
            energy: self.energy || outcome.energy.is_some(),
            busy: self.busy || outcome.busy.is_some(),
        }
    }
}

fn worn(outcome: &Outcome) -> Option<WornOut> {
    outcome.life.as_ref().and_then(|life| life.worn)
}

/// The columns of the optional parts.
fn extended(outcome: &Outcome, with: With, all: &mut Vec<(String, String)>) {
    let mut add = |name: &str, value: Option<String>| {
        all.push((name.into(), value.unwrap_or_default()));
    };
    if with.hashing {
        add("hash_ns", outcome.hash_ns.map(|ns| ns.to_string()));
    }
    if with.worn {
        let cell = |of: &dyn Fn(WornOut) -> String| worn(outcome).map(of);
        add("worn_out", cell(&|w| w.worn.ended_by.is_some().to_string()));
        add("written_bytes", cell(&|w| w.written_bytes.to_string()));
        add("blocks_retired", cell(&|w| w.worn.retired.to_string()));
        add(
            "spare_blocks_left",
            cell(&|w| w.worn.spares_left.to_string()),
        );
    }
    if with.errors {
        let cell =
            |of: &dyn Fn(Reads) -> u64| outcome.read_errors.map(|reads| of(reads).to_string());
        add("reads_retried", cell(&|reads| reads.retried));
        add("read_retries", cell(&|reads| reads.retries));
        add("read_errors", cell(&|reads| reads.uncorrectable));
    }
    if with.lookups {
        let cell = |of: &dyn Fn(Lookups) -> u64| outcome.lookups.map(|l| of(l).to_string());
        add("map_hits", cell(&|l| l.hits));
        add("map_misses", cell(&|l| l.misses));
        add(
            "map_pages_read",
            cell(&|l| l.reads_waited + l.reads_to_change),
        );
        add("map_pages_written_for_room", cell(&|l| l.writes_evicted));
        add("map_pages_written_after_moves", cell(&|l| l.writes_moved));
    }
    if with.slc {
        let cell = |of: &dyn Fn(Folded) -> u64| outcome.slc.map(|slc| of(slc).to_string());
        add("slc_written", cell(&|slc| slc.written));
        add("slc_folded", cell(&|slc| slc.folded));
        add("slc_folded_idle", cell(&|slc| slc.idle));
        add("slc_erases", cell(&|slc| slc.erases));
        let behind = outcome.behind_cache();
        add("amplification_behind_slc", behind.map(|b| b.to_string()));
    }
    if with.refreshed {
        refreshed(outcome.refreshed, &mut add);
    }
    if with.energy {
        let cell = |of: &dyn Fn(Taken) -> f64| outcome.energy.map(|taken| of(taken).to_string());
        add("read_joules", cell(&|taken| taken.reads_j));
        add("program_joules", cell(&|taken| taken.programs_j));
        add("erase_joules", cell(&|taken| taken.erases_j));
        let each = outcome.joules_per_gib();
        add("joules_per_gib", each.map(|joules| joules.to_string()));
    }
    if with.busy {
        let cell = |of: &dyn Fn(Busy) -> u64| outcome.busy.map(|busy| of(busy).to_string());
        add("suspensions", cell(&|busy| busy.suspensions));
        add(
            "program_mean_ns",
            cell(&|busy| busy.programs_ns / busy.programs.max(1)),
        );
        add(
            "erase_mean_ns",
            cell(&|busy| busy.erases_ns / busy.erases.max(1)),
        );
    }
}

/// What was refreshed, or was due and was not refreshed.
fn refreshed(all: Option<Refreshed>, add: &mut dyn FnMut(&str, Option<String>)) {
    let mut count = |name: &str, of: &dyn Fn(Refreshed) -> u64| {
        add(name, all.map(|all| of(all).to_string()));
    };
    count("refreshed_for_reads", &|all| all.for_reads);
    count("refreshed_for_age", &|all| all.for_age);
    count("refreshed_moved", &|all| all.moved);
    count("past_due_for_reads", &|all| all.past_due.reads);
    count("past_due_for_age", &|all| all.past_due.age);
}

/// A cell as RFC 4180 requires it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}
