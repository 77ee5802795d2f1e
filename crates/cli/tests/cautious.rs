//! What a command run by root must not do, whatever volume, stranger's file or strange path it gets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Running, can_attach, dir, eventually, fails, ok, run, text};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use vellum_core::format::properties::{PropertyError, Value};
use vellum_device::change_at_rest;
use vellum_medium::{FileMedium, OpenOptions};

/// Not only an ext4: blkid finds file systems, partition tables, swap areas, members of LVM.
#[test]
fn attach_makes_no_file_system_over_another_without_force() {
    if !can_attach("attach_makes_no_file_system_over_another_without_force") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let volume = text(&volume);
    ok(&["create", volume, "--size=64M"]);
    let device = ok(&["attach", volume, "--via=fuse"]);
    run("mkswap", &[device.trim()]);
    ok(&["detach", volume]);
    fails(2, &["attach", volume, "--via=fuse", "--mkfs"], &["--force"]);
    let device = ok(&["attach", volume, "--via=fuse"]);
    assert!(run("blkid", &["-p", device.trim()]).contains("swap"));
    ok(&["detach", volume]);
    ok(&["attach", volume, "--via=fuse", "--mkfs", "--force"]);
    ok(&["detach", volume]);
}

#[test]
fn a_volumes_mount_options_do_not_allow_suid_or_devices() {
    if !can_attach("a_volumes_mount_options_do_not_allow_suid_or_devices") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("disk.vellum"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let attach = [
        "attach",
        text(&volume),
        "--via=fuse",
        "--mount",
        text(&mount),
    ];
    ok(&["create", text(&volume), "--size=64M"]);
    let options = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.contains(text(&mount)));
        line.unwrap().to_owned()
    };
    ok(&[&attach[..], &["--mkfs"]].concat());
    ok(&["set", text(&volume), "mount-options=suid,dev"]);
    ok(&["detach", text(&volume)]);
    ok(&attach);
    assert!(options().contains("nosuid") && options().contains("nodev"));
    ok(&["detach", text(&volume)]);
    ok(&[&attach[..], &["--options=suid,dev"]].concat());
    assert!(!options().contains("nosuid") && !options().contains("nodev"));
    ok(&["detach", text(&volume)]);
}

fn put_options(volume: &Path, options: &str) {
    let medium = FileMedium::open(volume, OpenOptions::default()).unwrap();
    let changed = change_at_rest(&medium, |superblock| {
        let mut properties = superblock.properties().clone();
        properties.set("mount-options", Some(Value::text(options)))?;
        Ok::<_, PropertyError>(properties)
    });
    changed.unwrap();
}

/// Words with which mount(8) would do something else, or take no notice of what follows them.
#[test]
fn a_volumes_mount_options_do_not_speak_to_the_mount_program() {
    if !can_attach("a_volumes_mount_options_do_not_speak_to_the_mount_program") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("disk.vellum"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let attach = [
        "attach",
        text(&volume),
        "--via=fuse",
        "--mount",
        text(&mount),
    ];
    ok(&["create", text(&volume), "--size=64M"]);
    ok(&[&attach[..], &["--mkfs"]].concat());
    ok(&["detach", text(&volume)]);
    let mut wrong = Vec::new();
    for options in [
        "noatime,x-a=\"",
        "suid,dev,x-a=\"",
        "noatime,x-a=b\\",
        "loop",
        "noatime, loop=/dev/loop77",
        "sizelimit=4096",
        "bind",
        "remount",
        "make-rshared",
        "X-mount.mkdir",
        "helper=a",
        "verity.roothash=1",
    ] {
        let set = format!("mount-options={options}");
        fails(2, &["set", text(&volume), &set], &["mount-options"]);
        // As a stranger's program can.
        put_options(&volume, options);
        let out = common::vellum(&attach);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        if out.status.code() != Some(2) || !said.contains("mount-options") {
            wrong.push(format!("{options}: {:?} {said}", out.status));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        if let Some(line) = mounts.lines().find(|line| line.contains(text(&mount))) {
            wrong.push(line.to_owned());
            let _ = Command::new("umount").arg(&mount).status();
        }
        common::vellum(&["detach", text(&volume)]);
        let loops = run("losetup", &["--list", "--output=NAME,BACK-FILE", "--raw"]);
        for left in loops.lines().filter(|line| line.contains("/dev/loop")) {
            let mut names = left.split(' ').filter(|name| name.starts_with("/dev/loop"));
            if let (Some(name), Some(_)) = (names.next(), names.next()) {
                wrong.push(left.to_owned());
                let _ = Command::new("losetup").args(["-d", name]).status();
                common::vellum(&["detach", text(&volume)]);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A volume's own options that only its file system hears.
    ok(&[
        "set",
        text(&volume),
        "mount-options=noatime,errors=remount-ro",
    ]);
    ok(&attach);
    ok(&["detach", text(&volume)]);
}

#[test]
fn the_journal_of_a_clone_is_mounted_without_asynchronous_commits() {
    if !can_attach("the_journal_of_a_clone_is_mounted_without_asynchronous_commits") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("disk.vellum"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let volume = text(&volume);
    ok(&["create", volume, "--size=64M"]);
    ok(&["attach", volume, "--via=fuse", "--mkfs"]);
    ok(&["snapshot", volume, "s"]);
    ok(&["clone", &format!("{volume}@s"), "c"]);
    let clone = format!("{volume}@c");
    let options = "--options=data=journal,journal_async_commit";
    let attach = ["attach", &clone, "--mount", text(&mount), options];
    fails(2, &attach, &["journal_async_commit", "clone"]);
    ok(&["detach", volume]);
}

#[test]
fn a_path_that_is_not_utf8_is_served() {
    let dir = dir();
    let folder = dir.path().join(OsStr::from_bytes(b"x\xff"));
    fs::create_dir(&folder).unwrap();
    let vellum = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command.current_dir(&folder).args(args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let succeeds = |args: &[&str]| vellum(args).status().unwrap().success();
    assert!(succeeds(&["create", "a.vlm", "--size=64M"]));
    let _server = Running(
        vellum(&["serve", "a.vlm", "--socket", "s"])
            .spawn()
            .unwrap(),
    );
    eventually("it answers", || succeeds(&["stats", "a.vlm"]));
    assert!(succeeds(&["info", "a.vlm", "--json"]));
    assert!(succeeds(&["snapshot", "a.vlm", "s"]));
    assert!(succeeds(&["get", "a.vlm"]));
}
