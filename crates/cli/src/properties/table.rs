//! Each property: a row of the table of policies, and how a volume's settings hold it.

use super::settings::{Replay, Settings};
use std::ops::Deref;
use vellum_core::engine::VictimPolicy;
use vellum_core::format::properties::Value;
use vellum_core::seam::WriteOnce;
use vellum_core::tables::Persistence;
use vellum_device::Extent;
use vellum_device::policy::{Deltas, decide_name, decide_named};
use vellum_policies::table::{self, Row, Tier};
use vellum_policies::words::{rule_name, rule_named, store_name, store_named};

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// At once.
    Now,
    /// When the volume is next served or attached.
    Next,
}

/// A property of a volume.
pub struct Property {
    /// Its row in the table of policies.
    row: &'static Row,
    /// When a change takes effect.
    pub counts: Counts,
    pub(super) get: fn(&Settings) -> Value,
    pub(super) put: fn(&mut Settings, &Value),
}

impl Deref for Property {
    type Target = Row;

    fn deref(&self) -> &Row {
        self.row
    }
}

/// The property with this name, except research mechanisms.
pub fn named(name: &str) -> Option<&'static Property> {
    let kept = |p: &&Property| p.name == name && p.tier != Tier::Research;
    TABLE.iter().find(kept)
}

/// The research mechanism with this name.
pub fn of_research(name: &str) -> Option<&'static Property> {
    let found = |p: &&Property| p.name == name && p.tier == Tier::Research;
    TABLE.iter().find(found)
}

macro_rules! switch {
    ($($field:ident).+) => {
        (
            |s: &Settings| Value::switch(s.$($field).+),
            |s: &mut Settings, value: &Value| {
                if let Some(on) = value.as_switch() {
                    s.$($field).+ = on;
                }
            },
        )
    };
}

macro_rules! bytes {
    ($($field:ident).+, $type:ty, $unit:expr) => {
        (
            |s: &Settings| Value::number(u64::from(s.$($field).+) * $unit),
            |s: &mut Settings, value: &Value| {
                let number = value.as_number().map(|bytes| <$type>::try_from(bytes / $unit));
                if let Some(Ok(number)) = number {
                    s.$($field).+ = number;
                }
            },
        )
    };
}

macro_rules! words {
    ($($field:ident).+) => {
        (
            |s: &Settings| Value::text(&s.$($field).+),
            |s: &mut Settings, value: &Value| {
                if let Some(text) = value.as_text() {
                    s.$($field).+ = text.to_owned();
                }
            },
        )
    };
}

macro_rules! choice {
    ($($field:ident).+, $name:expr, $of:expr) => {
        (
            |s: &Settings| Value::text($name(&s.$($field).+).as_ref()),
            |s: &mut Settings, value: &Value| {
                let chosen = value.as_text().and_then($of);
                if let Some(chosen) = chosen {
                    s.$($field).+ = chosen;
                }
            },
        )
    };
}

type Access = (fn(&Settings) -> Value, fn(&mut Settings, &Value));

const fn property(row: &'static Row, counts: Counts, (get, put): Access) -> Property {
    Property {
        row,
        counts,
        get,
        put,
    }
}

