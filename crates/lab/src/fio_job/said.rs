//! The values of options: numbers, bytes and times as fio writes them.

use crate::jobs::{Amount, LENGTHS_MAX, Lengths};
use vellum_core::addr::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;
const REQUEST_MAX: u64 = 16 << 20;
/// Longer than any run: a hundred years.
const SECONDS_MAX: u64 = 3_155_760_000;

/// What is wrong with a job file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {key}: {wrong}")]
pub struct FioError {
    /// The line, from 1.
    pub line: usize,
    /// The option.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub wrong: String,
}

pub(super) fn of_file(line: usize, wrong: &str) -> FioError {
    FioError {
        line,
        key: "the file".into(),
        wrong: wrong.into(),
    }
}

/// One option, and its line.
pub(super) struct Said<'a> {
    pub line: usize,
    pub key: &'a str,
    pub value: &'a str,
}

impl Said<'_> {
    pub fn wrong(&self, wrong: impl Into<String>) -> FioError {
        FioError {
            line: self.line,
            key: self.key.chars().take(40).collect(),
            wrong: wrong.into(),
        }
    }

    pub fn number(&self, least: u64, most: u64) -> Result<u64, FioError> {
        let number = self.value.parse().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| self.wrong(format!("it is a number from {least} to {most}")))
    }

    /// Bytes, like 4k or 1g: powers of 1024, as in fio.
    pub fn bytes(&self) -> Result<u64, FioError> {
        self.bytes_of(self.value)
    }

    fn bytes_of(&self, text: &str) -> Result<u64, FioError> {
        let wrong = || {
            self.wrong(
                "it is bytes, like 4096, 4k or 10g (powers of 1024), one number and not percent",
            )
        };
        let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
        let (digits, shift) = match text.char_indices().last() {
            Some((at, unit)) if unit.is_ascii_alphabetic() => {
                let shift = "kmgt".find(unit.to_ascii_lowercase()).ok_or_else(wrong)?;
                (&text[..at], 10 * (shift as u32 + 1))
            }
            _ => (text, 0),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        number
            .checked_mul(1 << shift)
            .filter(|bytes| *bytes < 1 << 50)
            .ok_or_else(wrong)
    }

    fn blocks_of(&self, text: &str) -> Result<u64, FioError> {
        let bytes = self.bytes_of(text)?;
        match bytes % BLOCK {
            0 => Ok(bytes / BLOCK),
            _ => Err(self.wrong("it is a multiple of 4096")),
        }
    }

    /// Whole blocks, or percent of a device.
    pub fn amount(&self) -> Result<Amount, FioError> {
        let Some(percent) = self.value.strip_suffix('%') else {
            return Ok(Amount::Blocks(self.blocks_of(self.value)?));
        };
        let percent = percent.parse().ok().filter(|percent| *percent <= 100);
        let wrong = || self.wrong("it is bytes, or percent from 0% to 100%");
        percent.map(Amount::Percent).ok_or_else(wrong)
    }

    fn length(&self, text: &str) -> Result<u32, FioError> {
        let blocks = self.blocks_of(text)?;
        match (1..=REQUEST_MAX / BLOCK).contains(&blocks) {
            true => Ok(blocks as u32),
            false => Err(self.wrong("requests are of 4k to 16m")),
        }
    }

    /// Values for reads, writes and trims, separated by commas. The last one applies to all that follow; an empty one
    /// keeps the old value.
    pub fn of_each<T: Copy>(
        &self,
        all: &mut [T; 3],
        read: impl Fn(&str) -> Result<T, FioError>,
    ) -> Result<(), FioError> {
        let parts: Vec<&str> = self.value.split(',').collect();
        if parts.len() > all.len() {
            return Err(self.wrong("there are three: of reads, writes and trims"));
        }
        for (at, part) in parts
            .iter()
            .enumerate()
            .filter(|(_, part)| !part.is_empty())
        {
            let value = read(part.trim())?;
            match at + 1 == parts.len() {
                true => all[at..].fill(value),
                false => all[at] = value,
            }
        }
        Ok(())
    }

    /// A single length.
    pub fn one(&self, text: &str) -> Result<Lengths, FioError> {
        Ok(Lengths::one(self.length(text)?))
    }

    /// Lengths with their shares, like 4k/60:64k/40; those without a share divide the rest.
    pub fn split(&self, text: &str) -> Result<Lengths, FioError> {
        let wrong = || {
            self.wrong(format!(
                "it is LENGTH/PERCENT:..., up to {LENGTHS_MAX} of them and 100% together"
            ))
        };
        let mut shares: Vec<(u32, Option<u32>)> = Vec::new();
        for part in text.split(':') {
            let (length, share) = part.split_once('/').unwrap_or((part, ""));
            let share = match share {
                "" => None,
                share => Some(share.parse().ok().filter(|n| *n <= 100).ok_or_else(wrong)?),
            };
            shares.push((self.length(length)?, share));
            if shares.len() > LENGTHS_MAX {
                return Err(wrong());
            }
        }
        let said: u32 = shares.iter().filter_map(|(_, share)| *share).sum();
        let open = shares.iter().filter(|(_, share)| share.is_none()).count() as u32;
        let mut rest = 100u32.checked_sub(said).ok_or_else(wrong)?;
        let mut open_left = open;
        let full = shares.into_iter().map(|(length, share)| {
            let share = share.unwrap_or_else(|| {
                let part = rest / open_left;
                rest -= part;
                open_left -= 1;
                part
            });
            (length, share)
        });
        let full: Vec<(u32, u32)> = full.collect();
        Lengths::split(&full).ok_or_else(wrong)
    }

    /// Seconds in nanoseconds, like 30, 30s, 500ms, 5m or 1h.
    pub fn nanos(&self) -> Result<u64, FioError> {
        self.time(1_000_000_000, "seconds, like 30, 30s, 500ms, 5m or 1h")
    }

    /// Microseconds in nanoseconds.
    pub fn micros(&self) -> Result<u64, FioError> {
        self.time(1000, "microseconds, like 500, 500us, 5ms or 1s")
    }

    fn time(&self, usual: u64, told: &str) -> Result<u64, FioError> {
        const UNITS: [(&str, u64); 7] = [
            ("us", 1000),
            ("ms", 1_000_000),
            ("ns", 1),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
            ("d", 86_400_000_000_000),
        ];
        let unit = UNITS.iter().find_map(|(name, nanos)| {
            let digits = self.value.strip_suffix(name)?;
            Some((digits, *nanos))
        });
        let (digits, unit) = unit.unwrap_or((self.value, usual));
        let number: u64 = digits.parse().unwrap_or(0);
        let nanos = number.saturating_mul(unit);
        match (1..=SECONDS_MAX * 1_000_000_000).contains(&nanos) {
            true => Ok(nanos),
            false => Err(self.wrong(format!("it is {told}, from 1 on"))),
        }
    }

    /// True if a switch is on; without a value it is.
    pub fn on(&self) -> Result<bool, FioError> {
        match self.value {
            "" | "1" => Ok(true),
            "0" => Ok(false),
            _ => Err(self.wrong("it is 0 or 1")),
        }
    }
}
