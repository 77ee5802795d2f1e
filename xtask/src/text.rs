//! Checks the text of files, whatever they are about.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The most lines in a source file: a longer one usually holds two ideas.
const LINES_MAX: usize = 600;

/// Words that show unfinished work, or that refer to one person's machine.
const BANNED: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "finish it, or open an issue"),
    (concat!("FIX", "ME"), "finish it, or open an issue"),
    (concat!("todo", "!("), "finish it"),
    (concat!("unimplement", "ed!("), "finish it"),
    (
        concat!("#[ign", "ore"),
        "a test that is not run proves nothing",
    ),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
];

/// Names banned in the core: a clock, threads, or a map with random order.
const BANNED_IN_CORE: &[&str] = &[
    "std::",
    "Instant",
    "SystemTime",
    "thread::",
    "async ",
    "RandomState",
    "f32",
    "rand::",
    "usize::to_le_bytes",
];

/// Names banned in the watch: a clock, threads, locks, or a system call. Its caller provides those.
const BANNED_IN_WATCH: &[&str] = &[
    "Instant",
    "SystemTime",
    "thread",
    "Mutex",
    "RwLock",
    "Condvar",
    "Cell<",
    "Atomic",
    "async ",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "libc",
    "rand::",
];

/// Complains about the files of the repository.
///
/// # Errors
/// If they cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in sources(root, "")? {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else {
            continue;
        };
        let name = path.display().to_string();
        complaints.extend(check_text(&name, &text));
        if name.starts_with("crates/core/src/") {
            complaints.extend(check_core(&name, &text));
        }
        if name.starts_with("crates/watch/src/") {
            complaints.extend(check_watch(&name, &text));
        }
    }
    Ok(complaints)
}

fn check_text(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_source = Path::new(name)
        .extension()
        .is_some_and(|end| end == "rs" || end == "sh");
    let lines = text.lines().count();
    if is_source && lines > LINES_MAX {
        complaints.push(format!(
            "{name}: {lines} lines, more than {LINES_MAX}: is it two ideas?"
        ));
    }
    if matches!(name, "LICENSE" | "Cargo.lock") {
        return complaints;
    }
    for (number, line) in text.lines().enumerate() {
        for (word, advice) in BANNED.iter().filter(|(word, _)| line.contains(word)) {
            complaints.push(format!("{name}:{}: {word:?}: {advice}", number + 1));
        }
        if line.ends_with([' ', '\t']) {
            complaints.push(format!(
                "{name}:{}: space at the end of the line",
                number + 1
            ));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complaints.push(format!("{name}: no newline at the end"));
    }
    complaints
}

fn check_watch(name: &str, text: &str) -> Vec<String> {
    let banned = |(number, line): (usize, &str)| {
        let code = line.split("//").next().unwrap_or_default().to_owned();
        let words = BANNED_IN_WATCH.iter();
        let found = words.filter(move |word| code.contains(**word));
        found
            .map(|word| format!("{name}:{number}: the watch must not use {word:?}"))
            .collect::<Vec<_>>()
    };
    without_tests(text).flat_map(banned).collect()
}

fn check_core(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    // Names of hash maps in this file. Their order is not deterministic, so nothing may iterate over them.
    let mut maps: Vec<&str> = Vec::new();
    for (number, line) in without_tests(text) {
        let code = line.split("//").next().unwrap_or_default();
        for word in BANNED_IN_CORE.iter().filter(|word| code.contains(**word)) {
            complaints.push(format!("{name}:{number}: the core must not use {word:?}"));
        }
        for kind in [": HashMap<", ": HashSet<"] {
            if let Some((before, _)) = code.split_once(kind) {
                let field = before
                    .trim_start()
                    .trim_start_matches("pub(super) ")
                    .trim_start_matches("let mut ");
                maps.push(
                    field
                        .trim_start_matches("pub(crate) ")
                        .trim_start_matches("pub "),
                );
            }
        }
        for map in &maps {
            for walk in [
                "iter",
                "iter_mut",
                "keys",
                "values",
                "values_mut",
                "drain",
                "retain",
                "into_iter",
            ] {
                if code.contains(&format!("self.{map}.{walk}("))
                    || code.contains(&format!("in &self.{map} "))
                {
                    complaints.push(format!(
                        "{name}:{number}: walks the hash map {map}, whose order is chance"
                    ));
                }
            }
        }
    }
    complaints
}

/// The files that git tracks or would track (paths from the root), with this ending or all.
///
/// # Errors
/// If git cannot be run.
pub fn sources(root: &Path, ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut paths: Vec<_> = names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|path| ending.is_empty() || path.extension().is_some_and(|end| end == ending))
        .filter(|path| root.join(path).is_file())
        .collect();
    paths.sort();
    Ok(paths)
}

/// The numbered lines of a Rust file up to its module of tests, which by custom is last.
pub fn without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_can_fail() {
        let long = "x\n".repeat(LINES_MAX + 1);
        assert_eq!(check_text("a.rs", &long).len(), 1);
        assert_eq!(check_text("a.md", &long).len(), 0);
        assert_eq!(check_text("a.md", "x \n").len(), 1);
        assert_eq!(check_text("a.md", "x").len(), 1);
        for (word, _) in BANNED {
            assert_eq!(check_text("a.md", &format!("{word}\n")).len(), 1, "{word}");
        }
        assert_eq!(check_core("a.rs", "use std::time::Instant;\n").len(), 2);
        let watch = "use parking_lot::Mutex;\nlet stop: &AtomicBool;\n// a Mutex\n";
        assert_eq!(check_watch("a.rs", watch).len(), 2);
        let walk = "struct A {\n    at: HashMap<u32, u32>,\n}\nfn f() {\n    self.at.iter();\n}\n";
        assert_eq!(check_core("a.rs", walk).len(), 1);
        assert_eq!(
            check_core("a.rs", "// std:: is banned\n#[cfg(test)]\nuse std::io;\n").len(),
            0
        );
    }
}