/// All properties.
pub static TABLE: &[Property] = &[
    property(
        &table::COMPRESS,
        Counts::Now,
        choice!(
            policy.compression,
            |c: &vellum_device::pack::Compression| c.to_string(),
            |text: &str| text.parse().ok()
        ),
    ),
    property(
        &table::DELTA,
        Counts::Now,
        (
            |s| Value::switch(s.policy.deltas.are_made()),
            |s, value| {
                if let Some(on) = value.as_switch() {
                    s.policy.deltas = if on { Deltas::Packed } else { Deltas::Off };
                }
            },
        ),
    ),
    property(&table::DEDUP, Counts::Now, switch!(policy.dedup)),
    property(
        &table::DEDUP_MEMORY,
        Counts::Now,
        (
            |s| Value::number(s.policy.index_bytes),
            |s, value| {
                if let Some(bytes) = value.as_number() {
                    s.policy.index_bytes = bytes;
                }
            },
        ),
    ),
    property(&table::FREED, Counts::Now, switch!(policy.freed)),
    property(
        &table::BUFFER,
        Counts::Next,
        (
            |s| Value::number(s.buffer_bytes),
            |s, value| {
                if let Some(bytes) = value.as_number() {
                    s.buffer_bytes = bytes;
                }
            },
        ),
    ),
    property(&table::MOUNT_OPTIONS, Counts::Next, words!(mount_options)),
    property(&table::LABEL, Counts::Now, words!(label)),
    property(&table::SNAPSHOT_EVERY, Counts::Now, words!(snapshot_every)),
    property(&table::SNAPSHOT_KEEP, Counts::Now, words!(snapshot_keep)),
    property(&table::FOLD, Counts::Now, switch!(policy.fold)),
    property(
        &table::SWEEP_RATE,
        Counts::Now,
        bytes!(policy.sweep_blocks, u32, 4096),
    ),
    property(
        &table::WRITE_ONCE,
        Counts::Now,
        (
            |s| Value::switch(s.policy.write_once != WriteOnce::Off),
            |s, value| {
                if let Some(on) = value.as_switch() {
                    s.policy.write_once = if on { WriteOnce::Hash } else { WriteOnce::Off };
                }
            },
        ),
    ),
    property(
        &table::REPLAY,
        Counts::Now,
        choice!(
            replay,
            |replay: &Replay| match replay {
                Replay::Auto => "auto",
                Replay::On => "on",
                Replay::Off => "off",
            },
            |text: &str| match text {
                "auto" => Some(Replay::Auto),
                "on" => Some(Replay::On),
                "off" => Some(Replay::Off),
                _ => None,
            }
        ),
    ),
    property(&table::ZERO, Counts::Now, switch!(policy.zero)),
    property(
        &table::MAP_MEMORY,
        Counts::Next,
        (
            |s| Value::number(s.map_bytes),
            |s, value| {
                if let Some(bytes) = value.as_number() {
                    s.map_bytes = bytes;
                }
            },
        ),
    ),
    property(
        &table::JOURNALS,
        Counts::Now,
        (
            |s| {
                let ranges: Vec<_> = s.journals.iter().map(|e| (e.start, e.bytes)).collect();
                Value::ranges(&ranges)
            },
            |s, value| {
                if let Some(ranges) = value.as_ranges() {
                    let extents = ranges.iter();
                    s.journals = extents
                        .map(|&(start, bytes)| Extent { start, bytes })
                        .collect();
                }
            },
        ),
    ),
    property(
        &table::PERSISTENCE,
        Counts::Next,
        choice!(
            persistence,
            |p: &Persistence| match p {
                Persistence::Weak => "weak",
                Persistence::Strong => "strong",
            },
            |text: &str| match text {
                "weak" => Some(Persistence::Weak),
                "strong" => Some(Persistence::Strong),
                _ => None,
            }
        ),
    ),
    property(
        &table::WRITE_ONCE_OF_RESEARCH,
        Counts::Next,
        (
            |s| Value::text(rule_name(s.policy.write_once)),
            |s, value| {
                let rule = value.as_text().and_then(rule_named);
                if let Some(rule) = rule {
                    s.policy.write_once = rule;
                    if rule == WriteOnce::HashUnlessCollided {
                        s.policy.hash = vellum_device::policy::WeakHash::Head64;
                    }
                }
            },
        ),
    ),
    property(
        &table::HASH,
        Counts::Next,
        choice!(
            policy.hash,
            |hash: &vellum_device::policy::WeakHash| hash.name(),
            |text: &str| text.parse().ok()
        ),
    ),
    property(
        &table::DELTA_OF_RESEARCH,
        Counts::Next,
        choice!(
            policy.deltas,
            |deltas: &Deltas| deltas.name(),
            |text: &str| Deltas::named(text)
        ),
    ),
    property(
        &table::SAMPLE,
        Counts::Next,
        bytes!(policy.sample_blocks, u32, 4096),
    ),
    property(
        &table::STORE,
        Counts::Next,
        choice!(
            policy.store,
            |store: &vellum_core::seam::IndexKind| store_name(*store),
            |text: &str| store_named(text)
        ),
    ),
    property(
        &table::DECIDE,
        Counts::Next,
        choice!(
            policy.fingerprint,
            |print: &Option<vellum_device::policy::PrintHash>| decide_name(*print),
            |text: &str| decide_named(text).ok()
        ),
    ),
    property(&table::SEMANTICS, Counts::Next, switch!(policy.semantics)),
    property(
        &table::COMMIT_EVERY,
        Counts::Next,
        bytes!(policy.commits.requests, u32, 1),
    ),
    property(
        &table::MERGING,
        Counts::Next,
        switch!(policy.commits.merging),
    ),
    property(
        &table::ANTICIPATION,
        Counts::Next,
        switch!(policy.commits.anticipation),
    ),
    property(
        &table::VICTIM,
        Counts::Next,
        choice!(
            victim,
            |victim: &VictimPolicy| victim.name(),
            |text: &str| { VictimPolicy::named(text) }
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_but_those_of_the_lab_alone_is_a_property() {
        let of_volumes = table::TABLE.iter().filter(|row| row.tier != Tier::Lab);
        let rows: Vec<_> = of_volumes.map(|row| std::ptr::from_ref(*row)).collect();
        let properties: Vec<_> = TABLE.iter().map(|p| std::ptr::from_ref(p.row)).collect();
        assert_eq!(rows, properties, "in one order");
    }
}
