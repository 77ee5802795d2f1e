//! A recorded trace says what was done: the lab does the same from it, to the block.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../fuzz/src/ext4.rs"]
mod ext4;
#[path = "../../device/tests/common/log.rs"]
mod log;
#[allow(dead_code, reason = "a part is used")]
#[path = "../src/nbd_client.rs"]
mod nbd_client;

use common::{Server, dir, fails, ok, text};
use nbd_client::NbdClient;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

const BLOCK: u64 = 4096;
/// Where the journal is, in blocks: in the middle, like ext4's.
const JOURNAL: u64 = 10_000;
const JOURNAL_BLOCKS: u64 = 2048;
/// Pages of a database.
const PAGES: u64 = 6000;
const PAGES_COUNT: u64 = 12;
/// The size of the lab's volume on 120 MiB with 20%, so that both have the same layout.
const LOGICAL: u64 = 25_600;

struct Host {
    client: NbdClient,
    head: u64,
    state: u64,
    /// Requests made.
    made: u64,
}

impl Host {
    /// The client, for one request.
    fn client(&mut self) -> &mut NbdClient {
        self.made += 1;
        &mut self.client
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.state >> 33) % below
    }

    /// Returns unique contents without two equal words, except that up to seven eighths are zeros.
    fn block(number: u64) -> Vec<u8> {
        let word = |n: u64| {
            (number << 20 | n)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes()
        };
        let words = BLOCK / 64 * (8 - number % 8);
        let mut block: Vec<u8> = (1..=words).flat_map(word).collect();
        block.resize(BLOCK as usize, 0);
        block
    }

    fn write(&mut self, lba: u64, contents: &[u64]) {
        let bytes: Vec<u8> = contents
            .iter()
            .flat_map(|&n| match n {
                0 => vec![0; BLOCK as usize],
                n => Self::block(n),
            })
            .collect();
        self.client().write(lba * BLOCK, &bytes).unwrap();
    }

    /// Rewrites a page in which a few words have changed.
    fn update(&mut self, pages: &mut [Vec<u8>]) {
        let page = self.draw(pages.len() as u64) as usize;
        for _ in 0..=self.draw(3) {
            let at = self.draw(BLOCK / 16) as usize * 8;
            pages[page][at] ^= 1 + self.draw(255) as u8;
        }
        self.client()
            .write((PAGES + page as u64) * BLOCK, &pages[page])
            .unwrap();
    }

    fn journal(&mut self, contents: &[u64]) {
        let at = JOURNAL + self.head;
        self.head = (self.head + contents.len() as u64) % (JOURNAL_BLOCKS - 64);
        self.write(at, contents);
    }

    /// Transactions that are written home later, files that exist twice, zeros, reads and discards. `pause` is called now and
    /// then, with the number of requests made.
    fn work(&mut self, pause: impl Fn(u64)) {
        let mut committed: Vec<Vec<(u64, u64)>> = Vec::new();
        let mut number = 1;
        let mut pages: Vec<Vec<u8>> = (0..PAGES_COUNT)
            .map(|n| Self::block(4 + (n << 50)))
            .collect();
        for (page, bytes) in (PAGES..).zip(&pages) {
            self.client().write(page * BLOCK, bytes).unwrap();
        }
        for transaction in 0..300 {
            if transaction % 50 == 0 {
                pause(self.made);
            }
            let blocks = 1 + self.draw(12);
            let mut homes = Vec::new();
            for _ in 0..blocks {
                number += 1;
                homes.push((self.draw(JOURNAL / 2), number));
            }
            number += 1;
            let contents: Vec<u64> = [number]
                .into_iter()
                .chain(homes.iter().map(|h| h.1))
                .collect();
            self.journal(&contents);
            self.client().flush().unwrap();
            number += 1;
            self.journal(&[number]);
            self.update(&mut pages);
            self.client().flush().unwrap();
            committed.push(homes);
            if committed.len() > 5 {
                for (home, content) in committed.remove(0) {
                    self.write(home, &[content]);
                }
            }
            // A file in which every other block is a duplicate, and some are zeros.
            let place = JOURNAL + JOURNAL_BLOCKS + self.draw(10_000);
            let file: Vec<u64> = (0..8)
                .map(|n| match n % 4 {
                    0 => 0,
                    1 => 1 + self.draw(50) + (1 << 40),
                    _ => (1 << 41) + transaction * 8 + n,
                })
                .collect();
            self.write(place, &file);
            // Overwrites something that is not sealed yet.
            self.write(place + 2, &[(1 << 42) + transaction]);
            let mut out = vec![0; 8 * BLOCK as usize];
            self.client().read(place * BLOCK, &mut out).unwrap();
            assert_eq!(
                out[2 * BLOCK as usize..][..8],
                Self::block((1 << 42) + transaction)[..8]
            );
            if transaction % 10 == 9 {
                self.client().trim(place * BLOCK, 4 * BLOCK as u32).unwrap();
            }
        }
        self.client().flush().unwrap();
    }
}

