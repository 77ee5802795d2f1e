//! Checks the shape of the source: how long and wide it is, how many fields structs have, which modules import which, and which files of
//! a type call which others.
//!
//! Rules written only as prose decay, so each rule here is a test. `shape.toml` beside this crate lists what breaks a rule today,
//! and that list may only shrink. More than it says is a complaint; so is less, until the list is updated. `cargo run -p xtask --
//! shape` prints the measurements; `shape --shrink` removes what is no longer true and adds nothing.

mod graph;
mod ledger;
mod measure;

use crate::text::sources;
use ledger::Ledger;
use measure::Measured;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Lines in a function: a longer one does not fit on a screen, and usually does two things.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Columns in a line of code: two files fit side by side.
pub const COLUMNS_MAX: usize = 110;
/// Fields of a struct in the crates below: with more, everything in it can touch everything else.
pub const FIELDS_MAX: usize = 20;
/// Crates whose structs are counted.
const FIELDS_IN: &[&str] = &["core", "device", "watch"];
/// Crates whose modules may import each other only as the table allows.
const MODULES_IN: &[&str] = &["core", "device", "lab", "watch"];

/// The path of the list, from the root.
const LEDGER: &str = "xtask/shape.toml";

/// Complains about the shape of the source, compared with the list.
///
/// # Errors
/// If a file cannot be read or parsed, or the list is malformed.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let listed = Ledger::read(&root.join(LEDGER))?;
    Ok(listed.compare(&measure(root)?))
}

/// Prints the measurements in the format of the list.
///
/// # Errors
/// As [`check`].
pub fn print(root: &Path) -> anyhow::Result<String> {
    measure(root)?.render()
}

/// Removes from the list what is no longer true.
///
/// # Errors
/// As [`check`], and if the list cannot be written.
pub fn shrink(root: &Path) -> anyhow::Result<()> {
    let path = root.join(LEDGER);
    let mut listed = Ledger::read(&path)?;
    listed.shrink_to(&measure(root)?);
    Ok(std::fs::write(&path, listed.render()?)?)
}

fn measure(root: &Path) -> anyhow::Result<Ledger> {
    let mut ledger = Ledger::default();
    let mut crates: BTreeMap<String, graph::Files> = BTreeMap::new();
    let mut methods: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for path in sources(root, "rs")? {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(root.join(&path))?;
        let measured = Measured::new(&name, &text)?;
        ledger.add_sizes(&name, &measured);
        let Some((folder, module)) = module_of(&name) else {
            continue;
        };
        if FIELDS_IN.contains(&folder.as_str()) {
            ledger.add_fields(&name, &measured);
        }
        if measured.globs_parent {
            ledger.parent_globs.insert(name.clone());
        }
        let of_crate = methods.entry(folder.clone()).or_default();
        of_crate.push((name.clone(), measured.methods));
        crates
            .entry(folder)
            .or_default()
            .add(name, module, measured.paths);
    }
    for files in methods.values() {
        let circles = graph::method_circles(files);
        ledger.method_circles.extend(circles);
    }
    for (folder, files) in &crates {
        ledger.circles.extend(files.in_circles());
        if MODULES_IN.contains(&folder.as_str()) {
            let imports: BTreeMap<String, BTreeSet<String>> = files.between_modules();
            ledger.modules.insert(folder.clone(), imports);
        }
    }
    Ok(ledger)
}

/// The folder of the crate and the module of a source file; `None` for tests, benches and examples.
fn module_of(path: &str) -> Option<(String, Vec<String>)> {
    let (folder, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut module: Vec<String> = file
        .strip_suffix(".rs")?
        .split('/')
        .map(str::to_owned)
        .collect();
    match module.last()?.as_str() {
        "tests" | "main" => return None,
        "mod" | "lib" => {
            module.pop();
        }
        _ => {}
    }
    Some((folder.to_owned(), module))
}

#[cfg(test)]
mod tests {
    use super::module_of;

    #[test]
    fn a_file_is_a_module() {
        let of = |path| module_of(path).map(|(folder, module)| (folder, module.join("::")));
        let is = |folder: &str, module: &str| Some((folder.to_owned(), module.to_owned()));
        assert_eq!(of("crates/core/src/lib.rs"), is("core", ""));
        assert_eq!(of("crates/core/src/a/mod.rs"), is("core", "a"));
        assert_eq!(of("crates/core/src/a/b.rs"), is("core", "a::b"));
        assert_eq!(of("crates/core/src/a/tests.rs"), None);
        assert_eq!(of("crates/core/tests/crash.rs"), None);
        assert_eq!(of("xtask/src/lib.rs"), None);
    }
}
