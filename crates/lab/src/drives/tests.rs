use super::*;
use crate::flash::{Placement, Queues, Weights, Zoned};

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
fn built_in_drives_are_read_and_written_drives_read_the_same() {
    assert_eq!(known().len(), FILES.len());
    let mine = [FLASH, BLOCK].map(|text| DriveFile::read("mine", text).unwrap());
    for drive in known().iter().chain(&mine) {
        let written = drive.written();
        assert_eq!(DriveFile::read(&drive.name, &written).as_ref(), Ok(drive));
    }
}

const TYPES: &str =
    "page-types = [{ read-us = 40, program-us = 500 }, { read-us = 61, program-us = 900 }]\n";

fn typed(types: &str) -> String {
    FLASH.replace("erase-ms", &format!("{types}erase-ms"))
}

#[test]
fn page_types_are_read_and_written_and_refused() {
    let drive = DriveFile::read("mine", &typed(TYPES)).unwrap();
    let Kind::Nand(nand) = drive.preset.kind else {
        panic!("it has flash")
    };
    assert_eq!(
        nand.page_types.times(),
        [(40_000, 500_000), (61_000, 900_000)]
    );
    assert_eq!(
        DriveFile::read("mine", &drive.written()).as_ref(),
        Ok(&drive)
    );
    assert_ne!(
        drive.digest(),
        DriveFile::read("mine", FLASH).unwrap().digest()
    );
    let one = "{ read-us = 50, program-us = 700 }";
    let of = |types: &str| typed(&format!("page-types = {types}\n"));
    let map = |key: &str| typed(TYPES) + &format!("[page-map]\n{key} = true\n");
    refused(&[
        (of("3"), 13, "page-types: it is a list of 2 to 5"),
        (of(&format!("[{one}]")), 13, "it is a list of 2 to 5"),
        (
            of(&format!("[{}]", [one; 6].join(", "))),
            13,
            "it is a list of 2 to 5",
        ),
        (of(&format!("[{one}, 5]")), 13, "it is a list of 2 to 5"),
        (
            of(&format!("[{one}, {{ read-us = 50 }}]")),
            13,
            "program-us: it is missing",
        ),
        (
            of(&format!("[{one}, {{ read-us = 0, program-us = 1 }}]")),
            13,
            "read-us: it is a number from",
        ),
        (
            of(&format!(
                "[{one}, {{ read-us = 50, program-us = 700, x = 1 }}]"
            )),
            13,
            "there is no such key",
        ),
        (
            of(&format!("[{one}, {{ read-us = 50, program-us = 800 }}]")),
            13,
            "program-us is the mean of its types: they come to 750, and it is 700",
        ),
        (map("summaries"), 19, "neither copy-back nor summaries"),
    ]);
}

#[test]
fn energy_is_read_and_written_and_refused() {
    let of = |values: &str| format!("{FLASH}[energy]\n{values}");
    let drive = DriveFile::read(
        "mine",
        &of("read-uj = 0.5\nprogram-uj = 70\nerase-uj = 0\n"),
    )
    .unwrap();
    let Kind::Nand(nand) = drive.preset.kind else {
        panic!("it has flash")
    };
    let energy = nand.energy.unwrap();
    let nanojoules = (energy.read_nj, energy.program_nj, energy.erase_nj);
    assert_eq!(nanojoules, (500, 70_000, 0));
    assert_eq!(
        DriveFile::read("mine", &drive.written()).as_ref(),
        Ok(&drive)
    );
    refused(&[
        (
            of("read-uj = 1\nprogram-uj = 2\n"),
            18,
            "erase-uj: it is missing",
        ),
        (
            of("read-uj = -1\nprogram-uj = 2\nerase-uj = 3\n"),
            19,
            "read-uj: it is a number from 0",
        ),
        (
            of("read-uj = 1\nprogram-uj = 2\nerase-uj = 3\nidle-uj = 4\n"),
            22,
            "there is no such key",
        ),
    ]);
}

#[test]
fn refresh_limits_are_read_and_written_and_refused() {
    let of = |tables: &str| format!("{FLASH}{tables}");
    let (reads, days) = (
        "[read-disturb]\nreads = 100000\n",
        "[retention]\ndays = 0.00001\n",
    );
    for (tables, wanted) in [
        (String::new(), (None, None)),
        (reads.into(), (Some(100_000), None)),
        (days.into(), (None, Some(864_000_000))),
        (
            reads.to_owned() + "[retention]\ndays = 90",
            (Some(100_000), Some(90 * 86_400 * 1_000_000_000)),
        ),
    ] {
        let drive = DriveFile::read("mine", &of(&tables)).unwrap();
        let refresh = nand(&of(&tables)).refresh;
        assert_eq!((refresh.reads, refresh.age_ns), wanted);
        let again = DriveFile::read("mine", &drive.written());
        assert_eq!(again.as_ref(), Ok(&drive));
        let is_plain = wanted == (None, None);
        let plain = DriveFile::read("mine", FLASH).unwrap();
        assert_eq!(drive.digest() == plain.digest(), is_plain);
    }
}

