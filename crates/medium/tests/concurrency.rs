//! Many threads submit, one waits.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Memory, files};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::{FaultMedium, Io, Kind, Medium, MemoryMedium, Plan, Prealloc};

const THREADS: u64 = 4;
const PER_THREAD: u64 = 700;

fn media(folder: &std::path::Path, blocks: u64) -> Vec<Arc<dyn Medium>> {
    let mut media: Vec<Arc<dyn Medium>> = vec![
        Arc::new(MemoryMedium::new(blocks)),
        Arc::new(FaultMedium::over_memory(blocks, Plan::default())),
    ];
    for file in files(folder, blocks, Prealloc::Full) {
        media.push(Arc::new(file));
    }
    media
}

/// More operations than fit in flight, from several threads at once, with syncs among them and wakes from outside: each returns
/// exactly once, and what was written is there.
#[test]
fn every_operation_comes_back_once() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = THREADS * PER_THREAD;
    for medium in media(folder.path(), blocks) {
        let memories: Vec<Mutex<Memory>> = (0..THREADS)
            .map(|_| Mutex::new(Memory::new(PER_THREAD as usize)))
            .collect();
        let expected = THREADS * (PER_THREAD + PER_THREAD / 100);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (thread, memory) in memories.iter().enumerate() {
                let (medium, first) = (&medium, thread as u64 * PER_THREAD);
                scope.spawn(move || {
                    let mut memory = memory.lock().unwrap();
                    let mut ios = Vec::new();
                    for i in 0..PER_THREAD {
                        let at = first + i;
                        memory.block_mut(i as usize)[..8].copy_from_slice(&at.to_le_bytes());
                        ios.push(memory.io(
                            at,
                            Kind::Write {
                                durable: i % 50 == 0,
                            },
                            at,
                            i as usize,
                            1,
                        ));
                        if i % 100 == 99 {
                            ios.push(Io::new(u64::MAX, Kind::Sync, Pba(0)));
                            medium.submit(&mut ios);
                        }
                    }
                    medium.submit(&mut ios);
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    medium.wake();
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let (mut seen, mut count) = (vec![false; blocks as usize], 0);
            let (mut done, start) = (Vec::new(), Instant::now());
            while count < expected {
                assert!(
                    start.elapsed() < Duration::from_secs(60),
                    "{}: {count}",
                    medium.name()
                );
                medium.wait(&mut done, Some(Duration::from_secs(10)));
                for one in done.drain(..) {
                    one.result.unwrap();
                    count += 1;
                    if one.io.kind != Kind::Sync {
                        assert!(!std::mem::replace(&mut seen[one.io.token as usize], true));
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(seen.iter().all(|&s| s));
        });
        let mut block = [0; BLOCK_BYTES];
        for at in 0..blocks {
            medium.read(Pba(at), &mut block).unwrap();
            assert_eq!(block[..8], at.to_le_bytes(), "{}", medium.name());
        }
    }
}

/// The submitting thread may end before its operations do.
#[test]
fn operations_outlive_their_thread() {
    let folder = tempfile::tempdir().unwrap();
    for medium in media(folder.path(), 256) {
        let mut memory = Memory::new(256);
        for round in 0..20 {
            std::thread::scope(|scope| {
                let (medium, memory) = (&medium, &mut memory);
                scope.spawn(move || {
                    let mut ios: Vec<_> = (0..256)
                        .map(|i| {
                            memory.io(
                                i,
                                Kind::Write {
                                    durable: i % 16 == 0,
                                },
                                i,
                                i as usize,
                                1,
                            )
                        })
                        .collect();
                    ios.push(Io::new(256, Kind::Sync, Pba(0)));
                    medium.submit(&mut ios);
                });
            });
            let done = common::finish(&*medium, 257);
            assert!(done.into_iter().all(|d| d.result.is_ok()), "round {round}");
        }
    }
}

#[test]
fn a_wake_ends_a_wait_now_or_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for medium in media(folder.path(), 64) {
        let mut done = Vec::new();
        // Wakes before the wait.
        for _ in 0..3 {
            medium.wake();
            medium.wait(&mut done, None);
        }
        // Wakes during the wait; it must not end because of the time-out, which is minutes.
        for _ in 0..50 {
            let waiting = Arc::new(AtomicU64::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(500));
                    waiting.store(1, Ordering::SeqCst);
                    medium.wake();
                });
                while waiting.load(Ordering::SeqCst) == 0 {
                    medium.wait(&mut done, None);
                }
            });
            // The wake may have arrived between the store and the wait: take it.
            medium.wait(&mut done, Some(Duration::ZERO));
        }
        assert!(done.is_empty());
        // Without a wake, the time-out applies.
        let start = Instant::now();
        medium.wait(&mut done, Some(Duration::from_millis(30)));
        assert!(
            start.elapsed() >= Duration::from_millis(25),
            "{}",
            medium.name()
        );
    }
}

/// Wakes must never be lost, even if they race with a waiter that is just taking earlier ones.
#[test]
fn no_wake_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    for medium in media(folder.path(), 64) {
        let asked = AtomicU64::new(0);
        let seen = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        asked.fetch_add(1, Ordering::SeqCst);
                        medium.wake();
                        if asked.load(Ordering::SeqCst).is_multiple_of(7) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut done = Vec::new();
            while seen.load(Ordering::SeqCst) < 6000 {
                let start = Instant::now();
                medium.wait(&mut done, Some(Duration::from_secs(120)));
                assert!(
                    start.elapsed() < Duration::from_secs(100),
                    "{}",
                    medium.name()
                );
                seen.store(asked.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        });
    }
}

/// A medium dropped with operations in flight waits for them before their memory is freed.
#[test]
fn dropping_waits_for_what_is_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let folder = folder.path().join(round.to_string());
        std::fs::create_dir(&folder).unwrap();
        let mut memory = Memory::new(600);
        for medium in files(&folder, 600, Prealloc::Full) {
            let mut ios: Vec<_> = (0..600)
                .map(|i| memory.io(i, Kind::Read, i, i as usize, 1))
                .collect();
            medium.submit(&mut ios);
            drop(medium);
        }
    }
}

/// Waiting costs no CPU.
#[test]
fn idle_is_idle() {
    fn thread_cpu() -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a system call with memory for its result.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    let folder = tempfile::tempdir().unwrap();
    for medium in media(folder.path(), 64) {
        let mut done = Vec::new();
        medium.wake();
        medium.wait(&mut done, None);
        let before = thread_cpu();
        medium.wait(&mut done, Some(Duration::from_millis(300)));
        let used = thread_cpu() - before;
        assert!(
            used < Duration::from_millis(20),
            "{}: {used:?}",
            medium.name()
        );
    }
}
