//! Wrong files, wrong flags, wrong configuration: each gives a clear error with the right exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, fails, ok, text, vellum};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;

#[test]
fn usage_errors_have_code_2_and_name_the_option() {
    let dir = dir();
    let volume = dir.path().join("v");
    let v = text(&volume);
    fails(2, &["frobnicate"], &["frobnicate"]);
    fails(2, &["create"], &["<VOLUME>"]);
    fails(2, &["create", v], &["--size"]);
    fails(2, &["restart"], &["VOLUME", "--all"]);
    for size in ["0", "1000", "-1", "10X", "99999999999999P", ""] {
        fails(2, &["create", v, &format!("--size={size}")], &["size"]);
    }
    fails(
        2,
        &["create", v, "--size=64M", "--over-provisioning=1"],
        &["--over-provisioning", "2..=90"],
    );
    fails(
        2,
        &["create", v, "--size=64M", "--over-provisioning=91"],
        &["--over-provisioning"],
    );
    fails(
        2,
        &["create", v, "--size=64M", "--segment-size=12K"],
        &["--segment-size", "power of two"],
    );
    fails(
        2,
        &["create", v, "--size=64M", "--segment-size=3M"],
        &["--segment-size", "3M", "256K to 256M"],
    );
    fails(2, &["create", v, "--size", "-5"], &["\"-5\" is not a size"]);
    for size in ["9P", "17T", "16T", "7T"] {
        let flag = format!("--size={size}");
        fails(2, &["create", v, &flag], &["--size", "more than 8 TiB"]);
    }
    fails(
        2,
        &["create", v, "--size=64G", "--medium-size=1G"],
        &["64 GiB", "16 GiB", "16 times"],
    );
    assert!(!volume.exists(), "a failed create leaves nothing");
    fails(2, &["serve", v], &["--socket"]);
    fails(
        2,
        &["serve", v, "--tcp=127.0.0.1:0"],
        &["--tls-cert", "--insecure-tcp"],
    );
    fails(2, &["serve", v, "--tcp=nowhere"], &["--tcp"]);
    fails(
        2,
        &["serve", v, "--tcp=127.0.0.1:0", "--tls-cert=c"],
        &["--tls-key"],
    );
    fails(
        2,
        &["serve", v, "--socket=s", "--buffer=1M"],
        &["--buffer", "8M to 8G"],
    );
    fails(
        2,
        &["serve", "a/v", "b/v", "--socket=s"],
        &["both called \"v\"", "NAME=FILE"],
    );
    fails(2, &["attach", v, "--buffer=1"], &["--buffer", "8M to 8G"]);
    fails(2, &["stats", v, "--watch=0"], &["--watch"]);
    fails(2, &["demo", "--scale=0"], &["--scale"]);
    fails(2, &["dump", v, "everything"], &["everything", "segments"]);
}

#[test]
fn what_a_command_does_not_take_is_told() {
    let dir = dir();
    let volume = dir.path().join("v");
    let v = text(&volume);
    ok(&["create", v, "--size=64M"]);
    let of_one = format!("{v}@monday");
    for command in ["check", "dump", "info", "get", "scrub", "rescue", "stats"] {
        let told = [of_one.as_str(), "give ", "`attach`"];
        fails(2, &[command, &of_one], &told);
    }
    let names_none = format!("{v}@");
    for (given, told) in [
        ("@x", "names no volume"),
        (&names_none, "names no snapshot"),
    ] {
        fails(2, &["check", given], &[told]);
        fails(2, &["attach", given], &[told]);
    }
    for given in ["a=", "=a"] {
        fails(2, &["serve", given, "--socket=s"], &[given, "NAME=FILE"]);
    }
    fails(2, &["estimate", v], &["is a volume", "vellum stats"]);
    let vary = ["lab", "sweep", "--vary"];
    let unknown = [&vary[..], &["nosuch=1 2"]].concat();
    fails(2, &unknown, &["--vary nosuch", "policy", "capacity"]);
    // Standard input is empty.
    fails(1, &["lab", "run", "-"], &["standard input: it is empty"]);
    let nowhere = dir.path().join("none/a");
    fails(1, &["pack", v, text(&nowhere)], &["there is no folder"]);
}

