//! The pattern of a synthetic load, as arguments.

use crate::number::{number, permille};
use crate::wrong::OptionError;
use vellum_lab::scenario::Synthetic;
use vellum_lab::workload::{Bursts, Pattern};
use vellum_lab::zipf::SKEW_MAX;
use vellum_lab::zones::Zones;

/// Arguments.
#[derive(clap::Args)]
#[command(next_help_heading = "A pattern of your own")]
pub struct PatternArgs {
    /// With zipf: how much more popular some are than others, from 0 (not at all) to 5; theta, or s, elsewhere. By default 0.99.
    #[arg(long, value_name = "SKEW", requires = "workload", value_parser = skew)]
    theta: Option<f64>,
    /// With hot-cold: these zones in place of its two, in percent of the volume, of the writes and of the reads (by default as of the
    /// writes), like 10:60:20,40:40:20,50:0:60. Together each is 100%; what has no writes is only read.
    #[arg(long, value_name = "SPACE:WRITES[:READS],...", requires = "workload")]
    zones: Option<Zones>,
    /// Reads among the requests, in percent.
    #[arg(long, value_name = "PERCENT", requires = "workload")]
    #[arg(value_parser = number::<u32>(0..=100))]
    reads: Option<u32>,
    /// Let the pattern move over the volume: by so many percent of it while as many requests come as write it once.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0",
        requires = "workload"
    )]
    #[arg(value_parser = |text: &str| permille(text, 0..=10_000))]
    drift: u32,
    /// Let so many requests come at once, and as many again after so many microseconds, whether they are answered or not.
    #[arg(
        long,
        value_name = "COUNT:MICROSECONDS",
        requires = "workload",
        conflicts_with = "depth"
    )]
    #[arg(value_parser = bursts)]
    bursts: Option<Bursts>,
}

fn skew(text: &str) -> Result<f64, String> {
    let skew = text.parse().ok();
    // NaN is not in the range.
    skew.filter(|skew| (0.0..=SKEW_MAX).contains(skew))
        .ok_or_else(|| format!("it is a number from 0 to {SKEW_MAX}"))
}

fn bursts(text: &str) -> Result<Bursts, String> {
    let wrong = || "it is COUNT:MICROSECONDS, from 1:1 to 1000000:3600000000".to_owned();
    let (count, micros) = text.split_once(':').ok_or_else(wrong)?;
    let requests = number::<u64>(1..=1_000_000)(count).map_err(|_| wrong())?;
    let micros = number::<u64>(1..=3_600_000_000)(micros).map_err(|_| wrong())?;
    let every_ns = micros * 1000;
    Ok(Bursts { requests, every_ns })
}

impl PatternArgs {
    /// True if the load sets the times of its requests.
    pub fn is_timed(&self) -> bool {
        self.bursts.is_some()
    }

    /// Applies this pattern to the load.
    pub fn of(&self, mut load: Synthetic) -> Result<Synthetic, OptionError> {
        let name = load.workload.name;
        let pattern = &mut load.workload.pattern;
        let is_ours = self.reads.is_some() || self.drift > 0;
        match (&pattern, self.theta, self.zones) {
            (Pattern::Application(_), ..) if is_ours => {
                return Err(OptionError::new(format!(
                    "--reads and --drift are of a pattern, and {name} is an application"
                )));
            }
            (Pattern::Zipf { .. }, Some(skew), None) => *pattern = Pattern::Zipf { skew },
            (Pattern::HotCold { .. }, None, Some(zones)) => *pattern = Pattern::Zones(zones),
            (_, Some(_), _) => {
                return Err(OptionError::new(format!(
                    "--theta is of zipf, not of {name}"
                )));
            }
            (_, None, Some(_)) => {
                return Err(OptionError::new(format!(
                    "--zones is of hot-cold, not of {name}"
                )));
            }
            (_, None, None) => {}
        }
        load.workload.reads = self.reads.unwrap_or(load.workload.reads);
        (load.drift, load.bursts) = (self.drift, self.bursts);
        Ok(load)
    }
}
