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

/// Returns the answer to these bytes. Asks again if the connection ends without a whole answer: the server closes it at once if it
/// has too many, or does not read the whole request.
pub fn get(address: &str, request: &str) -> String {
    let mut answer = asked(address, request);
    for _ in 0..4 {
        match answer {
            Ok(answer) if !answer.is_empty() => return answer,
            _ => answer = asked(address, request),
        }
    }
    answer.unwrap()
}

fn asked(address: &str, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