fn recorded(dir: &Path, policy: &str) -> (Value, Value) {
    let (volume, socket, trace) = (dir.join("v"), dir.join("s"), dir.join("trace"));
    let size = format!("--size={}", LOGICAL * BLOCK);
    ok(&["create", text(&volume), &size, "--medium-size=120M"]);
    let journal = format!("{}+{}", JOURNAL * BLOCK, JOURNAL_BLOCKS * BLOCK);
    let with = format!("{PLAIN},{policy}");
    let args = [
        text(&volume),
        "--socket",
        text(&socket),
        "--record",
        text(&trace),
        "--with",
        &with,
        "--journal",
        &journal,
    ];
    let server = Server::start(dir, &args);
    let mut host = Host {
        client: NbdClient::connect(&socket, "v").unwrap(),
        head: 0,
        state: 7,
        made: 0,
    };
    let stats = || -> Value {
        let stats = ok(&["stats", text(&volume), "--json"]);
        serde_json::from_str::<Value>(&stats).unwrap()[0].clone()
    };
    // A recorder that is far behind leaves out how small blocks become, and the lab would then store them whole. On a busy machine
    // it may fall behind: it gives way to the server.
    let pause = |made| {
        common::eventually("the recorder has caught up", || {
            get(&stats()["recording"], "requests") >= made
        });
    };
    host.work(pause);
    let stats = stats();
    assert_eq!(server.term(), Some(0));
    let recording = &stats["recording"];
    assert_eq!(
        (
            get(recording, "lost"),
            get(recording, "without_sizes"),
            &recording["ended"]
        ),
        (0, 0, &Value::Null)
    );
    (stats["stats"]["core"].clone(), recording.clone())
}

fn simulated(dir: &Path, policy: &str) -> Value {
    let journal = format!(
        "--journal-at={}:{}",
        JOURNAL * BLOCK,
        JOURNAL_BLOCKS * BLOCK
    );
    simulated_with(dir, policy, &[&journal])
}

fn simulated_with(dir: &Path, policy: &str, options: &[&str]) -> Value {
    let trace = dir.join("trace");
    let policy = format!("--policy={policy}");
    let own = [
        "lab",
        "run",
        text(&trace),
        "--in-place",
        &policy,
        "--device=fast-ssd",
        "--capacity=120M",
        "--op=20",
        "--precondition=none",
        "--depth=1",
        "--json",
    ];
    let out = ok(&[&own, options].concat());
    let all: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(all[0]["logical_blocks"], LOGICAL);
    let pairs = all[0]["engine"].as_array().unwrap();
    let named = pairs
        .iter()
        .map(|pair| (pair[0].as_str().unwrap().to_owned(), pair[1].clone()));
    named.collect::<serde_json::Map<_, _>>().into()
}

fn get(from: &Value, name: &str) -> u64 {
    from[name].as_u64().unwrap()
}

fn assert_same(device: &str, counted: &Value, simulated: &Value, names: &[&str]) {
    for name in names {
        let (counted, simulated) = (get(counted, name), get(simulated, name));
        assert_eq!(counted, simulated, "{device}: {name}");
    }
}

