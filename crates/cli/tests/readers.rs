//! Several servers that only read one volume: each is listed, and answers, for as long as it runs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, eventually, ok, text};
use serde_json::Value;
use std::path::Path;

/// The processes that are listed for a volume.
fn listed(volume: &Path) -> Vec<i64> {
    let all: Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
    let all = all.as_array().unwrap().iter();
    let its = all.filter(|it| it["path"] == text(volume) && it["state"] == "serving");
    its.map(|it| it["pid"].as_i64().unwrap()).collect()
}

#[test]
fn each_reader_is_listed_until_it_ends() {
    let dir = dir();
    let volume = dir.path().join("v");
    let v = text(&volume);
    ok(&["create", v, "--size=16M"]);
    let start = |name: &str| {
        let socket = dir.path().join(name);
        Server::start(dir.path(), &[v, "--read-only", "--socket", text(&socket)])
    };
    let (first, second) = (start("one"), start("two"));
    let (one, two) = (i64::from(first.pid()), i64::from(second.pid()));
    let mut both = [one, two];
    both.sort_unstable();
    // On a busy machine `list` may not wait long enough for each.
    let are_listed = |expected: &[i64]| {
        eventually("each is listed", || listed(&volume) == expected);
    };
    are_listed(&both);
    assert_eq!(first.term(), Some(0));
    are_listed(&[two]);
    let answers = || {
        assert!(ok(&["info", v]).contains("served now          yes"));
        ok(&["stats", v]);
        let metrics = ok(&["metrics"]);
        let its = |line: &&str| line.starts_with("vellum_health{") && line.contains(v);
        assert_eq!(metrics.lines().filter(its).count(), 1);
    };
    answers();
    // The next one takes the first place again. A killed one leaves nothing.
    let third = start("three");
    eventually("both are listed", || listed(&volume).len() == 2);
    answers();
    second.kill();
    are_listed(&[i64::from(third.pid())]);
    answers();
    assert_eq!(third.term(), Some(0));
    assert!(listed(&volume).is_empty());
}
