//! `vellum metrics --page`, as a browser and as a foreign page see it.
//!
//! `VELLUM_PICTURES=FOLDER` saves screenshots.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::exporter::{exporter, get};
use common::{Running, Server, can_attach, dir, noise, ok, skipped, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A volume that has been written, its server, and a page about it.
struct Watched {
    address: String,
    server: Option<Server>,
    _exporter: Running,
    dir: tempfile::TempDir,
}

/// A killed server leaves its mount, and the mount its directory.
impl Drop for Watched {
    fn drop(&mut self) {
        self.server.take().map(Server::term);
    }
}

impl Watched {
    fn begin(options: &[&str]) -> Self {
        let dir = dir();
        let volume = dir.path().join("photos.vellum");
        ok(&["create", text(&volume), "--size", "64M"]);
        let fuse = dir.path().join("fuse");
        std::fs::create_dir(&fuse).unwrap();
        let server = Server::start(dir.path(), &["--fuse", text(&fuse), text(&volume)]);
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(fuse.join("photos.vellum"));
        let file = file.unwrap();
        for block in 0..64 {
            // Half of it is compressible.
            let bytes = [noise(block, 2048), vec![7; 2048]].concat();
            file.write_all_at(&bytes, block * 4096).unwrap();
            file.sync_data().unwrap();
        }
        let (exporter, address) = exporter(&[&["--listen", "127.0.0.1:0"], options].concat());
        Self {
            dir,
            address,
            server: Some(server),
            _exporter: exporter,
        }
    }

    fn asked(&self, path: &str, host: &str) -> String {
        get(
            &self.address,
            &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        )
    }
}

#[test]
fn the_page_answers_only_requests_by_its_own_names() {
    let test = "the_page_answers_only_requests_by_its_own_names";
    if !can_attach(test) {
        return;
    }
    let watched = Watched::begin(&["--page", "--host", "disks.example.org"]);
    for host in [watched.address.as_str(), "localhost:1", "disks.example.org"] {
        let page = watched.asked("/", host);
        assert!(
            page.starts_with("HTTP/1.1 200 ") && page.contains("</html>"),
            "{page}"
        );
        assert!(
            page.contains("Content-Security-Policy: default-src 'none'"),
            "{page}"
        );
    }
    for path in ["/", "/metrics", "/state.json"] {
        let refused = watched.asked(path, "evil.example.org");
        assert!(refused.starts_with("HTTP/1.1 421 "), "{refused}");
        assert!(!refused.contains("photos"), "{refused}");
    }
    let long = watched.asked(&"/x".repeat(8 << 10), "localhost");
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
    let state = watched.asked("/state.json", "localhost");
    let state = state.split_once("\r\n\r\n").unwrap().1;
    let state: serde_json::Value = serde_json::from_str(state).unwrap();
    // Other volumes may be served on this machine.
    let ours = watched.dir.path().join("photos.vellum");
    let mut volumes = state["volumes"].as_array().unwrap().iter();
    let counted = &volumes.find(|it| it["name"] == text(&ours)).unwrap()["counted"];
    assert_eq!(counted["clients_written"], 64 * 4096);
    assert!(
        counted["flushes"]["count"].as_u64().unwrap() >= 64,
        "{counted}"
    );
    // Silent connections keep their slots for a limited time only.
    let silent: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(&watched.address).unwrap())
        .collect();
    common::eventually("it answers again", || {
        let asked = "GET /metrics HTTP/1.0\r\n\r\n";
        let answered = std::panic::catch_unwind(|| get(&watched.address, asked));
        answered.is_ok_and(|answer| answer.contains(" 200 "))
    });
    drop(silent);
}

/// Each request of the page is one of its servers' control sockets, too, and these have few seats.
#[test]
fn many_who_read_the_page_leave_commands_their_seats() {
    let test = "many_who_read_the_page_leave_commands_their_seats";
    if !can_attach(test) {
        return;
    }
    let watched = Watched::begin(&["--page"]);
    let volume = watched.dir.path().join("photos.vellum");
    let before = common::vellum(&["health", text(&volume)]).status.code();
    let ends = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let failed = std::thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    let asked = TcpStream::connect(&watched.address).and_then(|mut stream| {
                        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
                        let mut answer = String::new();
                        stream.read_to_string(&mut answer).map(|_| answer)
                    });
                    let is_good = asked.is_ok_and(|answer| answer.contains(" 200 "));
                    answered.fetch_add(usize::from(is_good), Ordering::SeqCst);
                }
            });
        }
        // Several at a time, as on a machine with many users.
        let commands = |_| {
            scope.spawn(|| {
                let mut failed = Vec::new();
                for _ in 0..20 {
                    for command in ["health", "get", "stats", "snapshots"] {
                        let out = common::vellum(&[command, text(&volume)]);
                        let is_health = command == "health";
                        if !(out.status.success() || is_health && out.status.code() == before) {
                            failed.push(format!("{command}: {out:?}"));
                        }
                    }
                }
                failed
            })
        };
        let all: Vec<_> = (0..4).map(commands).collect();
        let failed: Vec<_> = all.into_iter().flat_map(|it| it.join().unwrap()).collect();
        ends.store(true, Ordering::SeqCst);
        failed
    });
    assert!(
        failed.is_empty(),
        "{} failed: {:?}",
        failed.len(),
        failed.first()
    );
    assert!(answered.load(Ordering::SeqCst) > 0);
}

