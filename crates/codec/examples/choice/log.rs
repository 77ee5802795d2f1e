//! A log of what was done to a disk, as `benches/encodings_record.py` writes it.

use anyhow::{Context, bail};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// The longest write that is believed.
const WRITE_BYTES: u32 = 64 << 20;

pub enum Record {
    Write { offset: u64, bytes: Vec<u8> },
    Flush,
    Zeros { offset: u64, bytes: u64 },
}

/// Calls `each` for every record, in order.
pub fn read(path: &Path, mut each: impl FnMut(Record)) -> anyhow::Result<()> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut head = [0; 13];
    let mut at = 0_u64;
    loop {
        match file.read_exact(&mut head) {
            Ok(()) => {}
            Err(end) if end.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let offset = u64::from_le_bytes(head[1..9].try_into()?);
        let length = u32::from_le_bytes(head[9..].try_into()?);
        let mut taken = head.len() as u64;
        each(match head[0] {
            0 if length <= WRITE_BYTES => {
                let mut bytes = vec![0; length as usize];
                file.read_exact(&mut bytes)
                    .with_context(|| format!("the write at byte {at} is cut off"))?;
                taken += u64::from(length);
                Record::Write { offset, bytes }
            }
            1 => Record::Flush,
            2 => Record::Zeros {
                offset,
                bytes: length.into(),
            },
            kind => bail!("no record at byte {at}: kind {kind}, {length} bytes"),
        });
        at += taken;
    }
}
