//! Which format a trace is of, by its first lines.

use super::open::packed_by;
use super::{Format, Reader, TraceError, blktrace};

/// The format that reads the beginning of a trace, whose first bytes (unpacked) `head` are.
///
/// # Errors
/// When none does.
pub fn detect(head: &[u8]) -> Result<Format, TraceError> {
    if head.starts_with(&vellum_trace::MAGIC) {
        return Ok(Format::Vellum);
    }
    if blktrace::is_one(head) {
        return Ok(Format::Blktrace);
    }
    if let Some(by) = packed_by(head) {
        return Err(TraceError::Packed { by });
    }
    // The last line may be cut off.
    let whole = match head.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => &head[..=end],
        None => head,
    };
    let first = whole.split(|&b| b == b'\n').next().unwrap_or_default();
    // Five columns are DiskSim's when the time has a fraction, and MQSim's when it has none.
    let fraction = first
        .split(u8::is_ascii_whitespace)
        .find(|column| !column.is_empty())
        .is_some_and(|time| time.contains(&b'.'));
    // Tencent's five numbers would be read as CloudPhysics', whose files say in a first line what they are.
    let headed = first.windows(4).any(|word| word == b"time");
    let fits = |format: Format| match format {
        Format::Vellum | Format::Blktrace | Format::Csv => false,
        Format::Fio => first.starts_with(b"fio version "),
        Format::CloudPhysics if !headed => false,
        Format::DiskSim if !fraction => false,
        Format::Mqsim if fraction => false,
        // A mistake further on is for the reader to name.
        _ => matches!(Reader::new(whole, format).next(), Some(Ok(_))),
    };
    match Format::ALL.into_iter().find(|&format| fits(format)) {
        Some(format) => Ok(format),
        None if whole.is_empty() => Err(TraceError::Empty { lines: 0 }),
        None => {
            let text = String::from_utf8_lossy(first);
            let first = text.chars().take(60).collect();
            Err(TraceError::Unknown { first })
        }
    }
}
