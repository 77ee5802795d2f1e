//! After the first calls nothing is allocated. zstd's own memory does not pass through Rust's allocator, and is not
//! counted here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vellum_codec::{Block, Decoder, Encoder, Level, Method};

struct Counted;

thread_local! {
    /// Of this thread only: those of the test harness do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller makes the same promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[test]
fn used_coders_do_not_allocate() {
    let mut base: Box<Block> = Box::new([0; size_of::<Block>()]);
    for (at, byte) in base.iter_mut().enumerate() {
        *byte = b'a' + (at * at / 7 % 23) as u8;
    }
    let mut block = base.clone();
    block[100..3000].rotate_left(9);
    let (mut room, mut out) = (base.clone(), base.clone());
    let mut decoder = Decoder::new();
    for method in [Method::Runs, Method::Lz4, Method::Zstd(Level::DEFAULT)] {
        let mut encoder = Encoder::new(method, method);
        let mut before = 0;
        for round in 0..20 {
            if round == 2 {
                before = ALLOCATIONS.get();
            }
            for with_base in [false, true] {
                let found = match with_base {
                    true => encoder.delta(&block, &base, &mut room[..]),
                    false => encoder.compress(&block, &mut room[..]),
                };
                let Some(found) = found else { continue };
                let bytes = &room[..found.length];
                decoder
                    .decode(found.encoding, bytes, Some(&base), &mut out)
                    .unwrap();
                assert_eq!(out, block);
            }
        }
        let after = ALLOCATIONS.get();
        assert_eq!(after, before, "{method:?}");
    }
}