#[test]
fn the_lab_counts_the_same_from_a_recorded_trace_as_the_device() {
    for (device, lab) in [
        ("write-once=off", "vellum"),
        ("write-once=on", "vellum:write-once"),
        ("write-once=on,dedup=on", "vellum:dedup,write-once"),
    ] {
        let dir = dir();
        let (counted, _) = recorded(dir.path(), device);
        let simulated = simulated(dir.path(), lab);
        // Reads are not compared: the device searches for file systems by itself.
        let same = [
            "host_blocks_written",
            "zero_blocks",
            "absorbed_blocks",
            "discarded_blocks",
            "journal_blocks",
            "home_writes",
            "remapped_blocks",
            "dedup_blocks",
            "medium_data",
            "medium_headers",
            "host_chunks",
        ];
        assert_same(device, &counted, &simulated, &same);
        // The lab flushes once more, at the end.
        assert_eq!(get(&counted, "flushes") + 1, get(&simulated, "flushes"));
        let of = |name| get(&counted, name);
        let went = of("medium_data") + of("remapped_blocks") + of("dedup_blocks");
        assert_eq!(
            went + of("absorbed_blocks") + of("zero_blocks"),
            of("host_blocks_written")
        );
        assert!(of("zero_blocks") > 500 && of("absorbed_blocks") > 100);
        assert_eq!(of("remapped_blocks") > 1000, device != "write-once=off");
        assert_eq!(of("dedup_blocks") > 200, device.contains("dedup"));
    }
}

#[test]
fn the_lab_stores_a_recorded_trace_in_as_many_bytes_as_the_device() {
    for (device, lab) in [
        ("write-once=on,compress=lz4", "vellum:compress,write-once"),
        (
            "write-once=off,compress=lz4,delta=on",
            "vellum:compress,delta",
        ),
    ] {
        let dir = dir();
        let (counted, _) = recorded(dir.path(), device);
        let simulated = simulated(dir.path(), lab);
        let same = [
            "host_blocks_written",
            "zero_blocks",
            "absorbed_blocks",
            "remapped_blocks",
            "packed_blocks",
            "medium_data",
            "medium_headers",
            "host_chunks",
        ];
        assert_same(device, &counted, &simulated, &same);
        let of = |name| (get(&counted, name), get(&simulated, name));
        let ((device_bytes, lab_bytes), deltas) = (of("packed_bytes"), of("delta_blocks").0);
        assert!(of("packed_blocks").0 > 2000 && device_bytes > 1_000_000);
        // The device's base is the version last stored whole, and the trace's the version before: a block still similar to one
        // may no longer be similar to the other.
        let (stored, told) = of("delta_blocks");
        assert!(
            (stored..=stored + stored / 100).contains(&told),
            "{stored} {told}"
        );
        // A word that has changed twice counts twice in the lab.
        match deltas {
            0 => assert_eq!(device_bytes, lab_bytes, "{device}"),
            _ => assert!(
                deltas > 200 && (device_bytes..device_bytes + 50 * deltas).contains(&lab_bytes)
            ),
        }
        assert_eq!(deltas > 0, device.contains("delta="));
    }
}

/// Options that the lab needs and gets only if a test sets them; later settings take precedence.
const PLAIN: &str = "compress=off,delta=off";

/// Where the file system has its journal, and its files.
const EXT4_JOURNAL: u64 = 68;
const EXT4_HOME: u32 = 1400;

/// Writes the journal's superblock: its log begins with this transaction, at its first block.
fn begin_log(client: &mut NbdClient, sequence: u32) {
    let mut superblock = vec![0; BLOCK as usize];
    client.read(EXT4_JOURNAL * BLOCK, &mut superblock).unwrap();
    log::begin(&mut superblock, sequence, 1);
    client.write(EXT4_JOURNAL * BLOCK, &superblock).unwrap();
}

/// A file system with a journal that was mounted before, and that a server knows from its start: commits, each with a flush,
/// and then its home writes with another flush. Some blocks are zeros.
fn journaled(dir: &Path, policy: &str) -> Value {
    let (volume, socket, trace) = (dir.join("v"), dir.join("s"), dir.join("trace"));
    let size = format!("--size={}", LOGICAL * BLOCK);
    ok(&["create", text(&volume), &size, "--medium-size=120M"]);
    let with = format!("{PLAIN},{policy}");
    let args = [text(&volume), "--socket", text(&socket), "--with", &with];
    let server = Server::start(dir, &args);
    let mut client = NbdClient::connect(&socket, "v").unwrap();
    for (at, page) in ext4::mounted().pages() {
        client.write(at, page).unwrap();
    }
    begin_log(&mut client, 1);
    assert_eq!(server.term(), Some(0));
    let server = Server::start(dir, &[&args[..], &["--record", text(&trace)]].concat());
    let stats = || -> Value {
        let stats = ok(&["stats", text(&volume), "--json"]);
        serde_json::from_str::<Value>(&stats).unwrap()[0]["stats"].clone()
    };
    common::eventually("the journal is found", || {
        stats()["write_once"]["file_systems"][0]["journal"][0] != Value::Null
    });
    let mut client = NbdClient::connect(&socket, "v").unwrap();
    begin_log(&mut client, 1);
    for sequence in 1..=100 {
        let begin = EXT4_JOURNAL + 1 + u64::from(sequence - 1) * 4;
        let home = EXT4_HOME + sequence % 7;
        let copies = [
            Host::block(u64::from(sequence)),
            match sequence % 3 {
                0 => vec![0; BLOCK as usize],
                _ => Host::block(1000 + u64::from(sequence)),
            },
        ];
        let homes = [(home, 0), (home + 1, 0)];
        let mut put = |block, bytes: &[u8]| client.write(block * BLOCK, bytes).unwrap();
        let parts = copies.each_ref().map(Vec::as_slice);
        put(begin, &log::descriptor(sequence, &homes, &parts));
        put(begin + 1, &copies.concat());
        put(begin + 3, &log::commit(sequence));
        client.flush().unwrap();
        client
            .write(u64::from(home) * BLOCK, &copies.concat())
            .unwrap();
        client.flush().unwrap();
    }
    let counted = stats()["core"].clone();
    assert_eq!(server.term(), Some(0));
    counted
}

