//! `DiskSim`'s ASCII format and MQSim's: time, disk, sector, sectors, kind. They look alike and differ in the time's
//! unit (milliseconds with a fraction; nanoseconds). In both, bit 0, or 1, is a read.

use super::error::Problem;
use super::fields::{decimal, number, sectors, ticks, wrong};
use super::traced::{Op, Traced};

/// Parses one line of `DiskSim`.
pub fn parse(line: &str) -> Result<Traced, Problem> {
    let [at, disk, sector, count, flags] = five("disksim", line)?;
    let flags = number::<u32>("flags", flags)?;
    Ok(Traced {
        at: decimal("time", at, 1_000_000)?,
        disk: number("disk", disk)?,
        offset: sectors("sector", sector)?,
        bytes: sectors("size", count)?,
        ..Traced::of(op(flags & 1 == 1))
    })
}

/// Parses one line of MQSim.
pub fn parse_mqsim(line: &str) -> Result<Traced, Problem> {
    let [at, disk, sector, count, kind] = five("mqsim", line)?;
    let read = match kind {
        "0" => false,
        "1" => true,
        other => return Err(wrong("type", other, "0 (write) or 1 (read) is needed")),
    };
    Ok(Traced {
        at: ticks("time", at, 1)?,
        disk: number("disk", disk)?,
        offset: sectors("sector", sector)?,
        bytes: sectors("size", count)?,
        ..Traced::of(op(read))
    })
}

fn op(read: bool) -> Op {
    match read {
        true => Op::Read,
        false => Op::Write { fua: false },
    }
}

fn five<'a>(format: &'static str, line: &'a str) -> Result<[&'a str; 5], Problem> {
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    columns.as_slice().try_into().map_err(|_| Problem::Columns {
        format,
        found: columns.len(),
        need: "5",
    })
}
