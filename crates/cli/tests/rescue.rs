//! A real ext4 on a volume that has lost a leaf of its map and the parity that could restore it: the dump continues, and files
//! are named. And volumes of tables that have lost a block of their map: the rest is served, and copied to a new volume.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, can_attach, dir, fails, noise, ok, run, skipped, text, vellum};
use nbd_client::NbdClient;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use vellum_core::addr::Leaf;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;

const MIB: u64 = 1 << 20;
/// LBAs mapped by a leaf.
const LEAF: u64 = 1024;

fn opened(volume: &Path) -> (File, Superblock) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(volume).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).unwrap();
    let blocks = file.metadata().unwrap().len() / 4096;
    let superblock = Superblock::decode(&block, blocks, vellum_device::crc32c).unwrap();
    (file, superblock)
}

/// Zeros the leaf of an LBA, and its parity.
fn lose_leaf_of(volume: &Path, lba: u64) {
    let (file, superblock) = opened(volume);
    let leaf = Leaf((lba / LEAF) as u32);
    let parity = superblock.parity(superblock.stripe_of(leaf)).unwrap();
    for at in [leaf, parity].map(|leaf| [0, 1].map(|slot| superblock.leaf_slot(leaf, slot))) {
        for at in at {
            file.write_all_at(&[0; 4096], at.0 * 4096).unwrap();
        }
    }
}

/// Creates a volume with these contents, and stops it.
fn put(dir: &Path, disk: &Path, layout: Layout, socket: &Path, content: &[u8]) {
    let disk_name = text(disk);
    ok(&["create", disk_name, "--size=64M", "--layout", layout.name()]);
    let server = Server::start(dir, &[disk_name, "--socket", text(socket)]);
    let mut client = NbdClient::connect(socket, "d.vellum").unwrap();
    for (index, part) in content.chunks(256 << 10).enumerate() {
        if part.iter().any(|byte| *byte != 0) {
            client.write(index as u64 * (256 << 10), part).unwrap();
        }
    }
    client.flush().unwrap();
    drop(client);
    assert_eq!(server.term(), Some(0));
}

#[test]
fn a_damaged_volume_is_dumped_and_its_files_are_named() {
    let dir = dir();
    let mke2fs = std::process::Command::new("mke2fs").arg("-V").output();
    if mke2fs.is_err() {
        return skipped("mke2fs is not installed");
    }
    let [disk, socket, image, root] =
        ["d.vellum", "s", "image", "root"].map(|n| dir.path().join(n));
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    // Longer than a leaf maps: its end is in another leaf than the directories are.
    let victim = noise(1, 12 << 20);
    std::fs::write(root.join("a/b/victim"), &victim).unwrap();
    let file = File::create(&image).unwrap();
    file.set_len(64 * MIB).unwrap();
    let options = [
        "-q",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-d",
        text(&root),
        text(&image),
    ];
    run("mke2fs", &options);
    let content = std::fs::read(&image).unwrap();
    let last = &victim[victim.len() - 4096..];
    let mut blocks = content.chunks(4096);
    let lba = blocks.position(|block| block == last).unwrap() as u64;

    let disk_name = text(&disk);
    put(dir.path(), &disk, Layout::Log, &socket, &content);
    lose_leaf_of(&disk, lba);
    let told = ok(&["dump", disk_name, "map"]);
    let lost = format!("{:>12} {LEAF:>10}  lost", lba / LEAF * LEAF);
    assert!(
        told.contains("damaged: leaf ") && told.contains(&lost),
        "{told}"
    );
    assert!(told.contains("at block "), "{told}");
    let told = ok(&["dump", disk_name, "segments"]);
    assert!(
        told.contains("damaged: leaf ") && told.contains("owned blocks"),
        "{told}"
    );

    let out = vellum(&["rescue", "--sure", disk_name]);
    let told = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("block(s) of /a/b/victim (inode "), "{told}");
    let out = vellum(&["rescue", "--sure", "--json", disk_name]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let file = &report["files"][0];
    assert!(
        file["name"]
            .as_str()
            .unwrap()
            .starts_with("/a/b/victim (inode "),
        "{report}"
    );
    assert!(
        (1..=LEAF).contains(&file["blocks"].as_u64().unwrap()),
        "{report}"
    );
    // The headers of the log have all of it.
    let told = ok(&["rescue", disk_name]);
    assert!(told.contains("in doubt has the newest version"), "{told}");
    what_is_not_found_is_told(disk_name);
    a_bad_block_of_data_is_told(&disk, last);
}

