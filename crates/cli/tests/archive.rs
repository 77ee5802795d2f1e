//! A real ext4 on a volume, archived and restored; damaged archives and volumes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, eventually, fails, noise, ok, run, skipped, text, vellum};
use nbd_client::NbdClient;
use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 24 * MIB;
const PART: usize = 256 << 10;

/// An ext4 with files; `None` if mke2fs is not installed.
fn ext4(dir: &Path) -> Option<Vec<u8>> {
    if Command::new("mke2fs").arg("-V").output().is_err() {
        skipped("mke2fs is not installed");
        return None;
    }
    let [root, image] = ["root", "image"].map(|name| dir.join(name));
    fs::create_dir_all(root.join("a")).unwrap();
    fs::write(root.join("a/noise"), noise(1, 3 << 20)).unwrap();
    fs::write(root.join("a/text"), "a line of a file\n".repeat(50_000)).unwrap();
    fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let (from, to) = (text(&root), text(&image));
    run(
        "mke2fs",
        &["-q", "-t", "ext4", "-b", "4096", "-d", from, to],
    );
    Some(fs::read(&image).unwrap())
}

fn serve(dir: &Path, volume: &Path, work: impl FnOnce(&mut NbdClient)) {
    let socket = dir.join("s");
    let server = Server::start(dir, &[text(volume), "--socket", text(&socket)]);
    let name = volume.file_name().unwrap().to_str().unwrap();
    let mut client = NbdClient::connect(&socket, name).unwrap();
    work(&mut client);
    client.flush().unwrap();
    drop(client);
    assert_eq!(server.term(), Some(0));
}

/// Creates a volume with these contents.
fn volume(dir: &Path, layout: &str, content: &[u8]) -> std::path::PathBuf {
    let volume = dir.join(format!("{layout}.vellum"));
    ok(&["create", text(&volume), "--size=24M", "--layout", layout]);
    serve(dir, &volume, |client| put(client, content));
    volume
}

fn put(client: &mut NbdClient, content: &[u8]) {
    for (index, part) in content.chunks(PART).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            client.write((index * PART) as u64, part).unwrap();
        }
    }
}

fn same(first: &Path, second: &Path) -> bool {
    fs::read(first).unwrap() == fs::read(second).unwrap()
}

