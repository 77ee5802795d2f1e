//! A dozen lines about a volume's counters, for people.

use crate::outcome::counted;
use crate::size::Size;
use serde_json::Value;
use std::fmt::Write;
use vellum_ops::causes::{CAUSES, SPARED};
use vellum_ops::health;

/// A volume's counters, now and at the previous look.
pub struct Counted<'a> {
    volume: &'a Value,
    before: Option<&'a Value>,
    /// Seconds since the previous look.
    every: f64,
}

impl<'a> Counted<'a> {
    /// For one volume; `before` is from `every` seconds ago.
    pub fn new(volume: &'a Value, before: Option<&'a Value>, every: u64) -> Self {
        Self {
            volume,
            before,
            every: every.max(1) as f64,
        }
    }

    /// A counter, by its name in `stats --all`; 0 if it is missing.
    fn of(&self, name: &str) -> u64 {
        counter(self.volume, name)
    }

    fn all(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.of(name)).sum()
    }

    /// Its growth per second.
    fn rate(&self, name: &str) -> f64 {
        let before = self.before.map_or(0, |before| counter(before, name));
        self.of(name).saturating_sub(before) as f64 / self.every
    }

    fn text(&self, pointer: &str) -> &'a str {
        let value = self.volume.pointer(pointer);
        value.and_then(Value::as_str).unwrap_or("?")
    }

    fn list(&self, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let list = self.volume.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten()
    }

    /// The lines.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, told: String| {
            let _ = writeln!(text, "  {name:<16}{told}");
        };
        line("clients", self.clients());
        line("medium", self.medium());
        line("by cause", self.causes());
        line("not written", self.spared());
        line("compression", self.compression());
        line("deltas", self.deltas());
        line("deduplication", self.dedup());
        line("flushes", self.flushes());
        line("each waited", self.waits());
        line("space", self.space());
        line("file systems", self.file_systems());
        line("confined", self.text("/confined").to_owned());
        if self.before.is_some() {
            line("now", self.now());
        }
        self.health()
            .into_iter()
            .for_each(|told| line("health", told));
        let (name, path) = (self.text("/name"), self.text("/path"));
        let bytes = Size(
            self.volume
                .get("bytes")
                .and_then(Value::as_u64)
                .unwrap_or(0),
        );
        let up = duration(self.of("uptime_ms") / 1000);
        format!("{name} ({bytes}, {path}), up {up}\n{text}")
    }

    fn clients(&self) -> String {
        format!(
            "wrote {}, read {}; {} written as zeros, {} discarded",
            Size(self.of("clients.write.bytes")),
            Size(self.of("clients.read.bytes")),
            Size(self.of("clients.write_zeroes.bytes")),
            Size(self.of("clients.discard.bytes")),
        )
    }

    fn medium(&self) -> String {
        let (wrote, got) = (
            self.of("clients.write.bytes"),
            self.of("medium.written_bytes"),
        );
        let share = match (wrote, got <= wrote) {
            (0, _) => return format!("got {}", Size(got)),
            (_, true) => format!("{} % saved", percent(wrote - got, wrote)),
            (_, false) => format!("{} more", Size(got - wrote)),
        };
        let each = got as f64 / wrote as f64;
        format!(
            "got {}: {each:.2} for each byte that clients wrote, {share}",
            Size(got)
        )
    }

    fn causes(&self) -> String {
        let got = self.of("medium.written_bytes");
        let told = CAUSES.iter().filter_map(|cause| {
            let (what, bytes) = (cause.short, self.all(cause.counters));
            (bytes > 0).then(|| format!("{what} {} ({} %)", Size(bytes), percent(bytes, got)))
        });
        or(told.collect::<Vec<_>>().join(", "), "nothing yet")
    }

    fn spared(&self) -> String {
        let told = SPARED.iter().filter_map(|(what, name)| {
            let bytes = self.of(name) * 4096;
            (bytes > 0).then(|| format!("{} {what}", Size(bytes)))
        });
        or(told.collect::<Vec<_>>().join(", "), "nothing yet")
    }

    fn compression(&self) -> String {
        let (blocks, bytes) = (self.of("core.packed_blocks"), self.of("core.packed_bytes"));
        match blocks {
            0 => "nothing stored in parts of pages".to_owned(),
            blocks => format!(
                "{} stored in {} ({} %)",
                Size(blocks * 4096),
                Size(bytes),
                percent(bytes, blocks * 4096)
            ),
        }
    }

    fn deltas(&self) -> String {
        match self.of("deltas.stored_blocks") {
            0 => "none stored".to_owned(),
            _ => format!(
                "of these {} stored in {}",
                Size(self.of("deltas.whole_bytes")),
                Size(self.of("deltas.stored_bytes"))
            ),
        }
    }

    fn dedup(&self) -> String {
        let (found, looked) = (self.of("core.dedup_blocks"), self.of("core.dedup_lookups"));
        if self.of("core.index_capacity") == 0 && looked == 0 {
            return "off".to_owned();
        }
        let full = percent(
            self.of("core.index_entries"),
            self.of("core.index_capacity"),
        );
        let shared = Size(self.of("space.shared_bytes"));
        let hits = percent(found, looked);
        format!(
            "{hits} % of what was looked up is stored already; {shared} shared; index {full} % full"
        )
    }

    fn flushes(&self) -> String {
        let of = |what: &str| self.of(&format!("flushes.{what}"));
        let (all, free, merged) = (of("received"), of("free"), of("merged"));
        let syncs = self.all(&["medium.syncs", "medium.durable_writes"]);
        let commits = match self.of("write_once.commits") {
            0 => String::new(),
            commits => format!(", {:.2} a commit", syncs as f64 / commits as f64),
        };
        format!(
            "{all}: {free} free, {merged} with another's; the medium was synced {}{commits}",
            counted(syncs, "time")
        )
    }

    fn waits(&self) -> String {
        let of = |what: &str| self.of(&format!("flushes.waited.{what}_micros"));
        format!(
            "{} on average, half at most {}, 99 of 100 at most {}, {} at most",
            time(of("mean")),
            time(of("half")),
            time(of("most")),
            time(of("longest"))
        )
    }

    fn space(&self) -> String {
        let (used, room) = (self.of("room.used_bytes"), self.of("room.capacity_bytes"));
        let (mapped, saved) = (self.of("space.mapped_bytes"), self.of("space.saved_bytes"));
        if self.of("core.uncounted_leaves") > 0 {
            let room = Size(room);
            return format!(
                "still counted after the opening, more than {} of {room} in use",
                Size(used)
            );
        }
        format!(
            "{} of {} in use ({} %); what clients see of it is {}, {} saved",
            Size(used),
            Size(room),
            percent(used, room),
            Size(mapped),
            Size(saved)
        )
    }

    fn file_systems(&self) -> String {
        let told: Vec<_> = self
            .list("/stats/write_once/file_systems")
            .map(|found| {
                let field = |key: &str| found.get(key).and_then(Value::as_str);
                let label = field("label").filter(|label| !label.is_empty());
                let name = label.or_else(|| field("uuid")).unwrap_or("?");
                match field("stood_aside") {
                    Some(why) => format!("{name}, journal not watched: {why}"),
                    None => format!("{name}, journal watched"),
                }
            })
            .collect();
        or(told.join("; "), "none found")
    }

    fn now(&self) -> String {
        let bytes = |name: &str| Size(self.rate(name) as u64);
        format!(
            "{}/s written, {}/s to the medium, {}/s read, {:.0} flushes/s",
            bytes("clients.write.bytes"),
            bytes("medium.written_bytes"),
            bytes("clients.read.bytes"),
            self.rate("flushes.received")
        )
    }

    /// What is wrong, one line each; or that nothing is.
    fn health(&self) -> Vec<String> {
        let found = health::findings(self.volume);
        match found.is_empty() {
            true => vec!["well".to_owned()],
            false => found.into_iter().map(|finding| finding.words).collect(),
        }
    }
}

