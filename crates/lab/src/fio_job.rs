//! Job files of fio as loads: the part that describes requests to a block device. Anything not modelled is an error
//! with its line, because a load that nearly matches the file would be taken for it.

mod lay;
mod options;
mod said;

use crate::jobs::Jobs;
use crate::scenario::Synthetic;
use crate::sim::Pace;
use lay::{Load, Section};
use options::Reading;
pub use said::FioError;
use said::{Said, of_file};
use std::sync::Arc;

/// The most bytes of a job file.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// The load of a job file; see the module.
#[derive(Clone, Debug, PartialEq)]
pub struct FioFile {
    name: String,
    load: Load,
    passed_over: Vec<String>,
    digest: u32,
}

/// What has been read so far.
#[derive(Default)]
struct File {
    /// The options of `[global]` for the jobs that follow.
    global: Reading,
    jobs: Vec<Section>,
    passed_over: Vec<String>,
    /// True if options apply to all jobs that follow; none before the first section.
    is_global: Option<bool>,
}

impl File {
    fn section(&mut self, row: &str, line: usize) -> Result<(), FioError> {
        let name = row.strip_suffix(']').unwrap_or_default();
        if name.is_empty() {
            return Err(of_file(line, "a section is [global] or [NAME]"));
        }
        self.is_global = Some(name == "global");
        if name != "global" {
            self.jobs.push(Section {
                name: name.into(),
                line,
                reading: self.global.clone(),
            });
        }
        Ok(())
    }

    fn option(&mut self, row: &str, line: usize) -> Result<(), FioError> {
        if let Some(rest) = row.strip_prefix("include")
            && rest.starts_with(char::is_whitespace)
        {
            return Err(FioError {
                line,
                key: "include".into(),
                wrong: "other files are not read: put what they say in here".into(),
            });
        }
        let reading = match (self.is_global, self.jobs.last_mut()) {
            (Some(true), _) => &mut self.global,
            (Some(false), Some(job)) => &mut job.reading,
            _ => {
                return Err(of_file(
                    line,
                    "an option is in a section: [global] or [NAME]",
                ));
            }
        };
        let (key, value) = row.split_once('=').unwrap_or((row, ""));
        let (key, value) = (key.trim_end(), value.trim_start());
        let matters = reading.take(&Said { line, key, value })?;
        if !matters && !self.passed_over.iter().any(|other| other == key) {
            self.passed_over.push(key.into());
        }
        Ok(())
    }
}

impl FioFile {
    /// Reads a job file.
    ///
    /// # Errors
    /// The first thing that is wrong or not modelled.
    pub fn read(text: &str) -> Result<Self, FioError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(of_file(1, "it is at most 65536 bytes"));
        }
        let mut file = File::default();
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.trim();
            if row.is_empty() || row.starts_with(['#', ';']) {
                continue;
            }
            match row.strip_prefix('[') {
                Some(name) => file.section(name, line)?,
                None => file.option(row, line)?,
            }
        }
        let load = lay::load(&file.jobs)?;
        let name = file.jobs.first().map_or("", |job| &job.name);
        Ok(Self {
            name: name.chars().filter(|c| !c.is_control()).take(40).collect(),
            load,
            passed_over: file.passed_over,
            digest: crc32c::crc32c(text.as_bytes()),
        })
    }

    /// The load and pace of a file with one simple job.
    #[must_use]
    pub fn one(&self) -> Option<(Synthetic, Pace)> {
        match &self.load {
            Load::One(one) => Some(**one),
            Load::Jobs(_) => None,
        }
    }

    /// The jobs of any other file.
    #[must_use]
    pub fn jobs(&self) -> Option<&Arc<Jobs>> {
        match &self.load {
            Load::One(_) => None,
            Load::Jobs(jobs) => Some(jobs),
        }
    }

    /// The name of the first job.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A checksum of the text, to distinguish files.
    #[must_use]
    pub fn digest(&self) -> u32 {
        self.digest
    }

    /// Options that do not change the requests to a device.
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }
}
