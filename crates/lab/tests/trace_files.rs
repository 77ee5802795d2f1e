//! Traces as files: packed, of several processors, in place, with a journal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/binary.rs"]
mod binary;

use binary::{QUEUED, WRITE, event};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use vellum_lab::progress::Watch;
use vellum_lab::replay::{Reading, ReplayError, TraceFile};
use vellum_lab::trace::{DISK_BYTES_MAX, Format, unpacked};
use vellum_trace::{Entry, Header, Journal, Op, Request, Sizes, Writer};

const DISKSIM: &str = "0.5 0 16 8 0\n12.345678 1 24 16 1\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
    let length = zstd_safe::compress(&mut out[..], bytes, 1).unwrap();
    out.truncate(length);
    out
}

fn file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn compression_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let text = DISKSIM.repeat(10_000);
    let halves = text.as_bytes().split_at(text.len() / 2);
    let twice = |pack: fn(&[u8]) -> Vec<u8>| [pack(halves.0), pack(halves.1)].concat();
    for (name, bytes) in [
        ("plain", text.as_bytes().to_vec()),
        ("gzip", gzip(text.as_bytes())),
        ("zstd", zstd(text.as_bytes())),
        // Several archives one after the other are one file.
        ("gzips", twice(gzip)),
        ("zstds", twice(zstd)),
    ] {
        let path = file(dir.path(), name, &bytes);
        let watch = Watch::default();
        let trace = TraceFile::read_watched(&path, &Reading::default(), &watch).unwrap();
        assert_eq!(trace.format(), Format::DiskSim, "{name}");
        assert_eq!(trace.summary().seen.requests, 20_000, "{name}");
        assert_eq!(trace.replay(1, 1).unwrap().count(), 20_000);
        // The whole file was read, and the progress is reported in bytes of the file.
        assert_eq!(watch.seen(), (bytes.len() as u64, bytes.len() as u64));
    }
}

#[test]
fn a_packed_trace_that_is_cut_off_or_damaged_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let text = DISKSIM.repeat(10_000);
    for (name, bytes) in [
        ("gzip", gzip(text.as_bytes())),
        ("zstd", zstd(text.as_bytes())),
    ] {
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 0xff;
        for bytes in [&bytes[..bytes.len() - 7], &damaged] {
            let path = file(dir.path(), name, bytes);
            assert!(
                TraceFile::read(&path, &Reading::default()).is_err(),
                "{name}"
            );
        }
    }
    let path = file(dir.path(), "other", b"\xfd7zXZ\0..");
    let error = TraceFile::read(&path, &Reading::default()).err().unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("packed with xz"), "{source}");
}

#[test]
fn a_decompression_bomb_takes_no_memory() {
    // A gigabyte of zeros without an end of line is refused at the limit for the first line.
    let zeros = vec![0; 1 << 20];
    let one = zstd(&zeros);
    let bomb: Vec<u8> = one.repeat(1024);
    assert!(bomb.len() < 1 << 20);
    let mut reader = unpacked(std::io::Cursor::new(bomb.clone())).unwrap();
    let all = std::io::copy(&mut reader.by_ref().take(1 << 40), &mut std::io::sink());
    assert_eq!(all.unwrap(), 1 << 30);
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "bomb", &bomb);
    let reading = Reading {
        format: Some(Format::DiskSim),
        ..Reading::default()
    };
    let error = TraceFile::read(&path, &reading).err().unwrap();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("a line of more than"), "{source}");
}

#[test]
fn any_of_blktraces_files_opens_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let events = |times: &[u64]| -> Vec<u8> {
        let one = |&at: &u64| event(false, (at, 8 * at, 4096, QUEUED | WRITE), 0);
        times.iter().flat_map(one).collect()
    };
    file(dir.path(), "sda.blktrace.0", &events(&[1, 4]));
    let second = file(dir.path(), "sda.blktrace.1", &gzip(&events(&[2, 3])));
    let trace = TraceFile::read(&second, &Reading::default()).unwrap();
    assert_eq!(trace.summary().seen.requests, 4);
    assert_eq!(trace.summary().seen.backwards, 0);
    let times: Vec<u64> = trace.replay(1, 1).unwrap().map(|r| r.at).collect();
    assert_eq!(times, [0, 1, 2, 3]);
}