/// More than there are seats stay there and say nothing.
#[test]
fn a_server_without_a_seat_says_that_it_is_busy() {
    let dir = dir();
    let volume = dir.path().join("v");
    let control = dir.path().join("control");
    ok(&["create", text(&volume), "--size", "64M"]);
    let socket = dir.path().join("s");
    let server = Server::start(
        dir.path(),
        &[
            text(&volume),
            "--socket",
            text(&socket),
            "--control",
            text(&control),
        ],
    );
    let connect = || UnixStream::connect(&control).unwrap();
    let silent: Vec<_> = (0..16).map(|_| connect()).collect();
    let mut answer = String::new();
    BufReader::new(connect()).read_line(&mut answer).unwrap();
    assert!(
        answer.contains("\"ok\":false") && answer.contains("busy"),
        "{answer}"
    );
    // A command waits until somebody goes, or until the server has waited long enough for what they say.
    let mut stats = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["stats", "--control", text(&control)])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    drop(silent);
    assert!(stats.wait().unwrap().success());
    assert_eq!(server.term(), Some(0));
}

#[test]
fn there_is_no_page_unless_requested() {
    let (_exporter, address) = exporter(&["--listen", "127.0.0.1:0"]);
    let refused = get(&address, "GET / HTTP/1.0\r\n\r\n");
    assert!(
        refused.starts_with("HTTP/1.1 404 ") && refused.contains("--page"),
        "{refused}"
    );
    assert!(get(&address, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).exists())
}

/// Runs a headless browser; `None` if none is installed.
fn browser(folder: &Path, args: &[&str]) -> Option<Output> {
    let names = ["chromium-headless-shell", "chromium", "google-chrome"];
    let mut there = names.into_iter().filter(|name| is_installed(name));
    there.find_map(|name| {
        // At high priority, where that is allowed, because the time a page takes is measured.
        Command::new("nice")
            .args(["-n", "-15", name])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.join("browser").display()
            ))
            .args(args)
            .output()
            .ok()
    })
}

/// The time within which the page is drawn, on an idle machine.
const DRAWN_MS: i64 = 100;

/// Returns the load per processor; 1 on an idle machine.
fn load() -> u16 {
    let told = std::fs::read_to_string("/proc/loadavg").unwrap();
    let all: f64 = told.split(' ').next().unwrap().parse().unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    (all / processors as f64).ceil().max(1.0) as u16
}

/// Returns a measurement that the page made of itself.
fn measured(page: &str, what: &str) -> Option<i64> {
    let (_, rest) = page.split_once(&format!("data-{what}=\""))?;
    rest.split_once('"')?.0.parse().ok()
}

/// Returns the time that the page has measured as it was drawn just now, in ms of an idle machine.
fn drawn(page: &str) -> i64 {
    measured(page, "drawn").unwrap() / i64::from(load())
}

/// Draws the page again while that takes too long, and returns the fastest time in ms of an idle machine. A machine that is busy is
/// slow now and then, but not each time.
fn again(watched: &Watched, url: &str, mut fastest: i64) -> i64 {
    for _ in 0..20 {
        if fastest < DRAWN_MS {
            break;
        }
        let shown = browser(
            watched.dir.path(),
            &["--virtual-time-budget=8000", "--dump-dom", url],
        );
        let page = String::from_utf8(shown.unwrap().stdout).unwrap();
        fastest = fastest.min(drawn(&page));
    }
    fastest
}

#[test]
#[expect(
    clippy::print_stderr,
    reason = "a test says that it was skipped, and what it has measured"
)]
fn a_browser_draws_it_light_and_dark_wide_and_narrow() {
    let test = "a_browser_draws_it_light_and_dark_wide_and_narrow";
    if !can_attach(test) {
        return;
    }
    let watched = Watched::begin(&["--page"]);
    let url = format!("http://{}/", watched.address);
    let mut fastest = i64::MAX;
    for (look, scheme) in [("light", "1"), ("dark", "0")] {
        for (width, height) in [(1200, 1300), (420, 2200)] {
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            let size = format!("--window-size={width},{height}");
            // In the page's virtual time: two answers, so that there are rates.
            let common = [scheme.as_str(), &size, "--virtual-time-budget=8000"];
            let shown = browser(
                watched.dir.path(),
                &[&common[..], &["--dump-dom", &url]].concat(),
            );
            let Some(shown) = shown else {
                skipped(format_args!(
                    "{test}: no Chromium (Debian's package chromium-headless-shell)"
                ));
                return;
            };
            let page = String::from_utf8(shown.stdout).unwrap();
            assert!(!page.contains("data-error"), "{look} {width}: {page}");
            let path = watched.dir.path().join("photos.vellum");
            for told in [
                text(&path),
                "256 KiB",
                "How long an fsync waits",
                "Nothing went wrong.",
                // The axis of the current write rate, which is zero: no two of its labels are the same.
                ">0 B/s<",
                ">512 B/s<",
                ">1.00 KiB/s<",
            ] {
                assert!(page.contains(told), "{look} {width}: {told}: {page}");
            }
            assert!(
                measured(&page, "wide").is_some_and(|wide| wide <= 0),
                "{look} {width}: it scrolls sideways"
            );
            let drawn = drawn(&page);
            eprintln!("{look} {width}: drawn in {drawn} ms");
            fastest = fastest.min(drawn);
            if let Some(folder) = std::env::var_os("VELLUM_PICTURES") {
                let picture = Path::new(&folder).join(format!("page-{look}-{width}.png"));
                let picture = format!("--screenshot={}", picture.display());
                browser(
                    watched.dir.path(),
                    &[&common[..], &[&picture, &url]].concat(),
                );
            }
        }
    }
    let fastest = again(&watched, &url, fastest);
    assert!(
        fastest < DRAWN_MS,
        "drawn in {fastest} ms at best, of {DRAWN_MS} ms"
    );
}
