//! Byte streams of unknown length on a control socket: parts, each after its length (four bytes, little endian), then a length of
//! 0 and a line of JSON that says whether the stream is complete.

use serde_json::{Value, json};
use std::io::{self, BufRead, BufWriter, Read, Write};

/// The most bytes in a part.
const PART_BYTES: usize = 256 << 10;
/// The most bytes in the final line.
const LINE_BYTES_MAX: u64 = 64 << 10;

struct Parts<W>(W);

impl<W: Write> Write for Parts<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(PART_BYTES)];
        if !part.is_empty() {
            self.0.write_all(&(part.len() as u32).to_le_bytes())?;
            self.0.write_all(part)?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a stream, then how it ended.
pub fn write(
    mut out: impl Write,
    write: impl FnOnce(&mut dyn Write) -> Result<(), String>,
) -> io::Result<()> {
    let mut parts = BufWriter::with_capacity(PART_BYTES, Parts(&mut out));
    let written = write(&mut parts);
    let flushed = parts.flush();
    drop(parts.into_parts());
    flushed?;
    let end = match written {
        Ok(()) => json!({"ok": true}),
        Err(error) => json!({"ok": false, "error": error}),
    };
    out.write_all(&0u32.to_le_bytes())?;
    out.write_all(format!("{end}\n").as_bytes())
}

/// Reads such a stream.
pub struct Reader<R> {
    source: R,
    /// Bytes left in the present part.
    left: u64,
    has_ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the stream from `source`.
    pub fn new(source: R) -> Self {
        Self {
            source,
            left: 0,
            has_ended: false,
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let mut line = String::new();
        (&mut self.source)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)?;
        let end: Value = serde_json::from_str(&line)?;
        self.has_ended = true;
        match end.get("error").and_then(Value::as_str) {
            Some(error) => Err(io::Error::other(format!("the server: {error}"))),
            None => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Reader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.has_ended {
            let mut length = [0; 4];
            self.source.read_exact(&mut length)?;
            self.left = u32::from_le_bytes(length).into();
            if self.left == 0 {
                self.end()?;
            }
        }
        if self.has_ended {
            return Ok(0);
        }
        let read = (&mut self.source).take(self.left).read(bytes)?;
        if read == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        Reader::new(bytes).read_to_end(&mut read)?;
        Ok(read)
    }

    #[test]
    fn a_stream_is_read_as_written_and_a_cut_is_an_error() {
        let bytes: Vec<u8> = (0..3 * PART_BYTES as u32 / 2).map(|n| n as u8).collect();
        for size in [0, 1, 1000, bytes.len()] {
            let mut parts = Vec::new();
            write(&mut parts, |out| {
                out.write_all(&bytes[..size]).map_err(|e| e.to_string())
            })
            .unwrap();
            assert_eq!(read(&parts).unwrap(), &bytes[..size]);
            for cut in [0, 3, 4, parts.len() / 2, parts.len() - 3] {
                assert!(read(&parts[..cut]).is_err(), "{size} bytes, cut at {cut}");
            }
        }
        let mut parts = Vec::new();
        write(&mut parts, |out| {
            out.write_all(b"some")
                .map_err(|_| "?".into())
                .and(Err("a reason".into()))
        })
        .unwrap();
        assert!(read(&parts).unwrap_err().to_string().contains("a reason"));
    }
}
