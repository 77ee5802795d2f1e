//! The metrics: names by the conventions of Prometheus, with their units, from what servers count.

use crate::health::{self, Grade, told};
use crate::observed::Observed;
use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;
use std::collections::HashSet;

/// A family of metrics: one for each volume, or for each volume and kind.
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: Kind,
    /// The name of the label that tells the members apart, if there are several.
    label: &'static str,
    /// Each member's value of the label, and the counter that it is: the names are those of `vellum stats --all`.
    members: Members,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// It only grows while the server runs.
    Counter,
    /// It is so much now.
    Gauge,
}

const BYTES: Option<Unit> = Some(Unit::Bytes);

type Members = &'static [(&'static str, &'static str)];

const fn counter(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    label: &'static str,
    members: Members,
) -> Family {
    let kind = Kind::Counter;
    Family {
        name,
        help,
        unit,
        kind,
        label,
        members,
    }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    counter: Members,
) -> Family {
    let kind = Kind::Gauge;
    Family {
        name,
        help,
        unit,
        kind,
        label: "",
        members: counter,
    }
}

const FAMILIES: &[Family] = &[
    counter(
        "vellum_client",
        "Bytes that clients have asked for",
        BYTES,
        "operation",
        &[
            ("read", "clients.read.bytes"),
            ("write", "clients.write.bytes"),
            ("write_zeroes", "clients.write_zeroes.bytes"),
            ("discard", "clients.discard.bytes"),
        ],
    ),
    counter(
        "vellum_client_requests",
        "Requests of clients",
        None,
        "operation",
        &[
            ("read", "clients.read.requests"),
            ("write", "clients.write.requests"),
            ("write_zeroes", "clients.write_zeroes.requests"),
            ("discard", "clients.discard.requests"),
            ("flush", "clients.flush.requests"),
        ],
    ),
    counter(
        "vellum_client_errors",
        "Requests that were answered with an error",
        None,
        "",
        &[("", "clients.refused")],
    ),
    counter(
        "vellum_medium_written",
        "Bytes written to the medium, by what they are: what wears it",
        BYTES,
        "cause",
        &[
            ("data", "medium.data_bytes"),
            ("headers", "medium.header_bytes"),
            ("collector", "medium.moved_bytes"),
            ("summaries", "medium.summary_bytes"),
            ("map", "medium.map_bytes"),
            ("links", "medium.link_bytes"),
            ("directory", "medium.directory_bytes"),
            ("counts", "medium.count_bytes"),
            ("fingerprints", "medium.fingerprint_bytes"),
            ("editions", "medium.edition_bytes"),
        ],
    ),
    counter(
        "vellum_medium_read",
        "Bytes read from the medium, by what for",
        BYTES,
        "cause",
        &[
            ("client", "medium.read_client_bytes"),
            ("collector", "medium.read_collector_bytes"),
            ("compare", "medium.read_compare_bytes"),
            ("fold", "medium.read_fold_bytes"),
            ("metadata", "medium.read_metadata_bytes"),
        ],
    ),
    counter(
        "vellum_medium_syncs",
        "Syncs of the medium, and writes that are durable by themselves",
        None,
        "how",
        &[
            ("sync", "medium.syncs"),
            ("durable_write", "medium.durable_writes"),
        ],
    ),
    counter(
        "vellum_medium_errors",
        "Operations of the medium that failed",
        None,
        "",
        &[("", "medium.errors")],
    ),
    counter(
        "vellum_flushes",
        "Flushes of clients, by how they were answered",
        None,
        "how",
        &[
            ("free", "flushes.free"),
            ("merged", "flushes.merged"),
            ("passed_on", "flushes.passed_on"),
        ],
    ),
    counter(
        "vellum_spared_blocks",
        "Blocks of 4 KiB that were not written, by why",
        None,
        "why",
        &[
            ("journal", "core.remapped_blocks"),
            ("duplicate", "core.dedup_blocks"),
            ("overwritten", "core.absorbed_blocks"),
        ],
    ),
    counter(
        "vellum_journal_commits",
        "Commits seen in journals",
        None,
        "",
        &[("", "write_once.commits")],
    ),
    counter(
        "vellum_collections",
        "Segments that the collector has emptied",
        None,
        "",
        &[("", "core.collections")],
    ),
    counter(
        "vellum_damaged_blocks",
        "Blocks that failed their checksum or could not be read",
        None,
        "how",
        &[
            ("checksum", "core.corrupt_blocks"),
            ("unreadable", "core.unreadable_blocks"),
        ],
    ),
    gauge(
        "vellum_capacity",
        "Room for data",
        BYTES,
        &[("", "room.capacity_bytes")],
    ),
    gauge(
        "vellum_used",
        "Room for data that is in use",
        BYTES,
        &[("", "room.used_bytes")],
    ),
    gauge(
        "vellum_mapped",
        "What clients see of it, zeros not counted",
        BYTES,
        &[("", "space.mapped_bytes")],
    ),
    gauge(
        "vellum_saved",
        "What compression, deltas and deduplication save of that",
        BYTES,
        &[("", "space.saved_bytes")],
    ),
    gauge(
        "vellum_segments_free",
        "Segments that nothing is in",
        None,
        &[("", "core.free_segments")],
    ),
    gauge(
        "vellum_requests_waiting",
        "Requests that wait for room, or for the medium",
        None,
        &[("", "core.waiting_requests")],
    ),
];

