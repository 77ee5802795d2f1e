//! A medium in memory: sparse, volatile, and complete on submit.

use crate::completions::Completions;
use crate::error::MediumError;
use crate::io::{Done, Io, Kind, Piece, check_bytes};
use crate::medium::Medium;
use parking_lot::RwLock;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// Blocks that are allocated together: memory is taken by the megabyte, at the first write.
const STRIPE_BLOCKS: u64 = 256;
const STRIPE_BYTES: usize = STRIPE_BLOCKS as usize * BLOCK_BYTES;

fn blank() -> Arc<[u8]> {
    std::iter::repeat_n(0, STRIPE_BYTES).collect()
}

type Stripe = RwLock<Option<Arc<[u8]>>>;

/// Blocks in this process's memory. Blocks that were never written, or were discarded, read as zeros.
#[derive(Debug)]
pub struct MemoryMedium {
    blocks: u64,
    stripes: Box<[Stripe]>,
    completions: Completions,
}

impl MemoryMedium {
    /// A medium of `blocks` blocks, all zeros. It takes memory as it is written.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        let stripes = (0..blocks.div_ceil(STRIPE_BLOCKS))
            .map(|_| RwLock::new(None))
            .collect();
        Self {
            blocks,
            stripes,
            completions: Completions::default(),
        }
    }

    /// Another medium with the same contents. Writes to one do not appear in the other; they share memory until then.
    #[must_use]
    pub fn fork(&self) -> Self {
        let stripes = self.stripes.iter();
        Self {
            blocks: self.blocks,
            stripes: stripes.map(|s| RwLock::new(s.read().clone())).collect(),
            completions: Completions::default(),
        }
    }

    /// Bytes of memory in use for blocks.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let stripes = self.stripes.iter().filter(|s| s.read().is_some()).count();
        stripes as u64 * STRIPE_BYTES as u64
    }

    /// Calls `f` for each stripe that `bytes` bytes from `at` on touch, with the range in the stripe and the range's position in
    /// the transfer. The range was checked before.
    fn each(
        &self,
        at: Pba,
        bytes: usize,
        mut f: impl FnMut(&Stripe, std::ops::Range<usize>, usize),
    ) {
        let mut done = 0;
        while done < bytes {
            let block = at.0 + (done / BLOCK_BYTES) as u64;
            let start = (block % STRIPE_BLOCKS) as usize * BLOCK_BYTES;
            let len = (STRIPE_BYTES - start).min(bytes - done);
            let Some(stripe) = self.stripes.get((block / STRIPE_BLOCKS) as usize) else {
                return;
            };
            f(stripe, start..start + len, done);
            done += len;
        }
    }

    fn fill(&self, at: Pba, bytes: &mut [u8]) {
        self.each(at, bytes.len(), |stripe, range, done| {
            let to = &mut bytes[done..done + range.len()];
            match &*stripe.read() {
                Some(from) => to.copy_from_slice(&from[range]),
                None => to.fill(0),
            }
        });
    }

    fn store(&self, at: Pba, bytes: &[u8]) {
        self.each(at, bytes.len(), |stripe, range, done| {
            let mut stripe = stripe.write();
            let to = stripe.get_or_insert_with(blank);
            Arc::make_mut(to)[range.clone()].copy_from_slice(&bytes[done..done + range.len()]);
        });
    }

    /// Zeros blocks, as a discard does. Blocks past the end are ignored.
    pub(crate) fn zero(&self, at: Pba, blocks: u64) {
        self.discard(at, blocks.min(self.blocks.saturating_sub(at.0)));
    }

    fn discard(&self, at: Pba, blocks: u64) {
        let end = at.0 + blocks;
        let mut block = at.0;
        while block < end {
            let index = block / STRIPE_BLOCKS;
            let next = ((index + 1) * STRIPE_BLOCKS).min(end);
            let Some(stripe) = self.stripes.get(index as usize) else {
                return;
            };
            let mut stripe = stripe.write();
            if next - block == STRIPE_BLOCKS {
                *stripe = None;
            } else if let Some(bytes) = &mut *stripe {
                let start = (block % STRIPE_BLOCKS) as usize * BLOCK_BYTES;
                Arc::make_mut(bytes)[start..start + (next - block) as usize * BLOCK_BYTES].fill(0);
            }
            block = next;
        }
    }

    fn perform(&self, io: &Io) -> io::Result<()> {
        io.check(self.blocks)?;
        let mut at = io.at;
        match io.kind {
            Kind::Sync => {}
            Kind::Discard { blocks } => self.discard(io.at, blocks),
            Kind::Read | Kind::Write { .. } => {
                for piece in io.pieces() {
                    if io.kind == Kind::Read {
                        // SAFETY: the code that pushed the piece promised that it is valid and ours until the Io is given back.
                        self.fill(at, unsafe { piece.bytes_mut() });
                    } else {
                        // SAFETY: as above.
                        self.store(at, unsafe { piece.bytes() });
                    }
                    at = at.plus((piece.len / BLOCK_BYTES) as u64);
                }
            }
        }
        Ok(())
    }

    fn error(operation: &'static str, at: Pba) -> impl FnOnce(io::Error) -> MediumError {
        move |source| MediumError::at(operation, "memory", at, source)
    }
}

