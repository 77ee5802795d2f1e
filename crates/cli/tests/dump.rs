//! `vellum dump` shows the list of snapshots and clones, and the rows of what they keep, on damaged volumes too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, fails, noise, ok, text};
use nbd_client::NbdClient;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writes noise to some blocks of a volume, or of its clone.
fn write(dir: &Path, export: &str, first: u64, blocks: usize) {
    let socket = dir.join("s");
    let served = format!("x={export}");
    let server = Server::start(dir, &[&served, "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "x").unwrap();
    client
        .write(first << 12, &noise(first, blocks << 12))
        .unwrap();
    client.flush().unwrap();
    drop(client);
    assert_eq!(server.term(), Some(0));
}

/// A volume that keeps three blocks for a snapshot and one for its clone. It stores each block as it is.
fn made(dir: &Path) -> PathBuf {
    let disk = dir.join("d");
    let shown = text(&disk);
    ok(&[
        "create",
        shown,
        "--size=64M",
        "--set=compress=off",
        "--set=delta=off",
    ]);
    write(dir, shown, 10, 3);
    ok(&["snapshot", shown, "one"]);
    ok(&["clone", &format!("{shown}@one"), "copy"]);
    write(dir, shown, 10, 2);
    write(dir, shown, 12, 1);
    write(dir, &format!("{shown}@copy"), 500, 1);
    disk
}

/// The numbers at the line's beginning, and its rest.
fn lines(told: &str) -> Vec<(Vec<u64>, String)> {
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let numbers = words.iter().map_while(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let rest = words[numbers.len()..].join(" ");
        (numbers, rest)
    };
    told.lines().map(line).collect()
}

/// The LBAs at which the list, the rows and the kept blocks begin.
fn places(disk: &str) -> [u64; 3] {
    let told = ok(&["dump", disk]);
    let line = told.lines().find(|line| line.starts_with("snapshots "));
    let words = line.unwrap().split([' ', ',']);
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    numbers[..3].try_into().unwrap()
}

/// Flips a bit of a block of the volume where it is stored.
fn damage(disk: &Path, lba: u64) {
    let told = ok(&[
        "dump",
        text(disk),
        "map",
        &format!("--from={lba}"),
        "--count=1",
    ]);
    let at: u64 = told.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(told.contains("  at block "), "{told}");
    let file = File::options().read(true).write(true).open(disk).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at << 12).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at << 12).unwrap();
}

#[test]
fn the_list_and_the_rows_are_shown() {
    let dir = dir();
    let disk = made(dir.path());
    let disk = text(&disk);
    let [_, first_rows, kept] = places(disk);
    let before = std::fs::read(disk).unwrap();

    let list = lines(&ok(&["dump", disk, "snapshots"]));
    assert_eq!(list[0].1, "entry number taken name");
    let [one, copy] = &list[1..] else {
        panic!("{list:?}")
    };
    assert_eq!((&one.0[..2], &one.1[..]), (&[0, 1][..], "one"));
    assert_eq!(
        (&copy.0[..2], &copy.1[..]),
        (&[1, 2][..], "copy, clone of 1")
    );
    assert!(
        one.0[2] > 1_700_000_000 && copy.0[2] >= one.0[2],
        "{list:?}"
    );

    let rows = lines(&ok(&["dump", disk, "rows"]));
    let wanted = [
        (vec![], format!("block 0 of rows, LBA {first_rows}")),
        (vec![kept, 3], "LBA 10 of 1, one".to_owned()),
        (vec![kept + 3, 1], "LBA 500 of 2, copy".to_owned()),
    ];
    assert_eq!(rows, wanted);
    assert_eq!(ok(&["dump", disk, "rows", "--from=1", "--count=1"]), "");
    fails(
        2,
        &["dump", disk, "rows", "--from=999999"],
        &["blocks of rows"],
    );
    assert!(std::fs::read(disk).unwrap() == before, "it was written to");
}

#[test]
fn a_block_of_either_that_cannot_be_read_is_named() {
    let dir = dir();
    let disk = made(dir.path());
    let shown = text(&disk);
    let [first_list, first_rows, kept] = places(shown);

    damage(&disk, first_list);
    let said = format!("block 0 of the list, LBA {first_list}: ");
    let told = ok(&["dump", shown, "snapshots"]);
    assert!(told.contains(&said) && told.lines().count() == 2, "{told}");
    let told = ok(&["dump", shown, "rows"]);
    assert!(told.starts_with(&said), "{told}");
    let unknown = (
        vec![kept, 3],
        "LBA 10 of 1, which the list does not have".to_owned(),
    );
    assert_eq!(lines(&told)[2], unknown);

    damage(&disk, first_rows);
    let told = ok(&["dump", shown, "rows"]);
    let said = format!("block 0 of rows, LBA {first_rows}: ");
    assert!(told.contains(&said) && told.lines().count() == 2, "{told}");
}

#[test]
fn a_volume_without_them_says_so() {
    let dir = dir();
    let [disk, pack, look] = ["d", "p", "l"].map(|name| dir.path().join(name));
    let [disk, pack, look] = [&disk, &pack, &look].map(|path| text(path));
    ok(&["create", disk, "--size=64M", "--layout=shadow"]);
    fails(2, &["dump", disk, "snapshots"], &["no room for snapshots"]);
    std::fs::remove_file(disk).unwrap();
    ok(&["create", disk, "--size=64M"]);
    assert_eq!(ok(&["dump", disk, "snapshots"]).lines().count(), 1);
    assert_eq!(ok(&["dump", disk, "rows"]), "");
    for (part, range) in [("snapshots", "--from=1"), ("superblock", "--count=1")] {
        fails(2, &["dump", disk, part, range], &["--from and --count are"]);
    }
    ok(&["pack", disk, pack]);
    ok(&["restore", pack, look]);
    for part in ["snapshots", "rows"] {
        fails(2, &["dump", look, part], &["is a pack"]);
    }
}
