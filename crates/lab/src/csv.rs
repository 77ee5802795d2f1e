//! Results as comma-separated values: a line a policy, a column a figure.

use crate::outcome::Outcome;
use std::collections::BTreeSet;

/// The lines, with one of headings.
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
    let mut out = String::new();
    for (at, outcome) in outcomes.iter().enumerate() {
        let columns = columns(outcome, &causes, &memory);
        if at == 0 {
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            out += &line(&names);
        }
        let cells: Vec<&str> = columns.iter().map(|(_, cell)| cell.as_str()).collect();
        out += &line(&cells);
    }
    out
}

/// The figures of one outcome, with their names.
#[must_use]
pub fn cells(outcome: &Outcome) -> Vec<(String, String)> {
    let causes: Vec<&str> = outcome.medium.iter().map(|cause| cause.name).collect();
    let memory: Vec<&str> = outcome.memory.iter().map(|part| part.name).collect();
    columns(outcome, &causes, &memory)
}

/// One line.
pub(crate) fn line(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    cells.join(",") + "\n"
}

fn columns(outcome: &Outcome, causes: &[&str], memory: &[&str]) -> Vec<(String, String)> {
    let optional = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    let mut all: Vec<(String, String)> = vec![
        ("policy".into(), outcome.policy.clone()),
        ("partial".into(), outcome.partial.to_string()),
        ("logical_blocks".into(), outcome.logical_blocks.to_string()),
        (
            "physical_blocks".into(),
            outcome.physical_blocks.to_string(),
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
    all.push(("years".into(), optional(life.and_then(|l| l.years))));
    for (kind, of) in [
        ("read", outcome.reads),
        ("write", outcome.writes),
        ("flush", outcome.flushes),
    ] {
        for (name, nanos) in [
            ("mean", of.mean_ns),
            ("p50", of.p50_ns),
            ("p99", of.p99_ns),
            ("p999", of.p999_ns),
            ("most", of.most_ns),
        ] {
            let cell = match of.count {
                0 => String::new(),
                _ => nanos.to_string(),
            };
            all.push((format!("{kind}_{name}_ns"), cell));
        }
    }
    for name in memory {
        let found = outcome.memory.iter().find(|part| part.name == *name);
        let bytes = found.map_or(String::new(), |part| part.bytes.to_string());
        all.push((format!("ram_{}_bytes", name.replace(' ', "_")), bytes));
    }
    all.push(("virtual_seconds".into(), outcome.seconds.to_string()));
    all
}

/// A cell as RFC 4180 wants it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}
