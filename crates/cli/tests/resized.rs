//! Volumes that are enlarged or reduced with a real file system on them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, noise, ok, run};
use std::fs;
use std::path::Path;

/// A copy of another size: the ext4 of the source grows to fill it, or has been shrunk for it.
#[test]
fn a_volume_is_copied_into_a_larger_and_into_a_smaller_one() {
    if !can_attach("a_volume_is_copied_into_a_larger_and_into_a_smaller_one") {
        return;
    }
    let dir = dir();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (small, large, less, mnt) = (path("small"), path("large"), path("less"), path("mnt"));
    fs::create_dir(&mnt).unwrap();
    let data = noise(1, 3 << 20);
    let file = Path::new(&mnt).join("file");
    ok(&["create", &small, "--size=256M"]);
    ok(&["attach", &small, "--mkfs", "--mount", &mnt, "--via=fuse"]);
    fs::write(&file, &data).unwrap();
    ok(&["detach", &mnt]);

    ok(&["migrate", &small, &large, "--layout=log", "--size=1G"]);
    ok(&["grow", &large, "--fs"]);
    ok(&["attach", &large, "--mount", &mnt, "--via=fuse"]);

    assert!(fs::read(&file).unwrap() == data);
    assert!(size_of(&mnt) > 900 << 20, "{}", size_of(&mnt));

    // Its file system is too large; then it is not, and some old data remain after its end.
    run("umount", &[&mnt]);
    ok(&["detach", &large]);
    let migrate = ["migrate", &large, &less, "--layout=log", "--size=300M"];
    fails(1, &migrate, &["ext4", "resize2fs", "cut off"]);
    assert!(!Path::new(&less).exists());
    let again = ok(&["attach", &large, "--via=fuse"]);
    let again = again.trim();
    run("e2fsck", &["-fp", again]);
    run("resize2fs", &[again, "300M"]);
    ok(&["detach", &large]);
    fails(1, &migrate, &["data behind it", "blkdiscard"]);
    assert!(!Path::new(&less).exists());
    let again = ok(&["attach", &large, "--via=fuse"]);
    run("blkdiscard", &["--offset", "314572800", again.trim()]);
    ok(&["detach", &large]);
    ok(&migrate);
    ok(&["attach", &less, "--mount", &mnt, "--via=fuse"]);
    assert!(fs::read(&file).unwrap() == data);
    ok(&["detach", &mnt]);
    let attached = ok(&["attach", &less, "--via=fuse"]);
    run("e2fsck", &["-fn", attached.trim()]);
    ok(&["detach", &less]);
}

fn size_of(mounted: &str) -> u64 {
    let said = run("stat", &["-f", "-c", "%b %S", mounted]);
    let (blocks, size) = said.trim().split_once(' ').unwrap();
    blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap()
}
