//! For tests and fuzzing only: a RAM disk and the bodies of the fuzz targets.

use super::export::{Catalogue, Export};
use super::link::Link;
use super::negotiate::{Agreed, Negotiator, OPTION_DATA_MAX, OPTIONS_MAX, Step, TlsState};
use super::receive::Receiver;
use super::session::Session;
use super::wire::OPTION_BYTES;
use parking_lot::Mutex;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use vellum_device::frames::{FramePool, Share};

/// A disk in memory. Blocks that were never written, or were discarded, take no memory.
#[derive(Debug)]
pub struct RamDisk {
    blocks: Mutex<Vec<Option<Box<[u8; BLOCK_BYTES]>>>>,
    size: u64,
    read_only: bool,
    pool: Arc<FramePool>,
    /// Fails every request that touches this block.
    pub bad: AtomicU64,
    /// Writes that would need more mapped blocks than this fail.
    pub room: AtomicU64,
    /// How often it was flushed, by FLUSH or FUA.
    pub flushes: AtomicU64,
}

impl RamDisk {
    /// A disk of that many blocks, and pools of that many frames.
    ///
    /// # Panics
    /// When there is no memory for the pool.
    #[must_use]
    #[expect(clippy::expect_used, reason = "for tests only")]
    pub fn new(size: u64, writes: u32, reads: u32) -> Self {
        Self {
            blocks: Mutex::new((0..size).map(|_| None).collect()),
            size,
            read_only: false,
            pool: FramePool::new(writes, reads, 0).expect("memory for the pool"),
            bad: AtomicU64::new(u64::MAX),
            room: AtomicU64::new(u64::MAX),
            flushes: AtomicU64::new(0),
        }
    }

    /// Whether all frames have come home.
    #[must_use]
    pub fn all_frames_free(&self) -> bool {
        [Share::Write, Share::Read].iter().all(|&share| {
            self.pool
                .try_take(share, self.pool.capacity(share))
                .is_some()
        })
    }

    fn serve(&self, request: &mut Request) -> Result<(), BlockError> {
        let (lba, count) = (request.lba.0, request.blocks);
        let fua = match request.op {
            Op::Flush => true,
            Op::Write { fua } | Op::Discard { fua } | Op::WriteZeroes { fua } => fua,
            Op::Read => false,
        };
        self.flushes.fetch_add(u64::from(fua), Ordering::Relaxed);
        if lba.checked_add(count).is_none_or(|end| end > self.size) {
            return Err(BlockError::OutOfRange {
                lba,
                blocks: count,
                size: self.size,
            });
        }
        let bad = self.bad.load(Ordering::Relaxed);
        if bad >= lba && bad - lba < count {
            return Err(BlockError::Io(format!("block {bad} is bad")));
        }
        let mut blocks = self.blocks.lock();
        if matches!(request.op, Op::Write { .. }) && self.room.load(Ordering::Relaxed) != u64::MAX {
            let mapped = blocks.iter().flatten().count() as u64;
            if mapped + count > self.room.load(Ordering::Relaxed) {
                return Err(BlockError::Full);
            }
        }
        for index in 0..count as usize {
            let block = &mut blocks[lba as usize + index];
            match request.op {
                Op::Read => match block {
                    Some(block) => request.frames.block_mut(index).copy_from_slice(&block[..]),
                    None => request.frames.block_mut(index).fill(0),
                },
                Op::Write { .. } => {
                    block
                        .get_or_insert_with(|| Box::new([0; BLOCK_BYTES]))
                        .copy_from_slice(request.frames.block(index));
                }
                _ => *block = None,
            }
        }
        drop(blocks);
        if matches!(request.op, Op::Write { .. }) {
            request.frames = vellum_device::frames::Frames::default();
        }
        Ok(())
    }
}

impl BlockDevice for RamDisk {
    fn blocks(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.pool
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        for mut request in requests.drain(..) {
            let result = self.serve(&mut request);
            replies.complete(request, result);
        }
        replies.flush();
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        let map = self.blocks.lock();
        let mut extents: Vec<Extent> = Vec::new();
        for at in lba.0..(lba.0 + blocks).min(self.size) {
            let mapped = map[at as usize].is_some();
            let full = extents.len() == max;
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.blocks += 1,
                _ if full => break,
                _ => extents.push(Extent { blocks: 1, mapped }),
            }
        }
        extents
    }
}

/// Fuzz target `nbd_options`: the bytes are what a client says after the greeting.
pub fn fuzz_options(data: &[u8]) {
    let catalogue = Catalogue::default();
    for name in ["first", "second"] {
        // Two different names are never refused.
        let _ = catalogue
            .add(Export::new(name, Arc::new(RamDisk::new(8, 1, 1))).described("for fuzzing"));
    }
    for tls in [TlsState::Unavailable, TlsState::Required, TlsState::Active] {
        let mut negotiator = Negotiator::new(&catalogue, tls);
        let Some((flags, mut rest)) = data.split_first_chunk() else {
            return;
        };
        if negotiator.client_flags(*flags).is_err() {
            return;
        }
        let mut options = 0;
        while let Some((head, after)) = rest.split_first_chunk::<OPTION_BYTES>() {
            let Ok(header) = negotiator.header(head) else {
                break;
            };
            options += 1;
            assert!(options <= OPTIONS_MAX);
            let Some((body, after)) = after.split_at_checked(header.length as usize) else {
                break;
            };
            rest = after;
            let mut out = Vec::new();
            let step = if header.length > OPTION_DATA_MAX {
                negotiator.too_big(header.option, &mut out)
            } else {
                negotiator.option(header.option, body, &mut out)
            };
            // However hostile the option, its answer is bounded and an option is never left unanswered.
            assert!(out.len() < 64 << 10);
            match step {
                Ok(Step::More) => assert!(out.len() >= 20),
                Ok(Step::StartTls) => negotiator.tls_started(),
                Ok(Step::Transmit(export)) => {
                    let _ = negotiator.agreed(&export);
                    break;
                }
                Ok(Step::Abort) | Err(_) => break,
            }
        }
    }
}

/// Fuzz target `nbd_transmission`: the bytes are what a client sends after the handshake. Everything ends,
/// and all memory comes home.
///
/// # Panics
/// When the server misbehaves.
#[expect(clippy::expect_used, reason = "for fuzzing only")]
pub fn fuzz_transmission(data: &[u8]) {
    let disk = Arc::new(RamDisk::new(64, 16, 16));
    let structured = data.first().is_some_and(|byte| byte & 1 == 1);
    let export = Export::new("", Arc::clone(&disk))
        .read_only_if(data.first().is_some_and(|byte| byte & 6 == 6));
    let (mut client, server) = UnixStream::pair().expect("a socket pair");
    let agreed = Agreed {
        structured,
        base_allocation: structured,
    };
    let session = Arc::new(Session::new(
        Link::new(server.into()),
        Arc::new(export),
        agreed,
    ));
    let mut reading = client.try_clone().expect("a descriptor");
    std::thread::scope(|scope| {
        scope.spawn(|| session.write_leftovers());
        scope.spawn(|| {
            // Whatever the server says; it must come to an end.
            let _ = std::io::copy(&mut reading, &mut std::io::sink());
        });
        scope.spawn(|| {
            Receiver::new(Arc::clone(&session)).run();
            session.end();
        });
        // The server may hang up in the middle.
        let _ = client.write_all(data.get(1..).unwrap_or_default());
        let _ = client.shutdown(std::net::Shutdown::Write);
    });
    drop(session);
    assert!(disk.all_frames_free());
}
