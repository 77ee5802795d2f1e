//! Writes that are answered before the core gets them. Requests that rely on one wait, and no others do.
//!
//! The thread that submits a write is held up where it delivers the answer, so that everything here happens while the core does
//! not know about it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Client, Random, assert_sound, create, create_keeping, fills, open_packing, wait_for};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vellum_core::addr::Lba;
use vellum_device::Volume;
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::Quota;
use vellum_device::pack::Compression;
use vellum_medium::{Fault, FaultMedium, Medium, Plan};

/// Far from where a scan looks for partitions and file systems: changes of those are not answered early.
const LBA: u64 = 1000;
const SECONDS: Duration = Duration::from_secs(30);
/// A request that waits is not answered in this time.
const A_WHILE: Duration = Duration::from_millis(50);

fn medium() -> Arc<FaultMedium> {
    let medium = Arc::new(FaultMedium::over_memory(6000, Plan::default()));
    create(&*medium);
    medium
}

fn open(medium: &Arc<FaultMedium>) -> Arc<Volume> {
    let medium: Arc<dyn Medium> = medium.clone();
    let volume = open_packing(&medium, Compression::ZSTD);
    // Free blocks are discarded when a volume is opened, and no write is answered early before that is complete.
    wait_for(&volume, "segments are free", |volume| {
        volume.stats().core["free_segments"] > 9
    });
    volume
}

/// Holds up the thread that delivers an answer to it, until it is released.
#[derive(Default)]
struct Gate {
    /// Whether a thread is held up, and whether it may continue.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Replies for Gate {
    fn complete(&self, _: Request, result: Result<(), BlockError>) {
        assert!(result.is_ok(), "{result:?}");
    }

    fn flush(&self) {
        let mut state = self.state.lock();
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            let late = self.changed.wait_for(&mut state, SECONDS).timed_out();
            assert!(!late, "nobody has let it go on in time");
        }
    }
}

/// A write that is answered, on a thread that has not handed it over.
struct HeldUp {
    gate: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
}

impl HeldUp {
    fn write(client: &mut Client, lba: u64, fill: u64) -> Self {
        let gate = Arc::new(Gate::default());
        let replies: Arc<dyn Replies> = gate.clone();
        let volume = Arc::clone(&client.volume);
        let mut requests = vec![client.write_request(lba, &[fill], false)];
        let thread = thread::spawn(move || volume.submit(&mut requests, &replies));
        let mut state = gate.state.lock();
        while !state.0 {
            let late = gate.changed.wait_for(&mut state, SECONDS).timed_out();
            assert!(!late, "it is not answered");
        }
        drop(state);
        Self {
            gate,
            thread: Some(thread),
        }
    }

    fn let_go(&mut self) {
        self.gate.state.lock().1 = true;
        self.gate.changed.notify_all();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for HeldUp {
    fn drop(&mut self) {
        self.gate.state.lock().1 = true;
        self.gate.changed.notify_all();
    }
}

/// An answer that a thread waits for.
struct Later(Sender<Result<Vec<u64>, BlockError>>);

impl Replies for Later {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        let _ = self.0.send(result.map(|()| fills(&request)));
    }

    fn flush(&self) {}
}

/// Another client's request, on a separate thread.
struct Asked {
    answer: Receiver<Result<Vec<u64>, BlockError>>,
    thread: JoinHandle<()>,
}

fn ask(client: &mut Client, op: Op, lba: u64) -> Asked {
    let blocks = u64::from(op != Op::Flush);
    let mut requests = vec![client.request(op, lba, blocks)];
    let (told, answer) = channel();
    let replies: Arc<dyn Replies> = Arc::new(Later(told));
    let volume = Arc::clone(&client.volume);
    let thread = thread::spawn(move || volume.submit(&mut requests, &replies));
    Asked { answer, thread }
}

impl Asked {
    fn assert_waits(&self, who: &str) {
        let told = self.answer.recv_timeout(A_WHILE);
        assert!(told.is_err(), "{who} does not wait: {told:?}");
    }

