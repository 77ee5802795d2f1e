//! Results for people: one table, a column per policy.

use crate::base::{Folded, Lookups, Refreshed};
use crate::flash::{Busy, Reads, Taken, Worn};
use crate::life::Life;
use crate::outcome::{OfTenant, Outcome, Percentiles, Queued, Stacked};
use crate::verdict;
use std::fmt::Write;

const NAME: usize = 26;
const CELL_MIN: usize = 14;
/// Rows of the engine's counters; a row appears if any policy has counted something.
const COUNTED: [(&str, &str); 16] = [
    ("zeros not stored", "zero_blocks"),
    ("absorbed in RAM", "absorbed_blocks"),
    ("written into a journal", "journal_blocks"),
    ("remapped, not written", "remapped_blocks"),
    ("duplicates not written", "dedup_blocks"),
    ("read for comparison", "compare_reads"),
    ("stored in parts of pages", "packed_blocks"),
    ("  of these as deltas", "delta_blocks"),
    ("read as deltas", "delta_reads"),
    ("folded: stored anew", "folded_blocks"),
    ("  pages given back", "folds"),
    ("shared by sweeps", "merged_blocks"),
    ("freed, and dropped", "freed_blocks"),
    ("  used again before", "freed_cancelled_blocks"),
    ("commit blocks that waited", "commits_waited"),
    ("  were answered before", "commits_answered_early"),
];

/// The actual over-provisioning, in tenths of a percent of the volume.
fn over_provisioning(outcome: &Outcome) -> String {
    let share = outcome.physical_blocks as f64 / outcome.logical_blocks.max(1) as f64;
    format!("{:.1}%", (share - 1.0) * 100.0)
}

/// The table.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut out =
        verdict::sentence(outcomes).map_or_else(String::new, |said| format!("{said}\n\n"));
    let width = |o: &Outcome| o.policy.len().max(CELL_MIN) + 1;
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let mut line = format!("{name:<NAME$}");
        for outcome in outcomes {
            let _ = write!(line, " {:>1$}", cell(outcome), width(outcome));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    };
    row("", &|o| o.policy.clone());
    counts(outcomes, &mut row);
    amplifications(outcomes, &mut row);
    for (name, counter) in COUNTED {
        if outcomes.iter().any(|o| o.counted(counter) > 0) {
            row(name, &|o| not_zero(o.counted(counter)));
        }
    }
    mistakes(outcomes, &mut row);
    wear(outcomes, &mut row);
    if outcomes.iter().any(|o| o.hash_ns.is_some()) {
        row("hashing takes", &|o| {
            or_dash(o.hash_ns.map(|ns| {
                let share = 100.0 * ns as f64 / 1e9 / o.seconds.max(1e-9);
                format!("{:.3} s, {share:.1}%", ns as f64 / 1e9)
            }))
        });
    }
    extended(outcomes, &mut row);
    latencies(outcomes, &mut row);
    row("RAM for tables", &|o| {
        let tables = o.memory.iter().filter(|part| part.name != "write buffer");
        match tables.map(|part| part.bytes).sum() {
            0 => "-".into(),
            sum => bytes(sum),
        }
    });
    row("virtual time", &|o| format!("{:.3} s", o.seconds));
    row("requests a second", &|o| {
        let rate = || format!("{:.0}", o.requests as f64 / o.seconds);
        or_dash((o.seconds > 0.0).then(rate))
    });
    for outcome in outcomes {
        notes(outcome, &mut out);
    }
    out
}

/// A cell, or a dash for what there is not.
fn or_dash(cell: Option<impl ToString>) -> String {
    cell.map_or_else(|| "-".into(), |cell| cell.to_string())
}

fn not_zero(count: u64) -> String {
    or_dash((count > 0).then_some(count))
}

