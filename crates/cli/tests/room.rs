//! A thin volume that fills up while it is served: the server warns before a client is refused.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, eventually, ok, text};
use nbd_client::NbdClient;
use serde_json::Value;
use std::ops::Range;

const PIECE: usize = 64 << 10;

/// Returns data that neither compress nor repeat.
fn piece(number: u64) -> Vec<u8> {
    let mut state = number + 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(word)
        .take(PIECE / 8)
        .flatten()
        .collect()
}

/// Returns the per cents in use that the server has warned of.
fn warnings(server: &Server) -> Vec<u64> {
    let said = server.said();
    let rest = said.split("warning: ").skip(1);
    let percents = rest.filter_map(|it| it.split_once(" % of the space for data is in use"));
    percents
        .map(|(percent, _)| percent.parse().unwrap())
        .collect()
}

fn room(volume: &str) -> Value {
    let stats: Value = serde_json::from_str(&ok(&["stats", volume, "--json"])).unwrap();
    stats.pointer("/0/stats/room").unwrap().clone()
}

#[test]
fn a_thin_volume_warns_before_it_refuses_a_client() {
    for layout in ["log", "ordered", "shadow"] {
        let dir = dir();
        let (volume, socket) = (dir.path().join("thin.vellum"), dir.path().join("s"));
        let (volume, socket_text) = (text(&volume), text(&socket));
        let sizes = ["--size=128M", "--medium-size=32M"];
        ok(&["create", volume, sizes[0], sizes[1], "--layout", layout]);
        let server = Server::start(dir.path(), &[volume, "--socket", socket_text]);
        assert_eq!(room(volume)["level"], "ample");
        let mut client = NbdClient::connect(&socket, "thin.vellum").unwrap();
        let mut levels = Vec::new();
        let mut at = 0;
        let refused = loop {
            let number = at / PIECE as u64;
            if let Err(error) = client.write(at, &piece(number)) {
                break error;
            }
            at += PIECE as u64;
            let lines = warnings(&server).len();
            if lines > levels.len() {
                let level = room(volume)["level"].as_str().unwrap().to_owned();
                levels.resize(lines, level);
            }
        };
        assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC), "{layout}");
        eventually("three warnings", || warnings(&server).len() == 3);
        // Each at its level, the last one while there was room.
        let percents = warnings(&server);
        let bounds = [80..90, 90..95, 95..100];
        let is_at = |(percent, bounds): (&u64, &Range<u64>)| bounds.contains(percent);
        let all = percents.iter().zip(&bounds).all(is_at);
        assert!(all, "{layout}: {percents:?}");
        // When a warning was read, the volume was at its level, or at a higher one by then.
        for (least, level) in levels.iter().enumerate() {
            let levels = &["filling", "high", "critical"][least..];
            assert!(levels.contains(&level.as_str()), "{layout}: {level}");
        }
        assert_eq!(room(volume)["level"], "critical");
        let said = server.said();
        for part in [
            "thin.vellum: warning: 80 %",
            "clients see 128 MiB",
            "fstrim",
            // Tables cannot grow.
            match layout {
                "log" => "vellum grow VOLUME --medium-size",
                _ => "more room: `vellum migrate`",
            },
        ] {
            assert!(said.contains(part), "no {part:?} in {said}");
        }
        assert!(ok(&["stats", volume]).contains("critical"));

        // After a trim it is well again.
        client.trim(0, at as u32).unwrap();
        client.flush().unwrap();
        assert_eq!(room(volume)["level"], "ample");
        client.write(0, &piece(9)).unwrap();
        assert_eq!(server.term(), Some(0));
    }
}
