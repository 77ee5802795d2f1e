//! Finds names in the source of a Rust file, for checks of documents that name them. Tests and comments do not count.

use crate::text::without_tests;

/// True if this source has a function of this name.
pub fn defines_function(source: &str, name: &str) -> bool {
    code(source).any(|line| words(line, name).any(|(before, after)| is_function(before, after)))
}

/// True if this source defines this name, whatever it is.
pub fn defines(source: &str, name: &str) -> bool {
    const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "const "];
    code(source).any(|line| {
        // The types of addresses are made by a macro: `Lba(u64));`.
        let is_number = |before: &str, after: &str| {
            before.trim().is_empty() && after.starts_with("(u") && after.ends_with("));")
        };
        words(line, name).any(|(before, after)| {
            is_function(before, after)
                || is_number(before, after)
                || KINDS.iter().any(|kind| before.ends_with(kind))
        })
    })
}

/// True if this source uses this name somewhere: it defines something else by it, or calls it.
pub fn mentions(source: &str, name: &str) -> bool {
    code(source).any(|line| words(line, name).any(|(before, _)| !before.ends_with("fn ")))
}

fn is_function(before: &str, after: &str) -> bool {
    before.ends_with("fn ") && after.starts_with(['(', '<'])
}

/// The lines without tests and comments.
fn code(source: &str) -> impl Iterator<Item = &str> {
    without_tests(source).map(|(_, line)| line.split("//").next().unwrap_or_default())
}

/// The places of a whole word in a line: what is before it, and what is after it.
fn words<'a>(line: &'a str, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).filter_map(move |(at, name)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        (!before.ends_with(is_part) && !after.starts_with(is_part)).then_some((before, after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
number!(/// An address.
    Lba(u64));
pub struct Gate<T>(T);
impl Gate { fn pass_on<A>(&self) { self.hold() } }
// fn gone() {}
#[cfg(test)]
fn only_tested() {}
";

    #[test]
    fn functions_are_found_by_their_whole_names() {
        assert!(defines_function(SOURCE, "pass_on"));
        for name in ["pass", "on", "hold", "Gate", "gone", "only_tested"] {
            assert!(!defines_function(SOURCE, name), "{name}");
        }
    }

    #[test]
    fn types_are_found_also_those_that_a_macro_makes() {
        for name in ["Lba", "Gate", "pass_on"] {
            assert!(defines(SOURCE, name), "{name}");
        }
        for name in ["T", "u64", "hold", "gone"] {
            assert!(!defines(SOURCE, name), "{name}");
        }
    }

    #[test]
    fn a_definition_is_no_mention() {
        assert!(mentions(SOURCE, "hold") && mentions(SOURCE, "Gate"));
        assert!(!mentions(SOURCE, "pass_on") && !mentions(SOURCE, "gone"));
    }
}