    /// The answer, once the volume is not held up any more.
    fn told(self) -> Result<Vec<u64>, BlockError> {
        let told = self.answer.recv_timeout(SECONDS).unwrap();
        self.thread.join().unwrap();
        told
    }
}

#[test]
fn requests_that_rely_on_an_answer_wait_and_no_others() {
    let medium = medium();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(LBA + 1, &[80]).unwrap();
    let mut held = HeldUp::write(&mut client, LBA, 71);
    let flush = ask(&mut client, Op::Flush, 0);
    let durable = ask(&mut client, Op::WriteZeroes { fua: true }, LBA + 30);
    let read = ask(&mut client, Op::Read, LBA);
    let discard = ask(&mut client, Op::Discard { fua: false }, LBA + 31);
    for (answer, who) in [
        (&flush, "a flush"),
        (&durable, "what is to be durable"),
        (&read, "a read of it"),
        (&discard, "a discard"),
    ] {
        answer.assert_waits(who);
    }
    let another = ask(&mut client, Op::Read, LBA + 1);
    assert_eq!(another.told().unwrap(), [80]);
    held.let_go();
    assert_eq!(read.told().unwrap(), [71]);
    for answer in [flush, durable, discard] {
        answer.told().unwrap();
    }
    // The flush was for it.
    drop(client);
    drop(volume);
    medium.power_cut(1);
    medium.restart();
    let volume = open(&medium);
    assert_eq!(Client::new(&volume).read(LBA, 1).unwrap(), [71]);
    volume.stop().unwrap();
}

#[test]
fn a_write_after_an_answer_takes_effect_after_it() {
    let medium = medium();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let mut first = HeldUp::write(&mut client, LBA, 71);
    let mut second = HeldUp::write(&mut client, LBA, 72);
    // The second write may continue, but is after the first one.
    second.gate.state.lock().1 = true;
    second.gate.changed.notify_all();
    thread::sleep(A_WHILE);
    first.let_go();
    second.let_go();
    assert_eq!(client.read(LBA, 1).unwrap(), [72]);
    volume.stop().unwrap();
}

#[test]
fn a_stop_and_block_status_wait_for_answered_writes() {
    let medium = medium();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let mut held = HeldUp::write(&mut client, LBA, 71);
    let theirs = Arc::clone(&volume);
    let mapped = thread::spawn(move || theirs.extents(Lba(LBA), 1, 8));
    let theirs = Arc::clone(&volume);
    let stopped = thread::spawn(move || theirs.stop());
    thread::sleep(A_WHILE);
    assert!(!mapped.is_finished() && !stopped.is_finished());
    held.let_go();
    assert!(mapped.join().unwrap().iter().all(|extent| extent.mapped));
    stopped.join().unwrap().unwrap();
    drop((client, volume));
    assert_sound(&*medium);
    let volume = open(&medium);
    assert_eq!(Client::new(&volume).read(LBA, 1).unwrap(), [71]);
    volume.stop().unwrap();
}

#[test]
fn a_promise_broken_by_a_failed_medium_is_reported() {
    assert!((0..20).any(|_| broken_promise_is_reported()));
}

/// Returns false if it took so long that a block may have been written back too early.
fn broken_promise_is_reported() -> bool {
    let medium = medium();
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(LBA, &[70]).unwrap();
    client.flush().unwrap();
    let began = Instant::now();
    client.write(LBA + 1, &[80]).unwrap();
    let mut held = HeldUp::write(&mut client, LBA, 71);
    // The write of the next block fails; it is written back when it is five seconds old.
    medium.set_plan(Plan::default().with_nth(Fault::WriteError, 0));
    if began.elapsed() > Duration::from_secs(2) {
        return false;
    }
    wait_for(&volume, "a write of the medium that fails", |volume| {
        !volume.events().is_empty()
    });
    let flush = ask(&mut client, Op::Flush, 0);
    flush.assert_waits("a flush");
    held.let_go();
    assert!(flush.told().is_err());
    assert!(client.flush().is_err() && client.write(LBA + 2, &[9]).is_err());
    assert_eq!(client.read(LBA + 1, 1).unwrap(), [80], "it is in memory");
    let lost = client.read(LBA, 1).unwrap_err().to_string();
    assert!(lost.contains("blocks 1000+1 is lost"), "{lost}");
    drop((client, volume));
    medium.set_plan(Plan::default());
    let volume = open(&medium);
    assert_eq!(Client::new(&volume).read(LBA, 1).unwrap(), [70]);
    volume.stop().unwrap();
    true
}

/// Passes the next number on when a write is answered: whichever thread is free writes it.
struct Relay {
    next: u64,
    go_on: Sender<u64>,
}

impl Replies for Relay {
    fn complete(&self, _: Request, result: Result<(), BlockError>) {
        if result.is_ok() {
            let _ = self.go_on.send(self.next);
        }
    }