#[test]
fn impossible_refresh_limits_are_refused() {
    let of = |tables: &str| format!("{FLASH}{tables}");
    let (most, ages) = (
        "a number from 1 to 4294967295",
        "a number from 0.00001 to 36500",
    );
    refused(&[
        (
            of("[read-disturb]\n"),
            18,
            "[read-disturb] reads: it is missing: Reads of an erase",
        ),
        (of("[read-disturb]\nreads = 0\n"), 19, most),
        (of("[read-disturb]\nreads = 4294967296\n"), 19, most),
        (
            of("[read-disturb]\nreads = 10.5\n"),
            19,
            "[read-disturb] reads: it is a number",
        ),
        (
            of("[read-disturb]\nreads = 9\nper-page = 1\n"),
            20,
            "there are reads",
        ),
        (of("read-disturb = 100000\n"), 18, "there is no such key"),
        (
            of("[disturb]\nreads = 9\n"),
            18,
            "there is no such key; there are about",
        ),
        (
            of("[retention]\n"),
            18,
            "[retention] days: it is missing: How long data",
        ),
        (of("[retention]\ndays = 0\n"), 19, ages),
        (of("[retention]\ndays = 40000\n"), 19, ages),
        (
            of("[retention]\ndays = 0.000015\n"),
            19,
            "in steps of 0.00001",
        ),
        (
            of("[retention]\nhours = 3\n"),
            18,
            "[retention] days: it is missing",
        ),
        (
            "retention = 90\n".to_owned() + FLASH,
            1,
            "retention: it is a table: [retention]",
        ),
    ]);
}

#[test]
fn placement_handles_are_read_and_written_and_refused() {
    let of = |tables: &str| format!("{FLASH}{tables}");
    for (more, initially) in [("", false), ("initially-isolated = true\n", true)] {
        let text = of(&format!("[placement]\nhandles = 8\n{more}"));
        let drive = DriveFile::read("mine", &text).unwrap();
        let wanted = Placement {
            handles: 8,
            initially,
        };
        assert_eq!(nand(&text).placement, Some(wanted));
        let again = DriveFile::read("mine", &drive.written());
        assert_eq!(again.as_ref(), Ok(&drive));
    }
    let handles = "[placement]\nhandles = 2\n";
    refused(&[
        (of("[placement]\n"), 18, "handles: it is missing: Handles"),
        (
            of("[placement]\nhandles = 17\n"),
            19,
            "a number from 1 to 16",
        ),
        (
            of("[placement]\nhandles = 2\ninitially-isolated = 1\n"),
            20,
            "it is true or false",
        ),
        (
            of(&format!("{CACHE}{handles}")),
            24,
            "[slc-cache] does not go",
        ),
        (
            of(&format!("{handles}[page-map]\nstriped = true\n")),
            18,
            "neither striped, copy-back nor summaries",
        ),
    ]);
}

#[test]
fn queues_are_read_and_written_and_refused() {
    let of = |tables: &str| format!("{FLASH}{tables}");
    let plain = "[queues]\ncount = 4\ndepth = 1023\ncommands = 64\n";
    let weights = "high = 8\nmedium = 4\nlow = 1\n";
    for (more, burst, weighted) in [
        ("", 1, false),
        ("burst = 16\n", 16, false),
        (weights, 1, true),
    ] {
        let drive = DriveFile::read("mine", &of(&format!("{plain}{more}"))).unwrap();
        let wanted = Queues {
            count: 4,
            depth: 1023,
            commands: 64,
            burst,
            weights: weighted.then_some(Weights {
                high: 8,
                medium: 4,
                low: 1,
            }),
        };
        assert_eq!(drive.preset.queues, Some(wanted));
        let again = DriveFile::read("mine", &drive.written());
        assert_eq!(again.as_ref(), Ok(&drive));
    }
    let device = DriveFile::read("mine", &format!("{BLOCK}{plain}")).unwrap();
    assert_eq!(device.preset.queues.map(|queues| queues.count), Some(4));
    assert_eq!(DriveFile::read("mine", &device.written()), Ok(device));
    let changed = |from, to| of(&plain.replace(from, to));
    let more = |more: &str| of(&format!("{plain}{more}"));
    refused(&[
        (of("[queues]\n"), 18, "count: it is missing: How many"),
        (changed("= 4\n", "= 129\n"), 19, "a number from 1 to 128"),
        (changed("1023", "65536"), 20, "a number from 1 to 65535"),
        (changed("64", "0"), 21, "a number from 1 to 65536"),
        (more("burst = 65\n"), 22, "a number from 1 to 64"),
        (
            more("burst = 6\n"),
            18,
            "[queues] burst: it is a power of two",
        ),
        (more("high = 0\n"), 22, "a number from 1 to 256"),
        (
            more("high = 8\nlow = 1\n"),
            18,
            "[queues] medium: it is missing: weighted round robin",
        ),
        (more("urgent = 1\n"), 22, "there is no such key"),
    ]);
}

