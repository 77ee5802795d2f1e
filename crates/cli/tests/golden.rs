//! Volumes of every format that there has been: each is read, written and migrated as it is. `golden/README.md` says how they were made.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, noise, ok, program, skipped, text};
use nbd_client::NbdClient;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A range of a volume or of a snapshot, and the SHA-256 of what must be read there.
struct Sum {
    digest: String,
    offset: usize,
    length: usize,
    snapshot: Option<String>,
}

fn beside(name: &str) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    golden.join(name)
}

fn sums_of(image: &str) -> Vec<Sum> {
    let told = std::fs::read_to_string(beside(&format!("{image}.sums"))).unwrap();
    let sum = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        Sum {
            digest: words[0].to_owned(),
            offset: words[1].parse().unwrap(),
            length: words[2].parse().unwrap(),
            snapshot: words.get(3).map(|&name| name.to_owned()),
        }
    };
    told.lines().map(sum).collect()
}

/// Unpacks an image, or says that nothing here can.
fn unpacked(image: &str, folder: &Path) -> Option<PathBuf> {
    let volume = folder.join(image);
    let packed = File::open(beside(&format!("{image}.xz"))).unwrap();
    let done = program("xz", &["--decompress", "--stdout"])
        .stdin(packed)
        .stdout(File::create(&volume).unwrap())
        .status();
    match done {
        Ok(status) => assert!(status.success(), "xz: {image}"),
        Err(_) => {
            skipped(format_args!("{image}: needs xz"));
            return None;
        }
    }
    Some(volume)
}

fn sha256(bytes: &[u8]) -> String {
    let mut child = program("sha256sum", &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let told = child.wait_with_output().unwrap().stdout;
    String::from_utf8(told).unwrap()[..64].to_owned()
}

/// A server of one export, and its client.
struct Served(Server, NbdClient);

impl Served {
    fn of(folder: &Path, volume: &str, more: &[&str]) -> Self {
        let socket = folder.join("s");
        let export = format!("golden={volume}");
        let args = [&[&export, "--socket", text(&socket)], more].concat();
        let server = Server::start(folder, &args);
        Self(server, NbdClient::connect(&socket, "golden").unwrap())
    }

    fn whole(&mut self) -> Vec<u8> {
        let mut content = vec![0; self.1.bytes() as usize];
        for (index, piece) in content.chunks_mut(1 << 20).enumerate() {
            self.1.read((index << 20) as u64, piece).unwrap();
        }
        content
    }

    fn stop(self) {
        drop(self.1);
        assert_eq!(self.0.term(), Some(0));
    }
}

fn compare(content: &[u8], sums: &[Sum], of: Option<&str>) {
    let expected: Vec<_> = sums
        .iter()
        .filter(|s| s.snapshot.as_deref() == of)
        .collect();
    assert_eq!(expected[0].length, content.len());
    // The ranges first: they say what is wrong.
    for sum in expected.iter().rev() {
        let found = sha256(&content[sum.offset..sum.offset + sum.length]);
        assert_eq!(found, sum.digest, "{of:?} at {}", sum.offset);
    }
}

/// Does with an image what its owner does after an update.
fn lives_on(image: &str, format: u32) {
    let dir = dir();
    let Some(volume) = unpacked(image, dir.path()) else {
        return;
    };
    let (volume, sums) = (text(&volume), sums_of(image));
    let says = |format: u32| {
        let told: serde_json::Value =
            serde_json::from_str(&ok(&["info", volume, "--json"])).unwrap();
        assert_eq!(told["format"], format, "{told}");
    };
    says(format);
    ok(&["check", volume]);

    // As it is: nothing is written to it.
    let before = std::fs::read(volume).unwrap();
    let mut served = Served::of(dir.path(), volume, &["--read-only"]);
    let mut content = served.whole();
    compare(&content, &sums, None);
    served.stop();
    assert!(
        std::fs::read(volume).unwrap() == before,
        "it was written to"
    );

    // A new life of it: blocks of data, over data, and where there were none.
    let mut served = Served::of(dir.path(), volume, &[]);
    assert!(served.whole() == content);
    for (place, seed) in [(2 << 12, 1), (5000 << 12, 2)] {
        let new = noise(seed, 40_000);
        served.1.write(place, &new).unwrap();
        content[place as usize..][..new.len()].copy_from_slice(&new);
    }
    served.1.flush().unwrap();
    served.stop();
    ok(&["check", volume]);
    let mut served = Served::of(dir.path(), volume, &[]);
    assert!(served.whole() == content);
    served.stop();
    if let Some(name) = sums.iter().find_map(|sum| sum.snapshot.as_deref()) {
        let mut served = Served::of(dir.path(), &format!("{volume}@{name}"), &[]);
        compare(&served.whole(), &sums, Some(name));
        served.stop();
    }

    let new = dir.path().join("new");
    ok(&["migrate", volume, text(&new), "--layout=log"]);
    ok(&["check", text(&new)]);
    let mut served = Served::of(dir.path(), text(&new), &[]);
    assert!(served.whole() == content);
    served.stop();
}

/// A client of the served volume, or of its snapshot or clone of this name.
fn client_of(folder: &Path, name: Option<&str>) -> NbdClient {
    let export = name.map_or("golden".to_owned(), |name| format!("golden@{name}"));
    NbdClient::connect(&folder.join("s"), &export).unwrap()
}

/// Reads the ranges that the list names.
fn reads<'a>(folder: &Path, sums: impl Iterator<Item = &'a Sum>) {
    for sum in sums {
        let name = sum.snapshot.as_deref();
        let mut found = vec![0; sum.length];
        let mut client = client_of(folder, name);
        client.read(sum.offset as u64, &mut found).unwrap();
        assert_eq!(sha256(&found), sum.digest, "{name:?} at {}", sum.offset);
    }
}

