//! What the page and `vellum top` show: figures with their meaning, and sentences.

use crate::causes::{CAUSES, SPARED};
use crate::drive::Drive;
use crate::health;
use crate::observed::Observed;
use crate::units;
use crate::years::{self, Years};
use serde::Serialize;
use serde_json::Value;

/// All volumes, and the drives they are on.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// The drives.
    pub drives: Vec<DriveView>,
    /// The volumes.
    pub volumes: Vec<VolumeView>,
}

/// A drive; or, if the drive cannot be identified, what is known about it.
#[derive(Clone, Debug, Serialize)]
pub struct DriveView {
    /// The kernel's name for it; empty if not known.
    pub device: String,
    /// Its name and its maker's name for it.
    pub name: String,
    /// How many years it has left, or what it was spared if the years cannot be computed.
    pub headline: String,
    /// What the headline is based on, or why the years cannot be computed.
    pub because: String,
    /// The years, if they can be computed.
    pub years: Option<Years>,
    /// UUIDs of the volumes on it.
    pub volumes: Vec<String>,
}

/// A named number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Its name.
    pub name: &'static str,
    /// The bytes.
    pub bytes: u64,
}

/// A volume.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeView {
    /// Its UUID.
    pub uuid: String,
    /// The path of its file.
    pub name: String,
    /// Its health, in the words that monitoring programs use.
    pub health: &'static str,
    /// What is wrong, if something is.
    pub findings: Vec<String>,
    /// Its counters; `None` if its server does not answer.
    pub counted: Option<Counted>,
}

/// A volume's counters since it was opened.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// How long ago it was opened.
    pub uptime_seconds: f64,
    /// Bytes that clients wrote.
    pub clients_written: u64,
    /// Bytes written to the drive.
    pub medium_written: u64,
    /// Those bytes by cause, the largest first.
    pub causes: Vec<Share>,
    /// Writes avoided, by reason.
    pub spared: Vec<Share>,
    /// How full it is.
    pub space: Space,
    /// How long flushes waited.
    pub flushes: Flushes,
    /// Recent troubles, as the server reports them.
    pub events: Value,
}

/// How full it is.
#[derive(Clone, Debug, Serialize)]
pub struct Space {
    /// Bytes of data that may be in use at once.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that clients see as written.
    pub mapped: u64,
    /// How many bytes more that is than the space it takes.
    pub saved: u64,
    /// For a thin volume: how soon it will be full.
    pub level: String,
}

/// How long flushes waited, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Flushes {
    /// The number of flushes.
    pub count: u64,
    /// The median.
    pub half: u64,
    /// The 99th percentile.
    pub most: u64,
    /// The maximum.
    pub longest: u64,
    /// The histogram, as the server reports it.
    pub histogram: Value,
}

impl Flushes {
    /// Each bucket's upper bound in the histogram, and how many flushes are in it.
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let steps = self.histogram.as_array();
        let number = |step: &Value, key: &str| step.get(key)?.as_u64();
        let told = steps
            .into_iter()
            .flatten()
            .filter_map(|step| Some((number(step, "below_micros")?, number(step, "count")?)));
        told.collect()
    }
}

const BLOCK: u64 = 4096;

impl View {
    /// Builds the view of these volumes, given the drives that are known.
    pub fn of(volumes: &[Observed], drives: &[Drive]) -> Self {
        let mut told: Vec<DriveView> = Vec::new();
        for group in groups(volumes) {
            let drive = group.name.clone().and_then(|name| {
                let known = drives.iter().find(|drive| drive.name == name);
                known.ok_or_else(|| format!("{name} is gone"))
            });
            told.push(DriveView::of(drive, &group.volumes));
        }
        Self {
            drives: told,
            volumes: volumes.iter().map(VolumeView::of).collect(),
        }
    }

    /// The line to show first.
    pub fn headline(&self) -> &str {
        let first = self.drives.first();
        first.map_or("No volume is served now.", |drive| &drive.headline)
    }
}

/// Volumes on one drive.
struct Group<'a> {
    name: Result<String, String>,
    volumes: Vec<&'a Observed>,
}