#[test]
fn a_trace_names_the_transactions_that_the_device_pledges() {
    for (device, lab) in [
        (
            "write-once=on,replay=off,zero=off",
            "vellum:zero=off,write-once",
        ),
        (
            "write-once=on,replay=on,zero=off",
            "vellum:zero=off,write-once,replay",
        ),
        (
            "write-once=on,replay=on,zero=on",
            "vellum:write-once,replay",
        ),
    ] {
        let dir = dir();
        let counted = journaled(dir.path(), device);
        let simulated = simulated_with(dir.path(), lab, &[]);
        let same = [
            "journal_blocks",
            "home_writes",
            "remapped_blocks",
            "pledged_blocks",
            "flushes_of_homes",
        ];
        assert_same(device, &counted, &simulated, &same);
        let replays = device.contains("replay=on");
        assert_eq!(get(&counted, "pledged_blocks") > 150, replays);
        // If a segment ends within a transaction, a sync covers two chunks, and the two segments do not end at the same place.
        let durable = |from| get(from, "durable_chunks") + get(from, "syncs");
        // The lab flushes once more, at the end.
        let most = durable(&counted) + 1;
        let simulated = durable(&simulated);
        assert!(
            (most - 1..=most).contains(&simulated),
            "{device}: {simulated} for {most}"
        );
        assert_eq!(durable(&counted) < 150, replays, "{device}");
    }
}

#[test]
fn a_plain_file_is_served_and_recorded_and_errors_are_named() {
    let dir = dir();
    let (file, socket, trace) = (
        dir.path().join("plain"),
        dir.path().join("s"),
        dir.path().join("trace"),
    );
    let (f, s, t) = (text(&file), text(&socket), text(&trace));
    fails(2, &["record", f, "--output", t], &["--socket"]);
    fails(
        1,
        &["record", f, "--output", t, "--socket", s],
        &["cannot open"],
    );
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let server = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["record", f, "--output", t, "--socket", s])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    common::eventually("it serves", || NbdClient::connect(&socket, "plain").is_ok());
    let other = dir.path().join("other");
    let other = ["record", f, "--output", text(&other), "--socket", s];
    fails(1, &other, &["served by somebody else"]);
    let mut client = NbdClient::connect(&socket, "plain").unwrap();
    client.write(8192, &[1; 4096]).unwrap();
    client.trim(0, 4096).unwrap();
    client.flush().unwrap();
    common::run("kill", &[&server.id().to_string()]);
    let told = server.wait_with_output().unwrap();
    assert!(told.status.success());
    let said = String::from_utf8(told.stderr).unwrap();
    let length = std::fs::metadata(&trace).unwrap().len();
    let says = format!("3 requests recorded in {length} bytes");
    assert!(said.contains(&says), "{says}: {said}");
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!((bytes[0], bytes[4096], bytes[8192]), (0, 7, 1));
    let said = ok(&["lab", "run", t, "--policy=base", "--precondition=none"]);
    assert!(said.contains("vellum, 3 requests"), "{said}");
    assert!(said.contains("1 write, 1 discard, 1 flush;"), "{said}");
    // It is not overwritten.
    fails(
        1,
        &["record", f, "--output", t, "--socket", s],
        &["cannot make the trace"],
    );
}