/// A check finds nothing to say, not of a second copy either.
fn is_whole(volume: &str) {
    let said = ok(&["check", volume]);
    let is_bad = |line: &&str| line.starts_with("second copy") || line.starts_with("note:");
    let bad: Vec<_> = said.lines().filter(is_bad).collect();
    assert!(bad.is_empty() && !said.contains("sound, but"), "{said}");
}

/// Does the same with a volume of the current format that has these features, and at least so many blocks.
fn has(image: &str, incompatible: u64, to_write: u64, blocks: u64) {
    const AT: u64 = 1 << 12;
    const BYTES: usize = 20_480;
    let dir = dir();
    let folder = dir.path();
    let volume = folder.join(image);
    let volume = text(&volume);
    ok(&["restore", text(&beside(&format!("{image}.vla"))), volume]);
    let mut first = [0; 4096];
    File::open(volume).unwrap().read_exact(&mut first).unwrap();
    let number = |at: usize| u64::from_le_bytes(*first[at..].first_chunk().unwrap());
    assert_eq!(number(64) & incompatible, incompatible, "{:#x}", number(64));
    assert_eq!(number(72) & to_write, to_write, "{:#x}", number(72));
    assert!(number(104) >= blocks);
    is_whole(volume);
    let sums = sums_of(image);
    let served = Served::of(folder, volume, &["--read-only"]);
    reads(folder, sums.iter());
    served.stop();

    // A new life of it and of a clone. What the others read stays.
    let changed = |sum: &&Sum| matches!(sum.snapshot.as_deref(), None | Some("copy"));
    let names: BTreeSet<_> = sums
        .iter()
        .filter(changed)
        .map(|sum| &sum.snapshot)
        .collect();
    let changed_names = || names.iter().map(|name| name.as_deref()).zip(1..);
    let served = Served::of(folder, volume, &[]);
    for (name, seed) in changed_names() {
        let mut client = client_of(folder, name);
        client.write(AT, &noise(seed, BYTES)).unwrap();
        client.flush().unwrap();
    }
    served.stop();
    is_whole(volume);
    let served = Served::of(folder, volume, &[]);
    for (name, seed) in changed_names() {
        let mut found = vec![0; BYTES];
        client_of(folder, name).read(AT, &mut found).unwrap();
        assert!(found == noise(seed, BYTES), "{name:?}");
    }
    let stays = |sum: &&Sum| {
        let (from, to) = (sum.offset as u64, (sum.offset + sum.length) as u64);
        !changed(sum) || to <= AT || from >= AT + BYTES as u64
    };
    reads(folder, sums.iter().filter(stays));
    served.stop();
}

#[test]
fn format_1() {
    lives_on("format-1", 1);
}

#[test]
fn format_1_killed() {
    lives_on("format-1-killed", 1);
}

#[test]
fn format_2() {
    lives_on("format-2", 2);
}

#[test]
fn format_2_killed() {
    lives_on("format-2-killed", 2);
}

/// Incompatible features; see `docs/FORMAT.md`.
const HAS_GROWN: u64 = 128 | 1024;
const SNAPSHOTS: u64 = 256;
const CLONES: u64 = 512;
const SHRUNK: u64 = 2048;
const FREE_SEGMENTS: u64 = 4096;

#[test]
fn clones() {
    has("clones", SNAPSHOTS | CLONES | FREE_SEGMENTS, 0, 4096);
}

#[test]
fn grown() {
    let features = SNAPSHOTS | CLONES | FREE_SEGMENTS | HAS_GROWN;
    has("grown", features, 0, 6144);
}

#[test]
fn shrunk() {
    has("shrunk", SNAPSHOTS | FREE_SEGMENTS | SHRUNK, 0, 4096);
}

/// Its tables have more leaves than its medium needs.
#[test]
fn given_back() {
    let features = SNAPSHOTS | CLONES | FREE_SEGMENTS | SHRUNK;
    has("given-back", features, 2, 4096);
}

/// 17 TiB: some of its LBAs have more than 32 bits.
#[test]
fn wide() {
    let features = SNAPSHOTS | CLONES | FREE_SEGMENTS;
    has("wide", features, 0, 17 << 28);
}
