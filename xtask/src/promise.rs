//! The tests that docs/PROMISE.md names exist.

use crate::text::sources;
use std::path::Path;

/// Complaints about tests that are promised and not there.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let promise = std::fs::read_to_string(root.join("docs/PROMISE.md"))?;
    let mut tests = String::new();
    for path in sources(root, "rs")? {
        tests += &std::fs::read_to_string(root.join(path))?;
    }
    let missing = named(&promise).filter(|name| !tests.contains(&format!("fn {name}(")));
    Ok(missing
        .map(|name| format!("docs/PROMISE.md names the test {name}, which is not there"))
        .collect())
}

/// The names of functions in the rows of the tables: in backticks, of lower case and underscores.
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
}
