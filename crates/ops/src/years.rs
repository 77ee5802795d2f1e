//! How many years a drive has left at the rate at which it is written, and how many it would have without Vellum.
//!
//! What is left of a drive is told in bytes that hosts may still write. The rate is what the kernel has written to it since the
//! volume on it was opened, for whomever. Without Vellum the drive would have got, in place of what the volume wrote, what its
//! clients wrote.

use crate::drive::Drive;
use crate::observed::Observed;
use crate::units;
use serde::Serialize;
use serde_json::Value;

/// A rate of a shorter time than this says little of the years to come.
const SECONDS_MIN: f64 = 600.0;
/// With less of its life used, in its own steps, what a drive takes in its life is too roughly known.
const STEPS_MIN: u8 = 3;
pub(crate) const YEAR_SECONDS: f64 = 365.25 * 86_400.0;

/// How long a drive has left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Years {
    /// With Vellum, as it is.
    pub with: f64,
    /// If the drive got what clients write.
    pub without: f64,
    /// Bytes that the drive gets in a day.
    pub day_bytes_with: f64,
    /// Bytes that it would get.
    pub day_bytes_without: f64,
    /// The time that both rates are of, in seconds.
    pub seconds: f64,
}

/// How long a drive has left, by what is told of the volumes on it.
///
/// # Errors
/// Why it cannot be told.
pub fn left(drive: &Drive, volumes: &[&Observed]) -> Result<Years, String> {
    let left = bytes_left(drive)?;
    let opened = volumes.iter().filter_map(|volume| Opened::of(volume));
    let opened: Vec<_> = opened.collect();
    let longest = opened.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let longest = longest.ok_or("its server does not say how much was written")?;
    if longest.seconds < SECONDS_MIN {
        let least = units::span(SECONDS_MIN);
        let for_now = units::span(longest.seconds);
        return Err(format!(
            "its volume was opened {for_now} ago, and a rate takes {least}"
        ));
    }
    let now = drive
        .written_bytes
        .ok_or("the kernel does not count what is written to it")?;
    let written = now.checked_sub(longest.written_bytes);
    let written = written.ok_or("the kernel has begun anew to count what is written to it")?;
    let with = written as f64 / longest.seconds;
    let spared: f64 = opened.iter().map(|it| it.spared_bytes / it.seconds).sum();
    let without = with + spared;
    if with <= 0.0 || without <= 0.0 {
        return Err("nothing is written to it".to_owned());
    }
    Ok(Years {
        with: left / with / YEAR_SECONDS,
        without: left / without / YEAR_SECONDS,
        day_bytes_with: with * 86_400.0,
        day_bytes_without: without * 86_400.0,
        seconds: longest.seconds,
    })
}

/// The sentence.
pub fn sentence(years: &Years) -> String {
    format!(
        "On this drive, at this rate: {} with Vellum, {} without.",
        units::years(years.with),
        units::years(years.without)
    )
}

/// A volume, since it was opened.
struct Opened {
    seconds: f64,
    /// What the kernel had written to the drive then.
    written_bytes: u64,
    /// By how much less the drive has got than clients wrote; negative when it got more.
    spared_bytes: f64,
}

impl Opened {
    fn of(volume: &Observed) -> Option<Self> {
        let below = volume.told()?.get("drive")?;
        let seconds = volume.counter("uptime_ms")? as f64 / 1000.0;
        let clients = volume.counter("clients.write.bytes")? as f64;
        let medium = volume.counter("medium.written_bytes")? as f64;
        Some(Self {
            seconds: seconds.max(1.0),
            written_bytes: below.get("written_bytes").and_then(Value::as_u64)?,
            spared_bytes: clients - medium,
        })
    }
}

