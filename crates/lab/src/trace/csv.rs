//! Comma-separated traces: MSR Cambridge, `CloudPhysics`, Alibaba's and Tencent's block storage.

use super::error::Problem;
use super::fields::{name_number, number, sectors, ticks, wrong};
use super::traced::{Op, Traced};

/// Timestamp, Hostname, `DiskNumber`, Type, Offset, Size, `ResponseTime`; time in 100 ns, offset and size in bytes.
pub fn msr(line: &str) -> Result<Traced, Problem> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[at, host, disk, kind, offset, bytes, _] = columns.as_slice() else {
        return Err(Problem::Columns {
            format: "msr",
            found: columns.len(),
            need: "7",
        });
    };
    let op = if kind.eq_ignore_ascii_case("read") {
        Op::Read
    } else if kind.eq_ignore_ascii_case("write") {
        Op::Write { fua: false }
    } else {
        return Err(wrong("type", kind, "Read or Write is needed"));
    };
    // FILETIME counts from 1601; only differences matter, and 2^64 ns reach 1601 + 584 years.
    let at = ticks("timestamp", at, 1)?;
    let since_2000 = at.0.saturating_sub(125_911_584_000_000_000);
    Ok(Traced {
        at: vellum_core::addr::Nanos(since_2000.saturating_mul(100)),
        disk: name_number(host) << 8 ^ number::<u32>("disk number", disk)?,
        offset: number("offset", offset)?,
        bytes: number("size", bytes)?,
        ..Traced::of(op)
    })
}

/// version, time (seconds), op (SCSI, hexadecimal), size (bytes), lbn (sectors).
pub fn cloud_physics(line: &str, number_of_line: u64) -> Result<Option<Traced>, Problem> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[_, at, op, bytes, sector] = columns.as_slice() else {
        return Err(Problem::Columns {
            format: "cloudphysics",
            found: columns.len(),
            need: "5",
        });
    };
    if number_of_line == 1 && at == "time" {
        return Ok(None);
    }
    let code = u8::from_str_radix(op, 16)
        .map_err(|_| wrong("op", op, "a SCSI operation code in hexadecimal is needed"))?;
    let op = match code {
        0x08 | 0x28 | 0x88 | 0xa8 => Op::Read,
        0x0a | 0x2a | 0x8a | 0xaa => Op::Write { fua: false },
        0x35 | 0x91 => Op::Flush,
        _ => return Ok(None),
    };
    let flush = op == Op::Flush;
    Ok(Some(Traced {
        at: ticks("time", at, 1_000_000_000)?,
        disk: 0,
        offset: if flush { 0 } else { sectors("lbn", sector)? },
        bytes: if flush { 0 } else { number("size", bytes)? },
        ..Traced::of(op)
    }))
}

/// device, opcode (R or W), offset (bytes), length (bytes), timestamp (microseconds).
pub fn alibaba(line: &str, number_of_line: u64) -> Result<Option<Traced>, Problem> {
    let [disk, op, offset, bytes, at] = five("alibaba", line)?;
    if number_of_line == 1 && disk == "device_id" {
        return Ok(None);
    }
    let op = match op {
        "R" | "r" => Op::Read,
        "W" | "w" => Op::Write { fua: false },
        other => return Err(wrong("opcode", other, "R or W is needed")),
    };
    Ok(Some(Traced {
        at: ticks("timestamp", at, 1000)?,
        disk: number("device", disk)?,
        offset: number("offset", offset)?,
        bytes: number("length", bytes)?,
        ..Traced::of(op)
    }))
}

/// timestamp (seconds), offset (sectors), size (sectors), kind (0: read, 1: write), volume.
pub fn tencent(line: &str, number_of_line: u64) -> Result<Option<Traced>, Problem> {
    let [at, sector, count, kind, disk] = five("tencent", line)?;
    if number_of_line == 1 && at.eq_ignore_ascii_case("timestamp") {
        return Ok(None);
    }
    let op = match kind {
        "0" => Op::Read,
        "1" => Op::Write { fua: false },
        other => return Err(wrong("kind", other, "0 (read) or 1 (write) is needed")),
    };
    Ok(Some(Traced {
        at: ticks("timestamp", at, 1_000_000_000)?,
        disk: number("volume", disk)?,
        offset: sectors("offset", sector)?,
        bytes: sectors("size", count)?,
        ..Traced::of(op)
    }))
}

fn five<'a>(format: &'static str, line: &'a str) -> Result<[&'a str; 5], Problem> {
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    columns.as_slice().try_into().map_err(|_| Problem::Columns {
        format,
        found: columns.len(),
        need: "5",
    })
}
