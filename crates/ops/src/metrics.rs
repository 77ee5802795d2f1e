//! The metrics: the counters of servers under names that follow the conventions of Prometheus, with their units.

mod drives;
mod families;

use crate::drive::Drive;
use crate::health::{self, Grade};
use crate::observed::{Observed, counter as told};
use crate::view::View;
use drives::Worn;
use families::{FAMILIES, Family, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;
use std::collections::HashSet;

/// Renders all metrics of these volumes and drives in the OpenMetrics format.
///
/// # Errors
/// If they cannot be formatted.
pub fn text(volumes: &[Observed], drives: &[Drive]) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Volumes(volumes.to_vec())));
    let view = View::of(volumes, drives);
    registry.register_collector(Box::new(Worn(drives.to_vec(), view.drives)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Converts OpenMetrics text to the older Prometheus format, which the text file collector and the checker of Prometheus read: a
/// counter is described under its full name, and there are no units and no end marker.
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

#[derive(Debug)]
struct Volumes(Vec<Observed>);

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
            |it| {
                let millis = told(it?, "uptime_ms")?.as_u64()?;
                Some(millis as f64 / 1000.0)
            },
        )?;
        self.worked_out(
            &mut encoder,
            (
                "vellum_poisoned",
                "1 when a failed write or sync, or damage of its map, has made it refuse writes",
                None,
            ),
            |it| Some(f64::from(told(it?, "poisoned")?.as_bool()?)),
        )?;
        let help = "As `vellum health` ends: 0 well, 1 somebody should look, \
            2 data is lost or not served, 3 its server does not answer";
        self.worked_out(&mut encoder, ("vellum_health", help, None), |told| {
            let grade = told.map_or(Grade::Unknown, |told| {
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
        for volume in &self.0 {
            for (member, counter) in family.members {
                let Some(value) = volume.counter(counter) else {
                    continue;
                };
                let mut labels = labels(volume).to_vec();
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

    /// Encodes how long flushes waited, as a histogram.
    fn encode_waits(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut encoder = encoder.encode_descriptor(
            "vellum_flush_wait",
            "How long clients waited for their flushes: an fsync, mostly",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for volume in &self.0 {
            let Some(waited) = volume.told().and_then(Waited::of) else {
                continue;
            };
            encoder
                .encode_family(&labels(volume))?
                .encode_histogram::<NoLabelSet>(
                    waited.seconds,
                    waited.count,
                    &waited.steps,
                    None,
                )?;
        }
        Ok(())
    }

    /// Encodes a family whose values are computed.
    fn worked_out(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, unit): (&str, &str, Option<Unit>),
        value: impl Fn(Option<&Value>) -> Option<f64>,
    ) -> Result<(), std::fmt::Error> {
        let mut encoder =
            encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for volume in &self.0 {
            if let Some(value) = value(volume.told()) {
                ConstGauge::new(value).encode(encoder.encode_family(&labels(volume))?)?;
            }
        }
        Ok(())
    }
}

/// The labels that distinguish volumes.
fn labels(volume: &Observed) -> [(&str, &str); 2] {
    [("uuid", volume.uuid()), ("volume", volume.name())]
}

/// How long flushes waited, according to a server.
struct Waited {
    seconds: f64,
    count: u64,
    /// Each bucket's upper bound, in seconds, and how many flushes are in it.
    steps: Vec<(f64, u64)>,
}

impl Waited {
    fn of(volume: &Value) -> Option<Self> {
        let waited = told(volume, "flushes.waited")?;
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
        let volume = |told| Observed::new("u".to_owned(), told);
        let text = text(&[volume(Some(told)), volume(None)], &[]).unwrap();
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