#[test]
fn wrong_values_have_code_2_and_say_what_is_right() {
    let dir = dir();
    let [volume, link, archive] = ["v", "link", "a"].map(|name| dir.path().join(name));
    let (v, link, archive) = (text(&volume), text(&link), text(&archive));
    ok(&["create", v, "--size=64M"]);
    ok(&["dump", v, "--whole", archive]);
    std::os::unix::fs::symlink(v, link).unwrap();
    let tls = ["--tcp=127.0.0.1:0", "--tls-cert=c", "--tls-key=k"];
    let serve = ["serve", v];
    for (args, says) in [
        (&["shrink", v][..], &["--size", "--medium-size"][..]),
        (&["rollback", v, "@-1y"], &["@-15m"]),
        (&["journal", "set", v, "1", "4096"], &["multiples of 4096"]),
        (&["set", v, "snapshot-every=0s"], &["or off"]),
        (&["set", v, "label=a\u{7}b"], &["controls a terminal"]),
        (&["set", v, "mount-options=loop"], &["loop"]),
        (&["restore", archive, "-"], &["./-"]),
        (
            &[&serve[..], &["--tcp=localhost:1"]].concat(),
            &["127.0.0.1:10809"],
        ),
        (&[&serve[..], &tls].concat(), &["c: "]),
        (
            &["migrate", v, link, "--layout=log", "--force"],
            &["name another file or device"],
        ),
        (
            &["rescue", v, link, "--force"],
            &["name another file or device"],
        ),
    ] {
        fails(2, args, says);
    }
    ok(&["check", v]);
}

#[test]
fn wrong_tls_allow_options_are_refused() {
    let v = "v";
    let tls = ["--tcp=127.0.0.1:0", "--tls-cert=c", "--tls-key=k"];
    let fingerprint = "AB".repeat(32);
    for (allow, says) in [
        (format!("v={}", "AB".repeat(31)), "is no fingerprint"),
        (fingerprint.clone(), "NAME=FINGERPRINT"),
        (format!("w={fingerprint}"), "one is called \"v\""),
    ] {
        let how = ["--tls-client-ca=a", "--tls-allow", &allow];
        let volume = format!("v={v}");
        let command = [&["serve", &volume], &tls[..], &how].concat();
        fails(2, &command, &["--tls-allow", says]);
    }
    for option in ["--tls-allow=v=00", "--tls-crl=l"] {
        fails(2, &[&["serve", v, option], &tls[..]].concat(), &[]);
    }
}

#[test]
fn files_that_are_not_volumes_are_refused_everywhere() {
    let dir = dir();
    let missing = dir.path().join("missing");
    let junk = dir.path().join("junk");
    fs::write(&junk, vec![0xA5; 1 << 20]).unwrap();
    let odd = dir.path().join("odd");
    fs::write(&odd, vec![1; 70_001]).unwrap();
    let tiny = dir.path().join("tiny");
    fs::write(&tiny, b"notes").unwrap();
    let (socket, here) = (dir.path().join("s"), text(dir.path()));
    let serve = format!("--socket={}", socket.display());
    for command in [
        &["info"][..],
        &["check"],
        &["dump"],
        &["serve", &serve],
        &["attach"],
        &["stats"],
    ] {
        let with = |file| [command, &[file]].concat();
        fails(1, &with(text(&missing)), &["missing"]);
        fails(1, &with(here), &["vellum-test-"]);
        fails(1, &with("/dev/null"), &["/dev/null"]);
    }
    for command in [&["info"][..], &["serve", &serve], &["attach"], &["stats"]] {
        fails(
            1,
            &[command, &[text(&junk)]].concat(),
            &["junk", "not a vellum volume"],
        );
    }
    for command in [&["info"][..], &["attach"], &["stats"]] {
        fails(
            1,
            &[command, &[text(&tiny)]].concat(),
            &["tiny", "no vellum volume", "5 bytes"],
        );
    }
    fails(3, &["check", text(&junk)], &["junk", "not a vellum volume"]);
    fails(
        1,
        &["serve", &serve, text(&odd)],
        &["odd", "multiple of 4096"],
    );
    assert!(!socket.exists());
    fails(
        1,
        &["create", text(&junk), "--size=64M"],
        &["junk", "exists", "--force"],
    );
    assert_eq!(fs::read(&junk).unwrap()[0], 0xA5);
    fails(
        1,
        &["create", &format!("{here}/no/dir/v"), "--size=64M"],
        &["folder"],
    );
    ok(&["create", text(&junk), "--size=64M", "--force"]);
    ok(&["check", text(&junk)]);
}

