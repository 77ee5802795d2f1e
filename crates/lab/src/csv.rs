//! Results as comma-separated values: a line per policy, a column per figure.

use crate::base::{Lookups, Refreshed};
use crate::life::{Life, WornOut};
use crate::outcome::{Outcome, Percentiles};
use crate::series::SeriesStep;
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
    fn of(self, outcome: &Outcome, step: &SeriesStep) -> Option<u64> {
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

/// A line's cells, with the names of their columns.
#[derive(Default)]
struct Cells(Vec<(String, String)>);

impl Cells {
    fn add(&mut self, name: impl Into<String>, cell: impl ToString) {
        self.0.push((name.into(), cell.to_string()));
    }

    /// An empty cell says that there is no such figure.
    fn may_add(&mut self, name: impl Into<String>, cell: Option<impl ToString>) {
        let cell = cell.map(|cell| cell.to_string());
        self.0.push((name.into(), cell.unwrap_or_default()));
    }
}

fn columns(
    outcome: &Outcome,
    (causes, memory): (&[&'static str], &[&'static str]),
    with: With,
) -> Vec<(String, String)> {
    let mut all = Cells::default();
    counts(outcome, causes, &mut all);
    amplifications(outcome, &mut all);
    wear(outcome.life.as_ref(), &mut all);
    let kinds = [outcome.reads, outcome.writes, outcome.flushes];
    latencies("", kinds, &mut all);
    extended(outcome, with, &mut all);
    tenants(outcome, &mut all);
    for name in memory {
        let found = outcome.memory.iter().find(|part| part.name == *name);
        let heading = format!("ram_{}_bytes", name.replace(' ', "_"));
        all.may_add(heading, found.map(|part| part.bytes));
    }
    all.add("virtual_seconds", outcome.seconds);
    all.0
}

/// What ran, and how many blocks and requests there were.
fn counts(outcome: &Outcome, causes: &[&'static str], all: &mut Cells) {
    all.add("policy", &outcome.policy);
    all.add("load", &outcome.load);
    all.add("partial", outcome.partial);
    all.add("logical_blocks", outcome.logical_blocks);
    all.add("physical_blocks", outcome.physical_blocks);
    all.may_add("live_blocks", outcome.live_blocks);
    all.add("requests", outcome.requests);
    all.add("host_written", outcome.host_written);
    all.add("host_read", outcome.host_read);
    all.add("medium_written", outcome.medium_blocks());
    for name in causes {
        let found = outcome.medium.iter().find(|cause| cause.name == *name);
        let heading = Counter::Written(name).heading();
        all.may_add(heading, found.map(|cause| cause.blocks));
    }
}

/// Write amplification, how certain it is, and that of each of two layers.
fn amplifications(outcome: &Outcome, all: &mut Cells) {
    all.may_add("write_amplification", outcome.write_amplification);
    let sure = &outcome.sure;
    all.may_add("write_amplification_low", sure.write_amplification_low);
    all.may_add("write_amplification_high", sure.write_amplification_high);
    all.may_add("settled", sure.settled);
    all.may_add("drift_percent", sure.drift_percent);
    let stacked = outcome.stacked.as_ref();
    all.may_add("engine_amplification", stacked.map(|s| s.engine));
    all.may_add("drive_amplification", stacked.map(|s| s.drive));
}

/// Erasures, and how long the flash lasts.
fn wear(life: Option<&Life>, all: &mut Cells) {
    all.may_add("erases", life.map(|l| l.erases));
    all.may_add("erases_mean", life.map(|l| l.erases_mean));
    all.may_add("erases_deviation", life.map(|l| l.erases_deviation));
    all.may_add("erases_most", life.map(|l| l.erases_most));
    all.may_add("endurance_bytes", life.and_then(|l| l.endurance_bytes));
    all.may_add("erases_off_percent", life.and_then(|l| l.off_percent));
    all.may_add("years", life.and_then(|l| l.years));
    all.may_add("years_low", life.and_then(|l| l.years_low));
    all.may_add("years_high", life.and_then(|l| l.years_high));
}

/// The latencies of reads, writes and flushes.
fn latencies(of_whom: &str, kinds: [Percentiles; 3], all: &mut Cells) {
    for (kind, of) in ["read", "write", "flush"].into_iter().zip(kinds) {
        for (name, nanos) in [
            ("mean", of.mean_ns),
            ("p50", of.p50_ns),
            ("p99", of.p99_ns),
            ("p999", of.p999_ns),
            ("p9999", of.p9999_ns),
            ("most", of.most_ns),
        ] {
            let cell = (of.count > 0).then_some(nanos);
            all.may_add(format!("{of_whom}{kind}_{name}_ns"), cell);
        }
    }
}

/// What each tenant saw: all runs of a comparison have the same tenants.
fn tenants(outcome: &Outcome, all: &mut Cells) {
    for tenant in &outcome.tenants {
        let of_whom = format!("tenant_{}_", tenant.name);
        let named = |name: &str| format!("{of_whom}{name}");
        all.add(named("requests"), tenant.requests);
        all.add(named("host_written"), tenant.host_written);
        all.add(named("host_read"), tenant.host_read);
        let kinds = [tenant.reads, tenant.writes, tenant.flushes];
        latencies(&of_whom, kinds, all);
        if let Some(own) = &tenant.queue {
            all.add(named("queue"), own.number);
            all.may_add(named("class"), own.class);
            all.add(named("waited_mean_ns"), own.waited.mean_ns);
            all.add(named("waited_p99_ns"), own.waited.p99_ns);
            all.add(named("waited_p999_ns"), own.waited.p999_ns);
            all.add(named("seconds"), own.seconds);
            all.add(named("requests_per_second"), own.requests_per_second);
            all.add(named("bytes_per_second"), own.bytes_per_second);
        }
    }
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
fn extended(outcome: &Outcome, with: With, all: &mut Cells) {
    if with.hashing {
        all.may_add("hash_ns", outcome.hash_ns);
    }
    if with.worn {
        let worn = worn(outcome);
        all.may_add("worn_out", worn.map(|w| w.worn.ended_by.is_some()));
        all.may_add("written_bytes", worn.map(|w| w.written_bytes));
        all.may_add("blocks_retired", worn.map(|w| w.worn.retired));
        all.may_add("spare_blocks_left", worn.map(|w| w.worn.spares_left));
    }
    if with.errors {
        let reads = outcome.read_errors;
        all.may_add("reads_retried", reads.map(|r| r.retried));
        all.may_add("read_retries", reads.map(|r| r.retries));
        all.may_add("read_errors", reads.map(|r| r.uncorrectable));
    }
    if with.lookups {
        lookups(outcome.lookups, all);
    }
    if with.slc {
        let slc = outcome.slc;
        all.may_add("slc_written", slc.map(|slc| slc.written));
        all.may_add("slc_folded", slc.map(|slc| slc.folded));
        all.may_add("slc_folded_idle", slc.map(|slc| slc.idle));
        all.may_add("slc_erases", slc.map(|slc| slc.erases));
        all.may_add("amplification_behind_slc", outcome.behind_cache());
    }
    if with.refreshed {
        refreshed(outcome.refreshed, all);
    }
    if with.energy {
        let energy = outcome.energy;
        all.may_add("read_joules", energy.map(|taken| taken.reads_j));
        all.may_add("program_joules", energy.map(|taken| taken.programs_j));
        all.may_add("erase_joules", energy.map(|taken| taken.erases_j));
        all.may_add("joules_per_gib", outcome.joules_per_gib());
    }
    if with.busy {
        let busy = outcome.busy;
        let program = busy.map(|b| b.programs_ns / b.programs.max(1));
        let erase = busy.map(|b| b.erases_ns / b.erases.max(1));
        all.may_add("suspensions", busy.map(|b| b.suspensions));
        all.may_add("program_mean_ns", program);
        all.may_add("erase_mean_ns", erase);
    }
}

/// What a map that is only partly in memory costs.
fn lookups(counted: Option<Lookups>, all: &mut Cells) {
    let read = counted.map(|l| l.reads_waited + l.reads_to_change);
    all.may_add("map_hits", counted.map(|l| l.hits));
    all.may_add("map_misses", counted.map(|l| l.misses));
    all.may_add("map_pages_read", read);
    all.may_add(
        "map_pages_written_for_room",
        counted.map(|l| l.writes_evicted),
    );
    all.may_add(
        "map_pages_written_after_moves",
        counted.map(|l| l.writes_moved),
    );
}

/// What was refreshed, or was due and was not refreshed.
fn refreshed(counted: Option<Refreshed>, all: &mut Cells) {
    all.may_add("refreshed_for_reads", counted.map(|r| r.for_reads));
    all.may_add("refreshed_for_age", counted.map(|r| r.for_age));
    all.may_add("refreshed_moved", counted.map(|r| r.moved));
    all.may_add("past_due_for_reads", counted.map(|r| r.past_due.reads));
    all.may_add("past_due_for_age", counted.map(|r| r.past_due.age));
}

/// A cell as RFC 4180 requires it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}