/// How large all is, how many requests there were, and how many blocks the host and the medium got.
fn counts(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    row("volume", &|o| bytes(o.logical_blocks * 4096));
    row("flash or device", &|o| bytes(o.physical_blocks * 4096));
    row("  over-provisioning", &over_provisioning);
    row("  in use at the end", &|o| {
        or_dash(o.live_blocks.map(|live| bytes(live * 4096)))
    });
    row("requests", &|o| o.requests.to_string());
    row("host wrote, blocks", &|o| o.host_written.to_string());
    row("host read, blocks", &|o| o.host_read.to_string());
    row("medium got, blocks", &|o| o.medium_blocks().to_string());
    let mut causes: Vec<&str> = Vec::new();
    for cause in outcomes.iter().flat_map(|o| &o.medium) {
        if !causes.contains(&cause.name) {
            causes.push(cause.name);
        }
    }
    for name in causes {
        row(&format!("  {name}"), &|o| {
            let cause = o.medium.iter().find(|cause| cause.name == name);
            or_dash(cause.map(|cause| cause.blocks))
        });
    }
}

/// Write amplification, how certain it is, and that of each of two layers.
fn amplifications(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    row("write amplification", &|o| {
        or_dash(o.write_amplification.map(|wa| format!("{wa:.3}")))
    });
    row("  settled, drift", &|o| o.sure.told());
    if outcomes.iter().any(|o| o.stacked.is_some()) {
        let one = |o: &Outcome, of: fn(&Stacked) -> f64| {
            or_dash(o.stacked.as_ref().map(|s| format!("{:.3}", of(s))))
        };
        row("  of the engine", &|o| one(o, |s| s.engine));
        row("  of the drive under it", &|o| one(o, |s| s.drive));
    }
}

/// What is wrong, or would be, because a hash is trusted or the map has an order.
fn mistakes(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    if outcomes.iter().any(|o| o.mistaken > Some(0)) {
        row("read as something else", &|o| or_dash(o.mistaken));
    }
    if outcomes.iter().any(|o| o.order.is_some()) {
        row("map updates held, most", &|o| {
            or_dash(o.order.map(|(held, _)| held))
        });
        row("journal blocks too early", &|o| {
            or_dash(o.order.map(|(_, early)| early))
        });
    }
}

/// Erasures, and how long the flash lasts.
fn wear(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    if outcomes.iter().all(|o| o.life.is_none()) {
        return;
    }
    let life = |o: &Outcome, cell: &dyn Fn(&Life) -> String| or_dash(o.life.as_ref().map(cell));
    row("erasures", &|o| life(o, &|l| l.erases.to_string()));
    row("  of a block: mean, most", &|o| {
        life(o, &|l| format!("{:.2}, {}", l.erases_mean, l.erases_most))
    });
    row("  standard deviation", &|o| {
        life(o, &|l| format!("{:.2}", l.erases_deviation))
    });
    row("host can write", &|o| life(o, &|l| l.told_endurance(bytes)));
    row("years", &|o| life(o, &Life::told_years));
}

/// What a reader must know about a column.
fn notes(outcome: &Outcome, out: &mut String) {
    let policy = &outcome.policy;
    if outcome.partial {
        let _ = writeln!(out, "{policy}: PARTIAL: ended before its load was");
    }
    for note in outcome.notes.iter().chain(&outcome.sure.warning()) {
        let _ = writeln!(out, "{policy}: {note}");
    }
}

/// The latencies of all hosts together, and what each tenant saw.
fn latencies(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    for (name, of) in [
        (
            "read",
            (|o: &Outcome| o.reads) as fn(&Outcome) -> Percentiles,
        ),
        ("write", |o| o.writes),
        ("flush", |o| o.flushes),
    ] {
        if outcomes.iter().all(|o| of(o).count == 0) {
            continue;
        }
        row(&format!("{name}, mean"), &|o| micros(of(o).mean_ns));
        row("  half within", &|o| micros(of(o).p50_ns));
        row("  99% within", &|o| micros(of(o).p99_ns));
        row("  99.9% within", &|o| micros(of(o).p999_ns));
        row("  99.99% within", &|o| micros(of(o).p9999_ns));
        row("  the longest", &|o| micros(of(o).most_ns));
    }
    let tenants = outcomes.first().map_or(&[][..], |o| &o.tenants);
    for (at, tenant) in tenants.iter().enumerate() {
        let none = OfTenant::default();
        let of = |o: &Outcome| o.tenants.get(at).unwrap_or(&none).clone();
        row(&format!("tenant {}", tenant.name), &|o| {
            format!("{} requests", of(o).requests)
        });
        row("  wrote, blocks", &|o| of(o).host_written.to_string());
        row("  read, blocks", &|o| of(o).host_read.to_string());
        for (kind, nanos) in KINDS {
            if outcomes.iter().all(|o| nanos(&of(o)).count == 0) {
                continue;
            }
            row(&format!("  {kind}, mean"), &|o| {
                micros(nanos(&of(o)).mean_ns)
            });
            row("    99% within", &|o| micros(nanos(&of(o)).p99_ns));
            row("    99.9% within", &|o| micros(nanos(&of(o)).p999_ns));
            row("    the longest", &|o| micros(nanos(&of(o)).most_ns));
        }
        if tenant.queue.is_some() {
            queue(&of, row);
        }
    }
}

