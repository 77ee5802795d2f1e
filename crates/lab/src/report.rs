//! Results as people read them: one table, a column a policy.

use crate::outcome::{Outcome, Percentiles, Stacked};
use std::fmt::Write;

const NAME: usize = 26;
const CELL_MIN: usize = 14;

/// The table.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    let width = |o: &Outcome| o.policy.len().max(CELL_MIN) + 2;
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let mut line = format!("{name:<NAME$}");
        for outcome in outcomes {
            let _ = write!(line, "{:>1$}", cell(outcome), width(outcome));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    };
    row("", &|o| o.policy.clone());
    row("volume", &|o| bytes(o.logical_blocks * 4096));
    row("flash or device", &|o| bytes(o.physical_blocks * 4096));
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
            cause.map_or("-".into(), |cause| cause.blocks.to_string())
        });
    }
    row("write amplification", &|o| {
        o.write_amplification
            .map_or("-".into(), |wa| format!("{wa:.3}"))
    });
    if outcomes.iter().any(|o| o.stacked.is_some()) {
        let one = |o: &Outcome, of: fn(&Stacked) -> f64| {
            o.stacked
                .as_ref()
                .map_or("-".into(), |s| format!("{:.3}", of(s)))
        };
        row("  of the engine", &|o| one(o, |s| s.engine));
        row("  of the drive under it", &|o| one(o, |s| s.drive));
    }
    let shown = |count: u64| {
        if count == 0 {
            "-".into()
        } else {
            count.to_string()
        }
    };
    for (name, counter) in [
        ("zeros not stored", "zero_blocks"),
        ("absorbed in RAM", "absorbed_blocks"),
        ("written into a journal", "journal_blocks"),
        ("remapped, not written", "remapped_blocks"),
        ("duplicates not written", "dedup_blocks"),
        ("read for comparison", "compare_reads"),
        ("stored in parts of pages", "packed_blocks"),
    ] {
        let find = |o: &Outcome| o.counted(counter);
        if outcomes.iter().any(|o| find(o) > 0) {
            row(name, &|o| shown(find(o)));
        }
    }
    if outcomes.iter().any(|o| o.order.is_some()) {
        let order = |o: &Outcome, cell: &dyn Fn((u64, u64)) -> u64| {
            o.order.map_or("-".into(), |order| cell(order).to_string())
        };
        row("map updates held, most", &|o| order(o, &|order| order.0));
        row("journal blocks too early", &|o| order(o, &|order| order.1));
    }
    if outcomes.iter().any(|o| o.life.is_some()) {
        let life = |o: &Outcome, cell: &dyn Fn(&crate::outcome::Life) -> String| {
            o.life.as_ref().map_or("-".into(), cell)
        };
        row("erasures", &|o| life(o, &|l| l.erases.to_string()));
        row("  of a block: mean, most", &|o| {
            life(o, &|l| format!("{:.2}, {}", l.erases_mean, l.erases_most))
        });
        row("  standard deviation", &|o| {
            life(o, &|l| format!("{:.2}", l.erases_deviation))
        });
        row("host can write", &|o| {
            life(o, &|l| l.endurance_bytes.map_or("-".into(), bytes))
        });
        row("years", &|o| {
            life(o, &|l| l.years.map_or("-".into(), |y| format!("{y:.1}")))
        });
    }
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
        row("  the longest", &|o| micros(of(o).most_ns));
    }
    row("RAM for tables", &|o| {
        let tables = o.memory.iter().filter(|part| part.name != "write buffer");
        match tables.map(|part| part.bytes).sum() {
            0 => "-".into(),
            sum => bytes(sum),
        }
    });
    row("virtual time", &|o| format!("{:.3} s", o.seconds));
    row("requests a second", &|o| match o.seconds > 0.0 {
        true => format!("{:.0}", o.requests as f64 / o.seconds),
        false => "-".into(),
    });
    for outcome in outcomes {
        if outcome.partial {
            let _ = writeln!(
                out,
                "{}: PARTIAL: ended before its load was",
                outcome.policy
            );
        }
        for note in &outcome.notes {
            let _ = writeln!(out, "{}: {note}", outcome.policy);
        }
    }
    out
}

/// A number of bytes, as people say it.
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
