//! The files that a trace consists of.

use crate::trace::Format;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most processors whose files are looked for.
const PROCESSORS_MAX: u32 = 1023;

/// The files of a trace of this format, in the order of the processors.
pub fn of_format(path: &Path, format: Format) -> Vec<PathBuf> {
    match format {
        Format::Blktrace => of_all_processors(path),
        _ => vec![path.into()],
    }
}

/// blktrace writes a file per processor: `NAME.blktrace.0` and so on. Together they are one trace.
#[must_use]
pub fn of_all_processors(path: &Path) -> Vec<PathBuf> {
    let name = path.to_string_lossy();
    let of_one = name
        .rsplit_once('.')
        .filter(|(before, number)| before.ends_with(".blktrace") && number.parse::<u16>().is_ok());
    let Some((before, _)) = of_one else {
        return vec![path.into()];
    };
    let each = (0..=PROCESSORS_MAX).map(|number| PathBuf::from(format!("{before}.{number}")));
    let there: Vec<PathBuf> = each.filter(|path| path.is_file()).collect();
    match there.iter().any(|other| other.as_path() == path) {
        true => there,
        false => vec![path.into()],
    }
}

/// What is known of files without reading them. Another stamp means that they were written since, or that there are other files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp(Vec<Option<(u64, Option<SystemTime>)>>);

impl Stamp {
    /// Of these files as they are now.
    pub fn of(files: &[PathBuf]) -> Self {
        let of_one = |path: &PathBuf| {
            let seen = std::fs::metadata(path).ok()?;
            Some((seen.len(), seen.modified().ok()))
        };
        Self(files.iter().map(of_one).collect())
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.0.iter().flatten().map(|(length, _)| length).sum()
    }
}
