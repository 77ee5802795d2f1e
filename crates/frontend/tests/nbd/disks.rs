//! Disks and servers for the tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, Extent, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_frontend::nbd::{Export, Listen, Options, Server};
use vellum_frontend::testing::RamDisk;

/// The requests of one submission, and where their answers go.
type Batch = (Vec<Request>, Arc<dyn Replies>);

/// A server on its own socket, and what it reported.
pub struct Served {
    pub server: Server,
    pub reports: Arc<Mutex<Vec<String>>>,
    folder: TempDir,
}

impl Served {
    pub fn empty() -> Self {
        Self::with(Options::default())
    }

    pub fn with(mut options: Options) -> Self {
        let folder = TempDir::new().unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        options.report = Arc::new(move |words| sink.lock().unwrap().push(words.to_owned()));
        let server =
            Server::bind_with(&Listen::Unix(folder.path().join("socket")), options).unwrap();
        Self {
            server,
            reports,
            folder,
        }
    }

    pub fn of(device: Arc<dyn BlockDevice>) -> Self {
        let served = Self::empty();
        served.server.add(Export::new("disk", device)).unwrap();
        served
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.path().display())
    }
}

/// Waits for something that happens soon.
pub fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{what} did not happen"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A disk that answers from its own thread: late, and each batch in another order than it arrived.
pub struct LateDisk {
    ram: Arc<RamDisk>,
    work: Mutex<Sender<Batch>>,
    asked: AtomicUsize,
}

impl LateDisk {
    /// Returns a disk whose requests each take `each`.
    pub fn new(ram: Arc<RamDisk>, each: Duration) -> Arc<Self> {
        let (work, queue): (_, Receiver<Batch>) = channel();
        let disk = Arc::clone(&ram);
        std::thread::spawn(move || {
            let mut seed = 1u64;
            while let Ok((mut batch, replies)) = queue.recv() {
                while !batch.is_empty() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let one = batch.swap_remove((seed >> 33) as usize % batch.len());
                    std::thread::sleep(each);
                    disk.submit(&mut vec![one], &replies);
                }
            }
        });
        Arc::new(Self {
            ram,
            work: Mutex::new(work),
            asked: AtomicUsize::new(0),
        })
    }

    /// How many requests it has got so far.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl BlockDevice for LateDisk {
    fn blocks(&self) -> u64 {
        self.ram.blocks()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn frames(&self) -> &Arc<FramePool> {
        self.ram.frames()
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        self.asked.fetch_add(requests.len(), Ordering::Relaxed);
        self.work
            .lock()
            .unwrap()
            .send((std::mem::take(requests), Arc::clone(replies)))
            .unwrap();
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        self.ram.extents(lba, blocks, max)
    }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..length)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
