//! fio's iologs, blktrace's events, CSV with a column map, and Vellum's traces: what is read, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "common/binary.rs"]
mod binary;

use binary::{QUEUED, READ, WRITE, event};
use vellum_core::addr::Nanos;
use vellum_lab::content::Content;
use vellum_lab::trace::{Columns, Format, Op, Reader, Traced, detect};

const FIO: &str = "\
fio version 3 iolog
36 /f add
185 /f open
188 /f read 61440 4096
3353 /f write 774144 8192
3400 /f datasync 0 0
3500 /f trim 0 1048576
9000 /g write 0 4096
9001 /f close
";
const FIO_2: &str = "\
fio version 2 iolog
/f add
/f write 4096 4096
/f wait 1500
/f wait 500 0
/f sync
/f read 0 4096
";

fn read(format: Format, bytes: &[u8]) -> Result<Vec<Traced>, String> {
    let reader = Reader::new(bytes, format);
    reader.collect::<Result<_, _>>().map_err(|e| e.to_string())
}

#[test]
fn formats_are_detected_by_content() {
    let (little, big) = (binary::blktrace(false), binary::blktrace(true));
    let own = binary::own();
    for (bytes, format) in [
        (FIO.as_bytes(), Format::Fio),
        (FIO_2.as_bytes(), Format::Fio),
        (&little, Format::Blktrace),
        (&big, Format::Blktrace),
        (&own, Format::Vellum),
    ] {
        assert_eq!(detect(bytes).unwrap(), format);
        assert_eq!(detect(&bytes[..bytes.len() - 3]).unwrap(), format);
    }
    for (head, name) in [(&b"\xfd7zXZ\0 "[..], "xz"), (b"PK\x03\x04....", "zip")] {
        let error = detect(head).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("unpack"), "{error}");
    }
}

#[test]
fn fio_has_times_or_waits() {
    let traced = read(Format::Fio, FIO.as_bytes()).unwrap();
    let write = Op::Write { fua: false };
    let ops: Vec<Op> = traced.iter().map(|r| r.op).collect();
    assert_eq!(ops, [Op::Read, write, Op::Flush, Op::DISCARD, write]);
    assert_eq!(traced[1].at, Nanos(3_353_000));
    assert_eq!((traced[1].offset, traced[1].bytes), (774_144, 8192));
    assert_ne!(traced[1].disk, traced[4].disk, "two files");
    let traced = read(Format::Fio, FIO_2.as_bytes()).unwrap();
    let times: Vec<u64> = traced.iter().map(|r| r.at.0).collect();
    assert_eq!(times, [0, 2_000_000, 2_000_000]);
}

#[test]
fn blktrace_is_read_in_either_byte_order_and_counts_each_request_once() {
    for big in [false, true] {
        let traced = read(Format::Blktrace, &binary::blktrace(big)).unwrap();
        let ops: Vec<Op> = traced.iter().map(|r| r.op).collect();
        let (write, durable) = (Op::Write { fua: false }, Op::Write { fua: true });
        assert_eq!(
            ops,
            [write, Op::Read, Op::Flush, durable, Op::DISCARD, write]
        );
        assert_eq!((traced[0].at, traced[0].offset), (Nanos(1000), 80 * 512));
        assert_eq!(traced[4].bytes, 1 << 20);
    }
}

#[test]
fn the_files_of_several_processors_are_merged_by_time() {
    let file = |times: &[u64]| -> Vec<u8> {
        let one = |&at: &u64| event(false, (at, 8 * at, 4096, QUEUED | WRITE), 0);
        times.iter().flat_map(one).collect()
    };
    let (one, other, none) = (file(&[1, 4, 9]), file(&[2, 3, 10]), file(&[]));
    let reader = Reader::merged(vec![&one[..], &none[..], &other[..]]);
    let times: Vec<u64> = reader.map(|r| r.unwrap().at.0).collect();
    assert_eq!(times, [1, 2, 3, 4, 9, 10]);
}

