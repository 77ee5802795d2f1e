//! Checks that the tests named in docs/PROMISE.md exist.

use crate::text::sources;
use std::collections::BTreeSet;
use std::path::Path;

/// Complains about promised tests that do not exist.
///
/// # Errors
/// If a file cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let promise = std::fs::read_to_string(root.join("docs/PROMISE.md"))?;
    let mut tests = BTreeSet::new();
    for path in sources(root, "rs")? {
        let source = std::fs::read_to_string(root.join(path))?;
        tests.extend(tests_of(&source).map(str::to_owned));
    }
    let missing = named(&promise).filter(|name| !tests.contains(*name));
    Ok(missing
        .map(|name| format!("docs/PROMISE.md names the test {name}, which is not there"))
        .collect())
}

/// The functions that are run as tests: with `#[test]` above them.
fn tests_of(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().map(str::trim).filter_map(move |line| {
        is_test |= line == "#[test]";
        let (before, after) = line.split_once("fn ")?;
        // A comment between the two may have these letters too.
        let is_function = before.is_empty() || before == "pub ";
        let name = after.split_once('(')?.0;
        (is_function && std::mem::take(&mut is_test)).then_some(name)
    })
}

/// The function names in the rows of the tables: in backticks, of lower-case letters and underscores.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|name| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '0'..='9'))
        })
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_found() {
        let text = "`not_here`\n| 1 | `a.rs`: `b_c`, `D` | `vellum check` |\n";
        assert_eq!(super::named(text).collect::<Vec<_>>(), ["b_c"]);
    }

    #[test]
    fn a_function_that_nothing_runs_is_no_test() {
        let source = "#[test]\n/// A fn (b).\nfn a() {}\nfn b() {}\n";
        assert_eq!(super::tests_of(source).collect::<Vec<_>>(), ["a"]);
    }
}