#[test]
fn a_vellum_trace_has_its_journal_and_can_be_replayed_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "own", &binary::own());
    let together = TraceFile::read(&path, &Reading::default()).unwrap();
    // The journal first, from the start of its extent.
    assert_eq!(together.journal(), Some((300_000 % 256, 4096)));
    assert_eq!(together.summary().journals, 1);
    let reading = Reading {
        in_place: true,
        ..Reading::default()
    };
    let there = TraceFile::read(&path, &reading).unwrap();
    assert_eq!(there.journal(), Some((300_000, 4096)));
    assert_eq!(there.blocks(), 524_288);
    let places: Vec<u64> = there.replay(1, 1).unwrap().map(|r| r.lba).collect();
    assert_eq!(places, [300_001, 300_003, 0, 7, 7, 8, 7, 8]);
    // Two disks cannot both stay in place.
    let two = file(dir.path(), "two", DISKSIM.as_bytes());
    let error = TraceFile::read(&two, &reading).err().unwrap();
    assert!(matches!(error, ReplayError::Disks { .. }), "{error}");
    let far = file(dir.path(), "far", b"0.5 0 4000000000 8 0\n");
    let error = TraceFile::read(&far, &reading).err().unwrap();
    assert!(error.to_string().contains("a disk of 1907 GiB"), "{error}");
}

#[test]
fn a_discard_of_a_whole_disk_covers_only_touched_extents() {
    let dir = tempfile::tempdir().unwrap();
    let far = DISK_BYTES_MAX - 4096;
    // Each discard covers 2^36 extents. Handled one extent at a time they would never end.
    let text = format!(
        "fio version 3 iolog\n0 /f add\n1 /g add\n2 /f write {far} 4096\n3 /f write 1044480 8192\n\
         4 /f trim 0 {DISK_BYTES_MAX}\n5 /g trim 0 {DISK_BYTES_MAX}\n6 /f trim 4096 {}\n",
        far - 4096
    );
    let path = file(dir.path(), "trace", text.as_bytes());
    let trace = TraceFile::read(&path, &Reading::default()).unwrap();
    assert_eq!(trace.blocks(), 3 * 256);
    let parts: Vec<_> = trace.replay(1, 1).unwrap().skip(2).collect();
    let parts: Vec<_> = parts.iter().map(|part| (part.lba, part.blocks)).collect();
    // The far extent was written first and discarded first; nothing on the other disk was touched.
    assert_eq!(parts, [(256, 512), (0, 256), (257, 511), (0, 255)]);
}

#[test]
fn a_journal_as_long_as_a_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let header = Header {
        id: [3; 16],
        blocks: DISK_BYTES_MAX / 4096,
        began: 1,
        sizes: Sizes::None,
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    writer
        .push(&Entry::Journals(vec![Journal {
            lba: 0,
            blocks: header.blocks,
        }]))
        .unwrap();
    writer
        .push(&Entry::Request(Request {
            at: 1,
            op: Op::Read,
            lba: 0,
            blocks: 1,
            contents: Vec::new(),
            committed: Vec::new(),
        }))
        .unwrap();
    let path = file(dir.path(), "trace", &writer.finish().unwrap());
    let error = TraceFile::read(&path, &Reading::default()).err().unwrap();
    assert!(matches!(error, ReplayError::Journal { .. }), "{error}");
}

#[test]
fn times_do_not_overflow() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "trace",
        b"fio version 3 iolog\n0 /f add\n0 /f read 0 4096\n18446744073709551 /f read 0 4096\n",
    );
    let trace = TraceFile::read(&path, &Reading::default()).unwrap();
    let times: Vec<u64> = trace.replay(1, 3).unwrap().map(|r| r.at).collect();
    assert_eq!(times.len(), 6);
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_trace_that_changes_after_it_was_read_is_not_replayed() {
    let is_changed =
        |error: Option<ReplayError>| matches!(error, Some(ReplayError::Changed { .. }));
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "trace", DISKSIM.repeat(10_000).as_bytes());
    let read = || TraceFile::read(&path, &Reading::default()).unwrap();
    let trace = read();
    // During the replay another file takes its place, with an earlier first request. Later the file gets longer.
    let mut replay = trace.replay(1, 1).unwrap();
    replay.next().unwrap();
    file(
        dir.path(),
        "trace",
        DISKSIM.replace("0.5", "0.1").as_bytes(),
    );
    replay.by_ref().for_each(drop);
    assert!(is_changed(replay.error()));
    assert!(is_changed(trace.replay(1, 1).err()));
    assert!(is_changed(trace.requests().err()));
    let trace = read();
    assert_eq!(trace.replay(1, 1).unwrap().count(), 2);
    file(dir.path(), "trace", DISKSIM.repeat(2).as_bytes());
    assert!(is_changed(trace.replay(1, 1).err()));
    // A processor's file that comes late.
    let one = event(false, (1, 8, 4096, QUEUED | WRITE), 0);
    let path = file(dir.path(), "sda.blktrace.0", &one);
    let trace = TraceFile::read(&path, &Reading::default()).unwrap();
    file(dir.path(), "sda.blktrace.1", &one);
    assert!(is_changed(trace.replay(1, 1).err()));
}

#[test]
fn reading_can_be_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "trace", DISKSIM.as_bytes());
    let watch = Watch::default();
    watch.stop();
    let error = TraceFile::read_watched(&path, &Reading::default(), &watch).err();
    assert!(matches!(error, Some(ReplayError::Interrupted { .. })));
}
