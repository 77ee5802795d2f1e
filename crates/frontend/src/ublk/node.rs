//! `/dev/ublkcN`: a device's requests, and the transfer of their data.

use super::error::UblkError;
use super::uapi::{self, Descriptor};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vellum_device::frames::Frames;

/// How long the node may take to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(2);
/// The most pieces of memory in one system call.
const PIECES_MAX: usize = 256;

/// The character device.
#[derive(Debug)]
pub struct Node {
    file: File,
}

impl Node {
    /// Opens a device's node. Only one process may.
    pub fn open(device: u32) -> Result<Self, UblkError> {
        let path = PathBuf::from(format!("/dev/ublkc{device}"));
        let began = Instant::now();
        loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return Ok(Self { file }),
                // On systems where udev makes nodes or sets their permissions.
                Err(e)
                    if began.elapsed() < NODE_PATIENCE
                        && matches!(
                            e.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
                        ) =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(source) => return Err(UblkError::Node { path, source }),
            }
        }
    }

    /// Its descriptor, for the queues' commands.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Copies the data of a write into frames.
    pub fn read_frames(&self, queue: u16, tag: u16, frames: &mut Frames) -> io::Result<()> {
        self.transfer(queue, tag, frames, libc::preadv)
    }

    /// Copies frames to the kernel as the data of a read.
    pub fn write_frames(&self, queue: u16, tag: u16, frames: &Frames) -> io::Result<()> {
        self.transfer(queue, tag, frames, libc::pwritev)
    }

    /// Copies the data of a write into bytes.
    pub fn read_bytes(&self, queue: u16, tag: u16, bytes: &mut [u8]) -> io::Result<()> {
        self.file
            .read_exact_at(bytes, uapi::data_offset(queue, tag))
    }

    /// Copies bytes to the kernel as the data of a read.
    pub fn write_bytes(&self, queue: u16, tag: u16, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, uapi::data_offset(queue, tag))
    }

    fn transfer(
        &self,
        queue: u16,
        tag: u16,
        frames: &Frames,
        call: unsafe extern "C" fn(RawFd, *const libc::iovec, libc::c_int, libc::off_t) -> isize,
    ) -> io::Result<()> {
        let mut offset = uapi::data_offset(queue, tag);
        let mut pieces = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; PIECES_MAX];
        let mut runs = frames.runs();
        loop {
            let (mut count, mut bytes) = (0, 0);
            for (piece, (base, len)) in pieces.iter_mut().zip(runs.by_ref()) {
                (piece.iov_base, piece.iov_len) = (base.cast(), len);
                (count, bytes) = (count + 1, bytes + len);
            }
            if count == 0 {
                return Ok(());
            }
            // SAFETY: the pieces are memory of the frames, which the caller holds during the call; for `preadv` it holds them mutably.
            let done = unsafe {
                call(
                    self.fd(),
                    pieces.as_ptr(),
                    count as libc::c_int,
                    offset as libc::off_t,
                )
            };
            match usize::try_from(done) {
                Err(_) => return Err(io::Error::last_os_error()),
                // The kernel copies all of a request's memory or returns an error.
                Ok(done) if done != bytes => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => offset += bytes as u64,
            }
        }
    }
}

#[cfg(test)]
impl Node {
    /// A file in place of a node. It has data at the offsets that the kernel uses.
    pub fn fake() -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(uapi::data_offset(4, 0)).unwrap();
        Self { file }
    }
}

/// A queue's descriptors, which the kernel fills in.
pub struct Descriptors {
    base: *mut libc::c_void,
    depth: u16,
    bytes: usize,
}

impl Descriptors {
    /// Maps the descriptors of a queue.
    pub fn map(node: &Node, queue: u16, depth: u16) -> io::Result<Self> {
        // SAFETY: no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
            .map_err(|_| io::Error::last_os_error())?;
        let bytes = (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(page);
        // SAFETY: a new mapping; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                node.fd(),
                uapi::descriptors_offset(queue, page) as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base, depth, bytes })
    }

    /// The current request of a tag.
    pub fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: within the mapping, by the assertion; any bytes make a descriptor. Volatile, because the kernel writes it,
        // but only while it owns the tag.
        unsafe {
            self.base
                .cast::<Descriptor>()
                .add(usize::from(tag))
                .read_volatile()
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, which nothing else uses.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_core::addr::BLOCK_BYTES;
    use vellum_device::frames::{FramePool, Quota};

    #[test]
    fn data_comes_and_goes_through_scattered_frames() {
        let pool = FramePool::new(1024, 8, 0).unwrap();
        // Every other frame is free, so that no two are adjacent and one call cannot take them all.
        let mut all: Vec<_> = (0..1024)
            .map(|_| pool.take(Quota::Write, 1).unwrap())
            .collect();
        for index in (0..1024).rev().step_by(2) {
            drop(all.remove(index));
        }
        let mut frames = pool.take(Quota::Write, 300).unwrap();
        assert!(frames.runs().count() > PIECES_MAX);
        for index in 0..frames.len() {
            frames.block_mut(index).fill(index as u8);
        }
        let node = Node::fake();
        node.write_frames(1, 3, &frames).unwrap();
        let mut bytes = vec![0; 300 * BLOCK_BYTES];
        node.read_bytes(1, 3, &mut bytes).unwrap();
        for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
            assert!(block.iter().all(|&b| b == index as u8), "block {index}");
        }
        bytes.reverse();
        node.write_bytes(1, 3, &bytes).unwrap();
        node.read_frames(1, 3, &mut frames).unwrap();
        assert_eq!(frames.block(0)[0], (299 % 256) as u8);
        assert_eq!(frames.block(299)[0], 0);
        // Another request's data is at another offset.
        node.read_bytes(1, 4, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == 0));
    }

    #[test]
    fn a_short_copy_is_an_error() {
        let node = Node {
            file: tempfile::tempfile().unwrap(),
        };
        let pool = FramePool::new(8, 8, 0).unwrap();
        let mut frames = pool.take(Quota::Write, 2).unwrap();
        assert!(node.read_frames(0, 0, &mut frames).is_err());
    }
}
