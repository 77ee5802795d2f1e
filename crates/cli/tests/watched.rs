//! Monitoring programs: `vellum health` and `vellum metrics`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::exporter::{exporter, get};
use common::{
    Running, Server, can_attach, dir, eventually, fails, noise, ok, server_pid, skipped, text,
    vellum,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use vellum_ops::Observed;
use vellum_ops::drive::{Drive, Wear};

#[test]
fn only_a_served_volume_is_well() {
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
    // The server exists, but does nothing.
    server.signal(libc::SIGSTOP);
    let (code, said) = health(&[]);
    server.signal(libc::SIGCONT);
    assert_eq!(code, Some(3), "{said}");
    server.term();
}

/// The volume itself no longer says which server has it.
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
    fails(1, &["stats", text(&volume)], &["does not exist"]);
}

/// In every query, a volume whose server was killed while it was attached is not merely unserved.
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
fn metrics_are_printed_and_served_over_http_and_promtool_accepts_them() {
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
    // A client that connects and sends nothing delays no other.
    let _silent = TcpStream::connect(address).unwrap();
    assert!(get(address, "GET /metrics HTTP/1.0\r\n\r\n").contains(" 200 "));
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        skipped("promtool is not installed (Debian's package prometheus)");
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

/// A Prometheus that scrapes these addresses every ten seconds; `None` if it is not installed.
fn prometheus(dir: &Path, scraped: &[&str]) -> Option<(Running, String)> {
    let config = dir.join("prometheus.yml");
    let job = format!("- {{job_name: v, static_configs: [{{targets: {scraped:?}}}]}}");
    // The exporter waits for servers that other tests have stopped, but not that long.
    let every = "global: {scrape_interval: 10s, scrape_timeout: 10s}";
    std::fs::write(&config, format!("{every}\nscrape_configs:\n{job}\n")).unwrap();
    for _ in 0..5 {
        // A port taken from the kernel, and given back: Prometheus does not report which one it has.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let address = free.unwrap().to_string();
        let started = Command::new("prometheus")
            .args(["--config.file", text(&config)])
            .args(["--web.listen-address", &address])
            .args(["--storage.tsdb.path", text(&dir.join("series"))])
            .stderr(Stdio::null())
            .spawn();
        let Ok(started) = started else {
            skipped("prometheus is not installed (Debian's package prometheus)");
            return None;
        };
        let mut started = Running(started);
        let mut ended = false;
        eventually("Prometheus listens", || {
            ended = started.0.try_wait().unwrap().is_some();
            ended || TcpStream::connect(&address).is_ok()
        });
        if !ended {
            return Some((started, address));
        }
    }
    panic!("Prometheus ends at once");
}

/// Returns Prometheus's answer to a query: the value of each series.
fn queried(address: &str, query: &str) -> Vec<String> {
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
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

/// A volume that is written and synced.
struct Loaded {
    dir: tempfile::TempDir,
    server: Option<Server>,
    volume: PathBuf,
    written: u64,
}

/// A killed server leaves its mount, and the mount its directory.
impl Drop for Loaded {
    fn drop(&mut self) {
        self.server.take().map(Server::term);
    }
}

impl Loaded {
    fn begin() -> Self {
        let dir = dir();
        let fuse = dir.path().join("f");
        std::fs::create_dir(&fuse).unwrap();
        let volume = dir.path().join("a");
        ok(&["create", text(&volume), "--size", "64M"]);
        let server = Server::start(dir.path(), &["--fuse", text(&fuse), text(&volume)]);
        Self {
            dir,
            server: Some(server),
            volume,
            written: 0,
        }
    }

    fn write(&mut self) {
        let file = self.dir.path().join("f/a");
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        file.write_all_at(&noise(self.written, 4096), 0).unwrap();
        file.sync_data().unwrap();
        self.written += 1;
    }
}

#[test]
fn prometheus_scrapes_a_volume_under_load_without_a_gap() {
    if !can_attach("prometheus_scrapes_a_volume_under_load_without_a_gap") {
        return;
    }
    let mut load = Loaded::begin();
    let (_exporter, exporter) = exporter(&["--listen", "127.0.0.1:0"]);
    let Some((_running, address)) = prometheus(load.dir.path(), &[&exporter]) else {
        return;
    };
    let scrapes = |query: &str| {
        queried(&address, query)
            .first()
            .and_then(|n| n.parse().ok())
    };
    eventually("three scrapes", || {
        load.write();
        scrapes("count_over_time(up[2m])").is_some_and(|seen: f64| seen >= 3.0)
    });
    // Each scrape was answered, and parsed to the end.
    assert_eq!(scrapes("min_over_time(up[2m])"), Some(1.0));
    // Other volumes may be served on this machine.
    let ours = |name: &str| format!("{name}{{volume=\"{}\"}}", text(&load.volume));
    let flushed = ours("vellum_flush_wait_seconds_count");
    assert!(scrapes(&flushed).is_some_and(|seen| seen >= 1.0));
    let steps = queried(&address, &ours("vellum_flush_wait_seconds_bucket"));
    assert_eq!(steps.len(), 22, "{steps:?}");
}

/// The metrics of a drive that reports its wear, and of a volume that was opened on it an hour ago.
fn of_a_worn_drive() -> String {
    let told = serde_json::json!({
        "path": "/srv/worn.vellum",
        "drive": {"names": ["sdz"], "written_bytes": 1_u64 << 30},
        "stats": {
            "uptime_ms": 3_600_000,
            "clients": {"write": {"bytes": 9_u64 << 30}},
            "medium": {"written_bytes": 3_u64 << 30},
        },
    });
    let drive = Drive {
        name: "sdz".to_owned(),
        model: None,
        written_bytes: Some(4 << 30),
        wear: Ok(Wear {
            used_percent: 10,
            step_percent: 1,
            written_bytes: Some(1 << 40),
        }),
        promised_bytes: None,
    };
    let volume = Observed::new("u".to_owned(), Some(told));
    let text = vellum_ops::metrics::text(&[volume], &[drive]).unwrap();
    vellum_ops::metrics::older(&text)
}

/// Answers every request with the same text, until the test ends.
fn answers(body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "{head}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// Returns the dashboard's queries as Prometheus receives them, with the values of its variables.
fn queries_of_the_dashboard(volume: &str) -> Vec<String> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/grafana/vellum.json"
    );
    let dashboard: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let at = |value: &serde_json::Value, place: &str| value.pointer(place).unwrap().clone();
    let all = |value: serde_json::Value| value.as_array().unwrap().clone();
    let mut queries = Vec::new();
    for panel in all(at(&dashboard, "/panels")) {
        for target in all(at(&panel, "/targets")) {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    for variable in all(at(&dashboard, "/templating/list")) {
        // Grafana's own function: the values of a label.
        let Some(query) = variable["query"]["query"].as_str() else {
            continue;
        };
        let inner = query
            .strip_prefix("label_values(")
            .and_then(|it| it.strip_suffix(")"));
        let (metric, label) = inner.unwrap().split_once(", ").unwrap();
        queries.push(format!("count by ({label}) ({metric})"));
    }
    let volume = volume.replace('.', "\\\\.");
    let filled = |query: String| {
        query
            .replace("$__rate_interval", "1m")
            .replace("$volume", &volume)
    };
    queries.into_iter().map(filled).collect()
}

#[test]
fn prometheus_has_an_answer_to_each_query_of_the_dashboard() {
    if !can_attach("prometheus_has_an_answer_to_each_query_of_the_dashboard") {
        return;
    }
    let mut load = Loaded::begin();
    let (_exporter, exporter) = exporter(&["--listen", "127.0.0.1:0"]);
    // The drive of this machine may not report its wear.
    let worn = answers(of_a_worn_drive());
    let Some((_running, address)) = prometheus(load.dir.path(), &[&exporter, &worn]) else {
        return;
    };
    let queries = queries_of_the_dashboard(text(&load.volume));
    assert!(queries.len() > 12, "{queries:?}");
    for query in queries {
        assert!(!query.contains('$'), "a variable has no value: {query}");
        eventually(&query, || {
            load.write();
            let answer = queried(&address, &query);
            let is_a_number = |n: &String| n.parse().is_ok_and(f64::is_finite);
            !answer.is_empty() && answer.iter().all(is_a_number)
        });
    }
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
    // The terminal is restored.
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("\x1b[?1049l"),
        "{out:?}"
    );
}
