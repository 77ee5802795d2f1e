//! Checks which parts of the core no simulated life reaches, against a list.
//!
//! `unreached.toml` beside this crate lists those functions in groups, with the reason for each group. The list may only
//! shrink: it is a complaint if a function that no life reaches is not listed, or if fewer lines are reached than the
//! list says. The list says also how many functions it may have, which a test compares, so that whoever adds one has to
//! raise that number. `scripts/coverage.sh` measures, then calls this; `... shrink` removes functions that were reached
//! or no longer exist, lowers the number, and adds nothing.

mod functions;
mod lines;

use anyhow::Context;
use functions::Function;
use lines::Lines;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The path of the list, from the root.
const LIST: &str = "xtask/unreached.toml";
/// The folder that is measured, from the root.
const MEASURED: &str = "crates/core/src";
/// The text above the list.
const HEAD: &str = "\
# What of the core no simulated life reaches, and why (`make coverage`). The list may only shrink: give the
# simulation what reaches a function, then run `make coverage SHRINK=1`.
";

/// Functions that are not reached for the same reason.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    why: String,
    functions: BTreeSet<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Lines that must be reached, per thousand.
    lines: u64,
    /// How many functions there may be.
    most: usize,
    group: Vec<Group>,
}

impl List {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    fn names(&self) -> BTreeSet<&String> {
        self.group.iter().flat_map(|g| &g.functions).collect()
    }

    fn growth(&self) -> Vec<String> {
        let (names, most) = (self.names().len(), self.most);
        let is_other =
            |what| format!("{LIST} names {names} functions, and its `most` is {most}: {what}");
        match names.cmp(&most) {
            Ordering::Equal => Vec::new(),
            Ordering::Greater => vec![is_other("give the simulation what reaches the new ones")],
            Ordering::Less => vec![is_other("lower it, so that the list does not grow again")],
        }
    }

    fn compare(&self, found: &Found) -> Vec<String> {
        let listed = self.names();
        let new = found.unreached.iter().filter(|name| !listed.contains(name));
        let mut complaints: Vec<String> = new
            .map(|name| {
                format!("{name}: no simulated life reaches it, and {LIST} does not name it")
            })
            .collect();
        let (reached, all) = found.total();
        if reached * 1000 < self.lines * all {
            let (lines, least) = (share(reached, all), share(self.lines, 1000));
            complaints.push(format!(
                "{lines} of the lines are reached, and {LIST} asks for {least}"
            ));
        }
        complaints
    }

    fn shrink_to(&mut self, found: &Found) {
        for group in &mut self.group {
            group
                .functions
                .retain(|name| found.unreached.contains(name));
        }
        self.group.retain(|group| !group.functions.is_empty());
        self.most = self.most.min(self.names().len());
    }
}

/// Checks that the list has not grown.
///
/// # Errors
/// If it cannot be read, or is malformed.
pub fn check_list(root: &Path) -> anyhow::Result<Vec<String>> {
    Ok(List::read(&root.join(LIST))?.growth())
}

/// A measurement.
#[derive(Debug, Default)]
struct Found {
    /// For each folder, or file of the crate's root: lines reached, and all lines.
    folders: BTreeMap<String, (u64, u64)>,
    /// Functions with no line reached.
    unreached: BTreeSet<String>,
}

impl Found {
    fn add(&mut self, file: &str, lines: &BTreeMap<usize, bool>, functions: &[Function]) {
        let folder = file.split_once('/').map_or(file, |(folder, _)| folder);
        let (reached, all) = self.folders.entry(folder.to_owned()).or_default();
        *reached += lines.values().filter(|reached| **reached).count() as u64;
        *all += lines.len() as u64;
        for function in functions {
            let mut within = lines.range(function.lines.clone()).peekable();
            if within.peek().is_some() && within.all(|(_, reached)| !reached) {
                self.unreached.insert(format!("{file} {}", function.name));
            }
        }
    }

    fn total(&self) -> (u64, u64) {
        let each = self.folders.values();
        each.fold((0, 0), |(a, b), (reached, all)| (a + reached, b + all))
    }

