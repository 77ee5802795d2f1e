//! Programs that watch machines: `vellum health` and `vellum metrics`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::exporter::{exporter, get};
use common::{
    Running, Server, can_attach, dir, eventually, fails, noise, ok, server_pid, text, vellum,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_volume_that_is_served_is_well_and_one_that_is_not_is_not() {
    let dir = dir();
    let volume = dir.path().join("a");
    ok(&["create", text(&volume), "--size", "16M"]);
    let health = |more: &[&str]| {
        let out = vellum(&[&["health", text(&volume)], more].concat());
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    };
    let (code, said) = health(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.starts_with("CRITICAL: "), "{said}");
    let socket = dir.path().join("s");
    let server = Server::start(dir.path(), &["--socket", text(&socket), text(&volume)]);
    assert_eq!(
        health(&[]),
        (Some(0), format!("OK: {} is well\n", text(&volume)))
    );
    let (code, said) = health(&["--json"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("\"health\":\"OK\""), "{said}");
    // It is there, and does nothing.
    server.signal(libc::SIGSTOP);
    let (code, said) = health(&[]);
    server.signal(libc::SIGCONT);
    assert_eq!(code, Some(3), "{said}");
    server.term();
}

/// The volume itself tells no longer which server has it.
#[test]
fn the_server_of_a_volume_that_is_gone_is_found_by_its_path() {
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("s"));
    ok(&["create", text(&volume), "--size", "16M"]);
    let server = Server::start(dir.path(), &["--socket", text(&socket), text(&volume)]);
    std::fs::remove_file(&volume).unwrap();
    let told = ok(&["stats", text(&volume), "--json"]);
    assert!(
        told.contains(&format!("\"path\":\"{}\"", text(&volume))),
        "{told}"
    );
    server.term();
    fails(2, &["health", text(&volume)], &[]);
    fails(1, &["stats", text(&volume)], &["cannot find"]);
}

/// Whatever is asked: a server that was killed under what is attached is no volume that is not served.
#[test]
fn an_attached_volume_whose_server_died_is_not_well() {
    if !can_attach("an_attached_volume_whose_server_died_is_not_well") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("v");
    ok(&["create", text(&volume), "--size", "64M"]);
    ok(&["attach", text(&volume), "--via", "fuse"]);
    let says = |args: &[&str]| {
        let out = vellum(&[&["health"], args].concat());
        let said = String::from_utf8(out.stdout).unwrap();
        let line = said.lines().find(|line| line.contains(text(&volume)));
        (out.status.code(), line.unwrap_or_default().to_owned())
    };
    assert_eq!(says(&[text(&volume)]).0, Some(0));
    let pid = server_pid(&volume);
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    eventually("the server is gone", || {
        says(&[text(&volume)]).1.contains("its server is dead")
    });
    let named = says(&[text(&volume)]);
    let all = says(&[]);
    ok(&["detach", text(&volume)]);
    assert_eq!(named.0, Some(2), "{named:?}");
    assert!(all.1.starts_with("CRITICAL"), "{all:?}");
    assert_eq!(says(&[]).1, "", "it is detached");
}

#[test]
#[expect(clippy::print_stderr, reason = "a test says that it was skipped")]
fn metrics_are_told_once_and_over_http_and_promtool_takes_them() {
    let dir = dir();
    let volume = dir.path().join("a");
    ok(&["create", text(&volume), "--size", "16M"]);
    let socket = dir.path().join("s");
    let _server = Server::start(dir.path(), &["--socket", text(&socket), text(&volume)]);
    let named = format!("volume=\"{}\"", text(&volume));
    let told = ok(&["metrics"]);
    assert!(told.contains(&named), "{told}");
    let (_exporter, address) = exporter(&["--listen", "127.0.0.1:0"]);
    let address = address.as_str();
    let plain = get(address, "GET /metrics HTTP/1.0\r\n\r\n");
    assert!(plain.contains("text/plain; version=0.0.4") && plain.contains(&named));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let scraped = get(
        address,
        &format!("GET /metrics HTTP/1.0\r\n{accept}\r\n\r\n"),
    );
    assert!(
        scraped.starts_with("HTTP/1.1 200") && scraped.ends_with("# EOF\n"),
        "{scraped}"
    );
    assert!(scraped.contains("application/openmetrics-text; version=1.0.0"));
    assert!(scraped.contains(&named), "{scraped}");
    assert!(
        get(
            address,
            "POST /metrics HTTP/1.0\r\nContent-Length: 0\r\n\r\n"
        )
        .contains(" 405 ")
    );
    assert!(get(address, "GET /../etc/passwd HTTP/1.0\r\n\r\n").contains(" 404 "));
    // One who connects and says nothing holds up nobody.
    let _silent = TcpStream::connect(address).unwrap();
    assert!(get(address, "GET /metrics HTTP/1.0\r\n\r\n").contains(" 200 "));
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("SKIPPED: promtool is not installed (Debian's package prometheus)");
        return;
    };
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(told.as_bytes())
        .unwrap();
    let out = promtool.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
}