#[test]
fn what_cannot_be_made_takes_nothing_away() {
    let dir = dir();
    let junk = dir.path().join("junk");
    ok(&["create", text(&junk), "--size=64M"]);
    let before = fs::read(&junk).unwrap();
    let create = ["create", text(&junk), "--size=64M", "--force"];
    let tables = ["--layout=ordered", "--set=compress=zstd"];
    fails(2, &[&create[..], &tables].concat(), &["compress"]);
    let small = [&create[..], &["--medium-size=64K"]].concat();
    fails(2, &small, &["junk"]);
    let large = [
        "create",
        text(&junk),
        "--force",
        "--size=6T",
        "--preallocate",
    ];
    fails(1, &large, &["junk", "--preallocate", "free"]);
    assert!(fs::read(&junk).unwrap() == before, "it is as it was");
}

#[test]
fn ranges_that_a_volume_does_not_have_are_errors() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let (v, socket) = (text(&path), text(&socket));
    ok(&["create", v, "--size=64M"]);
    for (part, what) in [
        ("segments", "segments"),
        ("chunks", "segments"),
        ("map", "32816 blocks"),
    ] {
        fails(
            2,
            &["dump", v, part, "--from=9999999999"],
            &["--from", what],
        );
        fails(2, &["dump", v, part, "--count=0"], &["--count"]);
    }
    ok(&["dump", v, "map", "--from=32815"]);
    let superblock = ok(&["dump", v]);
    for field in ["of deltas", "root generation   0:", "log end", "features"] {
        assert!(superblock.contains(field), "{field}: {superblock}");
    }
    for journal in ["1G+128M", "1+4096"] {
        let serve = ["serve", v, "--socket", socket, "--journal", journal];
        fails(2, &serve, &["journals: "]);
    }
}

#[test]
fn damaged_volumes_are_told_apart() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    ok(&["create", v, "--size=64M"]);
    let bytes = fs::metadata(&path).unwrap().len();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut first = [0; 4096];
    file.read_exact_at(&mut first, 0).unwrap();

    // One copy is gone: the volume still opens, with a warning.
    file.write_all_at(&[0; 4096], 0).unwrap();
    ok(&["check", v]);
    assert!(ok(&["info", v]).contains("damaged or older"));
    // Both are gone.
    let mut last = [0; 4096];
    file.read_exact_at(&mut last, bytes - 4096).unwrap();
    file.write_all_at(&[0; 4096], bytes - 4096).unwrap();
    fails(3, &["check", v], &["both superblocks are lost"]);
    file.write_all_at(&last, bytes - 4096).unwrap();
    // From the future: the version follows the magic number. The checksum is also wrong, which is an equally good reason to
    // refuse it.
    let mut future = first;
    future[8] = 99;
    file.write_all_at(&future, 0).unwrap();
    file.write_all_at(&future, bytes - 4096).unwrap();
    fails(1, &["serve", v, "--socket=/nonexistent/s"], &["v"]);
    // Truncated.
    file.write_all_at(&first, 0).unwrap();
    file.set_len(bytes / 2).unwrap();
    fails(1, &["serve", v, "--socket=/nonexistent/s"], &["v"]);
    file.set_len(4096).unwrap();
    fails(1, &["serve", v, "--socket=/nonexistent/s"], &["v"]);
}