#[test]
fn csv_is_read_by_its_map() {
    let read = |map: &str, text: &str| -> Result<Vec<Traced>, String> {
        let reader = Reader::with_columns(text.as_bytes(), map.parse::<Columns>().unwrap());
        reader.collect::<Result<_, _>>().map_err(|e| e.to_string())
    };
    let traced = read(
        "time=0:us,disk=1,op=2,offset=3:sector,length=4",
        "ts,host,kind,lba,bytes\n1.5,hm,Write,80,4096\n2,hm,R,160,512\n3,web,D,0,8192\n4,web,flush,0,0\n",
    )
    .unwrap();
    let ops: Vec<Op> = traced.iter().map(|r| r.op).collect();
    let write = Op::Write { fua: false };
    assert_eq!(ops, [write, Op::Read, Op::DISCARD, Op::Flush]);
    assert_eq!((traced[0].at, traced[0].offset), (Nanos(1500), 40_960));
    assert!(traced[1].disk == traced[0].disk && traced[2].disk != traced[0].disk);
    // The UMass Financial traces: ASU, LBA, size, opcode, seconds.
    let umass = "0,303567,3584,w,0.000000\n1,55590,3072,r,0.026214\n";
    let map = "disk=0,offset=1:sector,length=2,op=3,time=4:s";
    assert_eq!(read(map, umass).unwrap()[1].at, Nanos(26_214_000));
    let words = "op=0,offset=1:block,length=2:block,read=17,write=18,separator=semicolon";
    let traced = read(words, "18;3;1\n17;4;2\n").unwrap();
    assert_eq!((traced[0].offset, traced[1].bytes), (12_288, 8192));
    for (map, text, error) in [
        ("op=0,offset=1,length=9", "R,0,4096\n", "line 1: 3 columns"),
        (
            "op=0,offset=1,length=2",
            "R,0,4096\nX,0,4096\n",
            "line 2: op is \"X\"",
        ),
        ("op=0,offset=1,length=2", "R,-5,4096\n", "offset is \"-5\""),
        (
            "op=0,offset=1:block,length=2",
            "R,18446744073709551615,1\n",
            "more bytes than",
        ),
        (
            "op=0,offset=1,length=2",
            "kind,offset,length\n",
            "no request in 1",
        ),
    ] {
        let got = read(map, text).unwrap_err();
        assert!(got.contains(error), "{got}");
    }
}

#[test]
fn a_vellum_trace_has_contents_journals_and_losses() {
    let bytes = binary::own();
    let mut reader = Reader::new(&bytes[..], Format::Vellum);
    let traced: Vec<Traced> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(traced.len(), 8);
    assert_eq!(traced[0].contents[1], Content::ZERO);
    assert_eq!(traced[0].contents[0], traced[3].contents[0]);
    assert_eq!(traced[1].op, Op::Write { fua: true });
    assert!(traced[5].contents.is_empty(), "not known");
    let zeros = Op::Discard {
        zero: true,
        fua: false,
    };
    assert_eq!([traced[6].op, traced[7].op], [Op::DISCARD, zeros]);
    let seen = reader.seen();
    assert_eq!((seen.requests, seen.lost, seen.cut), (8, 5, false));
    assert_eq!(reader.journals()[0].blocks, 4096);
    assert_eq!(reader.disk_blocks(), Some(524_288));
    let known = reader.known().unwrap();
    assert_eq!(known.packed, (3, 2064));
    assert_eq!(known.delta, (2, 23));
    assert_eq!(known.classes.iter().sum::<u64>(), 4);
    // Without its end it is read, and reported as cut.
    let mut reader = Reader::new(&bytes[..bytes.len() - 20], Format::Vellum);
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 8);
    assert!(reader.seen().cut);
}

#[test]
fn invalid_input_is_refused_with_its_place() {
    let good = event(false, (1, 8, 4096, QUEUED | READ), 0);
    let later = [&good[..], &[0; 48]].concat();
    let mut version = good.clone();
    version[0] = 8;
    let carries = event(false, (1, 8, 4096, QUEUED | READ), 20);
    let far = event(false, (1, u64::MAX, 4096, QUEUED | READ), 0);
    let notices = event(false, (1, 0, 0, binary::NOTICE | 1), 0);
    for (format, bytes, words) in [
        (Format::Blktrace, &later[..], "byte 48: no event"),
        (
            Format::Blktrace,
            &version,
            "byte 0: an event of blktrace's version 8",
        ),
        (Format::Blktrace, &good[..40], "ends within an event"),
        (Format::Blktrace, &carries[..60], "ends within an event"),
        (Format::Blktrace, &far, "no disk has so many"),
        (Format::Blktrace, &notices, "no request in 1"),
        (Format::Blktrace, b"", "no request in 0"),
        (
            Format::Fio,
            b"fio version 4 iolog\n",
            "line 1: first line is",
        ),
        (Format::Fio, b"fio version 3 iolog\n", "no request in 1"),
        (
            Format::Fio,
            b"fio version 3 iolog\nx /f read 0 4096\n",
            "line 2: time is \"x\"",
        ),
        (
            Format::Fio,
            b"fio version 3 iolog\n1 /f wait 5 5\n",
            "action is \"wait\"",
        ),
        (
            Format::Fio,
            b"fio version 3 iolog\n1 /f read 0\n",
            "4 columns where fio has 3 or 5",
        ),
        (
            Format::Fio,
            b"fio version 2 iolog\n/f wait 99999999999999999999\n",
            "wait is",
        ),
        (
            Format::Fio,
            b"fio version 2 iolog\n/f write\n",
            "action is \"write\"",
        ),
        (
            Format::Vellum,
            b"VELTRACE",
            "byte 0: the file ends within its header",
        ),
        (Format::Vellum, b"1.0 0 16 8 0\n", "byte 0: not a trace"),
    ] {
        let error = read(format, bytes).unwrap_err();
        assert!(error.contains(words), "{}: {error}", format.name());
    }
}