/// A leaf maps blocks that the file system never wrote.
fn what_is_not_found_is_told(disk: &str) {
    let out = vellum(&["rescue", "--json", disk]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let blocks = |what: &str| -> u64 {
        let runs = report[what].as_array().unwrap().iter();
        runs.map(|run| run["blocks"].as_u64().unwrap()).sum()
    };
    assert_eq!(blocks("in_doubt"), LEAF, "{report}");
    let not_found = blocks("in_doubt_and_not_found");
    assert!((1..LEAF).contains(&not_found), "{report}");
}

/// Even if nothing is copied.
fn a_bad_block_of_data_is_told(disk: &Path, victim: &[u8]) {
    let (file, _) = opened(disk);
    let stored = std::fs::read(disk).unwrap();
    let mut blocks = stored.chunks(4096);
    let at = blocks.position(|block| block == victim).unwrap() as u64;
    file.write_all_at(&[!victim[0]], at * 4096).unwrap();
    let out = vellum(&["rescue", text(disk)]);
    let told = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(1), "{told}");
    assert!(told.contains("1 block(s) of /a/b/victim (inode "), "{told}");
}

/// LBAs mapped by a block of the map table.
const TABLE: u64 = 504;

/// Zeros the first block of the map table and its twin, in both slots if there are two.
fn lose_first_table(volume: &Path) {
    let (file, superblock) = opened(volume);
    for slot in 0..if superblock.layout() == Layout::Shadow {
        2
    } else {
        1
    } {
        let twin = superblock.map_twin(0, slot).unwrap();
        for at in [superblock.table_at(0, slot), twin] {
            file.write_all_at(&[0; 4096], at.0 * 4096).unwrap();
        }
    }
}

