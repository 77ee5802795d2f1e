//! CSV with any columns: a map gives the meaning and the unit of each column.

use super::error::Problem;
use super::fields::{SECTOR_BYTES, decimal, name_number, number, wrong};
use super::traced::{Op, Traced};
use std::str::FromStr;
use vellum_core::addr::{BLOCK_BYTES, Nanos};

/// The most columns that a map may name.
const COLUMNS_MAX: usize = 256;
/// The most bytes of a word for an operation.
const WORD_BYTES_MAX: usize = 32;

/// Why a map is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?}: {need}")]
pub struct ColumnsError {
    part: String,
    need: &'static str,
}

/// The meaning of each column: `time=0:us,op=2,offset=3:sector,length=4,disk=1,read=R,write=W,separator=semicolon`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    separator: char,
    /// The column, and the nanoseconds of its unit.
    time: Option<(usize, u64)>,
    op: usize,
    /// The column, and the bytes of its unit.
    offset: (usize, u64),
    length: (usize, u64),
    disk: Option<usize>,
    /// The names of the operations: read, write, discard, flush.
    words: [Option<String>; 4],
}

/// The syntax of `--columns`, for a help text.
pub const COLUMNS: &str = "time=N[:s|ms|us|ns|100ns], op=N, offset=N[:byte|sector|block], \
                           length=N[:byte|sector|block], disk=N, read=WORD, write=WORD, discard=WORD, \
                           flush=WORD, separator=comma|semicolon|tab|space; columns are counted from 0; op, \
                           offset and length are needed";

impl Default for Columns {
    /// Time in seconds, operation, offset and length in bytes.
    fn default() -> Self {
        Self {
            separator: ',',
            time: Some((0, 1_000_000_000)),
            op: 1,
            offset: (2, 1),
            length: (3, 1),
            disk: None,
            words: [const { None }; 4],
        }
    }
}

impl FromStr for Columns {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<Self, ColumnsError> {
        let (mut op, mut offset, mut length) = (None, None, None);
        let mut map = Self {
            time: None,
            ..Self::default()
        };
        for part in text.split(',') {
            let part = Part::split(part)?;
            match part.key {
                "time" => map.time = Some((part.column()?, part.nanos()?)),
                "op" => op = Some(part.plain()?),
                "offset" => offset = Some((part.column()?, part.bytes()?)),
                "length" => length = Some((part.column()?, part.bytes()?)),
                "disk" => map.disk = Some(part.plain()?),
                "read" => map.words[0] = Some(part.word()?),
                "write" => map.words[1] = Some(part.word()?),
                "discard" => map.words[2] = Some(part.word()?),
                "flush" => map.words[3] = Some(part.word()?),
                "separator" => map.separator = part.separator()?,
                _ => {
                    let need = "known are time, op, offset, length, disk, read, write, discard, \
                                flush and separator";
                    return Err(part.wrong(need));
                }
            }
        }
        let missing = |part: &str| ColumnsError {
            part: part.to_owned(),
            need: "this column is needed",
        };
        map.op = op.ok_or_else(|| missing("op"))?;
        map.offset = offset.ok_or_else(|| missing("offset"))?;
        map.length = length.ok_or_else(|| missing("length"))?;
        Ok(map)
    }
}

/// A part of a map's text: KEY=VALUE, or KEY=COLUMN:UNIT.
struct Part<'a> {
    whole: &'a str,
    key: &'a str,
    value: &'a str,
    column: &'a str,
    unit: &'a str,
}

impl<'a> Part<'a> {
    fn split(whole: &'a str) -> Result<Self, ColumnsError> {
        let split = whole.trim().split_once('=');
        let (key, value) =
            split.ok_or_else(|| fault(whole, "KEY=VALUE is needed, like time=0:us"))?;
        let (column, unit) = value.split_once(':').unwrap_or((value, ""));
        Ok(Self {
            whole,
            key,
            value,
            column,
            unit,
        })
    }

    fn wrong(&self, need: &'static str) -> ColumnsError {
        fault(self.whole, need)
    }

    fn column(&self) -> Result<usize, ColumnsError> {
        match self.column.parse::<usize>() {
            Ok(column) if column < COLUMNS_MAX => Ok(column),
            _ => Err(self.wrong("a column's number is needed, from 0 to 255")),
        }
    }

    /// A column without a unit.
    fn plain(&self) -> Result<usize, ColumnsError> {
        match self.unit {
            "" => self.column(),
            _ => Err(self.wrong("this column has no unit")),
        }
    }

    /// The nanoseconds of its unit.
    fn nanos(&self) -> Result<u64, ColumnsError> {
        Ok(match self.unit {
            "" | "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1000,
            "100ns" => 100,
            "ns" => 1,
            _ => return Err(self.wrong("the unit is s, ms, us, ns or 100ns")),
        })
    }

