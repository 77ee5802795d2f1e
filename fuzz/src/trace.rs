//! Trace readers: whatever the bytes, records within bounds or an error that names its line.

use vellum_lab::trace::{DISK_BYTES_MAX, Format, Op, REQUEST_BYTES_MAX, Reader, detect};

/// Reads the bytes as a trace of that format.
pub fn read(format: Format, bytes: &[u8]) {
    let mut newest = 0;
    for record in Reader::new(bytes, format) {
        let Ok(record) = record else { return };
        assert!(record.offset + record.bytes <= DISK_BYTES_MAX);
        assert!(record.op == Op::Discard || record.bytes <= REQUEST_BYTES_MAX);
        assert!(record.op == Op::Flush || record.blocks() > 0);
        assert!(record.contents.len() as u64 <= record.blocks());
        assert!(record.at.0 >= newest, "time went backwards");
        newest = record.at.0;
    }
}

/// Looks for the format; the one that is found reads the first request.
pub fn find(bytes: &[u8]) {
    if let Ok(format) = detect(bytes) {
        assert!(matches!(Reader::new(bytes, format).next(), Some(Ok(_))));
    }
}