    fn render(&self) -> String {
        let mut text = String::new();
        let rows = self
            .folders
            .iter()
            .map(|(name, lines)| (name.as_str(), *lines));
        for (name, (reached, all)) in rows.chain([("in all", self.total())]) {
            let share = share(reached, all);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{name:<16} {reached:>6} of {all:>6} lines  {share:>6}"
            );
        }
        text
    }
}

fn share(part: u64, of: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / of.max(1) as f64)
}

/// Checks these traces (LCOV) against the list. It complains if they reach less than the list says.
///
/// # Errors
/// If a trace or a source cannot be read, if the list is malformed, or if it cannot be written.
pub fn run(
    root: &Path,
    traces: &[PathBuf],
    shrinks: bool,
) -> anyhow::Result<(String, Vec<String>)> {
    let folder = root.join(MEASURED);
    let mut lines = Lines::default();
    for trace in traces {
        let text = std::fs::read_to_string(trace).with_context(|| trace.display().to_string())?;
        lines.add(&text, &folder)?;
    }
    let mut found = Found::default();
    for (file, lines) in lines.files() {
        let source = std::fs::read_to_string(folder.join(file)).with_context(|| file.clone())?;
        found.add(file, lines, &functions::of(file, &source)?);
    }
    anyhow::ensure!(
        found.total().1 > 0,
        "there is nothing of {MEASURED} in these traces"
    );
    let path = root.join(LIST);
    let mut list = List::read(&path)?;
    let complaints = list.compare(&found);
    let gone = list
        .names()
        .iter()
        .filter(|name| !found.unreached.contains(**name))
        .count();
    let mut text = found.render();
    if shrinks {
        list.shrink_to(&found);
        std::fs::write(&path, format!("{HEAD}\n{}", toml::to_string_pretty(&list)?))?;
    } else if gone > 0 {
        let _ = writeln!(
            text,
            "{gone} of the list were reached or are gone: SHRINK=1 takes them out"
        );
    }
    Ok((text, complaints))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
struct Box;
impl Box {
    fn open(&self) -> u8 {
        1
    }
}
fn shut() -> u8 {
    2
}
";

    fn found(trace: &str) -> Found {
        let mut lines = Lines::default();
        lines.add(trace, Path::new("/src")).unwrap();
        let mut found = Found::default();
        for (file, lines) in lines.files() {
            found.add(file, lines, &functions::of(file, SOURCE).unwrap());
        }
        found
    }

    fn list(lines: u64, names: &[&str]) -> List {
        let functions = names.iter().map(|name| (*name).to_owned()).collect();
        let why = "so".to_owned();
        let group = vec![Group { why, functions }];
        let most = names.len();
        List { lines, most, group }
    }

    #[test]
    fn only_what_no_trace_reaches_is_a_complaint() {
        let once = "SF:/src/a/b.rs\nDA:3,0\nDA:4,0\nDA:7,5\nDA:8,5\nend_of_record\n\
                    SF:/elsewhere/c.rs\nDA:1,0\n";
        let again = "SF:/src/a/b.rs\nDA:3,1\nDA:4,0\nDA:7,0\nDA:8,0\nend_of_record\n";
        let told = list(500, &[]).compare(&found(once));
        assert!(
            told.len() == 1 && told[0].contains("a/b.rs Box::open"),
            "{told:?}"
        );
        assert!(
            list(500, &["a/b.rs Box::open"])
                .compare(&found(once))
                .is_empty()
        );
        let both = found(&format!("{once}{again}"));
        assert_eq!(both.folders["a"], (3, 4));
        assert!(list(750, &[]).compare(&both).is_empty());
        assert_eq!(list(751, &[]).compare(&both).len(), 1, "too few lines");
    }

    #[test]
    fn the_list_shrinks_and_never_grows() {
        let trace = "SF:/src/a/b.rs\nDA:3,1\nDA:4,0\nDA:7,0\nDA:8,0\nend_of_record\n";
        let mut list = list(0, &["a/b.rs Box::open", "a/b.rs gone"]);
        list.shrink_to(&found(trace));
        assert!(list.group.is_empty() && list.most == 0, "{list:?}");
    }

    #[test]
    fn a_list_that_has_grown_is_a_complaint() {
        let mut list = list(0, &["a/b.rs Box::open"]);
        assert!(list.growth().is_empty());
        for most in [0, 2] {
            list.most = most;
            assert_eq!(list.growth().len(), 1, "{most}");
        }
    }
}