/// All metrics of these volumes.
pub fn text(volumes: &[Observed]) -> Result<String> {
    let mut registry = Registry::default();
    let volumes = volumes
        .iter()
        .map(|it| (it.uuid.clone(), it.name(), it.told.clone()))
        .collect();
    registry.register_collector(Box::new(Volumes(volumes)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The same in the older format of Prometheus, which its text file collector and its checker read: a counter is described by its whole
/// name, and there are neither units nor an end.
pub fn older(text: &str) -> String {
    let counters: HashSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let described = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (hash, what, name, rest) = (words.next()?, words.next()?, words.next()?, words.next()?);
        counters
            .contains(name)
            .then(|| format!("{hash} {what} {name}_total {rest}"))
    };
    let kept = text
        .lines()
        .filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF");
    kept.map(|line| {
        let line = match line.starts_with("# ") {
            true => described(line).unwrap_or_else(|| line.to_owned()),
            false => line.to_owned(),
        };
        line + "\n"
    })
    .collect()
}

/// UUID, path and counters of each.
#[derive(Debug)]
struct Volumes(Vec<(String, String, Option<Value>)>);

impl Collector for Volumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in FAMILIES {
            self.encode_family(family, &mut encoder)?;
        }
        self.encode_waits(&mut encoder)?;
        self.worked_out(
            &mut encoder,
            (
                "vellum_uptime",
                "Since the server has opened it",
                Some(Unit::Seconds),
            ),
            |told| {
                let millis = health::told(told.as_ref()?, "uptime_ms")?.as_u64()?;
                Some(millis as f64 / 1000.0)
            },
        )?;
        self.worked_out(
            &mut encoder,
            (
                "vellum_poisoned",
                "1 when a failed write or sync has made it refuse writes",
                None,
            ),
            |told| {
                Some(f64::from(
                    health::told(told.as_ref()?, "poisoned")?.as_bool()?,
                ))
            },
        )?;
        let help = "As `vellum health` ends: 0 well, 1 somebody should look, \
            2 data is lost or not served, 3 its server does not answer";
        self.worked_out(&mut encoder, ("vellum_health", help, None), |told| {
            let grade = told.as_ref().map_or(Grade::Unknown, |told| {
                health::worst(&health::findings(told))
            });
            Some(f64::from(grade as u8))
        })
    }
}

impl Volumes {
    fn encode_family(
        &self,
        family: &Family,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let mut encoder =
            encoder.encode_descriptor(family.name, family.help, family.unit.as_ref(), kind)?;
        for (uuid, path, counted) in &self.0 {
            let Some(counted) = counted else { continue };
            for (member, counter) in family.members {
                let Some(value) = told(counted, counter).and_then(Value::as_u64) else {
                    continue;
                };
                let mut labels = vec![("uuid", uuid.as_str()), ("volume", path.as_str())];
                if !family.label.is_empty() {
                    labels.push((family.label, member));
                }
                let encoder = encoder.encode_family(&labels)?;
                match family.kind {
                    Kind::Counter => ConstCounter::new(value).encode(encoder)?,
                    Kind::Gauge => ConstGauge::new(value).encode(encoder)?,
                }
            }
        }
        Ok(())
    }

