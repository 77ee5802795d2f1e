//! `vellum scrub`: a real ext4 with damaged blocks, online and offline; files have the names that debugfs reports.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, fails, noise, ok, run, skipped, text, vellum};
use nbd_client::NbdClient;
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Changes a bit of the first block in the volume's file that begins with these bytes.
fn damage(volume: &Path, begins: &[u8]) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(volume)
        .unwrap();
    let mut block = vec![0; 4096];
    let blocks = file.metadata().unwrap().len() / 4096;
    for at in 0..blocks {
        file.read_exact_at(&mut block, at * 4096).unwrap();
        if block.starts_with(begins) {
            block[3000] ^= 16;
            return file.write_all_at(&block, at * 4096).unwrap();
        }
    }
    panic!("no such block");
}

/// Returns the path that debugfs reports for a block's file.
fn named(image: &Path, block: u64) -> String {
    let second_field = |line: &str| line.split_once('\t').map(|(_, field)| field.to_owned());
    let told = run("debugfs", &["-R", &format!("icheck {block}"), text(image)]);
    let inode = told.lines().nth(1).and_then(second_field).unwrap();
    let told = run("debugfs", &["-R", &format!("ncheck {inode}"), text(image)]);
    told.lines().nth(1).and_then(second_field).unwrap()
}

/// Makes an ext4 of 64 MiB with these files.
fn make_image(image: &Path, files: &[(&str, &[u8])]) {
    let root = image.with_file_name("root");
    for (name, content) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let file = std::fs::File::create(image).unwrap();
    file.set_len(64 * MIB).unwrap();
    let (root, image) = (text(&root), text(image));
    run(
        "mke2fs",
        &["-q", "-t", "ext4", "-b", "4096", "-d", root, image],
    );
}

/// Writes some parts of a content to the served volume.
fn write_parts(socket: &Path, content: &[u8], bytes: usize, some: impl Fn(&[u8]) -> bool) {
    let mut client = NbdClient::connect(socket, "d.vellum").unwrap();
    for (index, part) in content.chunks(bytes).enumerate() {
        if some(part) {
            client.write((index * bytes) as u64, part).unwrap();
        }
    }
    client.flush().unwrap();
}

/// Scrubs, and checks that both damaged blocks are found and their files named. The report.
fn names_both(disk_name: &str, image: &Path, args: &[&str]) -> String {
    let out = vellum(&[&["scrub", disk_name, "--json"], args].concat());
    assert_eq!(out.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&report["damaged"], &report["mended"]),
        (&2.into(), &0.into()),
        "{report}"
    );
    for finding in report["findings"].as_array().unwrap() {
        let file = finding["files"][0].as_str().unwrap();
        let path = named(image, finding["lba"].as_u64().unwrap());
        let path = format!("/{}", path.trim_start_matches('/'));
        assert!(
            file.starts_with(&format!("{path} (inode ")),
            "{file} {path}"
        );
    }
    report.to_string()
}

#[test]
fn damaged_files_of_an_ext4_are_named() {
    let dir = dir();
    if std::process::Command::new("mke2fs")
        .arg("-V")
        .output()
        .is_err()
    {
        return skipped("mke2fs is not installed");
    }
    let (disk, socket, image) = (
        dir.path().join("d.vellum"),
        dir.path().join("s"),
        dir.path().join("image"),
    );
    let (victim, other) = (noise(1, 50_000), noise(2, 9000));
    make_image(&image, &[("a/b/victim", &victim), ("other file", &other)]);

    let disk_name = text(&disk);
    ok(&["create", disk_name, "--size=64M"]);
    let args = [disk_name, "--socket", text(&socket)];
    let server = Server::start(dir.path(), &args);
    let content = std::fs::read(&image).unwrap();
    write_parts(&socket, &content, 256 << 10, |part| {
        part.iter().any(|byte| *byte != 0)
    });
    let told = ok(&["scrub", disk_name, "--rate=full"]);
    assert!(told.contains("0 damaged, 0 mended, 0 second"), "{told}");

    damage(&disk, &victim[8192..8292]);
    damage(&disk, &other[..100]);
    let check = |args: &[&str]| names_both(disk_name, &image, args);
    let told = check(&["--rate=full"]);
    assert!(
        told.contains("/a/b/victim (inode ") && told.contains("byte 8192)"),
        "{told}"
    );
    assert!(told.contains("/other file (inode "), "{told}");
    check(&["--status"]);
    ok(&["stats", disk_name]);
    assert_eq!(server.term(), Some(0));

    // At rest as well, with nothing in flight.
    check(&["--read-only"]);
    check(&[]);
    fails(3, &["scrub", disk_name], &["2 damaged", "no other copy"]);
    fails(1, &["scrub", disk_name, "--status"], &["not being served"]);
    fails(2, &["scrub", disk_name, "--rate=fast"], &["--rate"]);
    // Without the file it is sound again.
    let server = Server::start(dir.path(), &args);
    write_parts(&socket, &content, 4096, |part| {
        part == &victim[8192..12288] || part == &other[..4096]
    });
    ok(&["scrub", disk_name, "--rate=full"]);
    assert_eq!(server.term(), Some(0));
    ok(&["check", disk_name]);
}
