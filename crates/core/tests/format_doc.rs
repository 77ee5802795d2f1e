//! docs/FORMAT.md says what the structs say. `UPDATE=1` rewrites it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use disk::{Disk, chunk};
use std::fmt::Write;
use std::path::Path;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::chunk::{FIELDS, RECORD_ROOM, Record};
use vellum_core::format::tables;
use vellum_core::recovery::Source;

fn structures() -> String {
    let mut text = String::new();
    for (name, fields) in tables() {
        writeln!(text, "\n## {name}\n\n| offset | bytes | field | meaning |").unwrap();
        writeln!(text, "| --- | --- | --- | --- |").unwrap();
        for field in fields {
            let (offset, size) = (field.offset, field.size);
            let (name, doc) = (field.name.replace('_', " "), field.doc.trim());
            writeln!(text, "| {offset} | {size} | {name} | {doc} |").unwrap();
        }
    }
    text
}

fn records() -> String {
    let mut text =
        "\n| kind | name | bytes | layout after the kind |\n| --- | --- | --- | --- |\n".to_owned();
    for (kind, name, bytes, layout) in Record::KINDS {
        writeln!(text, "| {kind} | {name} | {bytes} | {layout} |").unwrap();
    }
    writeln!(
        text,
        "\nA header has room for {RECORD_ROOM} bytes of records."
    )
    .unwrap();
    text
}

/// The example's two chunks, with their headers as stored on the medium.
fn example() -> String {
    let [a, b, c] = [0x61, 0x62, 0x63].map(|byte: u32| byte * 0x0101_0101);
    let mut disk = Disk::new();
    let mut second = chunk(2, 0, 3, 5, &[c]);
    second.durable = 1;
    disk.write(&chunk(1, 0, 0, 5, &[a, b]));
    disk.write(&second);
    assert_eq!(disk.recovered().replayed.chunks, 2);
    assert_eq!(disk.at(0, 0), Pba(64), "as the text says");
    let mut text = String::new();
    for (offset, what) in [(0, "chunk 1"), (3, "chunk 2")] {
        let at = disk.at(0, offset);
        let mut block = vec![0; BLOCK_BYTES];
        disk.read(at, &mut block).unwrap();
        writeln!(
            text,
            "\n{what}, its header in block {at}, its data after it:\n"
        )
        .unwrap();
        let last = FIELDS.last().unwrap();
        let used = last.offset + last.size + if offset == 0 { 24 } else { 12 };
        for (index, row) in block[..used].chunks(16).enumerate() {
            let bytes: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let start = index * 16;
            let here: Vec<_> = FIELDS
                .iter()
                .filter(|field| (start..start + 16).contains(&field.offset))
                .map(|field| field.name.replace('_', " "))
                .collect();
            let here = if here.is_empty() {
                "records".to_owned()
            } else {
                here.join(", ")
            };
            writeln!(text, "    {start:3}  {:47}  {here}", bytes.join(" ")).unwrap();
        }
        assert!(block[used..].iter().all(|&byte| byte == 0));
    }
    let marks = [(1, "a"), (2, "b"), (4, "c")];
    for (offset, letter) in marks {
        let Pba(at) = disk.at(0, offset);
        assert_eq!(disk.blocks[&at][0], letter.as_bytes()[0]);
    }
    text
}

fn render(text: &str, name: &str, content: &str) -> String {
    let mark = format!("<!-- rendered: {name} -->\n");
    let (before, rest) = text.split_once(&mark).expect("the comment that begins it");
    let (_, after) = rest
        .split_once("<!-- end -->")
        .expect("the comment that ends it");
    format!("{before}{mark}{content}\n<!-- end -->{after}")
}

#[test]
fn the_format_document_matches_the_structs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    let found = std::fs::read_to_string(&path).unwrap();
    let mut wanted = found.clone();
    let parts = [
        ("structures", structures()),
        ("records", records()),
        ("example", example()),
    ];
    for (name, content) in parts {
        wanted = render(&wanted, name, &content);
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        assert!(
            found == wanted,
            "docs/FORMAT.md differs from the structs: UPDATE=1 cargo test -p vellum-core --test format_doc"
        );
    }
}
