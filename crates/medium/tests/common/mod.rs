//! Code shared by the tests of media.

use std::path::Path;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::{Done, Engine, FileMedium, Io, Kind, Medium, Prealloc, Tuning};

/// Block-aligned memory.
pub struct Memory(Vec<Aligned>);

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Aligned([u8; BLOCK_BYTES]);

// Each test file uses some of these.
#[allow(dead_code)]
impl Memory {
    pub fn new(blocks: usize) -> Self {
        Self(vec![Aligned([0; BLOCK_BYTES]); blocks])
    }

    pub fn block(&self, index: usize) -> &[u8; BLOCK_BYTES] {
        &self.0[index].0
    }

    pub fn block_mut(&mut self, index: usize) -> &mut [u8; BLOCK_BYTES] {
        &mut self.0[index].0
    }

    /// Returns an operation on blocks `from..from + blocks` of this memory.
    pub fn io(&mut self, token: u64, kind: Kind, at: u64, from: usize, blocks: usize) -> Box<Io> {
        let mut io = Io::new(token, kind, Pba(at));
        let memory = &mut self.0[from..from + blocks];
        // SAFETY: the tests keep the memory, and do not touch it until the operation returns.
        unsafe { io.push(memory.as_mut_ptr().cast(), blocks * BLOCK_BYTES) };
        io
    }

    /// Returns the same with scattered blocks: only those in odd places.
    pub fn scattered(&mut self, token: u64, kind: Kind, at: u64, blocks: usize) -> Box<Io> {
        let mut io = Io::new(token, kind, Pba(at));
        for index in 0..blocks {
            // SAFETY: as above.
            unsafe { io.push(self.0[2 * index + 1].0.as_mut_ptr(), BLOCK_BYTES) };
        }
        io
    }
}

/// Waits for `count` operations; the medium must not take for ever.
#[allow(dead_code)]
pub fn finish(medium: &dyn Medium, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    while done.len() < count {
        let before = done.len();
        medium.wait(&mut done, Some(Duration::from_secs(60)));
        assert!(
            done.len() > before,
            "{} of {count} after a minute",
            done.len()
        );
    }
    assert_eq!(done.len(), count);
    done
}

/// Submits, waits, and requires success.
#[allow(dead_code, clippy::vec_box, reason = "what `submit` takes")]
pub fn run(medium: &dyn Medium, mut ios: Vec<Box<Io>>) -> Vec<Done> {
    let count = ios.len();
    medium.submit(&mut ios);
    assert!(ios.is_empty());
    let done = finish(medium, count);
    for one in &done {
        one.result.as_ref().unwrap();
    }
    done
}

/// Creates a file of `blocks` blocks for each I/O mode that this machine has.
#[allow(dead_code)]
pub fn files(folder: &Path, blocks: u64, prealloc: Prealloc) -> Vec<FileMedium> {
    let mut files = Vec::new();
    for engine in [Engine::Uring, Engine::Threads] {
        for buffered in [false, true] {
            let tuning = Tuning {
                engine,
                buffered,
                discard: None,
            };
            let path = folder.join(format!("{engine:?}-{buffered}"));
            let bytes = blocks * BLOCK_BYTES as u64;
            match FileMedium::create_tuned(&path, bytes, prealloc, &tuning) {
                Ok(file) => files.push(file),
                Err(e) => {
                    assert_eq!(engine, Engine::Uring, "{e}");
                    eprintln!("not tested: {e}");
                }
            }
        }
    }
    files
}
