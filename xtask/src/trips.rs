//! Checks the trips in docs/ARCHITECTURE.md: diagrams of the way of a request through the source.
//!
//! A trip is a fenced block of the kind `trip`. Each line is a step: a crate, a file below its `src`, the functions that the request goes
//! through there, and a remark. A blank crate is the crate of the line above. Between two crates a border is drawn, a line of dashes.
//! A step that begins with `?` is off the way: that file is asked, and answers at once. If it is of another crate, that is named before
//! it.
//!
//! Each name has to be in the source. A step's function has to be used in a file that the trip has reached by then, or no request could
//! get there. The line below the block says how long the way is, and the diagram has to agree.

use crate::names::{defines_function, mentions};
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = "docs/ARCHITECTURE.md";

/// The headings below which there must be a trip.
const TRIPS: [&str; 4] = [
    "## The trip of a write",
    "## The trip of a FLUSH",
    "## The trip of a home write",
    "## The trip of a recovery",
];

/// Complains about trips that the source does not make.
///
/// # Errors
/// If the page cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE))?;
    let trips = trips(&page);
    let is_missing = |heading: &&&str| trips.iter().all(|trip| trip.heading != **heading);
    let mut complaints: Vec<_> = TRIPS
        .iter()
        .filter(is_missing)
        .map(|heading| format!("{PAGE}: no trip is drawn below {heading:?}"))
        .collect();
    let read = |(name, file): Place<'_>| {
        let path = root.join("crates").join(name).join("src").join(file);
        std::fs::read_to_string(path).ok()
    };
    complaints.extend(trips.iter().flat_map(|trip| trip.complaints(&read)));
    Ok(complaints)
}

/// A crate, and a file below its `src`.
type Place<'a> = (&'a str, &'a str);

/// A diagram.
#[derive(Default)]
struct Trip<'a> {
    heading: &'a str,
    /// The lines, with their numbers in the page.
    lines: Vec<(usize, &'a str)>,
    /// The first line of text below it.
    below: &'a str,
}

/// A line of a diagram.
#[derive(Debug, PartialEq, Eq)]
struct Step<'a> {
    /// The crate, if the line names one.
    crate_name: Option<&'a str>,
    file: &'a str,
    functions: Vec<&'a str>,
    /// Off the way.
    is_asked: bool,
}

/// All diagrams of a page.
fn trips(page: &str) -> Vec<Trip<'_>> {
    let mut trips = Vec::new();
    let (mut heading, mut trip) = ("", None);
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        match (line, &mut trip) {
            ("```trip", _) => {
                trip = Some(Trip {
                    heading,
                    ..Trip::default()
                });
            }
            ("```", Some(_)) => {
                let mut text = lines.by_ref().map(|(_, line)| line);
                if let Some(mut trip) = trip.take() {
                    trip.below = text.find(|line| !line.is_empty()).unwrap_or_default();
                    trips.push(trip);
                }
            }
            (line, Some(trip)) => trip.lines.push((index + 1, line)),
            (line, None) if line.starts_with("## ") => heading = line,
            _ => {}
        }
    }
    trips
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let asked = line.trim_start().strip_prefix("? ");
        let fields = asked.unwrap_or(line).split("  ").map(str::trim);
        let mut fields = fields.filter(|field| !field.is_empty());
        let first = fields.next()?;
        let (crate_name, file) = match asked {
            Some(_) => match first.split_once(' ') {
                Some((name, file)) => (Some(name), file),
                None => (None, first),
            },
            None if line.starts_with(' ') => (None, first),
            None => (Some(first), fields.next()?),
        };
        Some(Self {
            crate_name,
            file,
            functions: fields.next()?.split(", ").collect(),
            is_asked: asked.is_some(),
        })
    }
}

