//! A delta and its base are read together, and arrive in either order, or not at all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/layer.rs"]
mod layer;

use common::{Client, create, open_under};
use layer::{Layer, Layered};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::Volume;
use vellum_device::block::{BlockError, Op};
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy};
use vellum_medium::fault::{Fault, FaultMedium, Plan};
use vellum_medium::{Io, Kind, Medium};

const LBA: u64 = 3;

/// A medium that performs operations submitted together in that order, or in reverse.
struct Turning {
    medium: FaultMedium,
    backwards: AtomicBool,
    /// The blocks of each group of reads.
    reads: Mutex<Vec<Vec<u64>>>,
}

type Turned = Layered<Turning>;

impl Turned {
    fn break_read(&self, at: u64) {
        self.medium
            .set_plan(Plan::default().with_every(Fault::ReadError, at..at + 1));
    }
}

impl Layer for Turning {
    fn below(&self) -> &dyn Medium {
        &self.medium
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        let reads = ios.iter().filter(|io| io.kind == Kind::Read);
        let reads: Vec<u64> = reads.map(|io| io.at.0).collect();
        if !reads.is_empty() {
            self.reads.lock().push(reads);
        }
        if self.backwards.load(Ordering::Relaxed) {
            ios.reverse();
        }
        self.medium.submit(ios);
    }
}

/// 2000 bytes that do not compress, a few of which depend on the version.
fn version(n: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut random = common::Random(LBA);
    for bytes in block[..2000].chunks_exact_mut(8) {
        bytes.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
    }
    block[80..88].copy_from_slice(&n.to_le_bytes());
    block
}

fn open(medium: &Arc<Turned>, compression: Compression) -> Arc<Volume> {
    let medium: Arc<dyn Medium> = medium.clone();
    let policy = Policy {
        compression,
        deltas: match compression {
            Compression::Off => Deltas::Off,
            _ => Deltas::Packed,
        },
        ..Policy::default()
    };
    open_under(&medium, policy)
}

/// Reads the block, from a medium on which one block may be unreadable by now.
fn read(medium: &Arc<Turned>, broken: Option<u64>) -> Result<Vec<u8>, BlockError> {
    let volume = open(medium, Compression::Off);
    let mut client = Client::new(&volume);
    broken.inspect(|&at| medium.break_read(at));
    medium.reads.lock().clear();
    let request = client.request(Op::Read, LBA, 1);
    let result = client.call(request);
    let bytes = result.map(|request| request.frames.block(0).to_vec());
    medium.medium.set_plan(Plan::default());
    volume.stop().unwrap();
    bytes
}

#[test]
fn a_delta_and_its_base_are_read_together_and_come_in_either_order() {
    let medium = Arc::new(Layered(Turning {
        medium: FaultMedium::over_memory(3000, Plan::default()),
        backwards: AtomicBool::new(false),
        reads: Mutex::default(),
    }));
    create(&*medium);
    let volume = open(&medium, Compression::Lz4);
    let mut client = Client::new(&volume);
    for n in 0..4 {
        let mut request = client.request(Op::Write { fua: false }, LBA, 1);
        request.frames.block_mut(0).copy_from_slice(&version(n));
        client.call(request).unwrap();
        client.flush().unwrap();
    }
    assert_eq!(volume.stats().core["deltas"], 1);
    volume.stop().unwrap();
    drop((client, volume));
    assert!(read(&medium, None).unwrap() == version(3));
    let together = medium.reads.lock()[0].clone();
    assert_eq!(together.len(), 2, "both at a time");
    for backwards in [false, true] {
        medium.backwards.store(backwards, Ordering::Relaxed);
        assert!(read(&medium, None).unwrap() == version(3));
        // The error about a base is that it cannot be used.
        let mut unreadable = 0;
        for &at in &together {
            let Err(BlockError::Io(text)) = read(&medium, Some(at)) else {
                unreachable!("backwards: {backwards}, without {at}: it was read")
            };
            assert!(text.contains(&at.to_string()), "{text} does not name {at}");
            unreadable += u32::from(text.contains("cannot read"));
        }
        assert_eq!(unreadable, 1, "backwards: {backwards}");
    }
}
