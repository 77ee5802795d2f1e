//! A drive with one die, and requests for it.

use vellum_lab::content::Content;
use vellum_lab::drives::DriveFile;
use vellum_lab::scenario::{Device, Load, Scenario};
use vellum_lab::sim::Pace;
use vellum_lab::trace::Op;
use vellum_lab::workload::Request;

/// No RAM, a link that takes no time; a page of 4 KiB crosses the channel in 4096 ns.
pub const DRIVE: &str = r#"about = "one die"
source = "made up"
[link]
command-us = 0
[flash]
channels = 1
dies-per-channel = 1
planes = 1
pages-per-block = 64
page-kib = 4
read-us = 60
program-us = 900
erase-ms = 3
channel-mb-per-s = 1000
erase-limit = 3000
buffer-kib = 0
over-provisioning-percent = 28
"#;

pub fn scenario<'a>(drive: &str, load: Load<'a>, pace: Pace) -> Scenario<'a> {
    let drive = DriveFile::read("mine", drive).unwrap();
    let device = Device {
        capacity: Some(64 << 20),
        ..Device::new(drive.preset)
    };
    Scenario {
        pace,
        seed: 11,
        ..Scenario::new(device, load)
    }
}

pub const WRITE: Op = Op::Write { fua: false };

/// A request for one block.
pub fn ask(op: Op, lba: u64, at: u64) -> Request {
    let contents = match op {
        Op::Write { .. } => vec![Content::of(lba + 1)],
        _ => vec![],
    };
    Request {
        at,
        op,
        lba,
        blocks: 1,
        contents: contents.into_iter().collect(),
        ..Request::flush(at)
    }
}