impl<'a> Trip<'a> {
    /// What is wrong with it; `read` reads a file of the source.
    fn complaints(&self, read: &dyn Fn(Place<'_>) -> Option<String>) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut tell =
            |number: usize, what: String| complaints.push(format!("{PAGE}:{number}: {what}"));
        let (mut on_the_way, mut asked) = (BTreeSet::new(), BTreeSet::new());
        let (mut here, mut borders, mut is_border) = (None, 0, false);
        // What the trip has reached.
        let mut reached: Vec<String> = Vec::new();
        for &(number, line) in &self.lines {
            if line.starts_with("--") {
                is_border = true;
                continue;
            }
            let Some(step) = Step::parse(line) else {
                tell(number, "a step is a file and its functions".to_owned());
                continue;
            };
            let before = here;
            if !step.is_asked {
                here = step.crate_name.or(here);
                let is_other = before.is_some() && before != here;
                if is_border != is_other {
                    tell(
                        number,
                        "a border is drawn between two crates, and nowhere else".to_owned(),
                    );
                }
                borders += usize::from(is_other);
                is_border = false;
            }
            let name = step.crate_name.or(here).unwrap_or_default();
            let place = (name, step.file);
            match step.is_asked {
                true => asked.insert(place),
                false => on_the_way.insert(place),
            };
            let Some(source) = read(place) else {
                tell(number, format!("{name} has no file {}", step.file));
                continue;
            };
            let is_first = reached.is_empty();
            reached.push(source);
            for function in unknown(&step, &reached) {
                tell(number, format!("{} has no function {function}", step.file));
            }
            for function in step.functions.iter().skip(usize::from(is_first)) {
                if !reached.iter().any(|source| mentions(source, function)) {
                    tell(number, format!("nothing before it uses {function}"));
                }
            }
        }
        let more = asked.difference(&on_the_way).count();
        let said = said(on_the_way.len(), borders, more);
        if !self.below.starts_with(&said) {
            let last = self.lines.last().map_or(0, |(number, _)| *number);
            tell(
                last,
                format!(
                    "below this trip has to be {said:?}, and not {:?}",
                    self.below
                ),
            );
        }
        complaints
    }
}

/// The functions of a step that its file, the last one reached, does not have.
fn unknown<'a>(step: &'a Step<'_>, reached: &'a [String]) -> impl Iterator<Item = &'a str> {
    let source = reached.last().map_or("", String::as_str);
    let functions = step.functions.iter().copied();
    functions.filter(|function| !defines_function(source, function))
}

/// How the length of a way is said.
fn said(files: usize, borders: usize, more: usize) -> String {
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    };
    let way = format!(
        "**{}, {}",
        count(files, "file"),
        count(borders, "crate border")
    );
    match more {
        0 => format!("{way}.**"),
        1 => format!("{way}; 1 more is asked.**"),
        _ => format!("{way}; {more} more are asked.**"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_OF_ONE: &str = "\
## The trip of a write
```trip
near    in.rs        receive, pass    a remark of some words
      ? far lib.rs   may
        out.rs       answer
-----------------------------
far     lib.rs       write
```

**3 files, 1 crate border.** More text.
";

    fn source((name, file): Place<'_>) -> Option<String> {
        let source = match (name, file) {
            ("near", "in.rs") => "fn receive() { pass() }\nfn pass() { far::may(); answer() }",
            ("near", "out.rs") => "fn answer<T>() { far::write() }\nfn lost() {}",
            ("far", "lib.rs") => "pub fn may() {}\npub fn write() {}",
            _ => return None,
        };
        Some(source.to_owned())
    }

    fn found(page: &str) -> Vec<String> {
        let trips = trips(page);
        assert_eq!(trips.len(), 1, "{page}");
        trips[0].complaints(&source)
    }

    #[test]
    fn a_trip_that_the_source_makes_is_right() {
        assert_eq!(trips(PAGE_OF_ONE)[0].heading, TRIPS[0]);
        assert_eq!(found(PAGE_OF_ONE), [""; 0]);
    }

    #[test]
    fn each_rule_can_fail() {
        for (from, to, what) in [
            (
                "receive, pass",
                "receive, past",
                "in.rs has no function past",
            ),
            ("out.rs", "off.rs", "near has no file off.rs"),
            ("answer", "lost", "nothing before it uses lost"),
            (
                "3 files",
                "2 files",
                "\"**3 files, 1 crate border.**\", and not",
            ),
            (
                "1 crate",
                "2 crate",
                "\"**3 files, 1 crate border.**\", and not",
            ),
            (
                "? far lib.rs   may",
                "? in.rs   pass, some",
                "has no function some",
            ),
            (
                "-----------------------------\n",
                "",
                ":6: a border is drawn",
            ),
            ("far     lib.rs", "near    in.rs", ":7: a border is drawn"),
            ("out.rs       answer", "answer", "a step is a file"),
        ] {
            let found = found(&PAGE_OF_ONE.replace(from, to));
            assert!(
                found.iter().any(|one| one.contains(what)),
                "{what}: {found:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_only_asked_is_counted_apart() {
        let page = PAGE_OF_ONE.replace(
            "-----------------------------\nfar     lib.rs       write\n",
            "",
        );
        let said = "\"**2 files, 0 crate borders; 1 more is asked.**\"";
        assert!(found(&page)[0].contains(said));
    }
}
