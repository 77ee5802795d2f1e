//! Detects the format of a trace by its first lines.

use super::blktrace;
use super::error::TraceError;
use super::format::Format;
use super::open::packed_by;
use super::reader::Reader;

/// The format of a trace whose first bytes (unpacked) are `head`.
///
/// # Errors
/// When no format fits.
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
    // Five columns are DiskSim's if the time has a fraction, and MQSim's if it has none.
    let fraction = first
        .split(u8::is_ascii_whitespace)
        .find(|column| !column.is_empty())
        .is_some_and(|time| time.contains(&b'.'));
    // Tencent's five numbers could be read as CloudPhysics', whose files name their columns in the first line.
    let headed = first.windows(4).any(|word| word == b"time");
    let fits = |format: Format| match format {
        Format::Vellum | Format::Blktrace | Format::Csv => false,
        Format::Fio => first.starts_with(b"fio version "),
        Format::CloudPhysics if !headed => false,
        Format::DiskSim if !fraction => false,
        Format::Mqsim if fraction => false,
        // A mistake further on is reported by the reader.
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