fn counter(volume: &Value, name: &str) -> u64 {
    vellum_ops::counter(volume, name)
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

fn percent(part: u64, of: u64) -> u64 {
    match of {
        0 => 0,
        of => (u128::from(part) * 100 / u128::from(of)) as u64,
    }
}

fn or(told: String, nothing: &str) -> String {
    match told.is_empty() {
        true => nothing.to_owned(),
        false => told,
    }
}

fn time(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..10_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{} s", micros / 1_000_000),
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(wrote: u64, got: u64) -> Value {
        json!({
            "name": "disk", "path": "/v", "bytes": 1_u64 << 30, "events": [],
            "stats": {
                "clients": {"write": {"bytes": wrote}},
                "medium": {"written_bytes": got, "data_bytes": got / 2},
                "core": {"corrupt_blocks": 2},
                "room": {"level": "ample", "used_bytes": 1 << 20, "capacity_bytes": 1 << 30},
                "uptime_ms": 7_300_000,
            },
        })
    }

    #[test]
    fn it_is_a_dozen_lines_and_says_what_was_saved() {
        let text = Counted::new(&volume(100 << 20, 25 << 20), None, 1).lines();
        assert!(text.lines().count() <= 14, "{text}");
        for told in [
            "disk (1 GiB, /v), up 2 h",
            "0.25 for each byte that clients wrote, 75 % saved",
            "data 12.5 MiB (50 %)",
            "2 blocks failed their checksum",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
        let more = Counted::new(&volume(1 << 20, 3 << 20), None, 1).lines();
        assert!(
            more.contains("3.00 for each byte that clients wrote, 2 MiB more"),
            "{more}"
        );
    }

    #[test]
    fn rates_count_from_the_previous_look() {
        let (before, after) = (volume(0, 0), volume(100 << 20, 10 << 20));
        let text = Counted::new(&after, Some(&before), 5).lines();
        assert!(
            text.contains("20 MiB/s written, 2 MiB/s to the medium"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_counted_yet_is_not_told_as_if_it_were() {
        let mut volume = volume(0, 0);
        volume["stats"]["core"]["uncounted_leaves"] = json!(7);
        let text = Counted::new(&volume, None, 0).lines();
        assert!(
            text.contains("still counted after the opening, more than 1 MiB"),
            "{text}"
        );
        assert!(!text.contains('%'), "{text}");
    }

    /// A server of another version, or one of a plain file, has different counters.
    #[test]
    fn missing_counters_are_no_failure() {
        for strange in [
            json!({}),
            json!(null),
            json!({"stats": 7, "events": {}}),
            json!([]),
        ] {
            let text = Counted::new(&strange, Some(&strange), 0).lines();
            assert!(text.contains("well"), "{text}");
        }
    }
}
