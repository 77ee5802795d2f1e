//! A sweep's rows as a table, as comma-separated values, and as one HTML file with plots.

use super::grid::Axis;
use super::row::PointResult;
use crate::csv::line;
use crate::html::{Preface, drawn, escape};
use serde::Serialize;
use std::fmt::Write;

const SCRIPT: &str = include_str!("../html/sweep.js");

/// The figures in the table, and the names of their columns.
const SHOWN: [(&str, &str); 7] = [
    ("host_written", "host blocks"),
    ("medium_written", "medium blocks"),
    ("write_amplification", "amplification"),
    ("erases", "erasures"),
    ("years", "years"),
    ("write_p99_ns", "write p99, us"),
    ("load", "load"),
];
/// The figures that are plotted.
const PLOTTED: [(&str, &str, f64); 4] = [
    ("write_amplification", "write amplification", 1.0),
    ("years", "years", 1.0),
    ("write_p99_ns", "write latency, 99th percentile, us", 1e-3),
    ("erases", "erasures", 1.0),
];

fn shown(row: &PointResult, name: &str) -> String {
    let Some(text) = row.figure(name) else {
        return "-".into();
    };
    match (name, text.parse::<f64>()) {
        ("write_p99_ns", Ok(nanos)) => format!("{:.1}", nanos / 1000.0),
        ("write_amplification", Ok(value)) => format!("{value:.3}"),
        ("years", Ok(value)) => format!("{value:.1}"),
        _ => text.into(),
    }
}

fn cells(axes: &[Axis], rows: &[PointResult]) -> Vec<Vec<String>> {
    let keys = axes.iter().map(|axis| axis.key.clone());
    let names = SHOWN.iter().map(|(_, name)| (*name).to_owned());
    let mut all = vec![keys.chain(names).collect::<Vec<_>>()];
    for row in rows {
        let values = row.point.iter().map(|(_, value)| value.clone());
        let figures = SHOWN.iter().map(|(name, _)| shown(row, name));
        let mut line: Vec<String> = values.chain(figures).collect();
        line.extend(row.error.iter().map(|error| format!("not run: {error}")));
        all.push(line);
    }
    all
}

