//! A volume with a real file system shrinks, at rest and while it is attached, and becomes as large again.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::chain::unmount;
use common::{can_attach, dir, fails, noise, ok, run, text};
use std::fs;
use std::path::Path;

fn size_of(device: &str) -> u64 {
    let said = run("blockdev", &["--getsize64", device]);
    said.trim().parse().unwrap()
}

#[test]
fn what_cannot_be_is_refused() {
    let dir = dir();
    let path = dir.path().join("disk");
    let disk = text(&path);
    ok(&["create", disk, "--size=64M"]);
    fails(2, &["shrink", disk], &["--size"]);
    fails(2, &["shrink", disk, "--size=0"], &["multiple of 4096"]);
    fails(2, &["shrink", disk, "--size=5000"], &["multiple of 4096"]);
    fails(
        2,
        &["shrink", disk, "--size=65M"],
        &["64 MiB", "vellum grow"],
    );
    fails(1, &["shrink", text(dir.path()), "--size=1M"], &[]);
    let journal = ["set", disk, "journals=41943040+4194304"];
    ok(&journal);
    fails(2, &["shrink", disk, "--size=32M"], &["journals"]);
    ok(&["set", disk, "journals=none"]);
    let said = ok(&["shrink", disk, "--size=32M"]);
    assert!(said.contains("64 MiB before, 32 MiB now"), "{said}");
    // Again, as after a try that was cut short.
    ok(&["shrink", disk, "--size=32M"]);
    ok(&["check", disk]);
    assert!(ok(&["info", disk]).contains("32 MiB"));
    let length = fs::metadata(&path).unwrap().len();
    ok(&["grow", disk, "--size=64M"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    ok(&["check", disk]);
    for layout in ["ordered", "shadow"] {
        let path = dir.path().join(layout);
        ok(&["create", text(&path), "--size=64M", "--layout", layout]);
        let shrink = ["shrink", text(&path), "--size=32M"];
        fails(1, &shrink, &[layout, "vellum migrate"]);
    }
}

/// Fills the volume through a server that is stopped again, so that data lies at the end of its medium.
fn fill(disk: &str, blocks: usize) {
    let device = ok(&["attach", disk, "--via=fuse"]);
    let file = fs::OpenOptions::new().write(true).open(device.trim());
    let mut file = file.unwrap();
    for round in 0..3 {
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(0)).unwrap();
        let data = noise(round, blocks * 4096);
        std::io::Write::write_all(&mut file, &data).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    ok(&["detach", disk]);
}

#[test]
fn the_end_of_its_file_is_given_back() {
    if !can_attach("the_end_of_its_file_is_given_back") {
        return;
    }
    let dir = dir();
    let path = dir.path().join("disk");
    let disk = text(&path);
    ok(&["create", disk, "--size=64M"]);
    // 24 MiB, three times.
    fill(disk, 6 << 10);
    let length = || fs::metadata(&path).unwrap().len();
    let before = length();
    for (size, says) in [("0", "multiple of 4096"), ("5000", "multiple of 4096")] {
        let size = format!("--medium-size={size}");
        fails(2, &["shrink", disk, &size], &[says]);
    }
    // Its clients may still write 64 MiB.
    fails(
        1,
        &["shrink", disk, "--medium-size=40M"],
        &["needs at least"],
    );
    fails(1, &["shrink", disk, "--medium-size=1G"], &["vellum grow"]);
    assert_eq!(length(), before);
    // What is behind 32 MiB holds nothing.
    let both = ["shrink", disk, "--size=32M", "--medium-size=48M"];
    let said = ok(&both);
    assert!(said.contains("64 MiB before, 32 MiB now"), "{said}");
    assert!(
        said.contains("its medium: ") && said.contains("48 MiB now"),
        "{said}"
    );
    assert_eq!(length(), 48 << 20);
    ok(&["check", disk]);
    let info = ok(&["info", disk, "--json"]);
    assert!(
        info.contains(&format!("\"medium_size\":{}", 48 << 20)),
        "{info}"
    );
    // Again, as after a try that was cut short before the file was cut off.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(54 << 20).unwrap();
    ok(&["check", disk]);
    ok(&both);
    assert_eq!(length(), 48 << 20);
    let device = ok(&["attach", disk, "--via=fuse"]);
    let served = ["shrink", disk, "--medium-size=47M"];
    fails(1, &served, &["is served", "detach it first"]);
    let read = fs::read(device.trim()).unwrap();
    assert!(
        read[..24 << 20] == noise(2, 24 << 20),
        "its contents have changed"
    );
    assert!(read[24 << 20..].iter().all(|&byte| byte == 0));
    ok(&["detach", disk]);
    ok(&["grow", disk, "--size=64M"]);
    ok(&["check", disk]);
}

/// The file system is smaller first, and what it left is discarded.
#[test]
fn a_file_system_loses_nothing() {
    if !can_attach("a_file_system_loses_nothing") {
        return;
    }
    let dir = dir();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (disk, mnt) = (path("disk"), path("mnt"));
    fs::create_dir(&mnt).unwrap();
    let data = noise(1, 3 << 20);
    let file = Path::new(&mnt).join("file");
    ok(&["create", &disk, "--size=512M"]);
    ok(&["attach", &disk, "--mkfs", "--mount", &mnt, "--via=fuse"]);
    fs::write(&file, &data).unwrap();
    let shrink = ["shrink", &disk, "--size=128M"];
    fails(1, &shrink, &["ext4", "cut off", "resize2fs"]);
    unmount(Path::new(&mnt));
    ok(&["detach", &disk]);
    fails(1, &shrink, &["ext4", "cut off", "resize2fs"]);

    let device = ok(&["attach", &disk, "--via=fuse"]);
    let device = device.trim();
    // Behind the new end of the file system, and in a snapshot.
    let old = Path::new(device);
    let mut end = fs::OpenOptions::new().write(true).open(old).unwrap();
    std::io::Seek::seek(&mut end, std::io::SeekFrom::Start(500 << 20)).unwrap();
    std::io::Write::write_all(&mut end, &noise(2, 8192)).unwrap();
    end.sync_all().unwrap();
    drop(end);
    ok(&["snapshot", &disk, "before"]);
    run("e2fsck", &["-fp", device]);
    run("resize2fs", &[device, "128M"]);
    fails(
        1,
        &shrink,
        &["lie behind that end", "blkdiscard -f --offset 134217728"],
    );
    run("blkdiscard", &["-f", "--offset", "134217728", device]);
    fails(1, &shrink, &["`before`", "vellum delete"]);
    ok(&["delete", &disk, "before"]);
    assert_eq!(size_of(device), 512 << 20);
    let said = ok(&shrink);
    assert!(said.contains("128 MiB now"), "{said}");
    assert_eq!(size_of(device), 128 << 20);
    run("e2fsck", &["-fn", device]);
    ok(&["detach", &disk]);
    ok(&["check", &disk]);

    // Mounted, with a snapshot that has nothing behind the end; then larger, with the file system.
    ok(&["attach", &disk, "--mount", &mnt, "--via=fuse"]);
    assert!(fs::read(&file).unwrap() == data);
    ok(&["grow", &disk, "--size=256M"]);
    ok(&["snapshot", &disk, "small"]);
    fs::write(Path::new(&mnt).join("more"), noise(3, 1 << 20)).unwrap();
    ok(&shrink);
    assert!(fs::read(&file).unwrap() == data);
    unmount(Path::new(&mnt));
    ok(&["detach", &disk]);
    ok(&["grow", &disk, "--size=512M", "--fs"]);
    ok(&["attach", &disk, "--mount", &mnt, "--via=fuse"]);
    assert!(fs::read(&file).unwrap() == data);
    assert!(fs::read(Path::new(&mnt).join("more")).unwrap() == noise(3, 1 << 20));
    unmount(Path::new(&mnt));
    ok(&["detach", &disk]);
    let device = ok(&["attach", &disk, "--via=fuse"]);
    run("e2fsck", &["-fn", device.trim()]);
    ok(&["detach", &disk]);
    ok(&["check", &disk]);
}