/// Returns the drive that a volume is on, according to its server.
///
/// # Errors
/// A sentence that says why the drive is not known.
pub fn drive_of(volume: &Observed) -> Result<String, String> {
    let told = volume.told().ok_or("its server does not answer")?;
    let below = told.get("drive");
    let below = below.ok_or("its server is older than this program")?;
    if let Some(why) = below.get("unknown").and_then(Value::as_str) {
        return Err(why.to_owned());
    }
    let names = below.get("names").and_then(Value::as_array);
    let names: Vec<_> = names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    match names[..] {
        [one] => Ok(one.to_owned()),
        _ => Err(format!(
            "it lies on {} drives ({})",
            names.len(),
            names.join(", ")
        )),
    }
}

fn groups(volumes: &[Observed]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for volume in volumes {
        let name = drive_of(volume);
        let same = groups
            .iter_mut()
            .find(|group| name.is_ok() && group.name == name);
        match same {
            Some(group) => group.volumes.push(volume),
            None => groups.push(Group {
                name,
                volumes: vec![volume],
            }),
        }
    }
    groups
}

impl DriveView {
    fn of(drive: Result<&Drive, String>, volumes: &[&Observed]) -> Self {
        let years = drive.clone().and_then(|drive| years::left(drive, volumes));
        let device = drive.as_ref().map_or("", |drive| &drive.name).to_owned();
        let name = match (drive, volumes) {
            (Ok(drive), _) => match &drive.model {
                Some(model) => format!("{} ({model})", drive.name),
                None => drive.name.clone(),
            },
            (Err(_), [volume, ..]) => format!("The drive below {}", volume.name()),
            (Err(_), []) => "No drive".to_owned(),
        };
        let (headline, because) = match &years {
            Ok(years) => (years::sentence(years), rates(years)),
            Err(why) => (
                spared(volumes),
                format!("How many years it has left cannot be told: {why}."),
            ),
        };
        Self {
            device,
            name,
            headline,
            because,
            years: years.ok(),
            volumes: volumes
                .iter()
                .map(|volume| volume.uuid().to_owned())
                .collect(),
        }
    }
}

fn rates(years: &Years) -> String {
    format!(
        "In the last {} it was written {} a day, by whomever; the same writes without Vellum would \
         have been {}.",
        units::span(years.seconds),
        units::bytes(years.day_bytes_with),
        units::bytes(years.day_bytes_without)
    )
}

/// The sentence to show when the years cannot be computed.
fn spared(volumes: &[&Observed]) -> String {
    let all = |name| -> u64 { volumes.iter().map(|volume| volume.count(name)).sum() };
    let (clients, medium) = (all("clients.write.bytes"), all("medium.written_bytes"));
    let (wrote, got) = (units::bytes(clients as f64), units::bytes(medium as f64));
    match (clients, medium) {
        (0, _) => "Nothing has been written since the volume was opened.".to_owned(),
        _ if medium == clients => format!("Programs wrote {wrote}, and the drive got as much."),
        _ if medium < clients => {
            let percent = 100.0 * (clients - medium) as f64 / clients as f64;
            format!("Programs wrote {wrote}, the drive got {got}: {percent:.0} % saved.")
        }
        _ => {
            let more = units::bytes((medium - clients) as f64);
            format!("Programs wrote {wrote}, the drive got {got}: {more} more.")
        }
    }
}

impl VolumeView {
    fn of(volume: &Observed) -> Self {
        let (grade, findings) = match volume.told() {
            None => {
                let silent = "its server does not answer: it opens its volumes, or stops";
                (health::Grade::Unknown, vec![silent.to_owned()])
            }
            Some(told) => {
                let found = health::findings(told);
                let grade = health::worst(&found);
                (grade, found.into_iter().map(|it| it.words).collect())
            }
        };
        Self {
            uuid: volume.uuid().to_owned(),
            name: volume.name().to_owned(),
            health: grade.name(),
            findings,
            counted: volume.told().map(|told| Counted::of(volume, told)),
        }
    }
}

