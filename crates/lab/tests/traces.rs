//! Trace formats: what is read, what is refused, and the messages. The excerpts were written for this test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use std::io::Write;
use std::path::Path;
use vellum_core::addr::Nanos;
use vellum_lab::content::Content;
use vellum_lab::replay::{Reading, RepeatedContents, TraceFile};
use vellum_lab::trace::{Format, LINE_BYTES_MAX, Op, Reader, Traced, detect};

const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000005000   697  D   W 223490 + 8 [kjournald]
  8,0    3        4     0.000105000     0  C   W 223490 + 8 [0]
  8,0    1        5     0.250000000   700  Q  RA 4096 + 64 [cp]
  8,0    1        6     0.300000000   700  Q FWS [fsync]
  8,0    1        7     0.400000000   700  Q  WFS 800 + 8 [fsync]
  8,0    1        8     1.500000000   700  Q   D 0 + 2048 [fstrim]
  8,0    1        0     1.600000000     0  m   N cfq workload slice
CPU0 (8,0):
 Reads Queued:           1,       32KiB
Total (8,0):
";
const FIU_4K: &str = "\
100 1 a 8 8 W 6 0 0123456789abcdef0123456789abcdef
200 1 a 16 16 W 6 0 0123456789abcdef0123456789abcdef620f0b67a91f7f74151bc5be745b7110
300 1 b 8 8 R 6 1 0123456789abcdef0123456789abcdef
";
const MSR: &str = "\
128166372003061629,hm,1,Read,383496192,32768,151
128166372003061729,hm,1,Write,310983680,4096,1331
";
const CLOUD: &str =
    "version,time,op,size,lbn\n1,10,2a,4096,80\n1,11,28,8192,160\n1,12,35,0,0\n1,13,12,0,0\n";
const ALIBABA: &str =
    "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n";
const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,6160447,8,1,1627\n";
const DISKSIM: &str = "0.5 0 16 8 0\n12.345678 1 24 16 1\n";
const MQSIM: &str = "938513000 4 264719032 16 0\n938828000 3 197570568 16 1\n";

fn read(format: Format, text: &str) -> Result<Vec<Traced>, String> {
    let reader = Reader::new(text.as_bytes(), format);
    reader.collect::<Result<_, _>>().map_err(|e| e.to_string())
}

