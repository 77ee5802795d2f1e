//! Which files blocks belong to, compared with debugfs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Bytes, Image, MIB, has_tools, plant, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use vellum_ext4::FileSystem;
use vellum_ext4::files::{Files, Hit, Use};

const TOOLS: &[&str] = &["mke2fs", "debugfs", "dumpe2fs"];

const MATRIX: &[(&str, &str)] = &[
    ("ext4", "-t ext4 -b 4096"),
    ("ext4 of 1 KiB", "-t ext4 -b 1024"),
    ("ext3", "-t ext3 -b 4096"),
    ("ext3 of 1 KiB", "-t ext3 -b 1024 -I 128"),
    ("bigalloc", "-t ext4 -b 4096 -O bigalloc"),
];

/// Returns debugfs's answers to many queries.
fn ask(folder: &Path, image: &Image, command: &str, of: impl Iterator<Item = u64>) -> String {
    let script = folder.join("script");
    let of: Vec<String> = of.map(|number| number.to_string()).collect();
    let lines: Vec<String> = of
        .chunks(50)
        .map(|some| format!("{command} {}\n", some.join(" ")))
        .collect();
    std::fs::write(&script, lines.concat()).unwrap();
    run(Command::new("debugfs")
        .arg("-f")
        .arg(&script)
        .arg(&image.path))
    .unwrap()
}

/// Parses lines of two numbers, or of a number and a text.
fn pairs(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.lines().filter_map(|line| {
        let (number, rest) = line.split_once('\t')?;
        Some((number.parse().ok()?, rest))
    })
}

#[test]
fn files_are_those_that_debugfs_names() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let root = folder.path().join("root");
    plant(&root);
    for (name, arguments) in MATRIX {
        let image = Image::new(folder.path(), "image", 300 * MIB);
        let planted = ["-d", root.to_str().unwrap(), "-N", "2048"];
        assert!(image.make(arguments, &planted).is_some(), "{name}");
        compare(name, folder.path(), &image);
        std::fs::remove_file(&image.path).unwrap();
    }
}

fn compare(name: &str, folder: &Path, image: &Image) {
    let scan = image.scan();
    let found = &scan.file_systems[0];
    let file = image.open();
    let blocks: Vec<u64> = (0..image.bytes / 4096)
        .filter(|block| block % 11 == 3 || *block < 3000)
        .collect();
    let files = Files::of(found, image.bytes / 4096, &blocks, &mut Bytes::of(&file));
    assert!(
        files.passed_over == 0 && !files.cut_short,
        "{name}: {files:?}"
    );
    compare_inodes(name, folder, image, found, (&blocks, &files));
    compare_paths(name, folder, image, &files);
    let pages = inodes_of(&files).len();
    println!("{name}: {pages} blocks, {} files", files.paths.len());
    compare_position(name, folder, image, found, &files);
}

fn inodes_of(files: &Files) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut said: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for hit in &files.hits {
        if let Some(inode) = hit.is.inode() {
            said.entry(hit.block).or_default().insert(inode.into());
        }
    }
    said
}

/// Compares the inodes of each block.
fn compare_inodes(
    name: &str,
    folder: &Path,
    image: &Image,
    found: &FileSystem,
    (blocks, files): (&[u64], &Files),
) {
    let per_page = 4096 / u64::from(found.block_bytes);
    let numbers = blocks
        .iter()
        .flat_map(|block| block * per_page..(block + 1) * per_page);
    let mut expected: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (block, inode) in pairs(&ask(folder, image, "icheck", numbers)) {
        if let Ok(inode) = inode.parse() {
            expected.entry(block / per_page).or_default().insert(inode);
        }
    }
    let said = inodes_of(files);
    assert!(expected.len() > 300, "{name}: {}", expected.len());
    let differ = |(block, inodes): (&u64, &BTreeSet<u64>)| said.get(block) != Some(inodes);
    let missed: Vec<_> = expected
        .iter()
        .filter(|(b, i)| differ((b, i)))
        .take(3)
        .collect();
    assert!(
        missed.is_empty() && said.len() == expected.len(),
        "{name}: {missed:?}"
    );
}

/// Compares the names of the inodes.
fn compare_paths(name: &str, folder: &Path, image: &Image, files: &Files) {
    let inodes: BTreeSet<u64> = inodes_of(files).into_values().flatten().collect();
    let mut expected: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for (inode, path) in pairs(&ask(folder, image, "ncheck", inodes.iter().copied())) {
        expected.entry(inode).or_default().insert(path.to_owned());
    }
    for (inode, paths) in &files.paths {
        let paths: Vec<&str> = paths
            .iter()
            .map(|path| std::str::from_utf8(path).unwrap())
            .collect();
        if *inode == 2 {
            assert_eq!(paths, ["/"]);
        } else if !paths[0].contains("new") {
            let expected = expected
                .get(&u64::from(*inode))
                .unwrap_or_else(|| panic!("{name}: {inode}"));
            let expected: Vec<&str> = expected
                .iter()
                .map(|path| path.trim_start_matches('/'))
                .collect();
            let said: Vec<&str> = paths.iter().map(|path| &path[1..]).collect();
            assert_eq!(said, expected, "{name}: {inode}");
        }
    }
    let both: Vec<&[u8]> = vec![b"/folder 3/again", b"/new\nline"];
    let two = files.paths.values().find(|paths| paths.len() == 2);
    let mut two: Vec<&[u8]> = two.map_or(both.clone(), |paths| {
        paths.iter().map(|path| &path[..]).collect()
    });
    two.sort_unstable();
    assert_eq!(two, both, "{name}");
}

/// Compares the bytes of a file with those at the position that was found.
fn compare_position(name: &str, folder: &Path, image: &Image, found: &FileSystem, files: &Files) {
    let is_file = |inode: &u32| {
        let paths = files.paths.get(inode);
        paths.is_some_and(|paths| paths[0].ends_with(b"/within/file"))
    };
    let within = |hit: &Hit| match hit.is {
        Use::Content(inode, at) if at > 100_000 && is_file(&inode) => Some((*hit, at)),
        _ => None,
    };
    let (hit, at) = files.hits.iter().find_map(within).unwrap();
    let path = &files.paths[&hit.is.inode().unwrap()][0];
    let on_host = folder
        .join("root")
        .join(std::str::from_utf8(&path[1..]).unwrap());
    let host = std::fs::read(on_host).unwrap();
    let here = image.read(hit.block * 4096, 4096);
    let length = (host.len() - at as usize).min(found.block_bytes as usize);
    assert!(
        here.windows(length)
            .step_by(1024)
            .any(|part| *part == host[at as usize..at as usize + length]),
        "{name}"
    );
}
