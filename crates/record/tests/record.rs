//! A device that is recorded behaves like one that is not, and the trace tells what was asked of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use std::fs::File;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::Quota;
use vellum_frontend::testing::RamDisk;
use vellum_record::{OnEvent, RecordError, Recorder, Sizes};
use vellum_trace::{Content, Entry, Op as Told, Reader};

struct Answers(Mutex<Sender<(Request, Result<(), BlockError>)>>);

impl Replies for Answers {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        self.0.lock().unwrap().send((request, result)).unwrap();
    }

    fn flush(&self) {}
}

/// Sends a request, and waits for the answer.
fn ask(device: &dyn BlockDevice, op: Op, lba: u64, fills: &[u8]) -> (Vec<u8>, bool) {
    let (sender, answers) = channel();
    let replies: Arc<dyn Replies> = Arc::new(Answers(Mutex::new(sender)));
    let quota = match op {
        Op::Read => Quota::Read,
        _ => Quota::Write,
    };
    let carries = matches!(op, Op::Read | Op::Write { .. });
    let mut frames = device
        .frames()
        .take(quota, if carries { fills.len() } else { 0 })
        .unwrap();
    if quota == Quota::Write {
        for (index, &fill) in fills.iter().enumerate().take(frames.len()) {
            frames.block_mut(index).fill(fill);
        }
    }
    let request = Request {
        tag: 7,
        op,
        lba: Lba(lba),
        blocks: fills.len() as u64,
        frames,
    };
    device.submit(&mut vec![request], &replies);
    let (request, result) = answers.recv().unwrap();
    let read = (0..request.frames.len()).map(|index| request.frames.block(index)[0]);
    (read.collect(), result.is_ok())
}

fn silent() -> OnEvent {
    Arc::new(|event: &str| panic!("{event}"))
}

#[test]
fn requests_are_in_the_trace_and_are_served_as_usual() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let disk = Arc::new(RamDisk::new(1000, 64, 64));
    let recorder = Recorder::start(disk.clone(), &path, Sizes::Zstd, silent()).unwrap();
    let (write, fua) = (Op::Write { fua: false }, Op::Write { fua: true });
    assert!(ask(&*recorder, write, 5, &[1, 2, 0, 1]).1);
    assert!(ask(&*recorder, fua, 5, &[1]).1);
    assert_eq!(
        ask(&*recorder, Op::Read, 4, &[0; 4]),
        (vec![0, 1, 2, 0], true)
    );
    assert!(ask(&*recorder, Op::Flush, 0, &[]).1);
    assert!(ask(&*recorder, Op::Discard { fua: false }, 6, &[0; 2]).1);
    assert!(ask(&*recorder, Op::WriteZeroes { fua: true }, 5, &[0]).1);
    // Refused by the device, and so not recorded.
    assert!(!ask(&*recorder, write, 999, &[1, 1]).1);
    assert_eq!(ask(&*recorder, Op::Read, 5, &[0]), (vec![0], true));
    let state = recorder.stop();
    assert_eq!((state.requests, state.lost, &state.ended), (7, 0, &None));
    // It goes on without being recorded.
    assert!(ask(&*recorder, write, 5, &[9]).1);
    assert!(disk.all_frames_free());

    let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.header().blocks, 1000);
    assert_eq!(reader.header().sizes, Sizes::Zstd);
    let entries: Vec<Entry> = reader.by_ref().map(Result::unwrap).collect();
    assert!(reader.is_whole());
    let requests: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Request(request) => Some(request),
            _ => None,
        })
        .collect();
    let shape: Vec<_> = requests.iter().map(|r| (r.op, r.lba, r.blocks)).collect();
    assert_eq!(
        shape,
        [
            (Told::Write { fua: false }, 5, 4),
            (Told::Write { fua: true }, 5, 1),
            (Told::Read, 4, 4),
            (Told::Flush, 0, 0),
            (Told::Discard { fua: false }, 6, 2),
            (Told::WriteZeroes { fua: true }, 5, 1),
            (Told::Read, 5, 1),
        ]
    );
    let first = &requests[0].contents;
    assert_eq!(first[0].content, first[3].content);
    assert_ne!(first[0].content, first[1].content);
    assert_eq!(first[2].content, Content::Zero);
    assert!(first[0].packed.unwrap() < 100);
    let over = requests[1].contents[0];
    assert!(over.delta.unwrap() < 100, "what was there before is known");
    assert!(requests.windows(2).all(|two| two[0].at <= two[1].at));
}

#[test]
fn a_trace_has_room_for_the_longest_pledged_transaction() {
    assert_eq!(
        vellum_trace::limits::COMMITTED_MAX,
        vellum_device::limits::COMMITTED_PAIRS
    );
}

#[test]
fn an_existing_trace_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    std::fs::write(&path, "mine").unwrap();
    let error = Recorder::start(Arc::new(RamDisk::new(8, 8, 8)), &path, Sizes::Lz4, silent()).err();
    assert!(matches!(error, Some(RecordError::Create { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_trace_has_no_user_data_and_a_key_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let traces = [1, 2].map(|n| {
        let path = dir.path().join(n.to_string());
        let recorder = Recorder::start(
            Arc::new(RamDisk::new(100, 8, 8)),
            &path,
            Sizes::Lz4,
            silent(),
        );
        let recorder = recorder.unwrap();
        ask(&*recorder, Op::Write { fua: false }, 0, &[0xa5; 8]);
        recorder.stop();
        std::fs::read(&path).unwrap()
    });
    assert!(traces.iter().all(|trace| {
        trace.len() < BLOCK_BYTES && !trace.windows(3).any(|bytes| bytes == [0xa5; 3])
    }));
    let digest = |bytes: &[u8]| {
        let contents = Reader::new(bytes).unwrap().find_map(|entry| match entry {
            Ok(Entry::Request(request)) => Some(request.contents[0].content),
            _ => None,
        });
        contents.unwrap()
    };
    assert_ne!(digest(&traces[0]), digest(&traces[1]));
}

#[test]
fn requests_are_in_the_file_soon() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let recorder = Recorder::start(
        Arc::new(RamDisk::new(100, 8, 8)),
        &path,
        Sizes::Lz4,
        silent(),
    )
    .unwrap();
    ask(&*recorder, Op::Write { fua: false }, 0, &[1]);
    let there = || Reader::new(File::open(&path).unwrap()).unwrap().count() == 2;
    let began = std::time::Instant::now();
    while !there() {
        assert!(began.elapsed().as_secs() < 20, "it is not");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    recorder.stop();
}