    fn flush(&self) {}
}

/// Writes numbers to blocks, each when the previous one is answered, from four threads. Returns the block that each was written
/// to.
fn relay(volume: &Arc<Volume>, blocks: u64, seed: u64, writes: u64) -> Vec<u64> {
    let (go_on, numbers) = channel();
    go_on.send(1).unwrap();
    let numbers = Mutex::new(numbers);
    let written = Mutex::new(Vec::new());
    let go_on = Mutex::new(go_on);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::new(volume);
                loop {
                    let number = numbers.lock().recv_timeout(A_WHILE);
                    let Some(number) = number.ok().filter(|number| *number <= writes) else {
                        return;
                    };
                    let lba = LBA + Random(seed ^ number).below(blocks);
                    written.lock().push(lba);
                    // The held-up block may take long to encode, and the one after it little time.
                    let Ok(mut frames) = volume.frames().take(Quota::Write, 1) else {
                        return;
                    };
                    frames
                        .block_mut(0)
                        .copy_from_slice(&common::block_of(number));
                    let mut request = client.request(Op::Flush, 0, 0);
                    request.op = Op::Write { fua: false };
                    (request.lba, request.blocks, request.frames) = (Lba(lba), 1, frames);
                    let go_on = go_on.lock().clone();
                    let next = number + 1;
                    let replies: Arc<dyn Replies> = Arc::new(Relay { next, go_on });
                    volume.submit(&mut vec![request], &replies);
                }
            });
        }
    });
    written.into_inner()
}

#[test]
fn a_power_cut_leaves_a_prefix_of_the_answers_of_all_threads() {
    for seed in 0..30 {
        let medium = medium();
        let volume = open(&medium);
        medium.set_plan(Plan::seeded(seed).with_cut_after(seed % 9));
        let blocks = 300;
        let written = relay(&volume, blocks, seed, 4000);
        drop(volume);
        medium.power_cut(seed);
        medium.restart();
        medium.set_plan(Plan::default());
        let volume = open(&medium);
        let mut client = Client::new(&volume);
        let found: Vec<u64> = (0..blocks)
            .flat_map(|lba| client.read(LBA + lba, 1).unwrap())
            .collect();
        let newest = found.iter().copied().max().unwrap() as usize;
        let mut expected = vec![0; blocks as usize];
        for (index, &lba) in written[..newest].iter().enumerate() {
            expected[(lba - LBA) as usize] = index as u64 + 1;
        }
        assert_eq!(found, expected, "seed {seed}: no prefix of {newest} writes");
        volume.stop().unwrap();
    }
}

/// The volume and its clones have one order, and one flush for all of them.
#[test]
fn a_flush_of_a_clone_waits_for_what_the_volume_has_answered() {
    let medium = Arc::new(FaultMedium::over_memory(6000, Plan::default()));
    create_keeping(&*medium, 2000, 200);
    let volume = open(&medium);
    volume.take_snapshot("s", 1).unwrap();
    volume.clone_snapshot("s", "c", 2).unwrap();
    let clone = volume.clone_at("c").unwrap().unwrap();
    let mut client = Client::new(&volume);
    let mut held = HeldUp::write(&mut client, LBA, 71);
    let mut requests = vec![client.request(Op::Flush, LBA, 0)];
    let (told, answer) = channel();
    let replies: Arc<dyn Replies> = Arc::new(Later(told));
    let thread = thread::spawn(move || clone.submit(&mut requests, &replies));
    let asked = Asked { answer, thread };
    asked.assert_waits("a flush of the clone");
    held.let_go();
    asked.told().unwrap();
}