#[test]
fn a_second_server_is_refused_and_the_first_goes_on() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    ok(&["create", v, "--size=64M"]);
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let server = Server::start(dir.path(), &[v, "--socket", text(&one)]);
    fails(1, &["serve", v, "--socket", text(&two)], &["v"]);
    fails(1, &["check", v], &["v"]);
    fails(1, &["create", v, "--size=64M", "--force"], &["v"]);
    assert!(ok(&["info", v]).contains("served now          yes"));
    let json: serde_json::Value = serde_json::from_str(&ok(&["stats", v, "--json"])).unwrap();
    assert_eq!(json.pointer("/0/bytes"), Some(&(64u64 << 20).into()));
    assert!(ok(&["stats", v, "--all"]).contains("clients.write.bytes"));
    server.signal(libc::SIGHUP);
    assert_eq!(server.term(), Some(0));
    assert!(!one.exists());
    ok(&["check", v]);
    fails(1, &["stats", v], &["not being served"]);
}

/// This includes the directory that contains the volume: a mount on it would hide the volume from its own server.
#[test]
fn a_folder_that_is_not_empty_is_not_mounted_over() {
    let dir = dir();
    let volume = dir.path().join("v");
    ok(&["create", text(&volume), "--size=64M"]);
    fails(
        1,
        &["serve", text(&volume), "--fuse", text(dir.path())],
        &[text(dir.path()), "is not empty", "give an empty directory"],
    );
    fails(
        1,
        &["serve", text(&volume), "--fuse", text(&volume)],
        &["cannot mount a FUSE file system on", "not a directory"],
    );
    ok(&["check", text(&volume)]);
}

#[test]
fn the_control_socket_is_private_and_bounded() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    ok(&["create", v, "--size=64M"]);
    let control = dir.path().join("control");
    let server = Server::start(
        dir.path(),
        &[
            v,
            "--socket",
            text(&dir.path().join("s")),
            "--control",
            text(&control),
        ],
    );
    assert_eq!(
        fs::metadata(&control).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let ask = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&control).unwrap();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(ask(b"nonsense\n").contains("not JSON"));
    assert!(ask(b"{}\n").contains("no \\\"command\\\""));
    assert!(ask(b"{\"command\":\"dance\"}\n").contains("unknown command"));
    assert!(ask(&[b'x'; 100_000]).is_empty() || ask(&[b'x'; 5000]).contains("too long"));
    assert!(
        ask(b"{\"command\":\"properties\"}\n{\"command\":\"stats\"}\n")
            .lines()
            .count()
            == 2
    );
    assert!(ask(b"{\"command\":\"shutdown\"}\n").contains("true"));
    common::eventually("stopped", || server.said().contains("stopped"));
    ok(&["check", v]);
}

#[test]
fn a_request_changes_only_the_volume_it_names() {
    let dir = dir();
    let [log, tables, socket, control] = ["log", "tables", "s", "c"].map(|n| dir.path().join(n));
    ok(&["create", text(&log), "--size=64M"]);
    ok(&["create", text(&tables), "--size=64M", "--layout=shadow"]);
    let twice = format!("twice={}", log.display());
    let (socket, control) = (format!("--socket={}", text(&socket)), text(&control));
    fails(
        2,
        &["serve", text(&log), &twice, &socket],
        &["log and twice are both"],
    );
    let args = [text(&log), text(&tables), &socket, "--control", control];
    let _server = Server::start(dir.path(), &args);
    let ask = |line: &str| {
        let mut stream = UnixStream::connect(control).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str::<serde_json::Value>(&answer).unwrap()
    };
    let unnamed = ask("{\"command\":\"properties\",\"set\":[\"compress=off\"]}\n");
    assert!(unnamed["error"].as_str().unwrap().contains("which volume"));
    let no_list = format!(
        "{{\"command\":\"properties\",\"volume\":{:?},\"set\":7}}\n",
        text(&log)
    );
    assert!(
        ask(&no_list)["error"]
            .as_str()
            .unwrap()
            .contains("takes a list")
    );
    fails(
        1,
        &["set", text(&tables), "zero=off", "compress=zstd"],
        &["compress", "shadow"],
    );
    assert_eq!(ok(&["get", text(&tables), "zero"]), "on\n");
    ok(&["set", text(&log), "zero=off", "compress=lz4"]);
    assert_eq!(ok(&["get", text(&log), "compress"]), "lz4\n");
    assert_eq!(ok(&["get", text(&tables), "zero"]), "on\n");
}

