//! The finished runs of a sweep, as lines of JSON: the first names the sweep, each other is a run. An incomplete last
//! line was being written when the sweep ended; its run is repeated.

use super::grid::Point;
use super::row::PointResult;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a line.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Why the journal of a sweep cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It belongs to another sweep.
    #[error("{path} is of another sweep ({found}): name another file, or remove it")]
    Other {
        /// The file.
        path: PathBuf,
        /// The sweep it belongs to.
        found: String,
    },
    /// A line is not valid.
    #[error("{path}: line {line} is no run of a sweep's: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: u64,
        /// The reason.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    sweep: String,
}

/// The journal of a sweep; see the module.
pub struct Journal {
    path: PathBuf,
    file: File,
    done: HashMap<Point, PointResult>,
}

impl Journal {
    /// Opens the journal of the sweep that `what` describes, or creates it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(path: &Path, what: &str) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io {
            path: path.into(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        let mut journal = Self {
            path: path.into(),
            file: file.try_clone().map_err(io)?,
            done: HashMap::new(),
        };
        let whole = journal.read(BufReader::new(file), what)?;
        journal.file.set_len(whole).map_err(io)?;
        journal.file.seek(SeekFrom::End(0)).map_err(io)?;
        if whole == 0 {
            let head = Head { sweep: what.into() };
            journal.line(&head)?;
        }
        Ok(journal)
    }

    /// Reads the finished runs; returns how many bytes are whole lines.
    fn read(&mut self, mut from: impl BufRead, what: &str) -> Result<u64, JournalError> {
        let mut whole = 0;
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let wrong = |why: String| JournalError::Line {
                path: self.path.clone(),
                line,
                why,
            };
            let got = (&mut from)
                .take(LINE_BYTES_MAX + 1)
                .read_until(b'\n', &mut text)
                .map_err(|source| JournalError::Io {
                    path: self.path.clone(),
                    source,
                })?;
            if got as u64 > LINE_BYTES_MAX {
                return Err(wrong("it is too long".into()));
            }
            if text.last() != Some(&b'\n') {
                break;
            }
            if line == 1 {
                let head: Head =
                    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
                if head.sweep != what {
                    return Err(JournalError::Other {
                        path: self.path.clone(),
                        found: head.sweep,
                    });
                }
            } else {
                let row: PointResult =
                    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
                self.done.insert(row.point.clone(), row);
            }
            whole += got as u64;
        }
        Ok(whole)
    }

    /// The result of a run, if it is finished.
    #[must_use]
    pub fn done(&self, point: &Point) -> Option<&PointResult> {
        self.done.get(point)
    }

    /// Adds a finished run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, row: &PointResult) -> Result<(), JournalError> {
        self.line(row)
    }

    fn line(&mut self, what: &impl Serialize) -> Result<(), JournalError> {
        let io = |source| JournalError::Io {
            path: self.path.clone(),
            source,
        };
        let mut text = serde_json::to_vec(what).map_err(|error| io(error.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u32) -> PointResult {
        PointResult {
            point: vec![("op".into(), n.to_string())],
            figures: vec![("write_amplification".into(), "1.5".into())],
            error: None,
        }
    }

    #[test]
    fn a_sweep_goes_on_where_it_was_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep");
        let mut journal = Journal::open(&path, "a").unwrap();
        journal.add(&row(1)).unwrap();
        journal.add(&row(2)).unwrap();
        drop(journal);
        // Ended in the middle of a line.
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut journal = Journal::open(&path, "a").unwrap();
        assert_eq!(journal.done(&row(1).point), Some(&row(1)));
        assert_eq!(journal.done(&row(2).point), None);
        journal.add(&row(2)).unwrap();
        drop(journal);
        assert_eq!(std::fs::read(&path).unwrap(), text);
        let other = Journal::open(&path, "b").err().unwrap();
        assert!(matches!(other, JournalError::Other { .. }), "{other}");
        std::fs::write(&path, "{\"sweep\":\"a\"}\nsomething\n").unwrap();
        let error = Journal::open(&path, "a").err().unwrap().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