/// A tenant's submission queue.
fn queue(of: &dyn Fn(&Outcome) -> OfTenant, row: &mut AddRow<'_>) {
    let cell =
        |o: &Outcome, told: &dyn Fn(&Queued) -> String| or_dash(of(o).queue.as_ref().map(told));
    row("  its queue", &|o| {
        cell(o, &|own| match own.class {
            Some(class) => format!("{}, {class}", own.number),
            None => own.number.to_string(),
        })
    });
    row("  waits in it, mean", &|o| {
        cell(o, &|own| micros(own.waited.mean_ns))
    });
    row("    99% within", &|o| {
        cell(o, &|own| micros(own.waited.p99_ns))
    });
    row("  requests a second", &|o| {
        cell(o, &|own| format!("{:.0}", own.requests_per_second))
    });
}

/// Kinds of requests, and a tenant's latencies for each.
type OfKind = fn(&OfTenant) -> Percentiles;
const KINDS: [(&str, OfKind); 3] = [
    ("read", |tenant| tenant.reads),
    ("write", |tenant| tenant.writes),
    ("flush", |tenant| tenant.flushes),
];

/// Adds a row: its name, and the cell for an outcome.
type AddRow<'a> = dyn FnMut(&str, &dyn Fn(&Outcome) -> String) + 'a;

/// How long commit blocks waited for the blocks they commit, if any did.
fn commits(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    if outcomes.iter().any(|o| o.counted("commits_waited") > 0) {
        row(
            "commit blocks wait, mean",
            &|o| match o.counted("commits_waited") {
                0 => "-".into(),
                waited => micros(o.counted("commits_wait_ns") / waited),
            },
        );
    }
}

/// Rows of the optional parts of the simulation.
fn extended(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    commits(outcomes, row);
    let worn = |o: &Outcome| o.life.as_ref().and_then(|life| life.worn);
    if outcomes.iter().any(|o| worn(o).is_some()) {
        row("worn out after", &|o| {
            or_dash(worn(o).map(|w| match w.worn.ended_by {
                Some(_) => bytes(w.written_bytes),
                None => "not yet".into(),
            }))
        });
        row("  years, measured", &|o| {
            let daily = o.life.as_ref().and_then(|life| life.daily_bytes);
            let years = worn(o).and_then(|w| w.years(daily));
            or_dash(years.map(|years| format!("{years:.1}")))
        });
        row("  blocks retired", &|o| {
            or_dash(worn(o).map(|w| w.worn.retired))
        });
        row("  spare blocks left", &|o| {
            let of = |w: Worn| format!("{} of {}", w.spares_left, w.spares);
            or_dash(worn(o).map(|w| of(w.worn)))
        });
    }
    if outcomes.iter().any(|o| o.read_errors.is_some()) {
        let cell = |o: &Outcome, of: &dyn Fn(Reads) -> u64| or_dash(o.read_errors.map(of));
        row("reads tried again", &|o| cell(o, &|reads| reads.retried));
        row("  retries", &|o| cell(o, &|reads| reads.retries));
        row("  read errors", &|o| cell(o, &|reads| reads.uncorrectable));
    }
    if outcomes.iter().any(|o| o.lookups.is_some()) {
        let cell = |o: &Outcome, of: &dyn Fn(Lookups) -> String| or_dash(o.lookups.map(of));
        row("map entries in RAM", &|o| {
            cell(o, &|l| {
                let all = (l.hits + l.misses).max(1);
                format!("{:.1}%", 100.0 * l.hits as f64 / all as f64)
            })
        });
        row("  map pages read", &|o| {
            cell(o, &|l| (l.reads_waited + l.reads_to_change).to_string())
        });
        row("  written: for room", &|o| {
            cell(o, &|l| l.writes_evicted.to_string())
        });
        row("  written: after moves", &|o| {
            cell(o, &|l| l.writes_moved.to_string())
        });
    }
    cached(outcomes, row);
    refreshed(outcomes, row);
    energy(outcomes, row);
    if outcomes.iter().any(|o| o.busy.is_some()) {
        let cell = |o: &Outcome, of: &dyn Fn(Busy) -> String| or_dash(o.busy.map(of));
        row("stopped for reads", &|o| {
            cell(o, &|b| b.suspensions.to_string())
        });
        row("  a program takes, mean", &|o| {
            cell(o, &|b| micros(b.programs_ns / b.programs.max(1)))
        });
        row("  an erasure takes, mean", &|o| {
            cell(o, &|b| micros(b.erases_ns / b.erases.max(1)))
        });
        row("loaded early", &|o| {
            cell(o, &|b| b.loaded_early.to_string())
        });
    }
}

