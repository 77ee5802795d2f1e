//! fio's iologs, versions 2 and 3: file, action, and for reads and writes offset and length. Version 3 has a time in
//! microseconds before them; version 2 instead has waits in microseconds, one after the other.

use super::error::Problem;
use super::fields::{name_number, number, ticks, wrong};
use super::traced::{Op, Traced};
use vellum_core::addr::Nanos;

const MICROSECOND: u64 = 1000;

/// What earlier lines said.
#[derive(Default)]
pub struct State {
    version: Option<u8>,
    /// The sum of the waits so far.
    waited: u64,
}

impl State {
    /// Parses one line.
    pub fn parse(&mut self, line: &str) -> Result<Option<Traced>, Problem> {
        let Some(version) = self.version else {
            self.version = Some(version(line)?);
            return Ok(None);
        };
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = columns.len();
        let (at, rest) = match (version, columns.as_slice()) {
            (3, [at, rest @ ..]) => (ticks("time", at, MICROSECOND)?, rest),
            (_, all) => (Nanos(self.waited), all),
        };
        let (file, action, place) = match *rest {
            [file, action] => (file, action, None),
            [file, action, offset, length] => (file, action, Some((offset, length))),
            // A wait has one number.
            [file, "wait", time] => (file, "wait", Some((time, time))),
            _ => {
                return Err(Problem::Columns {
                    format: "fio",
                    found,
                    need: match version {
                        3 => "3 or 5",
                        _ => "2 to 4",
                    },
                });
            }
        };
        let op = match (action, place) {
            ("add" | "open" | "close" | "unlink", _) => return Ok(None),
            ("wait", Some((time, _))) if version == 2 => {
                self.wait(time)?;
                return Ok(None);
            }
            _ => operation(action, place.is_some())?,
        };
        let (offset, bytes) = match place {
            Some((offset, length)) if op != Op::Flush => {
                (number("offset", offset)?, number("length", length)?)
            }
            _ => (0, 0),
        };
        Ok(Some(Traced {
            at,
            disk: name_number(file),
            offset,
            bytes,
            ..Traced::of(op)
        }))
    }

    fn wait(&mut self, time: &str) -> Result<(), Problem> {
        let more = ticks("wait", time, MICROSECOND)?.0;
        self.waited = self.waited.checked_add(more).ok_or_else(|| {
            let need = "a time this far cannot be counted in nanoseconds";
            wrong("wait", time, need)
        })?;
        Ok(())
    }
}

/// The version that the first line names.
fn version(line: &str) -> Result<u8, Problem> {
    match line {
        "fio version 2 iolog" => Ok(2),
        "fio version 3 iolog" => Ok(3),
        other => {
            let need = "\"fio version 2 iolog\" or \"fio version 3 iolog\" is needed";
            Err(wrong("first line", other, need))
        }
    }
}

/// What an action asks of the disk.
fn operation(action: &str, has_place: bool) -> Result<Op, Problem> {
    Ok(match (action, has_place) {
        ("read", true) => Op::Read,
        ("write", true) => Op::Write { fua: false },
        ("trim", true) => Op::DISCARD,
        ("sync" | "datasync" | "syncfs" | "sync_file_range", _) => Op::Flush,
        (other, _) => {
            let need = "add, open, close, unlink, wait (version 2), sync, datasync, \
                        or read, write or trim with offset and length is needed";
            return Err(wrong("action", other, need));
        }
    })
}
