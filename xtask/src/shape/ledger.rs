//! The list of what breaks a rule, and its comparison with the measurements.

use super::measure::Measured;
use super::{COLUMNS_MAX, FIELDS_MAX, FUNCTION_LINES_MAX};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The text above the list.
const HEAD: &str = "\
# What breaks a rule of xtask/src/shape.rs today. The list may only shrink: mend one, then run
# `cargo run -p xtask -- shape --shrink`. The table `modules` says which module may import which;
# a new row is a decision about layers, so it is made by hand.
";

type Counts = BTreeMap<String, usize>;

/// The list.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ledger {
    /// Files that import everything from their parent.
    pub parent_globs: BTreeSet<String>,
    /// Files that import each other in a cycle.
    pub circles: BTreeSet<String>,
    /// Files whose methods of one type call each other in a cycle, and the type.
    pub method_circles: BTreeSet<String>,
    /// Functions that are too long, with their lines.
    long_functions: Counts,
    /// Files with lines of code that are too wide, and how many.
    wide_lines: Counts,
    /// Structs with too many fields, and how many fields.
    large_structs: Counts,
    /// For each crate, the modules that each of its modules imports.
    pub modules: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Ledger {
    /// Reads the list.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// The list in the format of its file.
    pub fn render(&self) -> anyhow::Result<String> {
        Ok(format!("{HEAD}\n{}", toml::to_string_pretty(self)?))
    }

    /// Adds a file's lengths and widths.
    pub fn add_sizes(&mut self, name: &str, measured: &Measured) {
        for (function, lines) in &measured.functions {
            if *lines > FUNCTION_LINES_MAX {
                let longest = self
                    .long_functions
                    .entry(format!("{name} {function}"))
                    .or_default();
                *longest = (*longest).max(*lines);
            }
        }
        if measured.wide_lines > 0 {
            self.wide_lines.insert(name.to_owned(), measured.wide_lines);
        }
    }

    /// Adds a file's structs.
    pub fn add_fields(&mut self, name: &str, measured: &Measured) {
        for (of, fields) in &measured.fields {
            if *fields > FIELDS_MAX {
                self.large_structs.insert(format!("{name} {of}"), *fields);
            }
        }
    }

    /// Complains where the measurements differ from the list.
    pub fn compare(&self, now: &Self) -> Vec<String> {
        let mut complaints = Vec::new();
        let long = format!("lines in a function; {FUNCTION_LINES_MAX} fit a screen: split it");
        counts(
            &self.long_functions,
            &now.long_functions,
            &long,
            &mut complaints,
        );
        let wide = format!("lines of code wider than {COLUMNS_MAX} columns: break them");
        counts(&self.wide_lines, &now.wide_lines, &wide, &mut complaints);
        let large = format!("fields; {FIELDS_MAX} at most: find the type that is hidden in it");
        counts(
            &self.large_structs,
            &now.large_structs,
            &large,
            &mut complaints,
        );
        let globs = "`use super::*` takes the parent's private parts: name what is needed";
        names(
            &self.parent_globs,
            &now.parent_globs,
            globs,
            &mut complaints,
        );
        let circle = "is in a circle of files that import each other: who is above whom?";
        names(&self.circles, &now.circles, circle, &mut complaints);
        let calls = "is in a circle of files whose methods call each other: who is above whom?";
        names(
            &self.method_circles,
            &now.method_circles,
            calls,
            &mut complaints,
        );
        let row = "is not in the table of modules: does the design let it? Then add it by hand";
        names(&self.rows(), &now.rows(), row, &mut complaints);
        complaints
    }

    /// Removes what is no longer true.
    pub fn shrink_to(&mut self, now: &Self) {
        shrink(&mut self.long_functions, &now.long_functions);
        shrink(&mut self.wide_lines, &now.wide_lines);
        shrink(&mut self.large_structs, &now.large_structs);
        self.parent_globs
            .retain(|name| now.parent_globs.contains(name));
        self.circles.retain(|name| now.circles.contains(name));
        self.method_circles
            .retain(|name| now.method_circles.contains(name));
        for (of, imports) in &mut self.modules {
            for (module, needs) in imports.iter_mut() {
                needs.retain(|need| now.rows().contains(&row(of, module, need)));
            }
            imports.retain(|_, needs| !needs.is_empty());
        }
    }

    fn rows(&self) -> BTreeSet<String> {
        let imports = self.modules.iter().flat_map(|(of, imports)| {
            imports.iter().flat_map(move |(module, needs)| {
                needs.iter().map(move |need| row(of, module, need))
            })
        });
        imports.collect()
    }
}

fn row(of: &str, module: &str, need: &str) -> String {
    format!("{of}: {module} imports {need}")
}

fn shrink(listed: &mut Counts, now: &Counts) {
    listed.retain(|name, count| {
        *count = (*count).min(now.get(name).copied().unwrap_or(0));
        *count > 0
    });
}

fn counts(listed: &Counts, now: &Counts, rule: &str, complaints: &mut Vec<String>) {
    for name in listed.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
        let of = |counts: &Counts| counts.get(name).copied().unwrap_or(0);
        let (was, is) = (of(listed), of(now));
        if is > was {
            complaints.push(format!("{name}: {is} {rule}"));
        } else if is < was {
            complaints.push(shrunk(name));
        }
    }
}

fn names(
    listed: &BTreeSet<String>,
    now: &BTreeSet<String>,
    rule: &str,
    complaints: &mut Vec<String>,
) {
    complaints.extend(now.difference(listed).map(|name| format!("{name}: {rule}")));
    complaints.extend(listed.difference(now).map(|name| shrunk(name)));
}

fn shrunk(name: &str) -> String {
    format!("{name}: better than xtask/shape.toml says: run `cargo run -p xtask -- shape --shrink`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lines: usize, needs: &[&str]) -> Ledger {
        let needs = needs.iter().map(|need| (*need).to_owned()).collect();
        Ledger {
            parent_globs: ["a.rs".to_owned()].into(),
            long_functions: [("a.rs f".to_owned(), lines)].into(),
            modules: [("core".to_owned(), [("map".to_owned(), needs)].into())].into(),
            ..Ledger::default()
        }
    }

    #[test]
    fn the_list_may_only_shrink() {
        let listed = ledger(90, &["addr"]);
        assert!(listed.compare(&ledger(90, &["addr"])).is_empty());
        assert_eq!(listed.compare(&ledger(91, &["addr"])).len(), 1, "longer");
        assert_eq!(
            listed.compare(&ledger(90, &["addr", "log"])).len(),
            1,
            "a new row"
        );
        assert_eq!(
            listed.compare(&ledger(80, &["addr"])).len(),
            1,
            "the list is behind"
        );
        assert_eq!(listed.compare(&Ledger::default()).len(), 3);
        let mut shrunk = ledger(90, &["addr"]);
        shrunk.shrink_to(&ledger(95, &["addr", "log"]));
        assert_eq!(shrunk, ledger(90, &["addr"]), "it never grows");
        shrunk.shrink_to(&Ledger::default());
        assert!(shrunk.compare(&Ledger::default()).is_empty());
    }

    #[test]
    fn the_list_is_parsed_as_it_is_written() {
        let listed = ledger(90, &["addr"]);
        let read: Ledger = toml::from_str(&listed.render().unwrap()).unwrap();
        assert_eq!(read, listed);
    }
}