#[test]
fn an_ext4_on_any_layout_comes_back_as_it_was() {
    let dir = dir();
    let Some(content) = ext4(dir.path()) else {
        return;
    };
    for layout in ["log", "ordered", "shadow"] {
        let disk = volume(dir.path(), layout, &content);
        let [archive, copy, piped] = ["a", "copy", "piped"].map(|n| dir.path().join(n));
        let told = ok(&["dump", text(&disk), "--whole", text(&archive), "--json"]);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["missing_blocks"], 0, "{told}");
        let stored = told["stored_bytes"].as_u64().unwrap();
        assert!((3 * MIB..SIZE).contains(&stored), "{told}");
        let told_of_it = ok(&["restore", text(&archive), text(&copy), "--json"]);
        let told_of_it: Value = serde_json::from_str(&told_of_it).unwrap();
        assert_eq!(told["sum"], told_of_it["sum"]);
        assert!(same(&disk, &copy), "{layout}");
        let found = ok(&["check", text(&copy)]);
        assert!(found.contains("is sound"), "{found}");
        // Its holes remain holes.
        let blocks = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&copy).unwrap());
        assert!(blocks * 512 < stored + 2 * MIB, "{blocks} sectors");

        let mut from = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["dump", text(&disk), "--whole", "-"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let into = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["restore", "-", text(&piped)])
            .stdin(from.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(into.status.success() && from.wait().unwrap().success());
        assert!(same(&disk, &piped), "{layout}");

        serve(dir.path(), &copy, |client| {
            for (index, part) in content.chunks(PART).enumerate() {
                let mut found = vec![0; part.len()];
                client.read((index * PART) as u64, &mut found).unwrap();
                assert!(found == part, "{layout}: part {index}");
            }
        });
        for file in [archive, copy, piped] {
            fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn existing_files_and_served_volumes_stay() {
    let dir = dir();
    let disk = volume(dir.path(), "log", &noise(2, 1 << 20));
    let [archive, other, plain, new] = ["a", "other", "plain", "new"].map(|n| dir.path().join(n));
    let (disk_name, archive_name, other_name) = (text(&disk), text(&archive), text(&other));
    let dump = ["dump", disk_name, "--whole", archive_name];
    serve(dir.path(), &disk, |_| {
        fails(1, &dump, &["already served", "process"]);
    });
    assert!(!archive.exists());
    ok(&dump);
    let before = fs::read(&disk).unwrap();
    fails(1, &dump, &["exists already"]);
    fails(
        1,
        &["restore", archive_name, disk_name],
        &["exists already"],
    );
    ok(&["create", other_name, "--size=24M"]);
    serve(dir.path(), &other, |_| {
        let forced = ["restore", archive_name, other_name, "--force"];
        fails(1, &forced, &["already served"]);
    });
    serve(dir.path(), &disk, |_| {
        // The same volume under another path.
        fs::hard_link(&disk, dir.path().join("link")).unwrap();
        let link = dir.path().join("link");
        fails(
            1,
            &["restore", archive_name, text(&link), "--force"],
            &["served"],
        );
    });
    fails(
        2,
        &["restore", archive_name, archive_name, "--force"],
        &["is the archive itself"],
    );
    fs::write(&plain, noise(3, 1 << 20)).unwrap();
    let dump = ["dump", text(&plain), "--whole", "-"];
    fails(1, &dump, &["not a vellum volume"]);
    let restore = ["restore", text(&plain), text(&new)];
    fails(1, &restore, &["byte 0", "no magic number"]);
    fails(
        2,
        &["dump", disk_name, "--whole", "-", "--json"],
        &["--json"],
    );
    ok(&["restore", archive_name, other_name, "--force"]);
    assert_eq!(fs::read(&other).unwrap(), before);
    let left = fs::read_dir(dir.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let unfinished = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(".vellum-");
    assert!(!left.iter().any(unfinished), "{left:?}");
}

/// Truncated anywhere, changed anywhere: an error, and no file with the target's name.
#[test]
fn a_damaged_archive_restores_nothing() {
    let dir = dir();
    let disk = volume(dir.path(), "log", &noise(4, 1 << 20));
    let [archive, broken, target] = ["a", "broken", "target"].map(|n| dir.path().join(n));
    ok(&["dump", text(&disk), "--whole", text(&archive)]);
    let whole = fs::read(&archive).unwrap();
    let args = ["restore", text(&broken), text(&target)];
    let mut random = 9u64;
    for round in 0..60 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let place = (random >> 20) as usize % whole.len();
        let mut bytes = whole.clone();
        match round % 2 {
            0 => bytes.truncate(place),
            _ => bytes[place] ^= 1 << (random >> 61),
        }
        fs::write(&broken, &bytes).unwrap();
        fails(1, &args, &["byte "]);
        assert!(!target.exists(), "byte {place}");
    }
    // If a volume is already there, it stays.
    fs::copy(&disk, &target).unwrap();
    fails(1, &["restore", args[1], args[2], "--force"], &["byte "]);
    assert!(same(&disk, &target));
    let mut later = whole.clone();
    later[8] += 1;
    fs::write(&broken, &later).unwrap();
    fails(
        1,
        &["restore", args[1], args[2], "--force"],
        &["version 2", "use a newer vellum"],
    );
}

#[test]
fn a_damaged_volume_comes_back_as_damaged_as_it_was() {
    let dir = dir();
    let disk = volume(dir.path(), "log", &noise(5, 1 << 20));
    let [archive, copy] = ["a", "copy"].map(|n| dir.path().join(n));
    let file = fs::OpenOptions::new().write(true).open(&disk).unwrap();
    // A superblock, both roots, and what follows them.
    file.write_all_at(&noise(6, 64), 100).unwrap();
    file.write_all_at(&noise(7, 16 << 12), 1 << 12).unwrap();
    ok(&["dump", text(&disk), "--whole", text(&archive)]);
    ok(&["restore", text(&archive), text(&copy)]);
    assert!(same(&disk, &copy));
    // Now the other superblock: nothing identifies the volume.
    let end = file.metadata().unwrap().len();
    file.write_all_at(&noise(8, 64), end - 4000).unwrap();
    fs::remove_file(&archive).unwrap();
    let out = vellum(&["dump", text(&disk), "--whole", text(&archive)]);
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(
        out.status.success() && told.contains("all of the medium"),
        "{told}"
    );
    ok(&["restore", text(&archive), text(&copy), "--force"]);
    assert!(same(&disk, &copy));
}

/// Without a superblock nobody knows how long the volume is. It is not longer than any volume can be.
#[test]
fn what_is_left_of_a_volume_on_a_huge_medium_is_archived() {
    let dir = dir();
    let [disk, archive, copy] = ["disk", "a", "copy"].map(|n| dir.path().join(n));
    ok(&["create", text(&disk), "--size=24M"]);
    let file = fs::OpenOptions::new().write(true).open(&disk).unwrap();
    file.write_all_at(&noise(6, 64), 100).unwrap();
    if let Err(error) = file.set_len(9 << 40) {
        return skipped(format_args!("no file of 9 TiB: {error}"));
    }
    let out = vellum(&["dump", text(&disk), "--whole", text(&archive)]);
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{told}");
    assert!(told.contains("the first 8 TiB"), "{told}");
    ok(&["restore", text(&archive), text(&copy)]);
    let start = |path: &Path| {
        let mut bytes = vec![0; 24 << 20];
        fs::File::open(path)
            .unwrap()
            .read_exact_at(&mut bytes, 0)
            .unwrap();
        bytes
    };
    assert!(start(&disk) == start(&copy));
}

/// A loop device over a file, removed afterwards.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show", text(file)])
            .output()
            .ok()?;
        let name = String::from_utf8(made.stdout).ok()?.trim().to_owned();
        made.status.success().then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Onto a device with a later state of the same volume: stale data must not come back.
#[test]
fn a_restored_block_device_has_no_stale_data() {
    let dir = dir();
    let disk = volume(dir.path(), "log", &noise(10, 2 << 20));
    let [archive, below, short] = ["a", "below", "short"].map(|n| dir.path().join(n));
    ok(&["dump", text(&disk), "--whole", text(&archive)]);
    let then = fs::read(&disk).unwrap();
    serve(dir.path(), &disk, |client| put(client, &noise(11, 3 << 20)));
    fs::copy(&disk, &below).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&below).unwrap();
    file.set_len(then.len() as u64 + MIB).unwrap();
    let Some(device) = Loop::over(&below) else {
        return skipped("there are no loop devices");
    };
    let (archive, name) = (text(&archive), device.0.as_str());
    fails(2, &["restore", archive, name], &["--force"]);
    ok(&["info", name]);
    let bytes = fs::read(archive).unwrap();
    fs::write(&short, &bytes[..bytes.len() - 1]).unwrap();
    fails(
        1,
        &["restore", text(&short), name, "--force"],
        &["cut short", "not wholly restored"],
    );
    fails(1, &["info", name], &["not a vellum volume"]);
    ok(&["restore", archive, name, "--force"]);
    let found = ok(&["check", name]);
    assert!(found.contains("is sound"), "{found}");
    drop(device);
    let now = fs::read(&below).unwrap();
    assert!(now[..then.len()] == then[..]);
}

/// Contents whose blocks are stored whole, become parts of pages, or, a few, are equal.
fn private(seed: u64) -> Vec<u8> {
    let mut content = noise(seed, 2 << 20);
    for (index, block) in content.chunks_exact_mut(4096).enumerate() {
        match index % 8 {
            0..4 => {}
            4..7 => block[700..].fill(0),
            _ => block.copy_from_slice(&noise(seed + 1, 4096)),
        }
    }
    content
}

/// Counts the words of 8 bytes of `content` that occur in `bytes`.
fn words_in(bytes: &[u8], content: &[u8]) -> usize {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let words: HashSet<u64> = content
        .chunks_exact(8)
        .map(word)
        .filter(|w| *w != 0)
        .collect();
    bytes
        .windows(8)
        .filter(|at| words.contains(&word(at)))
        .count()
}

#[test]
fn a_pack_has_metadata_and_no_data() {
    let dir = dir();
    for layout in ["log", "ordered", "shadow"] {
        let content = private(20);
        let disk = volume(dir.path(), layout, &content);
        ok(&["set", text(&disk), "label=My Own Words"]);
        if layout == "log" {
            ok(&["snapshot", text(&disk), "monday"]);
        }
        serve(dir.path(), &disk, |client| put(client, &content[..1 << 20]));
        // A crash, with some of the writes torn or missing.
        let socket = dir.path().join("s");
        let server = Server::start(dir.path(), &[text(&disk), "--socket", text(&socket)]);
        let name = disk.file_name().unwrap().to_str().unwrap();
        let mut client = NbdClient::connect(&socket, name).unwrap();
        put(&mut client, &private(30));
        server.kill();
        let [archive, look] = ["pack", "look"].map(|n| dir.path().join(format!("{layout}.{n}")));
        let (disk_name, look_name) = (text(&disk), text(&look));
        ok(&["pack", disk_name, text(&archive)]);
        let told = ok(&["restore", text(&archive), look_name]);
        assert!(told.contains("a pack"), "{told}");

        let (whole, bare) = (fs::read(&disk).unwrap(), fs::read(&look).unwrap());
        assert!(
            words_in(&whole, &content) > 1000,
            "{layout}: it is looked for"
        );
        for seed in [20, 30] {
            let found = words_in(&bare, &private(seed));
            assert_eq!(found, 0, "{layout}: words of data in the pack");
        }
        let has = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|at| at == what);
        assert!(has(&whole, b"My Own Words") && !has(&bare, b"My Own Words"));
        assert!(!has(&bare, &whole[32..48]), "{layout}: the key of sums");
        assert!(
            layout != "log" || !has(&bare, &whole[48..64]),
            "the signature"
        );

        for part in ["map", "segments", "chunks"] {
            if part == "map" || layout == "log" {
                let [there, here] = [disk_name, look_name].map(|name| ok(&["dump", name, part]));
                assert_eq!(there, here, "{layout}: {part}");
                assert!(there.lines().count() > 1, "{there}");
            }
        }
        let found = ok(&["check", look_name]);
        assert!(
            found.contains("note: it is a pack") && found.contains("is sound"),
            "{found}"
        );
        let refused = ["is a pack", "nothing can be served"];
        let serve = ["serve", look_name, "--read-only", "--socket", text(&socket)];
        fails(1, &serve, &refused);
        fails(1, &["rescue", look_name], &refused);
        ok(&["info", look_name]);
    }
}

