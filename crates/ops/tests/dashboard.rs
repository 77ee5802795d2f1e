//! The Grafana dashboard queries nothing that is not exported.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::Value;
use std::collections::BTreeSet;
use vellum_ops::metrics;

/// Collects all strings under these keys, at any depth.
fn strings<'a>(value: &'a Value, keys: &[&str], into: &mut Vec<&'a str>) {
    match value {
        Value::Array(all) => all.iter().for_each(|it| strings(it, keys, into)),
        Value::Object(all) => {
            for (key, it) in all {
                match it.as_str() {
                    Some(text) if keys.contains(&key.as_str()) => into.push(text),
                    _ => strings(it, keys, into),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/grafana/vellum.json"
    );
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let text = metrics::older(&metrics::text(&[], &[]).unwrap());
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut told = BTreeSet::new();
    for (name, kind) in types.filter_map(|line| line.split_once(' ')) {
        match kind {
            "histogram" => {
                told.extend(["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")))
            }
            _ => _ = told.insert(name.to_owned()),
        }
    }
    let mut queries = Vec::new();
    strings(&dashboard, &["expr", "query"], &mut queries);
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = queries
        .iter()
        .flat_map(|query| query.split(|c| !is_of_a_name(c)));
    let asked: BTreeSet<_> = words.filter(|word| word.starts_with("vellum_")).collect();
    assert!(asked.len() > 8, "{asked:?}");
    for name in asked {
        assert!(told.contains(name), "{name} is not told: {told:?}");
    }
}
