//! Shows properties, to people and to programs.

use super::change::Run;
use super::settings::Settings;
use super::table::{Counts, Property, TABLE, named};
use crate::unfinished;
use serde_json::{Value, json};
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_policies::table::Tier;

/// All properties of a volume. `in_force`: what its server applies.
pub fn listed(
    superblock: &Superblock,
    properties: &Properties,
    run: &Run,
    in_force: Option<&Settings>,
) -> Value {
    let usual = Settings::usual(superblock);
    let chosen = Settings::of(superblock, properties, run);
    let text = |property: &Property, settings: &Settings| {
        let text = property.kind.text(&(property.get)(settings));
        text.unwrap_or_default()
    };
    let mut all = Vec::new();
    for property in TABLE {
        let by_flag = run.value_of(property).is_some();
        let is_of_research = property.tier == Tier::Research;
        if !property.has.has(superblock.layout()) || (is_of_research && !by_flag) {
            continue;
        }
        let stored = properties.get(property.name).filter(|_| !is_of_research);
        let known = property.stored(superblock, properties);
        let source = match (by_flag, known.filter(|_| !is_of_research)) {
            (true, _) => "this run",
            (false, Some(_)) => "volume",
            (false, None) => "default",
        };
        let value = text(property, &chosen);
        let mut shown = json!({
            "name": property.name,
            "value": value,
            "source": source,
            "default": text(property, &usual),
            "everyday": property.tier == Tier::Everyday,
            "values": property.kind.values(),
            "does": property.doc,
            "brings_and_costs": property.cost,
            "layouts": property.has.names(),
            "counts": match property.counts {
                Counts::Now => "at once",
                Counts::Next => "from the next start on",
            },
        });
        if let Some(stored) = stored {
            shown["stored"] = property.kind.text(stored).into();
        }
        let now = in_force.map(|settings| text(property, settings));
        if let Some(now) = now.filter(|now| *now != value) {
            let key = match property.counts {
                Counts::Next => "until_restart",
                Counts::Now => "in_force",
            };
            shown[key] = now.into();
        }
        all.push(shown);
    }
    let unknown: Vec<_> = properties.iter().map(|(name, _)| name).collect();
    let unknown: Vec<_> = unknown
        .into_iter()
        .filter(|name| named(name).is_none_or(|p| p.stored(superblock, properties).is_none()))
        .collect();
    json!({"properties": all, "kept": unknown})
}

/// The same in words: the properties for everyone, and those that differ from their default; or all.
pub fn written(told: &Value, all: bool) -> String {
    use std::fmt::Write;
    let field =
        |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let mut text = format!("{:<16}{:<26}SOURCE\n", "NAME", "VALUE");
    let list = |key: &str| {
        told.get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    for property in list("properties") {
        let source = field(&property, "source");
        let is_everyday = property.get("everyday").and_then(Value::as_bool) == Some(true);
        if !all && !is_everyday && source == "default" {
            continue;
        }
        let value = match field(&property, "value") {
            value if value.is_empty() => "-".to_owned(),
            value => value,
        };
        let _ = write!(text, "{:<16}{value:<26}{source}", field(&property, "name"));
        if source == "this run" {
            let stored = property.get("stored").and_then(Value::as_str);
            let _ = match stored {
                Some(stored) => write!(text, " (the volume has {stored})"),
                None => write!(text, " (default {})", field(&property, "default")),
            };
        }
        let now = |key: &str| property.get(key).and_then(Value::as_str);
        let _ = match (now("until_restart"), now("in_force")) {
            (Some(""), _) => writeln!(text, "; from the next start on, until then empty"),
            (Some(now), _) => writeln!(text, "; from the next start on, until then {now}"),
            (None, Some(now)) => writeln!(text, "; in force {now}: see the server's log"),
            (None, None) => writeln!(text),
        };
    }
    for name in list("kept") {
        let name = name.as_str().unwrap_or("?");
        let why = match name {
            unfinished::MARK => "half a copy of another volume: `vellum check` says more",
            _ => "kept: this version does not know it, or not its value",
        };
        let _ = writeln!(text, "{name:<16}{:<26}{why}", "?");
    }
    text
}

/// A volume's properties in one line: all those about how data is stored; of the rest, those that were chosen.
pub fn in_a_line(superblock: &Superblock) -> String {
    let properties = superblock.properties();
    let settings = Settings::of(superblock, properties, &Run::default());
    let is_told = |property: &&Property| {
        let is_of_data = [
            "compress",
            "delta",
            "dedup",
            "write-once",
            "replay",
            "freed",
        ]
        .contains(&property.name);
        let is_kept = property.tier != Tier::Research && property.has.has(superblock.layout());
        is_kept && (is_of_data || properties.get(property.name).is_some())
    };
    let told: Vec<_> = TABLE
        .iter()
        .filter(is_told)
        .map(|property| {
            let value = property.kind.text(&(property.get)(&settings));
            format!("{}={}", property.name, value.unwrap_or_default())
        })
        .collect();
    told.join(" ")
}