/// The names in a folder, sorted.
fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let names = fs::read_dir(dir).unwrap().map(name);
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_pack_that_a_signal_ends_leaves_nothing_and_none_replaces_a_file() {
    let dir = dir();
    // Without data, and yet there is much to look at.
    let [disk, archive] = ["disk", "pack"].map(|n| dir.path().join(n));
    ok(&["create", text(&disk), "--size=4G"]);
    let pack = ["pack", text(&disk), text(&archive)];
    let program = env!("CARGO_BIN_EXE_vellum");
    let packing = Command::new(program)
        .args(pack)
        .stderr(Stdio::piped())
        .spawn();
    let packing = packing.unwrap();
    eventually("it is being written", || names(dir.path()).len() == 2);
    assert!(!archive.exists());
    run("kill", &[&packing.id().to_string()]);
    let out = packing.wait_with_output().unwrap();
    let told = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("pack is not written: interrupted"), "{told}");
    assert_eq!(names(dir.path()), ["disk"]);
    fs::write(&archive, "mine").unwrap();
    fails(1, &pack, &[text(&archive), "exists already"]);
    assert_eq!(fs::read(&archive).unwrap(), b"mine");
    assert_eq!(names(dir.path()), ["disk", "pack"]);
}

#[test]
fn a_pack_of_a_damaged_volume_leaves_out_the_damage() {
    let dir = dir();
    let disk = volume(dir.path(), "log", &private(40));
    let [archive, look] = ["pack", "look"].map(|n| dir.path().join(n));
    let file = fs::OpenOptions::new().write(true).open(&disk).unwrap();
    // Foreign bytes in place of a root: they may be a client's.
    file.write_all_at(&private(40)[..4096], 4096).unwrap();
    fails(
        3,
        &["pack", text(&disk), text(&archive)],
        &["damaged or cannot be read"],
    );
    fails(3, &["restore", text(&archive), text(&look)], &["zeros"]);
    assert_eq!(words_in(&fs::read(&look).unwrap(), &private(40)), 0);
    let [there, here] = [&disk, &look].map(|name| ok(&["dump", text(name), "map"]));
    assert_eq!(there, here);
}
