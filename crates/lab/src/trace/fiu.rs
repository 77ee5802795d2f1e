//! FIU's traces: time in nanoseconds, process, its name, sector, sectors, R or W, major, minor, MD5.
//!
//! The MD5 column has 32 digits for each 4 KiB, or for each 512 B. In the latter case eight are combined into one
//! content, which is equal exactly if all eight are.

use super::error::Problem;
use super::fields::{SECTOR_BYTES, number, sectors, ticks, wrong};
use super::traced::{Op, Traced};
use crate::content::Content;
use crate::rng::mix;
use vellum_core::addr::BLOCK_BYTES;

const DIGITS: usize = 32;
/// MD5 of 4096 and of 512 zeros.
const ZEROS: [&str; 2] = [
    "620f0b67a91f7f74151bc5be745b7110",
    "bf619eac0cdf3f68d496ea9344137e8b",
];

/// Parses one line.
pub fn parse(line: &str) -> Result<Traced, Problem> {
    let columns: Vec<&str> = line.split_ascii_whitespace().collect();
    let &[at, _, _, sector, count, op, major, minor, md5] = columns.as_slice() else {
        return Err(Problem::Columns {
            format: "fiu",
            found: columns.len(),
            need: "9",
        });
    };
    let bytes = sectors("size", count)?;
    let disk = number::<u16>("major", major)?;
    let minor = number::<u16>("minor", minor)?;
    let op = match op {
        "R" | "r" => Op::Read,
        "W" | "w" => Op::Write { fua: false },
        other => return Err(wrong("operation", other, "R or W is needed")),
    };
    let offset = sectors("sector", sector)?;
    let mut contents = contents(bytes, md5)?;
    let block = BLOCK_BYTES as u64;
    if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        // The hashes are of parts of blocks.
        contents.clear();
    }
    Ok(Traced {
        at: ticks("time", at, 1)?,
        disk: u32::from(disk) << 16 | u32::from(minor),
        op,
        offset,
        bytes,
        contents,
        sizes: None,
        committed: Vec::new(),
    })
}

fn contents(bytes: u64, md5: &str) -> Result<Vec<Content>, Problem> {
    let digits = md5.len();
    let mismatch = || Problem::Hashes { bytes, digits };
    if digits == 0 || !digits.is_multiple_of(DIGITS) || !md5.is_ascii() {
        return Err(mismatch());
    }
    let hashes = (digits / DIGITS) as u64;
    let blocks = bytes / BLOCK_BYTES as u64;
    if hashes * BLOCK_BYTES as u64 != bytes && hashes * SECTOR_BYTES != bytes {
        return Err(mismatch());
    }
    if blocks == 0 {
        // Only part of a block: its hash says nothing of the block.
        return Ok(Vec::new());
    }
    let per_block = (hashes / blocks) as usize;
    md5.as_bytes()
        .chunks_exact(DIGITS * per_block)
        .map(content)
        .collect()
}

fn content(hashes: &[u8]) -> Result<Content, Problem> {
    let parts = || hashes.chunks_exact(DIGITS);
    if parts().all(|hash| ZEROS.iter().any(|zero| zero.as_bytes() == hash)) {
        return Ok(Content::ZERO);
    }
    let mut all = 0u64;
    for half in parts().flat_map(|hash| hash.chunks_exact(16)) {
        let text = std::str::from_utf8(half).map_err(|_| Problem::NotText)?;
        let value = u64::from_str_radix(text, 16)
            .map_err(|_| wrong("MD5", text, "hexadecimal digits are needed"))?;
        all = mix(all ^ value).wrapping_add(value);
    }
    Ok(Content::of(all))
}
