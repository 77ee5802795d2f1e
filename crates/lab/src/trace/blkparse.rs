//! The output of `blkparse`: device, cpu, sequence, seconds, process, action, RWBS, sector, `+`, sectors.
//!
//! A request passes several actions (queued, issued, completed). Only the first action of a trace that is one of Q, D
//! and C is read; the others are skipped, so that nothing is counted twice.

use super::error::Problem;
use super::fields::{decimal, number, sectors, wrong};
use super::traced::{Op, Traced};

/// What earlier lines decided.
#[derive(Default)]
pub struct State {
    action: Option<char>,
    summary: bool,
}

impl State {
    /// Parses one line.
    pub fn parse(&mut self, line: &str) -> Result<Option<Traced>, Problem> {
        // The totals at the end.
        self.summary |= line.starts_with("CPU") || line.starts_with("Total");
        if self.summary {
            return Ok(None);
        }
        let mut columns = line.split_ascii_whitespace();
        let mut next = || columns.next();
        let (Some(device), Some(_cpu), Some(_seq), Some(at), Some(_pid), Some(action), Some(rwbs)) =
            (next(), next(), next(), next(), next(), next(), next())
        else {
            // Messages and process notices have fewer columns.
            return match line.split(',').next().map(str::parse::<u32>) {
                Some(Ok(_)) => Ok(None),
                _ => Err(Problem::Columns {
                    format: "blkparse",
                    found: line.split_ascii_whitespace().count(),
                    need: "at least 7",
                }),
            };
        };
        let disk = device_number(device)?;
        let at = decimal("time", at, 1_000_000_000)?;
        let action = match action {
            "Q" => 'Q',
            "D" => 'D',
            "C" => 'C',
            _ => return Ok(None),
        };
        if *self.action.get_or_insert(action) != action {
            return Ok(None);
        }
        let (first, plus, count) = (next(), next(), next());
        let (offset, bytes) = match (first, plus, count) {
            (Some(first), Some("+"), Some(count)) => {
                (sectors("sector", first)?, sectors("size", count)?)
            }
            _ => (0, 0),
        };
        let Some(op) = operation(rwbs, bytes)? else {
            return Ok(None);
        };
        Ok(Some(Traced {
            at,
            disk,
            offset,
            bytes,
            ..Traced::of(op)
        }))
    }
}

fn device_number(text: &str) -> Result<u32, Problem> {
    let Some((major, minor)) = text.split_once(',') else {
        return Err(wrong("device", text, "major,minor is needed"));
    };
    let major = number::<u16>("device's major", major)?;
    Ok(u32::from(major) << 16 ^ number::<u32>("device's minor", minor)?)
}

/// Parses RWBS: the operation, with F before it for a flush first, and F after it for FUA. A write with a flush first
/// is read as one with FUA: here that makes everything before it durable as well.
fn operation(rwbs: &str, bytes: u64) -> Result<Option<Op>, Problem> {
    let (before, rest) = match rwbs.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, rwbs),
    };
    Ok(match rest.chars().next() {
        _ if bytes == 0 => before.then_some(Op::Flush),
        Some('R') => Some(Op::Read),
        Some('W') => Some(Op::Write {
            fua: before || rest.contains('F'),
        }),
        Some('D') => Some(Op::DISCARD),
        Some('N' | 'F') | None => None,
        Some(_) => return Err(wrong("RWBS", rwbs, "R, W, D, N or F is needed")),
    })
}
