//! What is wrong with a served volume, judged by its server's counters.

use crate::observed::counter as told;
use serde_json::Value;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Nothing is wrong.
    Well,
    /// A person should look.
    Warning,
    /// Data is lost or not served, or soon will be.
    Critical,
    /// Its server does not answer.
    Unknown,
}

impl Grade {
    /// The name that monitoring programs use for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Well => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A problem with a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub grade: Grade,
    /// A sentence that describes it.
    pub words: String,
}

/// Counters that are zero while all is well; and their words, for one and for more.
const COUNTED: [(Grade, &str, [&str; 2]); 8] = [
    (
        Grade::Critical,
        "core.corrupt_blocks",
        ["block failed its checksum", "blocks failed their checksum"],
    ),
    (
        Grade::Critical,
        "core.unreadable_blocks",
        ["block cannot be read", "blocks cannot be read"],
    ),
    (
        Grade::Warning,
        "core.quarantined_segments",
        ["segment is left out of use", "segments are left out of use"],
    ),
    (
        Grade::Warning,
        "medium.errors",
        [
            "operation of the medium failed",
            "operations of the medium failed",
        ],
    ),
    (
        Grade::Warning,
        "clients.refused",
        [
            "request was answered with an error",
            "requests were answered with an error",
        ],
    ),
    (
        Grade::Warning,
        "core.waiting_requests",
        [
            "request waits for room, or for the medium",
            "requests wait for room, or for the medium",
        ],
    ),
    (
        Grade::Warning,
        "history.failed",
        [
            "time the schedule could not take a snapshot, or not delete one",
            "times the schedule could not take a snapshot, or not delete one",
        ],
    ),
    (
        Grade::Warning,
        "history.deleted_for_room",
        [
            "snapshot of the schedule was deleted to make room",
            "snapshots of the schedule were deleted to make room",
        ],
    ),
];

/// From this per cent of what snapshots can keep on, a person should look.
const KEPT_PERCENT: u64 = 90;

/// Returns what is wrong, according to a server's answer for one volume. Values missing from the answer produce no finding.
pub fn findings(volume: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |grade, words: String| found.push(Finding { grade, words });
    if told(volume, "poisoned").and_then(Value::as_bool) == Some(true) {
        let words = match told(volume, "poisoned_by").and_then(Value::as_str) {
            Some(damage) => format!("POISONED by damage: {damage}"),
            None => {
                "POISONED by a failed write or sync: detach, and attach again, to recover".into()
            }
        };
        add(Grade::Critical, words);
    }
    let file = |key: &str| volume.get("file").and_then(|file| file.get(key));
    if let Some(missing @ 1..) = file("missing_bytes").and_then(Value::as_u64) {
        let words = format!(
            "its file was CUT SHORT: {missing} bytes at its end are lost; detach, and take your backup"
        );
        add(Grade::Critical, words);
    }
    if file("deleted").and_then(Value::as_bool) == Some(true) {
        let words = "its file or device is GONE: a file that was deleted is lost when its server ends, \
                     so copy what is on the volume before that; a drive that was pulled is attached again \
                     when it is back";
        add(Grade::Critical, words.to_owned());
    }
    for (grade, name, [one, more]) in COUNTED {
        match told(volume, name).and_then(Value::as_u64) {
            None | Some(0) => {}
            Some(1) => add(grade, format!("1 {one}")),
            Some(count) => add(grade, format!("{count} {more}")),
        }
    }
    match told(volume, "room.level").and_then(Value::as_str) {
        None | Some("ample") => {}
        Some(level) => add(
            Grade::Warning,
            format!("the space for data is {level}: free some, before it is full"),
        ),
    }
    if let Some(percent) = kept_percent(volume).filter(|percent| *percent >= KEPT_PERCENT) {
        let words = format!(
            "snapshots keep {percent}% of what they can: delete one, before writes find no room to keep \
             what was there"
        );
        add(Grade::Warning, words);
    }
    let events = volume.get("events").and_then(Value::as_array);
    // How full it is now is told above: what was told when it filled may be over.
    let kind = |event: &Value| {
        event
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let lasts = |event: &&Value| !["filling", "high", "critical"].contains(&&*kind(event));
    for event in events.into_iter().flatten().filter(lasts) {
        add(Grade::Warning, trouble(event));
    }
    let ended = volume.pointer("/recording/ended").and_then(Value::as_str);
    if let Some(ended) = ended {
        add(Grade::Warning, format!("the recording has ended: {ended}"));
    }
    found
}

/// How many per cent of the blocks that snapshots can keep are kept. `None` if the schedule takes some: it deletes them when there
/// is no room.
fn kept_percent(volume: &Value) -> Option<u64> {
    let count = |name| told(volume, name).and_then(Value::as_u64);
    let (kept, most) = (count("history.kept_blocks")?, count("history.most_blocks")?);
    let is_scheduled = count("history.every_seconds") != Some(0);
    (most > 0 && !is_scheduled).then(|| kept.saturating_mul(100) / most)
}

/// Describes one kind of trouble and how often it happened, from a server's answer.
pub fn trouble(event: &Value) -> String {
    let message = event.get("message").and_then(Value::as_str).unwrap_or("?");
    match event.get("count").and_then(Value::as_u64) {
        None | Some(1) => format!("trouble: {message}"),
        Some(count) => format!("trouble, {count} times: {message}"),
    }
}

/// The worst grade among the findings.
pub fn worst(findings: &[Finding]) -> Grade {
    let grades = findings.iter().map(|finding| finding.grade);
    grades.max().unwrap_or(Grade::Well)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_counts() {
        let volume = |poisoned: bool, errors: u64, level: &str| {
            json!({"stats": {
                "poisoned": poisoned,
                "medium": {"errors": errors},
                "room": {"level": level},
            }})
        };
        let grade = |volume: &Value| worst(&findings(volume));
        assert_eq!(grade(&volume(false, 0, "ample")), Grade::Well);
        assert_eq!(grade(&volume(false, 3, "ample")), Grade::Warning);
        assert_eq!(grade(&volume(false, 0, "scarce")), Grade::Warning);
        assert_eq!(grade(&volume(true, 3, "scarce")), Grade::Critical);
        let damage = json!({"stats": {"poisoned": true, "poisoned_by": "block 7"}});
        assert_eq!(findings(&damage)[0].words, "POISONED by damage: block 7");
        let history =
            json!({"stats": {"history": {"taken": 9, "deleted": 8, "deleted_for_room": 1}}});
        let words: Vec<String> = findings(&history).into_iter().map(|it| it.words).collect();
        assert_eq!(
            words,
            ["1 snapshot of the schedule was deleted to make room"]
        );
        let was_full = json!({
            "stats": {"room": {"level": "ample"}},
            "events": [{"kind": "critical", "message": "98 % is in use"}],
        });
        assert_eq!(grade(&was_full), Grade::Well, "it is told while it lasts");
        let kept = |kept: u64, every: u64| {
            let history = json!({"kept_blocks": kept, "most_blocks": 1000, "every_seconds": every});
            json!({"stats": {"history": history}})
        };
        assert_eq!(grade(&kept(899, 0)), Grade::Well);
        assert_eq!(grade(&kept(900, 0)), Grade::Warning);
        assert_eq!(
            grade(&kept(1000, 60)),
            Grade::Well,
            "the schedule makes room"
        );
        for strange in [json!({}), json!(null), json!({"stats": 7, "events": {}})] {
            assert_eq!(grade(&strange), Grade::Well, "{strange}");
        }
    }
}
