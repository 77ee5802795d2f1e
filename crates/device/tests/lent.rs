//! Threads that lend themselves: the medium's work for an answer is done on the thread that waits for it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/layer.rs"]
mod layer;

use common::{Client, create, open, small};
use layer::{Layer, Layered};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::{OpenOptions, Volume};
use vellum_medium::{Done, Fault, FaultMedium, Io, Kind, Medium, Plan};

/// A flag that threads can wait for.
#[derive(Default)]
struct Flag(Mutex<bool>, Condvar);

impl Flag {
    fn set(&self, to: bool) {
        *self.0.lock() = to;
        self.1.notify_all();
    }

    fn wait(&self) {
        let mut is_set = self.0.lock();
        while !*is_set {
            let late = self.1.wait_for(&mut is_set, Duration::from_secs(30));
            assert!(!late.timed_out(), "it did not come to pass in 30 s");
        }
    }
}

/// A medium that counts the operations that are done at once, by kind of call, and can hold them up.
struct Holding {
    medium: Arc<FaultMedium>,
    now: AtomicU64,
    submitted_durable: AtomicU64,
    goes: Flag,
    came: Flag,
}

type Held = Layered<Holding>;

impl Held {
    fn new() -> Arc<Self> {
        let medium = Arc::new(FaultMedium::over_memory(4096, Plan::default()));
        create(&*medium);
        let held = Layered(Holding {
            medium,
            now: AtomicU64::new(0),
            submitted_durable: AtomicU64::new(0),
            goes: Flag::default(),
            came: Flag::default(),
        });
        held.goes.set(true);
        Arc::new(held)
    }

    fn open(self: &Arc<Self>) -> Arc<Volume> {
        let medium: Arc<dyn Medium> = Arc::clone(self) as _;
        open(&medium)
    }
}

impl Layer for Holding {
    fn below(&self) -> &dyn Medium {
        &*self.medium
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        let durable = |kind| matches!(kind, Kind::Sync | Kind::Write { durable: true });
        let count = ios.iter().filter(|io| durable(io.kind)).count() as u64;
        self.submitted_durable.fetch_add(count, Ordering::SeqCst);
        self.medium.submit(ios);
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        self.now.fetch_add(1, Ordering::SeqCst);
        self.came.set(true);
        self.goes.wait();
        self.medium.do_now(io)
    }
}

/// Lends the thread that submits; keeps the answer.
#[derive(Default)]
struct Lender(Mutex<Option<Result<(), BlockError>>>, Flag);

impl Replies for Lender {
    fn complete(&self, _: Request, result: Result<(), BlockError>) {
        *self.0.lock() = Some(result);
        self.1.set(true);
    }

    fn flush(&self) {}

    fn lends_thread(&self) -> bool {
        true
    }
}

/// Submits on a lent thread. Returns the answer, if there is one when the thread is free again.
fn lend(client: &mut Client, op: Op, lba: u64, blocks: u64) -> Arc<Lender> {
    let lender = Arc::new(Lender::default());
    let request = client.request(op, lba, blocks);
    let sink: Arc<dyn Replies> = Arc::clone(&lender) as _;
    client.volume.submit(&mut vec![request], &sink);
    lender
}

/// A write stays in memory for five seconds. After half of them it may be too late for what relies on that.
const IN_TIME: Duration = Duration::from_millis(2500);

#[test]
fn a_flush_and_a_read_are_answered_by_the_thread_that_asks() {
    assert!((0..20).any(|_| the_asking_thread_answers()));
}

/// Returns false if the flush was not in time.
fn the_asking_thread_answers() -> bool {
    let held = Held::new();
    let volume = held.open();
    let mut client = Client::new(&volume);
    let began = Instant::now();
    client.write(3, &[1]).unwrap();
    let before = held.submitted_durable.load(Ordering::SeqCst);
    let flush = lend(&mut client, Op::Flush, 0, 0);
    if began.elapsed() > IN_TIME {
        return false;
    }
    assert!(matches!(flush.0.lock().take(), Some(Ok(()))), "at once");
    assert_eq!(held.now.load(Ordering::SeqCst), 1);
    assert_eq!(held.submitted_durable.load(Ordering::SeqCst), before);
    let read = lend(&mut client, Op::Read, 3, 1);
    assert!(matches!(read.0.lock().take(), Some(Ok(()))), "at once");
    assert_eq!(client.read(3, 1).unwrap(), [1]);
    held.medium.power_cut(1);
    drop(client);
    drop(volume);
    held.medium.restart();
    let volume = held.open();
    assert_eq!(Client::new(&volume).read(3, 1).unwrap(), [1], "durable");
    volume.stop().unwrap();
    true
}

