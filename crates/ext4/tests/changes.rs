//! Tools change an existing file system: if a scan is outdated, one of its watched places must have been written.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Image, MIB, changes, has_tools};
use std::process::Command;
use vellum_ext4::{FileSystem, Scan, Watches};

const TOOLS: &[&str] = &[
    "mke2fs",
    "tune2fs",
    "resize2fs",
    "e2fsck",
    "debugfs",
    "dumpe2fs",
];

/// The tool's arguments before the image's name, and after it.
type Step = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const STEPS: &[Step] = &[
    ("tune2fs", &["-L", "renamed"], &[]),
    ("tune2fs", &["-O", "^has_journal"], &[]),
    ("tune2fs", &["-J", "size=16"], &[]),
    ("resize2fs", &["-f"], &["200M"]),
    ("tune2fs", &["-U", "random"], &[]),
    ("e2fsck", &["-f", "-y"], &[]),
    ("resize2fs", &["-f", "-M"], &[]),
    ("resize2fs", &["-f", "-s"], &[]),
    ("resize2fs", &["-f", "-b"], &[]),
    ("resize2fs", &["-f"], &[]),
    ("e2fsck", &["-f", "-y"], &[]),
    ("tune2fs", &["-O", "^metadata_csum"], &[]),
    ("tune2fs", &["-O", "metadata_csum"], &[]),
    ("tune2fs", &["-O", "^has_journal"], &[]),
    ("tune2fs", &["-O", "fast_commit", "-J", "size=8"], &[]),
    ("debugfs", &["-w", "-R", "clri <8>"], &[]),
    ("e2fsck", &["-f", "-y"], &[]),
    ("mke2fs", &["-F", "-q", "-t", "ext3", "-b", "1024"], &[]),
    (
        "mke2fs",
        &["-F", "-q", "-t", "ext4", "-b", "4096", "-J", "size=64"],
        &[],
    ),
    ("debugfs", &["-w", "-R", "ssv blocks_count 1"], &[]),
    ("debugfs", &["-w", "-R", "ssv magic 0"], &[]),
];

/// The result of a scan, without the places that it depends on.
fn said(scan: &Scan) -> Vec<FileSystem> {
    let mut said = scan.file_systems.clone();
    said.iter_mut()
        .for_each(|found| found.watch = Watches::default());
    said
}

#[test]
fn tools_are_noticed() {
    if !has_tools(TOOLS) {
        return;
    }
    let starts: [&[&str]; 3] = [
        &["-t", "ext4", "-b", "4096", "-O", "^64bit"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext3", "-b", "4096"],
    ];
    for start in starts {
        let folder = common::folder();
        let image = Image::new(folder.path(), "image", 300 * MIB);
        let mut arguments = vec!["-F", "-q"];
        arguments.extend(start);
        image.run("mke2fs", &arguments, &["150M"]).unwrap();
        let before = Image {
            path: folder.path().join("before"),
            bytes: image.bytes,
        };
        let mut noticed = 0;
        for (tool, arguments, after) in STEPS {
            // With its holes: most of it is one.
            common::run(Command::new("cp").args([&image.path, &before.path])).unwrap();
            let old = before.scan();
            let done = image.run(tool, arguments, after).is_some();
            // resize2fs truncates the file to the file system's size; a volume keeps its size.
            image.open().set_len(image.bytes).unwrap();
            let new = image.scan();
            let mut touched = false;
            changes(&before, &image, |offset, bytes| {
                touched |= old.touched(offset, bytes);
            });
            let changed = said(&old) != said(&new);
            println!("{tool} {arguments:?}: done {done}, changed {changed}, touched {touched}");
            assert!(touched || !changed, "{start:?}: {tool} {arguments:?}");
            noticed += u32::from(changed && touched);
            // The new file system is understood, unless the case says otherwise.
            if matches!(*tool, "mke2fs" | "resize2fs") {
                let journal = &new.file_systems[0].journal;
                assert!(journal.is_ok(), "{tool} {arguments:?}: {journal:?}");
            }
        }
        assert!(noticed > 8, "{noticed}");
    }
}