#[test]
fn each_format_is_detected_by_content() {
    for (text, format) in [
        (BLKPARSE, Format::Blkparse),
        (FIU_4K, Format::Fiu),
        (MSR, Format::Msr),
        (CLOUD, Format::CloudPhysics),
        (ALIBABA, Format::Alibaba),
        (TENCENT, Format::Tencent),
        (DISKSIM, Format::DiskSim),
        (MQSIM, Format::Mqsim),
    ] {
        assert_eq!(detect(text.as_bytes()).unwrap(), format);
        // It is still detected when cut off anywhere after the first two lines.
        assert_eq!(detect(&text.as_bytes()[..text.len() - 3]).unwrap(), format);
    }
    let error = detect(b"\x01\x02\x03 not a trace\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("--format"), "{error}");
    assert!(detect(b"").is_err());
}

#[test]
fn blkparse_counts_each_request_once() {
    let traced = read(Format::Blkparse, BLKPARSE).unwrap();
    let ops: Vec<Op> = traced.iter().map(|r| r.op).collect();
    let (write, durable) = (Op::Write { fua: false }, Op::Write { fua: true });
    // Of the three actions, Q is seen first, so D and C are skipped.
    assert_eq!(ops, [write, Op::Read, Op::Flush, durable, Op::DISCARD]);
    assert_eq!(traced[0].at, Nanos(1829));
    assert_eq!(traced[0].offset, 223_490 * 512);
    // Half a block at each end makes it two blocks.
    assert_eq!(traced[0].blocks(), 2);
    assert_eq!(traced[4].bytes, 1 << 20);
}

#[test]
fn fiu_has_contents_in_both_of_its_widths() {
    let traced = read(Format::Fiu, FIU_4K).unwrap();
    assert_eq!(traced[1].contents[0], traced[0].contents[0]);
    assert_eq!(traced[1].contents[1], Content::ZERO);
    assert_ne!(traced[0].disk, traced[2].disk);
    let eight = |last: &str| {
        format!(
            "1 1 a 0 8 W 6 0 {}{last}\n",
            "bf619eac0cdf3f68d496ea9344137e8b".repeat(7)
        )
    };
    let zero = read(Format::Fiu, &eight("bf619eac0cdf3f68d496ea9344137e8b")).unwrap();
    let other = read(Format::Fiu, &eight("bf619eac0cdf3f68d496ea9344137e8c")).unwrap();
    assert_eq!(zero[0].contents, [Content::ZERO]);
    assert_ne!(other[0].contents, [Content::ZERO]);
}

#[test]
fn other_formats_have_time_place_and_kind() {
    let msr = read(Format::Msr, MSR).unwrap();
    assert_eq!(msr[1].at.0 - msr[0].at.0, 10_000);
    assert_eq!(
        (msr[0].op, msr[0].offset, msr[0].bytes),
        (Op::Read, 383_496_192, 32_768)
    );
    let cloud = read(Format::CloudPhysics, CLOUD).unwrap();
    assert_eq!(cloud.len(), 3, "an inquiry is no request of ours");
    assert_eq!(
        (cloud[1].at, cloud[1].offset),
        (Nanos(11_000_000_000), 160 * 512)
    );
    assert_eq!(cloud[2].op, Op::Flush);
    let alibaba = read(Format::Alibaba, ALIBABA).unwrap();
    assert_eq!(
        (alibaba[0].op, alibaba[0].offset, alibaba[0].bytes),
        (Op::Write { fua: false }, 8_792_731_648, 16_384)
    );
    assert_eq!(alibaba[1].at.0 - alibaba[0].at.0, 46_000);
    let tencent = read(
        Format::Tencent,
        &format!("Timestamp,Offset,Size,IOType,VolumeID\n{TENCENT}"),
    );
    let tencent = tencent.unwrap();
    assert_eq!(
        (
            tencent[1].op,
            tencent[1].offset,
            tencent[1].bytes,
            tencent[1].disk
        ),
        (Op::Write { fua: false }, 6_160_447 * 512, 4096, 1627)
    );
    assert_eq!(tencent[1].at.0 - tencent[0].at.0, 1_000_000_000);
    let disksim = read(Format::DiskSim, DISKSIM).unwrap();
    assert_eq!(
        (disksim[1].at, disksim[1].op),
        (Nanos(12_345_678), Op::Read)
    );
    let mqsim = read(Format::Mqsim, MQSIM).unwrap();
    assert_eq!(
        (mqsim[0].at, mqsim[0].op),
        (Nanos(938_513_000), Op::Write { fua: false })
    );
}

/// A format, input that is refused, and words of the error.
const REFUSED: &[(Format, &str, &str)] = &[
    (
        Format::DiskSim,
        "1.0 0 16 8 0\n1.0 0 16 8\n",
        "line 2: 4 columns",
    ),
    (
        Format::DiskSim,
        "1.0 0 -1 8 0\n",
        "line 1: sector is \"-1\"",
    ),
    (Format::DiskSim, "nan 0 1 8 0\n", "time is \"nan\""),
    (Format::DiskSim, "1.0 0 1 0 0\n", "a request of 0 bytes"),
    (Format::DiskSim, "1.0 0 1 99999999 0\n", "at most"),
    (
        Format::DiskSim,
        "1.0 0 18446744073709551615 8 0\n",
        "too many sectors",
    ),
    (
        Format::DiskSim,
        "1.0 0 300000000000000 8 0\n",
        "no disk has so many",
    ),
    (
        Format::DiskSim,
        "99999999999999999999.0 0 1 8 0\n",
        "time is",
    ),
    (Format::DiskSim, "", "no request in 0 lines"),
    (Format::Mqsim, "1 0 1 8 7\n", "type is \"7\""),
    (Format::Fiu, "1 1 a 8 8 W 6 0 0123\n", "4 digits of MD5"),
    (
        Format::Fiu,
        "1 1 a 8 8 X 6 0 0123456789abcdef0123456789abcdef\n",
        "R or W",
    ),
    (
        Format::Fiu,
        "1 1 a 8 8 W 6 0 0123456789abcdef0123456789abcdeg\n",
        "hexadecimal",
    ),
    (Format::Alibaba, "1,X,0,4096,1\n", "R or W"),
    (
        Format::Alibaba,
        "1,W,0,4096\n",
        "4 columns where alibaba has 5",
    ),
    (Format::Tencent, "1,8,8,2,1\n", "0 (read) or 1 (write)"),
    (Format::Tencent, "1,8,-8,1,1\n", "size is \"-8\""),
    (
        Format::Tencent,
        "99999999999,8,8,1,1\n",
        "cannot be counted",
    ),
    (Format::Msr, "1,hm,1,Erase,0,4096,1\n", "Read or Write"),
    (
        Format::CloudPhysics,
        "version,time,op,size,lbn\n1,x,2a,512,1\n",
        "line 2: time",
    ),
    (
        Format::CloudPhysics,
        "version,time,op,size,lbn\n",
        "no request in 1 lines",
    ),
    (
        Format::Blkparse,
        "8;0 1 1 0.1 1 Q W 8 + 8 [x]\n",
        "major,minor",
    ),
    (
        Format::Blkparse,
        "8,0 1 1 0.1 1 Q Z 8 + 8 [x]\n",
        "RWBS is \"Z\"",
    ),
];

#[test]
fn invalid_input_is_refused_with_its_line() {
    let long = format!("1.0 0 16 8 0\n{}", " ".repeat(LINE_BYTES_MAX + 1));
    let too_long = (Format::DiskSim, &*long, "line 2: a line of more than");
    for &(format, text, words) in REFUSED.iter().chain([&too_long]) {
        let error = read(format, text).unwrap_err();
        assert!(error.contains(words), "{}: {error}", format.name());
    }
    let error = Reader::new(&b"1.0 \xff 1 8 0\n"[..], Format::DiskSim)
        .next()
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("packed"), "{error}");
}