/// How many bytes hosts may still write.
fn bytes_left(drive: &Drive) -> Result<f64, String> {
    let wear = drive.wear.as_ref().map_err(Clone::clone)?;
    let used = f64::from(wear.used_percent) / 100.0;
    let look = format!(
        "say what its data sheet promises: --tbw {}=TERABYTES",
        drive.name
    );
    if used >= 1.0 {
        return Ok(0.0);
    }
    match (drive.promised_bytes, wear.written_bytes) {
        (Some(promised), Some(written)) => Ok(promised.saturating_sub(written) as f64),
        (Some(promised), None) => Ok(promised as f64 * (1.0 - used)),
        (None, Some(written)) if wear.used_percent >= STEPS_MIN * wear.step_percent => {
            Ok(written as f64 * (1.0 - used) / used)
        }
        (None, Some(_)) => Err(format!(
            "it says that {} % of its life is used, too little to go by; {look}",
            wear.used_percent
        )),
        (None, None) => Err(format!(
            "it says that at most {} % of its life is used, and not how much was written; {look}",
            wear.used_percent
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Wear;
    use serde_json::json;

    const TB: u64 = 1_000_000_000_000;
    const DAY: u64 = 86_400;

    fn drive(used_percent: u8, written: Option<u64>) -> Drive {
        Drive {
            name: "nvme0n1".to_owned(),
            model: None,
            written_bytes: Some(3 * TB),
            wear: Ok(Wear {
                used_percent,
                step_percent: 1,
                written_bytes: written,
            }),
            promised_bytes: None,
        }
    }

    /// Ten days; the drive was at 2 TB when it began.
    fn volume(seconds: u64, clients: u64, medium: u64) -> Observed {
        let told = json!({
            "drive": {"names": ["nvme0n1"], "written_bytes": 2 * TB},
            "stats": {
                "uptime_ms": seconds * 1000,
                "clients": {"write": {"bytes": clients}},
                "medium": {"written_bytes": medium},
            },
        });
        Observed::new("u".to_owned(), Some(told))
    }

    /// 10 % were used by 40 TB, so 360 TB are left. 0.1 TB a day, of which a volume writes 0.05 in place of 0.25.
    #[test]
    fn years_are_what_is_left_over_what_is_written() {
        let drive = drive(10, Some(40 * TB));
        let volume = volume(10 * DAY, 5 * TB / 2, TB / 2);
        let years = left(&drive, &[&volume]).unwrap();
        assert!((years.with - 3600.0 / 365.25).abs() < 1e-9, "{years:?}");
        assert!((years.without - 1200.0 / 365.25).abs() < 1e-9, "{years:?}");
        let told = "On this drive, at this rate: 9.9 years with Vellum, 3.3 years without.";
        assert_eq!(sentence(&years), told);
    }

    #[test]
    fn what_the_data_sheet_promises_comes_before_what_is_reckoned() {
        let promised = |used, written| Drive {
            promised_bytes: Some(400 * TB),
            ..drive(used, written)
        };
        let volume = volume(10 * DAY, TB, TB);
        let days = |drive| left(&drive, &[&volume]).unwrap().with * 365.25;
        assert_eq!(days(promised(1, Some(100 * TB))).round(), 3000.0);
        assert_eq!(days(promised(20, None)).round(), 3200.0);
        assert_eq!(days(promised(1, Some(500 * TB))), 0.0);
        assert_eq!(days(promised(100, None)), 0.0);
    }

    #[test]
    fn what_cannot_be_told_is_withheld_with_its_reason() {
        let good = drive(10, Some(40 * TB));
        let long = volume(10 * DAY, TB, TB);
        let silent = Drive {
            wear: Err("it is a SD card".to_owned()),
            ..good.clone()
        };
        let idle = Drive {
            written_bytes: Some(2 * TB),
            ..good.clone()
        };
        let uncounted = Drive {
            written_bytes: None,
            ..good.clone()
        };
        let younger = volume(300, TB, TB);
        let busy = Observed::new("u".to_owned(), None);
        for (drive, volume, why) in [
            (&silent, &long, "SD card"),
            (&idle, &volume(10 * DAY, 0, 0), "nothing is written"),
            (&uncounted, &long, "does not count"),
            (&drive(2, Some(40 * TB)), &long, "too little to go by"),
            (&drive(30, None), &long, "--tbw nvme0n1="),
            (&good, &younger, "5 minutes ago"),
            (&good, &busy, "does not say"),
        ] {
            let told = left(drive, &[volume]).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