/// A thread that waits for a slow drive holds up no other client: neither writes acknowledged from memory nor another's flush.
#[test]
fn others_go_on_while_a_thread_is_lent() {
    let held = Held::new();
    let volume = held.open();
    let mut client = Client::new(&volume);
    client.write(3, &[1]).unwrap();
    held.goes.set(false);
    thread::scope(|scope| {
        let mut other = Client::new(&volume);
        let first = scope.spawn(move || lend(&mut other, Op::Flush, 0, 0));
        held.came.wait();
        client.write(4, &[2]).unwrap();
        let second = lend(&mut client, Op::Flush, 0, 0);
        assert!(second.0.lock().is_none(), "its chunk is behind another");
        assert_eq!(held.now.load(Ordering::SeqCst), 1, "one at a time");
        held.goes.set(true);
        first.join().unwrap().1.wait();
        second.1.wait();
    });
    drop(client);
    volume.stop().unwrap();
}

/// The end of a volume waits for what a lent thread does, and sees it. For a volume that is only read that may be the last
/// operation.
#[test]
fn a_stop_waits_for_a_lent_thread() {
    for read_only in [false, true] {
        let held = Held::new();
        let writer = held.open();
        Client::new(&writer).write(3, &[1]).unwrap();
        let volume = match read_only {
            false => writer,
            true => {
                writer.stop().unwrap();
                drop(writer);
                let medium: Arc<dyn Medium> = Arc::clone(&held) as _;
                let options = OpenOptions {
                    read_only,
                    ..small()
                };
                Arc::new(Volume::open(medium, &options).unwrap())
            }
        };
        let mut client = Client::new(&volume);
        held.came.set(false);
        held.goes.set(false);
        thread::scope(|scope| {
            let lent = scope.spawn(move || match read_only {
                false => lend(&mut client, Op::Flush, 0, 0),
                true => lend(&mut client, Op::Read, 3, 1),
            });
            held.came.wait();
            let stop = scope.spawn(|| volume.stop());
            thread::sleep(Duration::from_millis(20));
            assert!(!stop.is_finished(), "the medium has our memory");
            held.goes.set(true);
            lent.join().unwrap().1.wait();
            stop.join().unwrap().unwrap();
        });
        drop(volume);
        let volume = held.open();
        assert_eq!(Client::new(&volume).read(3, 1).unwrap(), [1]);
        volume.stop().unwrap();
    }
}

/// A failure on a lent thread poisons the volume as anywhere.
#[test]
fn a_failure_on_a_lent_thread_poisons() {
    assert!((0..20).any(|_| a_failed_flush_poisons()));
}

/// Returns false if the flush was not in time.
fn a_failed_flush_poisons() -> bool {
    let held = Held::new();
    let volume = held.open();
    let mut client = Client::new(&volume);
    let began = Instant::now();
    client.write(3, &[1]).unwrap();
    held.medium
        .set_plan(Plan::default().with_nth(Fault::WriteError, 0));
    let flush = lend(&mut client, Op::Flush, 0, 0);
    if began.elapsed() > IN_TIME {
        return false;
    }
    assert!(matches!(flush.0.lock().take(), Some(Err(_))));
    assert!(client.write(4, &[2]).is_err());
    let told = volume.events();
    let of_medium = |text: &str| text.contains("durable write of memory");
    assert!(
        told.iter().any(|event| of_medium(&event.message)),
        "{told:?}"
    );
    drop(client);
    drop(volume);
    let medium: Arc<dyn Medium> = Arc::clone(&held) as _;
    let volume = Volume::open(medium, &small()).unwrap();
    assert!(Client::new(&Arc::new(volume)).read(3, 1).unwrap() <= vec![1]);
    true
}