/// They are not in the copy, and nothing else would say so.
#[test]
fn snapshots_and_clones_that_are_not_copied_are_named() {
    let dir = dir();
    let [disk, new] = ["d.vellum", "new.vellum"].map(|n| dir.path().join(n));
    let (disk, new) = (text(&disk), text(&new));
    ok(&["create", disk, "--size=64M"]);
    assert!(!ok(&["rescue", disk]).contains("not copied"));
    ok(&["snapshot", disk, "monday"]);
    ok(&["clone", &format!("{disk}@monday"), "trial"]);
    let told = ok(&["rescue", disk, new]);
    for line in [
        "no metadata is damaged\n",
        "not copied: snapshot monday\n",
        "not copied: clone trial, of snapshot monday\n",
        "keep the damaged volume",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert!(!told.contains("perhaps"), "{told}");

    let (file, superblock) = opened(Path::new(disk));
    lose_block_with(&file, superblock.medium_blocks(), b"monday");
    let told = ok(&["rescue", disk]);
    for line in [
        "damaged: block 0 of the list of snapshots",
        "not copied: snapshots and clones, if it has any: not all",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert!(!told.contains("no metadata is damaged"), "{told}");
    let report: Value = serde_json::from_str(&ok(&["rescue", "--json", disk])).unwrap();
    assert_eq!(report["more_snapshots"], true, "{report}");
    fails(3, &["check", "--quick", disk], &["block 0 of the list"]);
    let what_to_do = [
        "serve VOLUME --read-only",
        "vellum rescue",
        "delete VOLUME --all",
    ];
    fails(1, &["snapshot", disk, "tuesday"], &what_to_do);
    ok(&["delete", disk, "--all"]);
    ok(&["check", disk]);
    ok(&["snapshot", disk, "tuesday"]);
}

/// Most damage is far from the list of snapshots.
#[test]
fn more_snapshots_are_told_of_only_if_their_list_is_in_doubt() {
    let dir = dir();
    let [disk, socket] = ["d.vellum", "s"].map(|n| dir.path().join(n));
    put(dir.path(), &disk, Layout::Log, &socket, &noise(4, 1 << 20));
    ok(&["snapshot", text(&disk), "monday"]);
    let [list, rows, _] = opened(&disk).1.history().parts();
    let (list, end) = (list.start.0, rows.end.0);
    for (lost, may_be_more) in [(0, false), (list, true)] {
        lose_leaf_of(&disk, lost);
        for how in [&["--json", "--sure"][..], &["--json"]] {
            let out = vellum(&[&["rescue", text(&disk)], how].concat());
            let report: Value = serde_json::from_slice(&out.stdout).unwrap();
            assert_eq!(report["more_snapshots"], may_be_more, "{report}");
            assert_ne!(report["damage"].as_array().unwrap().len(), 0, "{report}");
        }
        let told = ok(&["dump", text(&disk), "snapshots"]);
        let lost = format!("{list:>12} {:>10}  lost", end - list);
        assert!(told.contains("damaged: leaf "), "{told}");
        assert_eq!(told.contains(&lost), may_be_more, "{told}");
    }
}

/// Flips a bit in each block of a volume that has these bytes.
fn lose_block_with(file: &File, blocks: u64, bytes: &[u8]) {
    let mut block = [0; 4096];
    for at in 0..blocks {
        file.read_exact_at(&mut block, at * 4096).unwrap();
        if block.windows(bytes.len()).any(|window| window == bytes) {
            file.write_all_at(&[block[4000] ^ 1], at * 4096 + 4000)
                .unwrap();
        }
    }
}

#[test]
fn the_rest_of_damaged_tables_is_served_and_rescued() {
    for layout in [Layout::Ordered, Layout::Shadow] {
        let dir = dir();
        let [disk, new, socket] = ["d.vellum", "new.vellum", "s"].map(|n| dir.path().join(n));
        let (disk_name, new_name) = (text(&disk), text(&new));
        let content = noise(3, 4 << 20);
        put(dir.path(), &disk, layout, &socket, &content);
        lose_first_table(&disk);
        let whole = TABLE * 4096..content.len() as u64;

        let refused = vellum(&["serve", disk_name, "--socket", text(&socket)]);
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains("map table"), "{told}");
        let told = ok(&["dump", disk_name, "map"]);
        let lost = format!("{:>12} {TABLE:>10}  lost", 0);
        assert!(told.contains("damaged: ") && told.contains(&lost), "{told}");

        let args = [disk_name, "--read-only", "--socket", text(&socket)];
        let server = Server::start(dir.path(), &args);
        let mut client = NbdClient::connect(&socket, "d.vellum").unwrap();
        let mut found = vec![0; (whole.end - whole.start) as usize];
        client.read(whole.start, &mut found).unwrap();
        assert!(found == content[whole.start as usize..], "{layout:?}");
        assert!(client.read(0, &mut found[..4096]).is_err(), "{layout:?}");
        drop(client);
        assert_eq!(server.term(), Some(0));

        let migrate = ["migrate", disk_name, new_name, "--layout", "log", "--force"];
        let rescue = format!("`vellum rescue {disk_name} NEW`");
        fails(1, &migrate, &[&rescue, "vellum check"]);
        let _ = std::fs::remove_file(&new);

        let out = vellum(&["rescue", "--json", disk_name, new_name]);
        let report: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(out.status.code(), Some(1), "{report}");
        assert_eq!(report["lost"][0]["lba"], 0, "{report}");
        assert_eq!(report["lost"][0]["blocks"], TABLE, "{report}");
        assert_eq!(report["copied_blocks"], 1024 - TABLE, "{report}");
        ok(&["check", new_name]);
        let server = Server::start(dir.path(), &[new_name, "--socket", text(&socket)]);
        let mut client = NbdClient::connect(&socket, "new.vellum").unwrap();
        client.read(whole.start, &mut found).unwrap();
        assert!(found == content[whole.start as usize..], "{layout:?}");
        drop(client);
        assert_eq!(server.term(), Some(0));
    }
}

#[test]
fn an_attach_that_cannot_read_the_file_system_says_what_to_do() {
    if !can_attach("an_attach_that_cannot_read_the_file_system_says_what_to_do") {
        return;
    }
    let dir = dir();
    let [disk, socket] = ["d.vellum", "s"].map(|n| dir.path().join(n));
    let content = noise(5, 1 << 20);
    put(dir.path(), &disk, Layout::Log, &socket, &content);
    let stored = std::fs::read(&disk).unwrap();
    let mut blocks = stored.chunks(4096);
    let at = blocks.position(|block| block == &content[..4096]).unwrap() as u64;
    let (file, _) = opened(&disk);
    file.write_all_at(&[!content[0]], at * 4096).unwrap();
    drop(file);
    let mount = dir.path().join("m");
    std::fs::create_dir(&mount).unwrap();
    let disk = text(&disk);
    let (check, rescue) = (
        format!("vellum check {disk}"),
        format!("vellum rescue {disk} "),
    );
    let attach = ["attach", disk, "--mount", text(&mount)];
    fails(1, &attach, &[&check, &rescue, "--read-only", "error"]);
}
