//! Comma-separated traces: MSR Cambridge and `CloudPhysics`.

use super::fields::{number, sectors, ticks, wrong};
use super::{Op, Problem, Record};
use std::hash::Hasher;

/// Timestamp, Hostname, `DiskNumber`, Type, Offset, Size, `ResponseTime`; time in 100 ns, offset and size in bytes.
pub fn msr(line: &str) -> Result<Record, Problem> {
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
    let mut name = Fnv(0xcbf2_9ce4_8422_2325);
    name.write(host.as_bytes());
    Ok(Record {
        at: vellum_core::addr::Nanos(since_2000.saturating_mul(100)),
        disk: (name.finish() as u32) << 8 ^ number::<u32>("disk number", disk)?,
        op,
        offset: number("offset", offset)?,
        bytes: number("size", bytes)?,
        contents: Vec::new(),
    })
}

/// version, time (seconds), op (SCSI, hexadecimal), size (bytes), lbn (sectors).
pub fn cloud_physics(line: &str, number_of_line: u64) -> Result<Option<Record>, Problem> {
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
    Ok(Some(Record {
        at: ticks("time", at, 1_000_000_000)?,
        disk: 0,
        op,
        offset: if flush { 0 } else { sectors("lbn", sector)? },
        bytes: if flush { 0 } else { number("size", bytes)? },
        contents: Vec::new(),
    }))
}

/// FNV-1a: hosts' names become numbers that are the same in every run.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
