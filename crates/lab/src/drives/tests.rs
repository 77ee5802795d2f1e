use super::*;

const FLASH: &str = r#"about = "a drive"
source = "assumed"
[link]
command-us = 8
[flash]
channels = 4
dies-per-channel = 2
planes = 2
pages-per-block = 64
page-kib = 4
read-us = 50.5
program-us = 700
erase-ms = 5
channel-mb-per-s = 1200
erase-limit = 3000
buffer-kib = 1024
over-provisioning-percent = 7.3
"#;

const BLOCK: &str = r#"about = "a device"
source = "measured"
[link]
command-us = 8
mb-per-s = 3200
[block]
flush-us = 100
reads = { latency-us = 80, mb-per-s = 900 }
writes = [
    { kib = 4, us = 90 },
    { kib = 128, us = 400, mb-per-s = 500 },
]
"#;

fn nand(text: &str) -> Nand {
    match DriveFile::read("mine", text).unwrap().preset.kind {
        Kind::Nand(nand) => nand,
        Kind::Block(_) => panic!("it has flash"),
    }
}

#[test]
fn what_is_known_by_name_is_read_and_what_is_written_is_the_same_when_read() {
    assert_eq!(known().len(), FILES.len());
    let mine = [FLASH, BLOCK].map(|text| DriveFile::read("mine", text).unwrap());
    for drive in known().iter().chain(&mine) {
        let written = drive.written();
        assert_eq!(DriveFile::read(&drive.name, &written).as_ref(), Ok(drive));
    }
}

#[test]
fn a_files_figures_are_kept_exactly() {
    let nand = nand(FLASH);
    assert_eq!((nand.read_ns, nand.erase_ns), (50_500, 5_000_000));
    assert_eq!((nand.page_bytes, nand.buffer_bytes), (4096, 1 << 20));
    assert_eq!((nand.over_provisioning, nand.multi_plane), (73, false));
    let drive = DriveFile::read("mine", BLOCK).unwrap();
    let Kind::Block(block) = drive.preset.kind else {
        panic!("it has no flash")
    };
    assert_eq!(block.read.alone_ns(9_000), 90_000);
    assert_eq!(block.write.alone_ns(4096), 90_000);
    // Without a bandwidth the one that lets one follow the other.
    assert!((89_990..=90_000).contains(&block.write.transfer_ns(4096)));
}

fn without(text: &str, key: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(key));
    lines.map(|line| format!("{line}\n")).collect()
}

fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old}");
    text.replacen(old, new, 1)
}

/// Each is refused, with its line and what is said.
fn refused(cases: &[(String, usize, &str)]) {
    for (text, line, said) in cases {
        let error = DriveFile::read("mine", text).unwrap_err();
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert_eq!(error.line, *line, "{error}");
    }
}

#[test]
fn a_wrong_value_is_told_with_its_line_its_key_and_what_is_allowed() {
    let flash = |old, new| with(FLASH, old, new);
    let time = "[flash] read-us: it is a number from 0.001 to 1000000, in steps of 0.001";
    let planes = "[flash] planes: it is a number from 1 to 16, in steps of 1";
    refused(&[
        (flash("planes = 2", "planes = 0"), 8, planes),
        (flash("planes = 2", "planes = 17"), 8, planes),
        (flash("planes = 2", "planes = 1.5"), 8, planes),
        (flash("50.5", "\"50us\""), 11, time),
        (flash("50.5", "nan"), 11, time),
        (flash("50.5", "0.0005"), 11, time),
        (flash("50.5", "50.0005"), 11, time),
        (flash("50.5", "-1"), 11, time),
        (flash("7.3", "7.35"), 17, "from 2 to 1000, in steps of 0.1"),
        (flash("page-kib = 4", "page-kib = 6"), 10, "in steps of 4"),
        (
            flash("\"a drive\"", "7"),
            1,
            "about: it is what the drive is",
        ),
        (flash("a drive", "a\\ndrive"), 1, "of one line"),
        (
            flash("planes = 2", "planes-together = 1\nplanes = 2"),
            8,
            "it is true or false",
        ),
    ]);
}

#[test]
fn a_file_that_is_no_drives_is_refused_with_its_place() {
    let flash = |old, new| with(FLASH, old, new);
    let copy_back = "[page-map]\ncopy-back = true\n";
    assert!(DriveFile::read("mine", &(FLASH.to_owned() + copy_back)).is_ok());
    refused(&[
        (String::new(), 1, "about: it is missing: what the drive is"),
        ("#".repeat(FILE_BYTES_MAX + 1), 1, "at most 65536 bytes"),
        (flash("[link]", "[link"), 3, "the file: it is TOML"),
        (without(FLASH, "[link]"), 1, "link: it is missing"),
        (
            without(FLASH, "channels"),
            5,
            "[flash] channels: it is missing: Channels, a number from 1 to 64",
        ),
        (
            flash("planes = 2", "plains = 2\nplanes = 2"),
            8,
            "[flash] \"plains\": there is no such key; there are channels, ",
        ),
        (
            flash("[link]", "[extra]\n[link]"),
            3,
            "\"extra\": there is no such key; there are about, source, link",
        ),
        (
            flash("page-kib = 4", "page-kib = 8") + copy_back,
            18,
            "page-kib = 4, and planes-together = false",
        ),
        (
            with(FLASH, "pages-per-block = ", "pages-per-block = 1 # ")
                + "[page-map]\nsummaries = true\n",
            18,
            "summaries: the last page of each block is its summary",
        ),
        (
            FLASH.to_owned() + "[block]\nflush-us = 1",
            5,
            "[flash] or [block], not both",
        ),
    ]);
}

#[test]
fn speeds_that_cannot_be_are_refused_with_their_place() {
    let block = |old, new| with(BLOCK, old, new);
    refused(&[
        (without(BLOCK, "reads"), 6, "[block] reads: it is missing"),
        (
            block("reads = {", "reads = 7 # {"),
            8,
            "[block] reads: it is { latency-us = 80",
        ),
        (
            block("kib = 128, us = 400", "kib = 128, us = 80"),
            11,
            "no less than that of a smaller size",
        ),
        (
            block("kib = 128", "kb = 128"),
            11,
            "[block.writes] kib: it is missing",
        ),
        (block("{ kib = 4, us = 90 }", "4"), 10, "or a list of sizes"),
    ]);
}
