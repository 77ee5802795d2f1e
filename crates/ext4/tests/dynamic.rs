//! Directories, extent trees, indirect blocks and attributes, compared with what debugfs reports for each inode.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Bytes, Image, MIB, has_tools, plant, range, skipped};
use std::collections::BTreeSet;
use vellum_ext4::{Allowance, Dynamic, DynamicKind, Metadata, MetadataKind};

const TOOLS: &[&str] = &["mke2fs", "debugfs", "dumpe2fs"];

const MATRIX: &[(&str, &str)] = &[
    ("ext4 4K", "-t ext4 -b 4096"),
    ("ext3 1K", "-t ext3 -b 1024"),
    ("ext4 64K", "-t ext4 -b 65536"),
    ("ext4 1K", "-t ext4 -b 1024"),
    ("ext3 4K", "-t ext3 -b 4096"),
    ("ext2 2K", "-t ext2 -b 2048"),
    ("uninit_bg", "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg"),
    ("meta_bg", "-t ext4 -b 1024 -O meta_bg,^resize_inode"),
    ("no flex_bg", "-t ext4 -b 4096 -O ^flex_bg"),
    ("bigalloc", "-t ext4 -b 4096 -O bigalloc"),
    ("inline data", "-t ext4 -b 4096 -O inline_data"),
    ("small inodes", "-t ext4 -b 4096 -I 128"),
];

/// Returns what debugfs lists: inode, kind and block.
fn listed(image: &Image, inode: u32) -> BTreeSet<(u32, DynamicKind, u64)> {
    let command = format!("stat <{inode}>");
    let text = image.run("debugfs", &["-R", &command], &[]).unwrap();
    let mut found = BTreeSet::new();
    let is_directory = text.contains("Type: directory");
    if let Some((_, rest)) = text.split_once("File ACL: ") {
        let block = rest.split_whitespace().next().unwrap().parse().unwrap();
        if block != 0 {
            found.insert((inode, DynamicKind::Attributes, block));
        }
    }
    let Some((_, list)) = text
        .split_once("EXTENTS:\n")
        .or_else(|| text.split_once("BLOCKS:\n"))
    else {
        return found;
    };
    let list = list.split("TOTAL").next().unwrap();
    for entry in list.split([',', '\n']).map(str::trim) {
        let Some((what, place)) = entry.rsplit_once(':') else {
            continue;
        };
        let kind = match what {
            what if what.contains("ETB") => DynamicKind::ExtentNode,
            what if what.contains("IND") => DynamicKind::IndirectBlock,
            _ if is_directory => DynamicKind::Directory,
            _ => continue,
        };
        let (first, last) = range(place);
        found.extend((first..=last).map(|block| (inode, kind, block)));
    }
    found
}

#[test]
fn dynamic_metadata_is_what_debugfs_lists() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let root = folder.path().join("root");
    plant(&root);
    // The first three differ the most: in the size of blocks, and in how files are mapped. The long set has all of them.
    let is_long = std::env::var_os("VELLUM_LONG").is_some();
    let tried = if is_long { MATRIX } else { &MATRIX[..3] };
    for (name, arguments) in tried {
        let image = Image::new(folder.path(), "image", 700 * MIB);
        let planted = ["-d", root.to_str().unwrap(), "-N", "4096"];
        if image.make(arguments, &planted).is_none() {
            skipped(format_args!("{name}: this mke2fs does not make it"));
            continue;
        }
        let scan = image.scan();
        let found = &scan.file_systems[0];
        let file = image.open();
        let mut source = Bytes::of(&file);
        let mut allowance = Allowance::default();
        let mut dynamic = Dynamic::new(found, image.bytes / 4096, &mut allowance).unwrap();
        let mut seen = BTreeSet::new();
        let unit = u64::from(found.block_bytes);
        while let Some(next) = dynamic.next(&mut source) {
            let next = next.unwrap_or_else(|e| panic!("{name}: {e}"));
            let blocks = next.span.start / unit..next.span.end() / unit;
            seen.extend(blocks.map(|block| (next.inode, next.kind, block)));
        }
        let inodes: u32 = image.head("Inode count").unwrap().parse().unwrap();
        let free: u32 = image.head("Free inodes").unwrap().parse().unwrap();
        // mke2fs allocates inodes from the first on.
        let mut expected = BTreeSet::new();
        for inode in (1..=inodes - free).filter(|inode| !is_many(*inode, inodes - free)) {
            expected.extend(listed(&image, inode));
        }
        seen.retain(|(inode, ..)| !is_many(*inode, inodes - free));
        let missing: Vec<_> = expected.difference(&seen).take(5).collect();
        let extra: Vec<_> = seen.difference(&expected).take(5).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{name}: missing {missing:?}, extra {extra:?}"
        );
        let kinds: BTreeSet<_> = seen.iter().map(|(_, kind, _)| kind).collect();
        println!("{name}: {} blocks of {kinds:?}", seen.len());
        assert!(kinds.contains(&DynamicKind::Directory), "{name}");
        let nodes = match found.features.extents() {
            true => DynamicKind::ExtentNode,
            false => DynamicKind::IndirectBlock,
        };
        assert!(kinds.contains(&nodes), "{name}");
        check_unwritten(name, &image);
        std::fs::remove_file(&image.path).unwrap();
    }
}

/// True for most of the many empty files: debugfs is queried for every twentieth only.
fn is_many(inode: u32, last: u32) -> bool {
    (150..last.saturating_sub(60)).contains(&inode) && !inode.is_multiple_of(20)
}

/// Checks which bitmaps and tables were never written, against dumpe2fs.
fn check_unwritten(name: &str, image: &Image) {
    let scan = image.scan();
    let file = image.open();
    let mut source = Bytes::of(&file);
    let mut allowance = Allowance::default();
    let blocks = image.bytes / 4096;
    let mut metadata = Metadata::new(&scan.file_systems[0], blocks, &mut allowance).unwrap();
    let mut found = BTreeSet::new();
    while let Some(next) = metadata.next(&mut source) {
        let next = next.unwrap();
        if !next.is_written && next.kind != MetadataKind::InodeBitmap {
            found.insert((next.group, next.kind == MetadataKind::InodeTable));
        }
    }
    let text = image.run("dumpe2fs", &[], &[]).unwrap();
    let mut expected = BTreeSet::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with("Group ") && line.contains("(Blocks"))
    {
        let group: u64 = line["Group ".len()..]
            .split(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        for (flag, is_table) in [("BLOCK_UNINIT", false), ("INODE_UNINIT", true)] {
            if line.contains(flag) {
                expected.insert((group, is_table));
            }
        }
    }
    assert_eq!(found, expected, "{name}");
}