    /// The bytes of its unit.
    fn bytes(&self) -> Result<u64, ColumnsError> {
        Ok(match self.unit {
            "" | "byte" => 1,
            "sector" => SECTOR_BYTES,
            "block" => BLOCK_BYTES as u64,
            _ => return Err(self.wrong("the unit is byte, sector (512 bytes) or block (4096)")),
        })
    }

    fn word(&self) -> Result<String, ColumnsError> {
        match self.value.len() {
            1..=WORD_BYTES_MAX => Ok(self.value.to_owned()),
            _ => Err(self.wrong("a word of 1 to 32 bytes is needed")),
        }
    }

    fn separator(&self) -> Result<char, ColumnsError> {
        Ok(match self.value {
            "comma" => ',',
            "semicolon" => ';',
            "tab" => '\t',
            "space" => ' ',
            _ => return Err(self.wrong("it is comma, semicolon, tab or space")),
        })
    }
}

fn fault(part: &str, need: &'static str) -> ColumnsError {
    ColumnsError {
        part: part.chars().take(40).collect(),
        need,
    }
}

impl Columns {
    /// Parses one line. The first may be a header.
    pub(super) fn parse(&self, line: &str, number_of_line: u64) -> Result<Option<Traced>, Problem> {
        let columns: Vec<&str> = match self.separator {
            ' ' => line.split_ascii_whitespace().collect(),
            separator => line
                .split(separator)
                .map(|column| column.trim().trim_matches('"'))
                .collect(),
        };
        let column = |at: usize| {
            columns.get(at).copied().ok_or(Problem::Columns {
                format: "the map",
                found: columns.len(),
                need: "more",
            })
        };
        let offset = column(self.offset.0)?;
        let digits = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
        if number_of_line == 1 && !digits(offset) {
            return Ok(None);
        }
        let op = self.operation(column(self.op)?)?;
        let at = match self.time {
            Some((at, nanos)) => decimal("time", column(at)?, nanos)?,
            None => Nanos(0),
        };
        let scaled = |field, (at, unit): (usize, u64)| {
            let text = column(at)?;
            number::<u64>(field, text)?
                .checked_mul(unit)
                .ok_or_else(|| wrong(field, text, "more bytes than can be counted"))
        };
        let (offset, bytes) = match op {
            Op::Flush => (0, 0),
            _ => (
                scaled("offset", self.offset)?,
                scaled("length", self.length)?,
            ),
        };
        Ok(Some(Traced {
            at,
            disk: self.disk.map_or(Ok(0), |at| column(at).map(name_number))?,
            offset,
            bytes,
            ..Traced::of(op)
        }))
    }

    fn operation(&self, text: &str) -> Result<Op, Problem> {
        const OPS: [Op; 4] = [Op::Read, Op::Write { fua: false }, Op::DISCARD, Op::Flush];
        let named = |word: &Option<String>| word.as_deref() == Some(text);
        if let Some(at) = self.words.iter().position(named) {
            return Ok(OPS[at]);
        }
        Ok(match text.to_ascii_lowercase().as_str() {
            "r" | "read" | "rs" => Op::Read,
            "w" | "write" | "ws" => Op::Write { fua: false },
            "wfua" | "write_fua" | "wf" => Op::Write { fua: true },
            "d" | "discard" | "trim" | "unmap" => Op::DISCARD,
            "f" | "flush" | "sync" => Op::Flush,
            _ => {
                let need = "read, write, discard or flush (or R, W, D, F) is needed; what else they are \
                            called here say read=WORD, write=WORD, discard=WORD and flush=WORD in the map";
                return Err(wrong("op", text, need));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_and_mistakes_in_them_are_named() {
        let map: Columns = "time=0:us, op=2,offset=3:sector,length=4,disk=1"
            .parse()
            .unwrap();
        assert_eq!(map.time, Some((0, 1000)));
        assert_eq!((map.offset, map.length), ((3, 512), (4, 1)));
        for (text, words) in [
            ("", "KEY=VALUE"),
            ("time=0,offset=1,length=2", "\"op\": this column"),
            ("op=0,offset=1,length=2,time=3:min", "s, ms, us"),
            ("op=0,offset=1:mile,length=2", "sector (512"),
            ("op=x,offset=1,length=2", "from 0 to 255"),
            ("op=256,offset=1,length=2", "from 0 to 255"),
            ("op=0:s,offset=1,length=2", "no unit"),
            ("size=3", "known are"),
            ("op=0,offset=1,length=2,separator=|", "semicolon"),
            ("op=0,offset=1,length=2,read=", "1 to 32"),
        ] {
            let error = text.parse::<Columns>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
