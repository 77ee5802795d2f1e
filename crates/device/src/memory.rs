//! Aligned memory for metadata: chunk headers, map leaves, roots, summaries; and large pages for what is accessed at random.

use crate::limits::{SPARE_BUFFER_BLOCKS, SPARE_BUFFERS};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::OnceLock;
use vellum_core::addr::{BLOCK_BYTES, EffectId};

/// Whole blocks of memory, aligned for direct I/O.
pub(crate) struct Buffer {
    ptr: NonNull<u8>,
    blocks: usize,
}

// SAFETY: it owns its memory, as a Box would.
unsafe impl Send for Buffer {}

impl Buffer {
    pub fn zeroed(blocks: usize) -> Self {
        let layout = Self::layout(blocks);
        // SAFETY: the layout is of at least one block.
        let ptr = unsafe { alloc_zeroed(layout) };
        match NonNull::new(ptr) {
            Some(ptr) => Self { ptr, blocks },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(blocks: usize) -> Layout {
        match Layout::from_size_align(blocks.max(1) * BLOCK_BYTES, BLOCK_BYTES) {
            Ok(layout) => layout,
            Err(_) => unreachable!("metadata of {blocks} blocks has a size"),
        }
    }

    pub fn len(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// Returns where it is, for an operation that holds the buffer until it is back.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: ours, of that length, initialised when it was made.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len()) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.blocks)) };
    }
}

/// Requests large pages for a table that is accessed at random: they save misses in the processor's address translation, and page
/// faults while the table fills. Where the system has none, nothing is lost.
pub(crate) fn advise_large_pages(at: *const u8, bytes: usize) {
    let skipped = at.align_offset(BLOCK_BYTES);
    let bytes = bytes.saturating_sub(skipped) / BLOCK_BYTES * BLOCK_BYTES;
    if bytes > 0 {
        // SAFETY: whole pages of memory that the caller has; what is in them stays as it is.
        unsafe {
            libc::madvise(
                at.wrapping_add(skipped).cast_mut().cast(),
                bytes,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

/// Returns the bytes of memory that can be used without swapping, as the system reports them; `None` if it does not.
///
/// The file stays open from the first call on, because a server may not be able to open files later.
pub(crate) fn available() -> Option<u64> {
    static SYSTEM: OnceLock<Option<File>> = OnceLock::new();
    let file = SYSTEM.get_or_init(|| File::open("/proc/meminfo").ok());
    let mut text = [0; 4096];
    let bytes = file.as_ref()?.read_at(&mut text, 0).ok()?;
    available_in(&String::from_utf8_lossy(&text[..bytes]))
}

fn available_in(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let value = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The buffers of metadata: those for reuse, a list for each length, and those of effects in flight.
#[derive(Default)]
pub(crate) struct Metadata {
    spare: [Vec<Buffer>; SPARE_BUFFER_BLOCKS],
    /// By the effect's number.
    in_flight: Vec<Option<Buffer>>,
}

impl Metadata {
    /// Takes a buffer; it still holds the bytes of its last use.
    pub fn take(&mut self, blocks: usize) -> Buffer {
        let spare = blocks
            .checked_sub(1)
            .and_then(|i| self.spare.get_mut(i))
            .and_then(Vec::pop);
        spare.unwrap_or_else(|| Buffer::zeroed(blocks))
    }

    pub fn give_back(&mut self, buffer: Buffer) {
        let list = buffer
            .blocks
            .checked_sub(1)
            .and_then(|i| self.spare.get_mut(i));
        if let Some(list) = list.filter(|list| list.len() < SPARE_BUFFERS) {
            list.push(buffer);
        }
    }

    /// Keeps the buffer of an effect, untouched, until the effect's operation is back.
    pub fn keep(&mut self, id: EffectId, buffer: Buffer) {
        let index = id.0 as usize;
        if self.in_flight.len() <= index {
            self.in_flight.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.in_flight[index].is_none(),
            "effect {id} is carried out twice"
        );
        self.in_flight[index] = Some(buffer);
    }

    /// Returns the buffer of an effect whose operation is back, if it has one.
    pub fn take_back(&mut self, id: EffectId) -> Option<Buffer> {
        self.in_flight.get_mut(id.0 as usize).and_then(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let meminfo = "MemTotal:       24000000 kB\nMemAvailable:   22000001 kB\n";
        assert_eq!(available_in(meminfo), Some(22_000_001 << 10));
        for other in ["", "MemTotal: 1 kB\n", "MemAvailable: many kB\n"] {
            assert_eq!(available_in(other), None);
        }
    }

    #[test]
    fn buffers_are_aligned_and_serve_again() {
        let mut buffers = Metadata::default();
        let mut one = buffers.take(3);
        assert_eq!(one.ptr() as usize % BLOCK_BYTES, 0);
        assert_eq!(one.len(), 3 * BLOCK_BYTES);
        one.bytes_mut().fill(9);
        let place = one.ptr();
        buffers.give_back(one);
        assert_eq!(buffers.take(3).ptr(), place);
        let long = buffers.take(SPARE_BUFFER_BLOCKS + 1);
        buffers.give_back(long);
        assert!(buffers.spare.iter().all(Vec::is_empty));
    }
}
