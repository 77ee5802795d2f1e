//! Checks docs/internals/words.md: each word's type is in the source, and no word has two rows.
//!
//! A row of the table begins with the word in bold. The third column has the file below `crates`, and what is defined there.

use crate::names::{defines, mentions};
use std::path::Path;

const PAGE: &str = "docs/internals/words.md";

/// Complains about words that the source does not have, and about words out of order.
///
/// # Errors
/// If the page cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE))?;
    let read = |file: &str| std::fs::read_to_string(root.join("crates").join(file)).ok();
    Ok(complaints(&page, &read))
}

fn complaints(page: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut last = String::new();
    for (index, line) in page.lines().enumerate() {
        let Some((word, place)) = row(line) else {
            continue;
        };
        let mut tell = |what: String| complaints.push(format!("{PAGE}:{}: {what}", index + 1));
        let key = word.to_lowercase();
        if key <= last {
            tell(format!("{word} comes before {last}, or is there twice"));
        }
        last = key;
        let mut source = None;
        for name in place.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                source = read(name);
                if source.is_none() {
                    tell(format!("there is no file {name}"));
                }
            } else if let Some(source) = &source
                && !has(source, name)
            {
                tell(format!("{name} is not defined there"));
            }
        }
        if source.is_none() {
            tell(format!("{word} needs a file"));
        }
    }
    if last.is_empty() {
        complaints.push(format!("{PAGE}: no word is there"));
    }
    complaints
}

/// A row's word, and its third column.
fn row(line: &str) -> Option<(&str, &str)> {
    let (word, cells) = line.strip_prefix("| **")?.split_once("** |")?;
    Some((word, cells.split(" | ").nth(1)?))
}

/// True if a name is defined in a source; of `A::B`, that is A, and B is used.
fn has(source: &str, name: &str) -> bool {
    match name.split_once("::") {
        Some((kind, one)) => defines(source, kind) && mentions(source, one),
        None => defines(source, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &str) -> Vec<String> {
        complaints(rows, &|file| {
            (file == "a/src/gate.rs").then(|| "struct Gate;\nenum Op { Read }\n".to_owned())
        })
    }

    #[test]
    fn what_the_source_has_is_right() {
        let rows = "| **gate** | A. | `a/src/gate.rs` `Gate`, `Op::Read` | door |\n\
                    | **Row** | B. | `a/src/gate.rs` | |\n";
        assert_eq!(found(rows), [""; 0]);
    }

    #[test]
    fn each_rule_can_fail() {
        for (rows, what) in [
            ("", "no word"),
            ("| **gate** | A. | | |", "needs a file"),
            (
                "| **gate** | A. | `a/src/door.rs` | |",
                "no file a/src/door.rs",
            ),
            (
                "| **gate** | A. | `a/src/gate.rs` `Door` | |",
                "Door is not",
            ),
            (
                "| **gate** | A. | `a/src/gate.rs` `Op::Write` | |",
                "Op::Write is not",
            ),
            (
                "| **row** | A. | `a/src/gate.rs` | |\n| **gate** | B. | `a/src/gate.rs` | |",
                "before row",
            ),
        ] {
            let found = found(rows);
            assert!(
                found.iter().any(|one| one.contains(what)),
                "{what}: {found:?}"
            );
        }
    }
}
