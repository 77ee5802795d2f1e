//! `vellum metrics` as a server, and its client.

use super::Running;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// Starts `vellum metrics` with these options. Returns it with the address that it prints.
pub fn exporter(args: &[&str]) -> (Running, String) {
    let exporter = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .arg("metrics")
        .args(args)
        .stderr(Stdio::piped())
        .spawn();
    let mut exporter = Running(exporter.unwrap());
    let mut ready = String::new();
    let stderr = exporter.0.stderr.take().unwrap();
    BufReader::new(stderr).read_line(&mut ready).unwrap();
    let address = ready.trim().strip_prefix("ready: http://").unwrap();
    let address = address.split_once('/').unwrap().0.to_owned();
    (exporter, address)
}

/// Returns the answer to these bytes.
pub fn get(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
