//! How many years a drive has left at the current write rate, and how many it would have without Vellum.
//!
//! What is left of a drive is measured in bytes that hosts may still write. The rate is what the kernel has written to it since
//! the volume on it was opened, whoever wrote it. Without Vellum the drive would have received what the volume's clients wrote
//! instead of what the volume wrote.

use crate::drive::Drive;
use crate::observed::Observed;
use crate::units;
use serde::Serialize;
use serde_json::Value;

/// A rate measured over less time than this says little about the years to come.
const SECONDS_MIN: f64 = 600.0;
/// If less of its life is used than this many of its own steps, its total endurance is known too roughly.
const STEPS_MIN: u8 = 3;
pub(crate) const YEAR_SECONDS: f64 = 365.25 * 86_400.0;

/// How long a drive has left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Years {
    /// Years left with Vellum.
    pub with: f64,
    /// Years left if the drive received what clients write.
    pub without: f64,
    /// Bytes that the drive receives a day.
    pub day_bytes_with: f64,
    /// Bytes a day that it would receive without Vellum.
    pub day_bytes_without: f64,
    /// The time over which both rates were measured, in seconds.
    pub seconds: f64,
}

/// Computes how long a drive has left from the servers' answers for the volumes on it.
///
/// # Errors
/// A sentence that says why it cannot be computed.
pub fn left(drive: &Drive, volumes: &[&Observed]) -> Result<Years, String> {
    let left = bytes_left(drive)?;
    let opened = volumes.iter().filter_map(|volume| Opened::of(volume));
    let opened: Vec<_> = opened.collect();
    let longest = opened
        .iter()
        .max_by(|a, b| a.drive_seconds.total_cmp(&b.drive_seconds));
    let longest = longest.ok_or("its server does not say how much was written")?;
    // The rates of all volumes are added up.
    let newest = opened.iter().map(|it| it.seconds);
    let newest = newest.fold(f64::INFINITY, f64::min);
    if newest < SECONDS_MIN {
        let least = units::span(SECONDS_MIN);
        let for_now = units::span(newest);
        return Err(format!(
            "its volume was opened, or has grown, {for_now} ago, and a rate takes {least}"
        ));
    }
    let now = drive
        .written_bytes
        .ok_or("the kernel does not count what is written to it")?;
    let written = now.checked_sub(longest.written_bytes);
    let written = written.ok_or("the kernel has begun anew to count what is written to it")?;
    let with = written as f64 / longest.drive_seconds;
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
        seconds: longest.drive_seconds,
    })
}

/// Describes the years in a sentence.
pub fn sentence(years: &Years) -> String {
    format!(
        "On this drive, at this rate: {} with Vellum, {} without.",
        units::years(years.with),
        units::years(years.without)
    )
}

/// A volume, since it was opened.
struct Opened {
    /// Seconds since then, or since it grew, because its counters begin anew with that.
    seconds: f64,
    /// Bytes that the kernel had written to the drive when its server opened it.
    written_bytes: u64,
    /// Seconds since that opening.
    drive_seconds: f64,
    /// Bytes that clients wrote less bytes that the drive received; negative if it received more.
    spared_bytes: f64,
}

impl Opened {
    fn of(volume: &Observed) -> Option<Self> {
        let below = volume.told()?.get("drive")?;
        let seconds = volume.counter("uptime_ms")? as f64 / 1000.0;
        let clients = volume.counter("clients.write.bytes")? as f64;
        let medium = volume.counter("medium.written_bytes")? as f64;
        // Older servers do not say it.
        let since = below.get("since_ms").and_then(Value::as_u64);
        let drive_seconds = since.map_or(seconds, |since| since as f64 / 1000.0);
        Some(Self {
            seconds: seconds.max(1.0),
            written_bytes: below.get("written_bytes").and_then(Value::as_u64)?,
            drive_seconds: drive_seconds.max(1.0),
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
        opened(seconds, None, clients, medium)
    }

    fn opened(seconds: u64, since: Option<u64>, clients: u64, medium: u64) -> Observed {
        let mut told = json!({
            "drive": {"names": ["nvme0n1"], "written_bytes": 2 * TB},
            "stats": {
                "uptime_ms": seconds * 1000,
                "clients": {"write": {"bytes": clients}},
                "medium": {"written_bytes": medium},
            },
        });
        if let Some(since) = since {
            told["drive"]["since_ms"] = json!(since * 1000);
        }
        Observed::new("u".to_owned(), Some(told))
    }

    /// The counters of a volume begin anew when it grows; its server's count for the drive goes further back.
    #[test]
    fn a_volume_that_has_grown_tells_the_same_years_with_it() {
        let drive = drive(10, Some(40 * TB));
        let before = left(&drive, &[&volume(10 * DAY, 5 * TB / 2, TB / 2)]).unwrap();
        let grown = opened(864, Some(10 * DAY), 5 * TB / 2000, TB / 2000);
        let now = left(&drive, &[&grown]).unwrap();
        assert_eq!((now.with, now.seconds), (before.with, before.seconds));
        assert!((now.without - before.without).abs() < 1e-9, "{now:?}");
    }

    /// A rate measured for a moment is no rate, whichever volume it is for.
    #[test]
    fn a_volume_that_has_just_grown_withholds_the_years_of_its_drive() {
        let old = volume(10 * DAY, 5 * TB / 2, TB / 2);
        let grown = opened(20, Some(10 * DAY), TB / 100, TB / 500);
        let told = left(&drive(10, Some(40 * TB)), &[&old, &grown]);
        assert!(told.unwrap_err().contains("has grown"));
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
    fn the_data_sheets_promise_comes_before_an_estimate() {
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
    fn years_that_cannot_be_computed_have_a_reason() {
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