impl Piece {
    /// # Safety
    /// The promise made when the piece was pushed still holds (its Io is not given back yet), and nothing writes the memory.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    /// # Safety
    /// The promise made when the piece was pushed still holds (its Io is not given back yet), and nothing
    /// else reads or writes the memory.
    #[expect(
        clippy::mut_from_ref,
        reason = "a piece is an address; uniqueness is the caller's promise"
    )]
    pub(crate) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

impl Medium for MemoryMedium {
    fn name(&self) -> &str {
        "memory"
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn wants_discard(&self) -> bool {
        true
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        self.completions.push_all(ios.drain(..).map(|io| {
            let result = self.perform(&io);
            io.done("memory", result)
        }));
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        let result = self.perform(&io);
        Ok(io.done("memory", result))
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        self.completions.wait(done, timeout);
    }

    fn wake(&self) {
        self.completions.wake();
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        check_bytes(at, bytes.len(), self.blocks).map_err(Self::error("read", at))?;
        self.fill(at, bytes);
        Ok(())
    }

    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        check_bytes(at, bytes.len(), self.blocks).map_err(Self::error("write", at))?;
        self.store(at, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediumError> {
        Ok(())
    }

    fn drop_cache(&self) -> Result<(), MediumError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_when_written_and_given_back_when_discarded() {
        let m = MemoryMedium::new(1 << 28);
        assert_eq!(m.resident_bytes(), 0);
        m.write(Pba(255), &[7; 2 * BLOCK_BYTES]).unwrap();
        assert_eq!(m.resident_bytes(), 2 << 20);
        m.submit(&mut vec![Io::new(0, Kind::Discard { blocks: 512 }, Pba(0))]);
        assert_eq!(m.resident_bytes(), 0);
        let mut b = [1; BLOCK_BYTES];
        m.read(Pba(255), &mut b).unwrap();
        assert_eq!(b, [0; BLOCK_BYTES]);
    }

    #[test]
    fn a_fork_goes_its_own_way() {
        let one = MemoryMedium::new(300);
        one.write(Pba(7), &[1; BLOCK_BYTES]).unwrap();
        let other = one.fork();
        one.write(Pba(7), &[2; BLOCK_BYTES]).unwrap();
        other.write(Pba(8), &[3; BLOCK_BYTES]).unwrap();
        other.zero(Pba(290), u64::MAX);
        let read = |m: &MemoryMedium, at| {
            let mut block = [9; BLOCK_BYTES];
            m.read(Pba(at), &mut block).unwrap();
            block[0]
        };
        assert_eq!((read(&one, 7), read(&one, 8)), (2, 0));
        assert_eq!((read(&other, 7), read(&other, 8)), (1, 3));
    }

    #[test]
    fn past_the_end_and_odd_lengths_are_refused() {
        let m = MemoryMedium::new(10);
        let e = m.read(Pba(10), &mut [0; BLOCK_BYTES]).unwrap_err();
        assert_eq!(
            e.to_string(),
            "read of memory at byte 40960: blocks 10+1 end past the medium's 10"
        );
        assert!(m.write(Pba(0), &[0; 100]).is_err());
        assert!(m.write(Pba(u64::MAX), &[0; BLOCK_BYTES]).is_err());
        m.submit(&mut vec![Io::new(
            3,
            Kind::Discard { blocks: u64::MAX },
            Pba(1),
        )]);
        let mut done = Vec::new();
        m.wait(&mut done, None);
        assert!(done[0].result.is_err());
    }
}
