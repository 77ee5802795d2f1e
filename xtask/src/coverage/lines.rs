//! Which lines were reached, from traces as `llvm-cov export --format=lcov` writes them.

use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;

/// For each file, each line with code, and whether any trace reached it.
#[derive(Debug, Default)]
pub struct Lines(BTreeMap<String, BTreeMap<usize, bool>>);

impl Lines {
    /// Adds a trace's lines for the files in this folder.
    pub fn add(&mut self, trace: &str, folder: &Path) -> anyhow::Result<()> {
        let mut file = None;
        for line in trace.lines() {
            if let Some(path) = line.strip_prefix("SF:") {
                let within = Path::new(path).strip_prefix(folder).ok();
                file = within.map(|path| path.display().to_string());
            } else if let (Some(file), Some(counted)) = (&file, line.strip_prefix("DA:")) {
                let (number, count) = counted.split_once(',').with_context(|| line.to_owned())?;
                let number = number.parse().with_context(|| line.to_owned())?;
                let lines = self.0.entry(file.clone()).or_default();
                *lines.entry(number).or_default() |= count != "0";
            }
        }
        Ok(())
    }

    /// Each file, by its path in the folder.
    pub fn files(&self) -> impl Iterator<Item = (&String, &BTreeMap<usize, bool>)> {
        self.0.iter()
    }
}
