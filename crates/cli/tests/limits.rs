//! What is too large or too small is refused, and the error tells it from the limit.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{dir, fails, ok, text};
use std::process::{Command, Output};

/// Runs the command where a file may have some 500 KiB.
fn limited(args: &[&str]) -> Output {
    let script = "ulimit -f 1000; exec \"$0\" \"$@\"";
    Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_vellum")])
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn a_file_past_the_limit_of_the_shell_is_an_error() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    let refused = |args: &[&str], says: &str| {
        let out = limited(args);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{said}");
    };
    for more in [&[][..], &["--preallocate"]] {
        let create = ["create", v, "--size=1G"];
        refused(&[&create, more].concat(), "ulimit -f unlimited");
        assert!(!path.exists());
    }
    ok(&["create", v, "--size=16M"]);
    refused(&["grow", v, "--size=64M"], "File too large");
    ok(&["check", v]);
}

/// A file that is made under another name is named as the user named it.
#[test]
fn a_copy_past_the_limit_is_named_by_its_user() {
    let dir = dir();
    let [from, archive, to] = ["v", "archive", "copy"].map(|name| dir.path().join(name));
    let (from, archive, to) = (text(&from), text(&archive), text(&to));
    ok(&["create", from, "--size=16M"]);
    ok(&["dump", from, "--whole", archive]);
    for args in [
        &["restore", archive, to][..],
        &["migrate", from, to, "--layout=log"],
        &["rescue", from, to],
    ] {
        let out = limited(args);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{said}");
        let says = format!("{to} would have");
        assert!(said.contains(&says), "{args:?}: {said}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_refused_size_differs_from_the_limit_in_the_error() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    // 4 KiB more than 64 TiB, and than 16.
    let huge = "--size=70368744181760";
    let thin = ["68719476740 KiB", "64 TiB"];
    fails(2, &["create", v, huge, "--medium-size=5T"], &thin);
    ok(&["create", v, "--size=64M"]);
    let large = "--size=17592186048512";
    let thin = ["17179869188 KiB", "17179869180 KiB"];
    fails(1, &["grow", v, large, "--medium-size=2T"], &thin);
    for (size, says) in [
        ("32M", ["32 MiB", "64 MiB already: `vellum shrink`"]),
        (
            "67104768",
            ["65532 KiB", "65536 KiB already: `vellum shrink`"],
        ),
        ("100T", ["spare room", "8 TiB"]),
    ] {
        fails(2, &["grow", v, "--size", size], &says);
    }
    let large = ["a medium of 9 TiB", "8 TiB"];
    fails(1, &["grow", v, "--medium-size=9T"], &large);
    let little = ["to grow", "enlarge the device, or give a larger size"];
    fails(1, &["grow", v, "--medium-size=64M"], &little);
    let smaller = ["65540 KiB", "65536 KiB", "`vellum grow`"];
    fails(2, &["shrink", v, "--size=67112960"], &smaller);
    for layout in ["ordered", "shadow"] {
        let fixed = dir.path().join(layout);
        ok(&["create", text(&fixed), "--size=16M", "--layout", layout]);
        let says = [layout, "`vellum migrate`"];
        fails(1, &["grow", text(&fixed), "--size=32M"], &says);
    }
}

/// A file of another kind in each place: the error names it, and what belongs there.
#[test]
fn what_is_of_another_kind_is_named_with_what_belongs_there() {
    let dir = dir();
    let paths = ["v", "words", "folder", "archive"].map(|name| dir.path().join(name));
    let [v, words, folder, archive] = paths.each_ref().map(|path| text(path));
    ok(&["create", v, "--size=16M"]);
    ok(&["dump", v, "--whole", archive]);
    std::fs::write(words, "words").unwrap();
    std::fs::create_dir(folder).unwrap();
    let is_folder = format!("{folder} is a directory: name a file");
    for args in [
        &["info", folder][..],
        &["set", folder, "compress=off"],
        &["rescue", v, folder],
        &["restore", archive, folder],
        &["pack", v, folder],
        &["dump", v, "--whole", folder],
    ] {
        fails(1, args, &[&is_folder]);
    }
    let no_archive = format!("{words} is no archive that `vellum dump --whole`");
    fails(1, &["restore", words, "new"], &[&no_archive]);
    let nowhere = format!("{folder}/none");
    let says = [&nowhere, "does not exist"];
    fails(1, &["get", &nowhere], &says);
    let serve = |socket: &str, says: &str| fails(1, &["serve", v, "--socket", socket], &[says]);
    serve(words, "is no socket: give another path");
    serve(&format!("{nowhere}/s"), "does not exist: make it first");
    serve(&"s".repeat(108), "give a shorter one");
    fails(2, &["rescue", v, v], &[v, "name another file"]);
    let layout = "--layout=log";
    fails(2, &["migrate", v, v, layout], &[v, "name another file"]);
}