impl Counted {
    fn of(volume: &Observed, told: &Value) -> Self {
        let count = |name: &str| volume.count(name);
        let sum = |names: &[&str]| names.iter().map(|name| count(name)).sum();
        let causes = CAUSES.iter().map(|cause| (cause.name, sum(cause.counters)));
        let spared = SPARED
            .iter()
            .map(|(name, counter)| (*name, count(counter) * BLOCK));
        let packed = count("core.packed_blocks") * BLOCK;
        let smaller = packed.saturating_sub(count("core.packed_bytes"));
        let waited = told.pointer("/stats/flushes/waited");
        let micros = |what: &str| count(&format!("flushes.waited.{what}"));
        let level = told.pointer("/stats/room/level").and_then(Value::as_str);
        Self {
            uptime_seconds: count("uptime_ms") as f64 / 1000.0,
            clients_written: count("clients.write.bytes"),
            medium_written: count("medium.written_bytes"),
            causes: largest_first(causes),
            spared: largest_first(spared.chain([("made smaller", smaller)])),
            space: Space {
                capacity: count("room.capacity_bytes"),
                used: count("room.used_bytes"),
                mapped: count("space.mapped_bytes"),
                saved: count("space.saved_bytes"),
                level: level.unwrap_or("ample").to_owned(),
            },
            flushes: Flushes {
                count: micros("count"),
                half: micros("half_micros"),
                most: micros("most_micros"),
                longest: micros("longest_micros"),
                histogram: waited.map_or(Value::Null, |it| it["histogram"].clone()),
            },
            events: told.get("events").cloned().unwrap_or(Value::Null),
        }
    }

    /// Bytes written to the drive for each byte that clients wrote; `None` before the first client write.
    pub fn amplification(&self) -> Option<f64> {
        (self.clients_written > 0).then(|| self.medium_written as f64 / self.clients_written as f64)
    }
}

/// The shares that are not zero, the largest first.
fn largest_first(all: impl Iterator<Item = (&'static str, u64)>) -> Vec<Share> {
    let some = all.filter(|(_, bytes)| *bytes > 0);
    let mut some: Vec<_> = some.map(|(name, bytes)| Share { name, bytes }).collect();
    some.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    some
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(uuid: &str, drive: Value) -> Observed {
        let told = json!({
            "path": format!("/v/{uuid}"), "drive": drive,
            "stats": {
                "uptime_ms": 7_200_000,
                "clients": {"write": {"bytes": 4_u64 << 30}},
                "medium": {
                    "written_bytes": 1_u64 << 30, "moved_bytes": 1 << 20, "map_bytes": 5, "link_bytes": 7,
                },
                "core": {"remapped_blocks": 3},
            },
        });
        Observed::new(uuid.to_owned(), Some(told))
    }

    fn on(name: &str) -> Value {
        json!({"names": [name], "written_bytes": 0})
    }

    #[test]
    fn volumes_of_one_drive_stand_together() {
        let volumes = [
            volume("a", on("x")),
            volume("b", on("y")),
            volume("c", on("x")),
        ];
        let view = View::of(&volumes, &[]);
        let together: Vec<_> = view
            .drives
            .iter()
            .map(|drive| drive.volumes.join(""))
            .collect();
        assert_eq!(together, ["ac", "b"]);
        assert_eq!(
            view.headline(),
            "Programs wrote 8.00 GiB, the drive got 2.00 GiB: 75 % saved."
        );
        assert!(view.drives[0].because.contains("x is gone"), "{view:?}");
        let counted = view.volumes[0].counted.as_ref().unwrap();
        let shares: Vec<_> = counted
            .causes
            .iter()
            .map(|it| (it.name, it.bytes))
            .collect();
        assert_eq!(shares, [("moved by the collector", 1 << 20), ("map", 12)]);
        assert_eq!(counted.spared[0].bytes, 3 * 4096);
        assert_eq!(counted.amplification(), Some(0.25));
    }

    #[test]
    fn it_is_told_why_a_drive_is_not_known() {
        let several = json!({"names": ["x", "y"], "written_bytes": 0});
        for (drive, why) in [
            (several, "it lies on 2 drives (x, y)"),
            (json!({"unknown": "it is in memory"}), "it is in memory"),
            (Value::Null, "lies on 0 drives"),
        ] {
            let view = View::of(&[volume("a", drive)], &[]);
            assert!(view.drives[0].because.contains(why), "{view:?}");
            assert_eq!(view.drives[0].years, None);
        }
        let silent = View::of(&[Observed::new("u".to_owned(), None)], &[]);
        assert_eq!(silent.volumes[0].health, "UNKNOWN");
        assert_eq!(View::of(&[], &[]).headline(), "No volume is served now.");
    }

    /// Any answer from a server of another version is handled.
    #[test]
    fn what_is_not_counted_is_nothing_to_fail_for() {
        for strange in [
            json!({}),
            json!(null),
            json!({"stats": 7, "events": {}}),
            json!([]),
        ] {
            let view = View::of(&[Observed::new("u".to_owned(), Some(strange))], &[]);
            assert_eq!(view.volumes[0].counted.as_ref().unwrap().clients_written, 0);
        }
    }
}