#[test]
fn zones_are_read_and_written_and_refused() {
    let of = |tables: &str| format!("{FLASH}{tables}");
    let zones = "[zoned]\ndies = 4\nerase-blocks = 2\nopen = 6\nactive = 12\n";
    for (more, size_bytes, conventional) in [
        ("", 0, 0),
        ("size-kib = 4096\nconventional = 4\n", 4 << 20, 4),
    ] {
        let text = of(&format!("{zones}{more}"));
        let drive = DriveFile::read("mine", &text).unwrap();
        let wanted = Zoned {
            dies: 4,
            deep: 2,
            size_bytes,
            open: 6,
            active: 12,
            conventional,
        };
        assert_eq!(nand(&text).zoned, Some(wanted));
        let again = DriveFile::read("mine", &drive.written());
        assert_eq!(again.as_ref(), Ok(&drive));
    }
    let changed = |from, to| of(&zones.replace(from, to));
    refused(&[
        (changed("dies = 4\n", ""), 18, "dies: it is missing"),
        (
            changed("dies = 4", "dies = 3"),
            18,
            "a power of two that divides the drive's 8",
        ),
        (
            changed("dies = 4", "dies = 16"),
            18,
            "a power of two that divides the drive's 8",
        ),
        (
            changed("active = 12", "active = 5"),
            18,
            "an open zone is active",
        ),
        (
            of(&format!("{zones}conventional = 3\n")),
            18,
            "it is a multiple of 2",
        ),
        (
            of(&format!("{zones}size-kib = 2044\n")),
            18,
            "at least the 2048 KiB that a zone holds",
        ),
        (
            of(&format!("{zones}{CACHE}")),
            18,
            "[slc-cache] does not go",
        ),
        (
            of(&format!("{zones}[page-map]\nstriped = true\n")),
            18,
            "[page-map] does not go",
        ),
    ]);
}

const CACHE: &str = "[slc-cache]
erase-blocks = 4
bits-per-cell = 2
read-us = 20
program-us = 100
erase-ms = 2
";

#[test]
fn a_cache_is_read_and_written_and_refused() {
    let with_cache = |more: &str| format!("{FLASH}{CACHE}{more}");
    for (more, idle) in [
        ("", None),
        ("idle-ms = 0\n", Some(0)),
        ("idle-ms = 2.5\n", Some(2_500_000)),
    ] {
        let drive = DriveFile::read("mine", &with_cache(more)).unwrap();
        let Kind::Nand(nand) = drive.preset.kind else {
            panic!("it has flash")
        };
        let slc = nand.slc.unwrap();
        assert_eq!((slc.blocks, slc.units(64), slc.idle_ns), (4, 32, idle));
        assert_eq!(
            DriveFile::read("mine", &drive.written()).as_ref(),
            Ok(&drive)
        );
    }
    let three = typed(TYPES) + &CACHE.replace("cell = 2", "cell = 3");
    let map = "[page-map]\ncopy-back = true\n";
    refused(&[
        (
            with_cache("").replace("erase-blocks = 4\n", ""),
            18,
            "erase-blocks: it is missing",
        ),
        (
            with_cache("").replace("cell = 2", "cell = 1"),
            20,
            "bits-per-cell: it is a number from 2 to 5",
        ),
        (
            with_cache("idle-ms = -1\n"),
            24,
            "idle-ms: it is a number from 0",
        ),
        (with_cache("fast = true\n"), 24, "there is no such key"),
        (
            with_cache("").replace("block = 64", "block = 1"),
            18,
            "has a page at least",
        ),
        (
            three,
            19,
            "the flash has 2 page-types, and so its cells have 2 bits",
        ),
        (
            with_cache(map).replace("planes = 2", "planes = 1"),
            18,
            "neither copy-back nor summaries",
        ),
    ]);
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
    // Without a bandwidth, the one at which requests follow each other one at a time.
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

/// Checks that each text is refused, with its line and message.
fn refused(cases: &[(String, usize, &str)]) {
    for (text, line, said) in cases {
        let error = DriveFile::read("mine", text).unwrap_err();
        assert!(error.to_string().contains(said), "{said}: {error}");
        assert_eq!(error.line, *line, "{error}");
    }
}

#[test]
fn an_error_names_the_line_the_key_and_what_is_allowed() {
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
fn an_error_in_a_drive_file_has_its_place() {
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
fn impossible_speeds_are_refused_with_their_place() {
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
