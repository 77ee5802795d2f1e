//! A trace file as bytes. Compression is detected. Memory is bounded whatever the file holds.

use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

/// A trace's bytes.
pub type Bytes = Box<dyn BufRead + Send>;

/// Bytes per read.
const BUFFER_BYTES: usize = 128 << 10;
/// The largest window of zstd (a power of two): that of `--long` without a number.
const WINDOW_LOG_MAX: u32 = 27;

/// Opens a trace. The progress in the file is added to `done`.
///
/// # Errors
/// When it cannot be opened or read.
pub fn open(path: &Path, done: &Arc<AtomicU64>) -> io::Result<Bytes> {
    let from = Counted {
        from: File::open(path)?,
        done: Arc::clone(done),
    };
    unpacked(BufReader::with_capacity(BUFFER_BYTES, from))
}

/// Unpacks any input.
///
/// # Errors
/// When it cannot be read.
pub fn unpacked(mut from: impl BufRead + Send + 'static) -> io::Result<Bytes> {
    let head = from.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let plain = MultiGzDecoder::new(from);
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, plain)));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let plain = Zstd::new(from)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, plain)));
    }
    Ok(Box::new(from))
}

/// What packed a file that begins so, if that cannot be unpacked here.
pub fn packed_by(head: &[u8]) -> Option<&'static str> {
    let begins: [(&[u8], &str); 6] = [
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"PK\x03\x04", "zip"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        (b"Rar!", "rar"),
    ];
    let found = begins.iter().find(|(magic, _)| head.starts_with(magic));
    let tar = head.get(257..262) == Some(b"ustar");
    found.map(|(_, name)| *name).or(tar.then_some("tar"))
}

/// A reader whose progress another thread can see.
struct Counted<R> {
    from: R,
    done: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(out)?;
        self.done.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// Reads zstd's frames, one after the other.
struct Zstd<R> {
    from: R,
    context: DCtx<'static>,
    within: bool,
}

fn zstd_error(code: usize) -> io::Error {
    let text = format!("not zstd all through: {}", get_error_name(code));
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<R: BufRead> Zstd<R> {
    fn new(from: R) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let mut context = DCtx::try_create().ok_or_else(none)?;
        context
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
            .map_err(zstd_error)?;
        Ok(Self {
            from,
            context,
            within: false,
        })
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let packed = self.from.fill_buf()?;
            let ended = packed.is_empty();
            if ended && !self.within {
                return Ok(0);
            }
            let mut input = InBuffer::around(packed);
            let mut output = OutBuffer::around(&mut *out);
            let left = self
                .context
                .decompress_stream(&mut output, &mut input)
                .map_err(zstd_error)?;
            let (taken, made) = (input.pos(), output.pos());
            self.from.consume(taken);
            self.within = left != 0;
            if made > 0 {
                return Ok(made);
            }
            if ended {
                let text = "the file ends within a frame of zstd's: it is cut off";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        }
    }
}