#[test]
fn the_configuration_file_is_checked_like_the_flags() {
    let dir = dir();
    let (config, volume) = (dir.path().join("vellum.toml"), dir.path().join("v"));
    let (c, v) = (text(&config), text(&volume));
    let with = |content: &str| fs::write(&config, content).unwrap();
    fails(
        2,
        &["--config", "/nonexistent", "create", v],
        &["/nonexistent"],
    );
    with("[create]\nsize = \"64M\"\nsiez = 3\n");
    fails(
        2,
        &["--config", c, "create", v],
        &["vellum.toml, line 3", "siez", "over-provisioning"],
    );
    with("[create]\n\nsize = \"64 parsecs\"\n");
    fails(
        2,
        &["--config", c, "create", v],
        &["64 parsecs", "vellum.toml, line 3"],
    );
    with("[create]\nsize = \"64M\"\nsegment-size = \"3M\"\n");
    let said = ["vellum.toml, line 3", "segment-size"];
    fails(2, &["--config", c, "create", v], &said);
    with("[create\n");
    fails(2, &["create", v, "--config", c], &["vellum.toml, line 1"]);
    with("[create]\nsize = \"64M\"\nover-provisioning = 20\n[serve]\nsocket = \"x\"\n");
    ok(&["create", v, "--config", c]);
    assert!(ok(&["info", v]).contains("20 per cent"));
    // The command line takes precedence.
    ok(&[
        "--config",
        c,
        "create",
        v,
        "--over-provisioning=30",
        "--force",
    ]);
    assert!(ok(&["info", v]).contains("30 per cent"));
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(&["completions", shell]).contains("attach"));
    }
    let dir = dir();
    ok(&["man", text(dir.path())]);
    for page in ["vellum.1", "vellum-create.1", "vellum-serve.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    assert!(vellum(&["--help"]).status.success());
}

#[test]
fn a_truncated_volume_is_told_from_other_files() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    ok(&["create", v, "--size=64M"]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(32 << 20).unwrap();
    fails(3, &["check", v], &["has 32 MiB: it was cut short"]);
    fails(1, &["info", v], &["cut short"]);
}

#[test]
fn an_error_that_nobody_reads_is_still_an_error() {
    for args in [
        &["attach", "/nonexistent/v"][..],
        &["serve", "/nonexistent/v", "--socket=/nonexistent/s"],
        &["demo", "--dir=/nonexistent"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(args)
            .stderr(writer)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(1), "vellum {args:?}");
    }
}

#[test]
fn standard_output_on_a_full_disk_is_an_error_like_any_other() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    ok(&["create", v, "--size=64M"]);
    for args in [
        &["info", v][..],
        &["check", v],
        &["dump", v],
        &["detach", v],
        &["estimate", "/etc/passwd"],
        &["lab", "list"],
        &["completions", "bash"],
        &["man"],
        &["health", v],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(args)
            .stdout(full)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        // What 1 and 2 mean there is that a volume is not well.
        let code = if args[0] == "health" { 3 } else { 1 };
        assert_eq!(out.status.code(), Some(code), "vellum {args:?}: {stderr}");
        assert!(
            stderr.starts_with("vellum: ") && stderr.contains("No space left"),
            "vellum {args:?}: {stderr}"
        );
    }
}
