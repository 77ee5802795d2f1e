//! Home writes that were never journaled, but begin like a journaled block: an engine that trusts 64 bytes corrupts them.
#![allow(clippy::unwrap_used, reason = "a test")]

use vellum_core::seam::WriteOnce;
use vellum_lab::content::{Content, Contents};
use vellum_lab::drives;
use vellum_lab::journal::{Commit, File, Host, Journal, Mode};
use vellum_lab::policy::{Layer, Policy};
use vellum_lab::scenario::{Device, Load, Scenario};
use vellum_lab::sim::{Ftl, Pace, Sim};
use vellum_lab::trace::Op;
use vellum_lab::workload::Request;

/// Pages of a database, each of a different kind.
const PAGES: u32 = 100;
/// Pages written without the file system (direct I/O, mkfs, e2fsck), of kinds that the journal has too.
const DIRECT: u32 = 30;

const JOURNAL: Journal = Journal {
    mode: Mode::Data,
    blocks: 1024,
    commit: Commit::TwoFlushes,
    fsync_flushes: true,
    write_back: 0,
    file: File::Overwritten,
};

fn request(op: Op, lba: u64, content: Option<Content>) -> Request {
    Request {
        op,
        lba,
        blocks: 1,
        contents: content.into_iter().collect::<Contents>(),
        ..Request::flush(0)
    }
}

fn write(lba: u64, content: Content) -> Request {
    request(Op::Write { fua: false }, lba, Some(content))
}

/// The requests to the disk: the pages into the journal, the direct writes, the pages home; then everything is read.
fn requests(logical: u64) -> Vec<Request> {
    let at = JOURNAL.data_at(logical);
    let direct_at = at + 1000;
    let pages = (0..PAGES).flat_map(|page| {
        let write = write(page.into(), Content::alike(page as u8, 1));
        [Some(write), (page % 10 == 9).then(|| Request::flush(0))]
    });
    let mut requests: Vec<Request> = Host::new(pages.flatten(), JOURNAL, logical, 1).collect();
    let home = requests.iter().position(|r| r.lba >= at).unwrap();
    let direct = (0..DIRECT).map(|n| write(direct_at + u64::from(n), Content::alike(n as u8, 2)));
    requests.splice(home..home, direct);
    let all = (at..at + u64::from(PAGES)).chain(direct_at..direct_at + u64::from(DIRECT));
    requests.extend(all.map(|lba| request(Op::Read, lba, None)));
    requests
}

fn run(policy: &str) -> Sim {
    let policy: Policy = policy.parse().unwrap();
    let scenario = Scenario::new(
        Device {
            capacity: Some(256 << 20),
            over_provisioning: Some(200),
            ..Device::new(drives::own("fast-ssd"))
        },
        Load::Requests(&[]),
    );
    let (mut sim, logical) = scenario.prepared(&policy).unwrap();
    let rule = match policy.layer {
        Layer::Vellum(engine) => engine.write_once,
        _ => WriteOnce::Off,
    };
    sim.follow(&JOURNAL.disk(logical), rule);
    // The engine reports an error if a read returns anything but what was written.
    sim.run(
        &mut requests(logical).into_iter(),
        Pace::Closed { depth: 1 },
    )
    .unwrap();
    sim
}

#[test]
fn trusting_64_bytes_corrupts_blocks_that_were_never_journaled() {
    let mistaken = |policy| match run(policy).ftl {
        Ftl::Raw(raw) => raw.mistaken(),
        _ => unreachable!("{policy} is above a device of which only the speed is known"),
    };
    assert_eq!(mistaken("woj"), u64::from(DIRECT));
    assert_eq!(mistaken("woj:sha1"), 0);
    assert_eq!(mistaken("jftl"), 0);
}

#[test]
fn comparing_corrupts_nothing() {
    for policy in ["vellum:write-once", "vellum:write-once=paper"] {
        let Ftl::Vellum(vellum) = run(policy).ftl else {
            unreachable!("{policy} is the engine")
        };
        let stats = vellum.stats();
        assert_eq!(vellum.wrong_reads(), 0, "{policy}");
        assert_eq!(stats.compared_unequal, u64::from(DIRECT), "{policy}");
        // Every page was written home, and the inode.
        assert_eq!(stats.remapped_blocks, u64::from(PAGES) + 1, "{policy}");
    }
}