#[test]
fn times_that_go_backwards_are_counted_and_corrected() {
    let mut reader = Reader::new(
        &b"5.0 0 0 8 0\n4.0 0 0 8 0\n6.0 0 0 8 0\n"[..],
        Format::DiskSim,
    );
    let times: Vec<u64> = reader.by_ref().map(|r| r.unwrap().at.0).collect();
    assert_eq!(times, [5_000_000, 5_000_000, 6_000_000]);
    assert_eq!(reader.seen().backwards, 1);
}

#[test]
fn a_replay_moves_extents_together_and_repeats() {
    let dir = std::env::temp_dir().join(format!("vellum-lab-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("trace");
    // Two extents a terabyte apart, and a request across the border of two.
    let text = "0.0 0 2147483648 8 0\n1.0 0 0 8 0\n2.0 0 2044 8 0\n3.0 0 2147483648 8 1\n";
    std::fs::write(&path, text).unwrap();
    let trace = TraceFile::read(&path, &Reading::default()).unwrap();
    assert_eq!(trace.blocks(), 3 * 256);
    assert_eq!(trace.summary().unaligned, 1);
    let requests: Vec<_> = trace.replay(1, 2).unwrap().collect();
    let places: Vec<_> = requests.iter().map(|r| (r.at, r.lba, r.blocks)).collect();
    let ms = 1_000_000;
    assert_eq!(
        places[..4],
        [(0, 0, 1), (ms, 256, 1), (2 * ms, 511, 2), (3 * ms, 0, 1)]
    );
    assert_eq!(places[4..].len(), 4);
    assert_eq!(places[4].0, 3_750_000);
    // The second pass writes new contents.
    assert_ne!(requests[0].contents, requests[4].contents);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A repeated trace writes other contents in the same pattern, unless the same ones are requested.
#[test]
fn a_repeated_trace_is_no_duplicate_of_itself() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let line = |at: u32, lba: u32, hash: &str| {
        format!("{at} 4892 syslogd {lba} 8 W 6 0 {}\n", hash.repeat(32))
    };
    std::fs::write(
        &path,
        line(1, 904, "a") + &line(2, 912, "a") + &line(3, 920, "b"),
    )
    .unwrap();
    let trace = TraceFile::read(&path, &Reading::default()).unwrap();
    for repeated in [RepeatedContents::New, RepeatedContents::Same] {
        let replay = trace.replay(1, 2).unwrap().writing(repeated);
        let written: Vec<_> = replay.map(|request| request.contents[0]).collect();
        assert_eq!(written[0], written[1], "equal in the trace");
        assert_eq!(written[3], written[4], "equal when it is replayed again");
        assert_ne!(written[3], written[5]);
        assert_eq!(written[0] == written[3], repeated == RepeatedContents::Same);
    }
}

/// So does a trace without hashes, whose contents are made up.
#[test]
fn a_trace_without_contents_repeats_as_requested() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    std::fs::write(&path, "0.0 0 0 8 0\n1.0 0 8 8 0\n2.0 0 0 8 0\n").unwrap();
    let trace = TraceFile::read(&path, &Reading::default()).unwrap();
    for repeated in [RepeatedContents::New, RepeatedContents::Same] {
        let replay = trace.replay(1, 3).unwrap().writing(repeated);
        let written: Vec<_> = replay.map(|request| request.contents[0]).collect();
        assert_eq!(written.len(), 9);
        assert_ne!(written[0], written[2], "written again with other bytes");
        for pass in [&written[3..6], &written[6..]] {
            assert_eq!(&written[..3] == pass, repeated == RepeatedContents::Same);
        }
    }
}

/// Reads the sample traces next to the repository to their end, if they exist.
#[test]
fn the_sample_traces_are_read_to_their_end() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let expected = [
        ("homes-sample.1.blkparse", Format::Fiu, 1000),
        ("mail-01-sample.blkparse", Format::Fiu, 1000),
        ("ricarkol-homes.replay.0", Format::Fiu, 1000),
        ("cloudPhysicsIO.csv", Format::CloudPhysics, 113_872),
        ("tpcc-small.trace", Format::Mqsim, 6999),
        ("ascii.trace", Format::DiskSim, 100_000),
        ("ssd-postmark-aligned2.trace", Format::DiskSim, 62_257),
    ];
    for (name, format, traced) in expected {
        let path = beside.join(name);
        if !path.exists() {
            let mut stderr = std::io::stderr();
            writeln!(stderr, "SKIP: {name} is not there").unwrap();
            continue;
        }
        let trace = TraceFile::read(&path, &Reading::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(trace.format(), format, "{name}");
        assert_eq!(trace.summary().seen.requests, traced, "{name}");
    }
}