/// The table for a terminal.
#[must_use]
pub fn table(axes: &[Axis], rows: &[PointResult]) -> String {
    let cells = cells(axes, rows);
    let columns = axes.len() + SHOWN.len();
    let width = |at: usize| {
        let each = cells.iter().filter_map(|line| line.get(at));
        each.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in &cells {
        let mut text = String::new();
        for (at, cell) in line.iter().enumerate() {
            let width = widths.get(at).copied().unwrap_or(0);
            let _ = match at < axes.len() {
                true => write!(text, "{cell:<width$}  "),
                false => write!(text, "{cell:>width$}  "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// All figures as comma-separated values.
#[must_use]
pub fn csv(axes: &[Axis], rows: &[PointResult]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.figures) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let keys = axes.iter().map(|axis| axis.key.as_str());
    let headings: Vec<&str> = keys.chain(names.iter().copied()).chain(["error"]).collect();
    let mut out = line(&headings);
    for row in rows {
        let values = row.point.iter().map(|(_, value)| value.as_str());
        let figures = names.iter().map(|name| row.figure(name).unwrap_or(""));
        let error = [row.error.as_deref().unwrap_or("")];
        out += &line(&values.chain(figures).chain(error).collect::<Vec<_>>());
    }
    out
}

#[derive(Serialize)]
struct Plot {
    title: &'static str,
    x: String,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// The HTML file.
///
/// # Errors
/// When a figure cannot be written as JSON.
pub fn html(
    preface: &Preface,
    axes: &[Axis],
    rows: &[PointResult],
) -> Result<String, serde_json::Error> {
    let plots: Vec<Plot> = PLOTTED
        .into_iter()
        .filter_map(|(name, title, scale)| plot(axes, rows, name, title, scale))
        .collect();
    let mut body = String::from("<h2>All runs</h2>\n<div class=\"scroll\">\n<table>\n");
    for (at, line) in cells(axes, rows).iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        body.push_str("<tr>");
        for cell in line {
            let _ = write!(body, "<{tag}>{}</{tag}>", escape(cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table>\n</div>\n");
    drawn(preface, &plots, SCRIPT, &body)
}

/// The units of sizes, each 1024 times the one before.
const UNITS: &str = "KMGTP";

/// A number, and the power of 1024 that its unit is.
fn number(text: &str) -> Option<(f64, i32)> {
    let units = UNITS.chars().zip(1..);
    let mut units = units.filter_map(|(unit, power)| Some((text.strip_suffix(unit)?, power)));
    let (digits, power) = units.next().unwrap_or((text, 0));
    Some((digits.parse().ok()?, power))
}

/// A figure over the first axis of numbers, in the smallest of their units, with a line for each point of the other axes.
fn plot(
    axes: &[Axis],
    rows: &[PointResult],
    name: &str,
    title: &'static str,
    scale: f64,
) -> Option<Plot> {
    let numbers =
        |axis: &Axis| axis.values.len() > 1 && axis.values.iter().all(|v| number(v).is_some());
    let over = axes.iter().position(numbers)?;
    let powers = axes[over].values.iter().filter_map(|v| number(v));
    let least = powers.map(|(_, power)| power).min()?;
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let figure = row.figure(name).and_then(|text| text.parse::<f64>().ok());
        let (Some((x, power)), Some(y)) = (number(&row.point[over].1), figure) else {
            continue;
        };
        let x = x * 1024f64.powi(power - least);
        let others = row.point.iter().enumerate().filter(|(at, _)| *at != over);
        let parts: Vec<String> = others
            .map(|(_, (key, value))| match key.as_str() {
                "policy" | "device" | "workload" => value.clone(),
                key => format!("{key} {value}"),
            })
            .collect();
        let of = parts.join(", ");
        match lines.iter_mut().find(|line| line.name == of) {
            Some(line) => line.points.push((x, y * scale)),
            None => lines.push(Line {
                name: of,
                points: vec![(x, y * scale)],
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    (!lines.is_empty()).then(|| Plot {
        title,
        x: match UNITS.chars().nth((least - 1) as usize) {
            Some(unit) if least > 0 => format!("{}, {unit}", axes[over].key),
            _ => axes[over].key.clone(),
        },
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> (Vec<Axis>, Vec<PointResult>) {
        let axes: Vec<Axis> = ["policy=base vellum:a,b", "op=7 28"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let points = crate::sweep::points(&axes).unwrap();
        let figures = |n: usize| {
            let amplification = format!("{}.5", n + 1);
            [
                ("write_amplification", amplification),
                ("years", "3".into()),
            ]
            .map(|(name, cell)| (name.to_owned(), cell))
            .to_vec()
        };
        let row = |(n, point): (usize, Vec<(String, String)>)| match n {
            3 => PointResult::failed(point, "too <small>".into()),
            n => PointResult {
                point,
                figures: figures(n),
                error: None,
            },
        };
        (axes, points.into_iter().enumerate().map(row).collect())
    }

    #[test]
    fn every_run_is_in_every_report() {
        let (axes, rows) = sweep();
        let table = table(&axes, &rows);
        assert_eq!(table.lines().count(), 5);
        assert!(table.contains("not run: too <small>"), "{table}");
        let csv = csv(&axes, &rows);
        assert_eq!(
            csv.lines().next().unwrap(),
            "policy,op,write_amplification,years,error"
        );
        assert_eq!(csv.lines().nth(3).unwrap(), "\"vellum:a,b\",7,3.5,3,");
        let preface = Preface::default();
        let html = html(&preface, &axes, &rows).unwrap();
        assert!(html.contains("write amplification") && html.contains("too &lt;small&gt;"));
        assert!(!html.contains("http://") || html.contains("http://www.w3.org"));
        // A line per policy, over the numeric axis.
        let plot = plot(&axes, &rows, "write_amplification", "", 1.0).unwrap();
        assert_eq!(plot.lines.len(), 2);
        assert_eq!(plot.lines[0].points, [(7.0, 1.5), (28.0, 2.5)]);
        assert_eq!(plot.x, "op");
    }

    #[test]
    fn sizes_are_in_order_whatever_their_units() {
        let axes: Vec<Axis> = vec!["capacity=512M 1G 2G".parse().unwrap()];
        let points = crate::sweep::points(&axes).unwrap();
        let rows = points.into_iter().map(|point| PointResult {
            point,
            figures: vec![("years".into(), "3".into())],
            error: None,
        });
        let rows: Vec<PointResult> = rows.collect();
        let plot = plot(&axes, &rows, "years", "", 1.0).unwrap();
        let years = [(512.0, 3.0), (1024.0, 3.0), (2048.0, 3.0)];
        assert_eq!(plot.lines[0].points, years);
        assert_eq!(plot.x, "capacity, M");
    }
}