    /// How long flushes waited, as a histogram.
    fn encode_waits(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut encoder = encoder.encode_descriptor(
            "vellum_flush_wait",
            "How long clients waited for their flushes: an fsync, mostly",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (uuid, path, counted) in &self.0 {
            let Some(waited) = counted.as_ref().and_then(Waited::of) else {
                continue;
            };
            let labels = [("uuid", uuid.as_str()), ("volume", path.as_str())];
            encoder
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(
                    waited.seconds,
                    waited.count,
                    &waited.steps,
                    None,
                )?;
        }
        Ok(())
    }

    /// A family that is worked out.
    fn worked_out(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, unit): (&str, &str, Option<Unit>),
        value: impl Fn(&Option<Value>) -> Option<f64>,
    ) -> Result<(), std::fmt::Error> {
        let mut encoder =
            encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (uuid, path, counted) in &self.0 {
            if let Some(value) = value(counted) {
                let labels = [("uuid", uuid.as_str()), ("volume", path.as_str())];
                ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// How long flushes waited, by what a server tells.
struct Waited {
    seconds: f64,
    count: u64,
    /// Each step's end, in seconds, and how many are in it.
    steps: Vec<(f64, u64)>,
}

impl Waited {
    fn of(told: &Value) -> Option<Self> {
        let waited = health::told(told, "flushes.waited")?;
        let number = |value: &Value, key: &str| value.get(key)?.as_u64();
        let count = number(waited, "count")?;
        let steps = waited.get("histogram")?.as_array()?.iter();
        let mut steps = steps
            .map(|step| {
                let end = number(step, "below_micros")? as f64 / 1e6;
                Some((end, number(step, "count")?))
            })
            .collect::<Option<Vec<_>>>()?;
        let told: u64 = steps.iter().map(|(_, count)| count).sum();
        steps.push((f64::INFINITY, count.saturating_sub(told)));
        Some(Self {
            seconds: number(waited, "all_micros")? as f64 / 1e6,
            count,
            steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counters_have_their_units_and_labels() {
        let told = json!({
            "path": "/v \"quoted\"\n",
            "stats": {
                "clients": {"write": {"bytes": 5, "requests": 1}},
                "flushes": {"waited": {"count": 9, "all_micros": 2500, "histogram": [
                    {"below_micros": 16, "count": 3}, {"below_micros": 512, "count": 4},
                ]}},
                "medium": {"data_bytes": 3}, "uptime_ms": 1500, "poisoned": false,
            },
        });
        let volume = |told| Observed {
            uuid: "u".to_owned(),
            told,
        };
        let text = text(&[volume(Some(told)), volume(None)]).unwrap();
        for line in [
            r#"vellum_client_bytes_total{uuid="u",volume="/v \"quoted\"\n",operation="write"} 5"#,
            r#"vellum_medium_written_bytes_total{uuid="u",volume="/v \"quoted\"\n",cause="data"} 3"#,
            r#"vellum_uptime_seconds{uuid="u",volume="/v \"quoted\"\n"} 1.5"#,
            r#"vellum_health{uuid="u",volume="u"} 3.0"#,
            r#"vellum_flush_wait_seconds_bucket{le="0.000016",uuid="u",volume="/v \"quoted\"\n"} 3"#,
            r#"vellum_flush_wait_seconds_bucket{le="0.000512",uuid="u",volume="/v \"quoted\"\n"} 7"#,
            r#"vellum_flush_wait_seconds_bucket{le="+Inf",uuid="u",volume="/v \"quoted\"\n"} 9"#,
            r#"vellum_flush_wait_seconds_count{uuid="u",volume="/v \"quoted\"\n"} 9"#,
            r#"vellum_flush_wait_seconds_sum{uuid="u",volume="/v \"quoted\"\n"} 0.0025"#,
            "# UNIT vellum_client_bytes bytes",
            "# TYPE vellum_used_bytes gauge",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let older = older(&text);
        assert!(
            older.contains("# TYPE vellum_client_bytes_total counter\n"),
            "{older}"
        );
        assert!(
            older.contains("# TYPE vellum_used_bytes gauge\n"),
            "{older}"
        );
        assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
    }
}
