//! Trace readers: any bytes yield records within bounds, or an error that names the line.

use std::io::{BufRead, Cursor, Read};
use vellum_lab::trace::{
    COMMITTED_MAX, Columns, DISK_BYTES_MAX, Format, Op, REQUEST_BYTES_MAX, Reader, detect, unpacked,
};

/// The most that a few bytes may unpack to: a kilobyte can stand for gigabytes.
const UNPACKED_MAX: u64 = 64 << 20;

/// Reads the bytes as a trace of that format.
pub fn read(format: Format, bytes: &[u8]) {
    all(Reader::new(bytes, format));
}

/// Reads the first line as a column map, and the rest as CSV with that map.
pub fn columns(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let (map, rest) = bytes.split_at(end.unwrap_or(0));
    let Some(map) = std::str::from_utf8(map).ok() else {
        return;
    };
    if let Ok(map) = map.parse::<Columns>() {
        all(Reader::with_columns(rest, map));
    }
}

/// Unpacks the bytes, in any packed format.
pub fn unpack(bytes: &[u8]) {
    if let Ok(from) = unpacked(Cursor::new(bytes.to_vec())) {
        let _ = std::io::copy(&mut from.take(UNPACKED_MAX), &mut std::io::sink());
    }
}

fn all(reader: Reader<impl BufRead>) {
    let mut newest = 0;
    for record in reader {
        let Ok(record) = record else { return };
        assert!(record.offset + record.bytes <= DISK_BYTES_MAX);
        assert!(matches!(record.op, Op::Discard { .. }) || record.bytes <= REQUEST_BYTES_MAX);
        assert!(record.op == Op::Flush || record.blocks() > 0);
        let blocks = record.blocks() as usize;
        assert!(record.contents.is_empty() || record.contents.len() == blocks);
        assert!(record.sizes.is_none_or(|sizes| sizes.len() == blocks));
        assert!(record.committed.len() <= COMMITTED_MAX);
        assert!(record.at.0 >= newest, "time went backwards");
        newest = record.at.0;
    }
}

/// Detects the format. Its reader must read the first request, unless the format was detected by its first bytes alone.
pub fn find(bytes: &[u8]) {
    if let Ok(format) = detect(bytes)
        && !matches!(format, Format::Fio | Format::Blktrace | Format::Vellum)
    {
        assert!(matches!(Reader::new(bytes, format).next(), Some(Ok(_))));
    }
}
