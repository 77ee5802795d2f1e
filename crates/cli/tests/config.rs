//! The fuzz targets of the configuration file, of the entries attached at boot, of the control socket and of state files, over
//! some thousands of seeded mutations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../../fuzz/src/control.rs"]
mod control;
#[path = "../../../fuzz/src/boot.rs"]
mod entry;
#[path = "../../../fuzz/src/config.rs"]
mod fuzz;

use std::path::Path;
use vellum_lab::rng::Rng;

const SEEDS: [&str; 4] = [
    "[serve]\nvolumes = [\"disk=/data/disk.vellum\"]\nsocket = \"/run/disk.sock\"\nbuffer = \"256M\"\nwith = \
     \"zero=off,dedup=on\"\njournal = [\"1G+128M\"]\n",
    "[create]\nsize = \"10G\"\nover-provisioning = 12\nforce = true\nlayout = 'shadow'\n",
    "[lab.run]\nworkload = \"zipf\"\nop = 12.5\npolicy = [\"base\", \"vellum\"]\n\n[lab.sweep]\nthreads = \
     2\n",
    "lab.run.op = 7\nattach = { mount = \"\"\"/mnt\"\"\", mkfs = true }\n",
];

const ENTRIES: [&str; 2] = [
    "volume = \"/data/a b.vellum\"\nuuid = '8c1f'\nmount = \"/srv/%50\\\\\"\n\
        via = 'ublk'\nbefore = 'multi-user'\n",
    "volume = '/dev/disk/by-id/\"a\"'\nmount = '/'\n",
];

const REQUESTS: [&str; 5] = [
    r#"{"command":"properties","volume":"/a","set":["dedup=on","label=x"],"research":["victim=greedy"]}"#,
    r#"{"command":"grow","medium_blocks":18446744073709551615,"logical_blocks":7}"#,
    r#"{"command":"journal","change":{"start":0,"bytes":-1}}"#,
    r#"{"command":"scrub","scrub":"start","rate":1e99}"#,
    r#"{"command":"shutdown"}"#,
];

const STATE: &str = r#"{"volume":"/a","via":"ublk","server":{"pid":7,"started":9},"control":null,"fuse":null,
    "socket":"/run/s","device":"/dev/ublkb0","binding":3,"mount":"/srv"}"#;

/// Words that are inserted into a file at some places.
const WORDS: [&str; 16] = [
    "[",
    "]",
    "[[",
    "\"",
    "'''",
    "=",
    ".",
    "\n",
    "{",
    "}",
    "-1",
    "1e999",
    "config = 3",
    "\\u0000",
    "1979-05-27",
    "é",
];

fn changed(seed: &str, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(4) {
            0 if at < bytes.len() => bytes[at] = rng.draw() as u8 & 0x7F,
            1 => bytes.truncate(at),
            2 => {
                let tail = bytes[at..].to_vec();
                bytes.extend(tail);
            }
            _ => {
                let word = WORDS[rng.below(WORDS.len() as u64) as usize];
                bytes.splice(at..at, word.bytes());
            }
        }
    }
    bytes
}

#[test]
fn any_configuration_file_is_accepted_or_its_error_has_a_place() {
    for (n, seed) in SEEDS.iter().enumerate() {
        fuzz::read(seed.as_bytes());
        let mut rng = Rng::new(n as u64);
        for _ in 0..500 {
            fuzz::read(&changed(seed, &mut rng));
        }
    }
    let deep = format!("serve = {}", "[".repeat(100_000));
    fuzz::read(deep.as_bytes());
    let long = format!("[serve]\n{} = 1", "k".repeat(100_000));
    fuzz::read(long.as_bytes());
    let many = format!("[serve]\nwith = [{}]", "1,".repeat(10_000));
    fuzz::read(many.as_bytes());
}

#[test]
fn no_boot_entry_runs_a_command() {
    for (n, seed) in ENTRIES.iter().enumerate() {
        assert!(vellum_cli::ordered_at_boot(seed, Path::new("v.toml")).is_ok());
        let mut rng = Rng::new(n as u64);
        for _ in 0..2000 {
            entry::read(&changed(seed, &mut rng));
        }
    }
    entry::read(format!("volume = {}", "[".repeat(50_000)).as_bytes());
    entry::read(b"volume = '/d'\nmount = \"/m\\nExecStart=/bin/sh\"\n");
}

#[test]
fn every_line_on_a_control_socket_has_an_answer() {
    for (n, seed) in REQUESTS.iter().enumerate() {
        let mut rng = Rng::new(n as u64);
        for _ in 0..2000 {
            control::requests(&changed(seed, &mut rng));
        }
    }
    let good = vellum_cli::asked(br#"{"command":"properties","set":["dedup=on"]}"#);
    assert_eq!(good["ok"], true, "{good}");
    control::requests("[".repeat(4096).as_bytes());
}

#[test]
fn any_state_file_is_read_or_refused() {
    assert!(vellum_cli::recorded(STATE.as_bytes()).is_ok());
    let mut rng = Rng::new(1);
    for _ in 0..2000 {
        control::state(&changed(STATE, &mut rng));
    }
}

/// The seeds are valid files, so that their mutations get past the first line.
#[test]
fn the_seeds_set_something() {
    let commands: [&[&str]; 4] = [&["serve"], &["create"], &["lab", "run"], &["attach"]];
    for (seed, command) in SEEDS.iter().zip(commands) {
        let flags = vellum_cli::configured(seed, Path::new("v.toml"), command);
        assert!(!flags.unwrap().is_empty(), "{seed}");
    }
}