/// A Prometheus that scrapes an address each second, and its own; none where it is not installed.
fn prometheus(dir: &Path, scraped: &str) -> Option<(Running, String)> {
    // Taken from the kernel, and given back: Prometheus does not tell which one it has got.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let address = free.unwrap().to_string();
    let config = dir.join("prometheus.yml");
    let job = format!("- {{job_name: v, static_configs: [{{targets: ['{scraped}']}}]}}");
    let every = "global: {scrape_interval: 1s, scrape_timeout: 1s}";
    std::fs::write(&config, format!("{every}\nscrape_configs:\n{job}\n")).unwrap();
    let prometheus = Command::new("prometheus")
        .args(["--config.file", text(&config)])
        .args(["--web.listen-address", &address])
        .args(["--storage.tsdb.path", text(&dir.join("series"))])
        .stderr(Stdio::null())
        .spawn();
    Some((Running(prometheus.ok()?), address))
}

/// What Prometheus answers to a query: the value of each series.
fn queried(address: &str, query: &str) -> Vec<String> {
    let asked = format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n");
    let Ok(mut stream) = TcpStream::connect(address) else {
        return Vec::new();
    };
    let mut answer = String::new();
    stream.write_all(asked.as_bytes()).unwrap();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let Ok(body) = serde_json::from_str::<serde_json::Value>(body) else {
        return Vec::new();
    };
    let series = body.pointer("/data/result").and_then(|it| it.as_array());
    let series = series.into_iter().flatten();
    let value = |it: &serde_json::Value| it.pointer("/value/1")?.as_str().map(str::to_owned);
    series.filter_map(value).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "a test says that it was skipped")]
fn prometheus_scrapes_a_volume_under_load_without_a_gap() {
    if !can_attach("prometheus_scrapes_a_volume_under_load_without_a_gap") {
        return;
    }
    let dir = dir();
    std::fs::create_dir(dir.path().join("f")).unwrap();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("s"));
    ok(&["create", text(&volume), "--size", "64M"]);
    let server = Server::start(
        dir.path(),
        &[
            "--socket",
            text(&socket),
            "--fuse",
            text(&dir.path().join("f")),
            text(&volume),
        ],
    );
    let (_exporter, exporter) = exporter(&["--listen", "127.0.0.1:0"]);
    let Some((_running, address)) = prometheus(dir.path(), &exporter) else {
        eprintln!("SKIPPED: prometheus is not installed (Debian's package prometheus)");
        server.term();
        return;
    };
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join("f/a"))
        .unwrap();
    let scrapes = |query: &str| {
        queried(&address, query)
            .first()
            .and_then(|n| n.parse().ok())
    };
    let mut written = 0;
    eventually("ten scrapes", || {
        std::os::unix::fs::FileExt::write_all_at(&file, &noise(written, 4096), 0).unwrap();
        file.sync_data().unwrap();
        written += 1;
        scrapes("count_over_time(up[2m])").is_some_and(|seen: f64| seen >= 10.0)
    });
    // Every one of them was answered, and understood to the end.
    assert_eq!(scrapes("min_over_time(up[2m])"), Some(1.0));
    // Whatever else is served on this machine.
    let ours = |name: &str| format!("{name}%7Bvolume=%22{}%22%7D", text(&volume));
    let flushed = ours("vellum_flush_wait_seconds_count");
    assert!(scrapes(&flushed).is_some_and(|seen| seen >= 1.0));
    let steps = queried(&address, &ours("vellum_flush_wait_seconds_bucket"));
    assert_eq!(steps.len(), 22, "{steps:?}");
    drop(file);
    // One that is killed leaves its mount.
    server.term();
}

#[test]
fn top_draws_on_a_terminal_until_q() {
    fails(2, &["top"], &["top draws on a terminal", "vellum stats"]);
    let dir = dir();
    let volume = dir.path().join("a");
    ok(&["create", text(&volume), "--size", "16M"]);
    let socket = dir.path().join("s");
    let _server = Server::start(dir.path(), &["--socket", text(&socket), text(&volume)]);
    let top = format!(
        "stty rows 40 cols 200; exec timeout 60 {} top --every 1",
        env!("CARGO_BIN_EXE_vellum")
    );
    let script = Command::new("script")
        .args(["--quiet", "--return", "--command", &top, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut script = script.unwrap();
    let mut drawn = String::new();
    let mut piece = [0; 4096];
    while !drawn.contains("q: end") {
        let got = script.stdout.as_mut().unwrap().read(&mut piece).unwrap();
        assert!(got > 0, "it ended");
        drawn += &String::from_utf8_lossy(&piece[..got]);
    }
    assert!(
        drawn.contains("VOLUME") && drawn.contains("FSYNCS"),
        "{drawn}"
    );
    script.stdin.take().unwrap().write_all(b"q").unwrap();
    let out = script.wait_with_output().unwrap();
    assert!(out.status.success(), "{out:?}");
    // The terminal is as it was.
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("\x1b[?1049l"),
        "{out:?}"
    );
}
