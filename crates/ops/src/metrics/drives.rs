//! The metrics of drives: how worn they are, and how long they have left.

use crate::drive::Drive;
use crate::view::DriveView;
use crate::years::YEAR_SECONDS;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt::Error;

/// What drives report, and what is computed from it.
#[derive(Debug)]
pub(super) struct Worn(pub Vec<Drive>, pub Vec<DriveView>);

impl Collector for Worn {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let of_one = Unit::Other("ratio".to_owned());
        let mut used = encoder.encode_descriptor(
            "vellum_drive_life_used",
            "How much of its life a drive says is used, at most",
            Some(&of_one),
            MetricType::Gauge,
        )?;
        for drive in &self.0 {
            if let Ok(wear) = &drive.wear {
                let labels = [("drive", drive.name.as_str())];
                let ratio = f64::from(wear.used_percent) / 100.0;
                ConstGauge::new(ratio).encode(used.encode_family(&labels)?)?;
            }
        }
        let mut left = encoder.encode_descriptor(
            "vellum_drive_life_left",
            "How long a drive has left at the rate since its volume was opened",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for drive in &self.1 {
            let Some(years) = &drive.years else { continue };
            for (vellum, years) in [("with", years.with), ("without", years.without)] {
                let labels = [("drive", drive.device.as_str()), ("vellum", vellum)];
                ConstGauge::new(years * YEAR_SECONDS).encode(left.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