/// What went through an SLC cache, and what the other blocks then received.
fn cached(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    if outcomes.iter().all(|o| o.slc.is_none()) {
        return;
    }
    let cell = |o: &Outcome, of: &dyn Fn(Folded) -> u64| or_dash(o.slc.map(of));
    row("SLC cache: written", &|o| cell(o, &|slc| slc.written));
    row("  folded", &|o| cell(o, &|slc| slc.folded));
    row("  of these while idle", &|o| cell(o, &|slc| slc.idle));
    row("  its erasures", &|o| cell(o, &|slc| slc.erases));
    row("  amplification behind it", &|o| {
        or_dash(o.behind_cache().map(|share| format!("{share:.3}")))
    });
}

/// What was refreshed, and what was due on drives that refresh nothing.
fn refreshed(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    if outcomes.iter().all(|o| o.refreshed.is_none()) {
        return;
    }
    let cell = |o: &Outcome, of: &dyn Fn(Refreshed) -> u64| or_dash(o.refreshed.map(of));
    row("erase blocks refreshed", &|o| {
        cell(o, &|all| all.for_reads + all.for_age)
    });
    row("  for their reads", &|o| cell(o, &|all| all.for_reads));
    row("  for their age", &|o| cell(o, &|all| all.for_age));
    row("  blocks moved for that", &|o| cell(o, &|all| all.moved));
    row("  due, NOT refreshed", &|o| {
        cell(o, &|all| all.past_due.reads + all.past_due.age)
    });
}

/// The energy that the flash used.
fn energy(outcomes: &[Outcome], row: &mut AddRow<'_>) {
    if outcomes.iter().all(|o| o.energy.is_none()) {
        return;
    }
    let cell = |o: &Outcome, of: &dyn Fn(Taken) -> f64| {
        or_dash(o.energy.map(|taken| format!("{:.3} J", of(taken))))
    };
    row("energy of the flash", &|o| cell(o, &|taken| taken.all()));
    row("  of these for reads", &|o| cell(o, &|taken| taken.reads_j));
    row("  for programs", &|o| cell(o, &|taken| taken.programs_j));
    row("  for erasures", &|o| cell(o, &|taken| taken.erases_j));
    row("  for each GiB of the host's", &|o| {
        let joules = o.joules_per_gib();
        or_dash(joules.map(|joules| format!("{joules:.3} J")))
    });
}

/// Formats a number of bytes.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in units {
        if bytes >> shift > 0 {
            return format!("{:.1} {unit}", bytes as f64 / f64::from(shift).exp2());
        }
    }
    format!("{bytes} B")
}

fn micros(nanos: u64) -> String {
    format!("{:.1} us", nanos as f64 / 1000.0)
}
