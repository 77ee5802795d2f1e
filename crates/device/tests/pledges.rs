//! What a journal has committed is put home after a crash, and nothing else is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, assert_sound, wait_for};
use journal::{HOME, Host, mounted, open_replaying};
use std::sync::Arc;
use vellum_device::Volume;
use vellum_medium::Medium;

fn after_a_crash(medium: &Arc<dyn Medium>, volume: Arc<Volume>, host: Host) -> Host {
    let sequence = host.sequence;
    drop((host, volume));
    assert_sound(&**medium);
    let client = Client::new(&open_replaying(medium));
    Host { client, sequence }
}

#[test]
fn a_journal_that_has_just_got_its_features_is_read_by_them() {
    // However soon the next scan is: mostly with a commit before it, and with one after it.
    for waits in [false, true] {
        let (medium, volume, mut host) = mounted(open_replaying);
        let superblock = host.get(0);
        host.put(HOME.into(), &[1; 4096]);
        host.begin_log();
        host.commit(10);
        if waits {
            wait_for(&volume, "it is followed from its superblock on", |volume| {
                host.begin_log();
                host.commit(20);
                volume.stats().core["pledged_blocks"] > 0
            });
        }
        let mut host = after_a_crash(&medium, volume, host);
        assert!(host.get(0) == superblock, "nobody wrote block 0");
        let home = host.get(HOME.into())[0];
        let next = host.get(u64::from(HOME) + 1)[0];
        // Pledged or not; or not any more, because the scan that was due ends pledges.
        let stamp = if waits { 20 } else { 10 };
        let fine = [(1, 0), (stamp, stamp + 1)];
        assert!(fine.contains(&(home, next)), "{home} {next}");
    }
}

/// No bytes are compared for a pledge, so nothing is pledged while a change waits for a scan.
#[test]
fn nothing_is_pledged_while_a_scan_is_behind() {
    let (_medium, volume, mut host) = mounted(open_replaying);
    let pledged = || volume.stats().core["pledged_blocks"];
    wait_for(&volume, "the first pledge", |_| {
        host.begin_log();
        host.commit(10);
        pledged() > 0
    });
    // A scan is rarely in time. If it is, it lets a commit be pledged, but not each time.
    let mut superblock = host.get(0);
    let is_held_back = (0..10).any(|_| {
        let before = pledged();
        // As a mount and an unmount do.
        superblock[1024 + 0x60] ^= 4;
        host.put(0, &superblock);
        host.begin_log();
        host.commit(20);
        pledged() == before
    });
    assert!(is_held_back);
}

/// A mount and an unmount are noted in the superblock, in the middle of a log. Nothing has moved: after the scout's next scan,
/// commits are pledged again, although no superblock of the journal says where its log begins. Any other change there may have
/// moved it.
#[test]
fn a_journal_is_followed_on_when_its_file_system_says_that_it_is_mounted() {
    for (at, bit, goes_on) in [(0x60, 4, true), (0x5c, 2, false)] {
        let (_medium, volume, mut host) = mounted(open_replaying);
        let pledged = || volume.stats().core["pledged_blocks"];
        wait_for(&volume, "the first pledge", |_| {
            host.begin_log();
            host.commit(10);
            pledged() > 0
        });
        // The log must not come round meanwhile, because then a superblock of the journal would say where it begins.
        let commits = 30;
        while host.places_left() < commits {
            host.commit(10);
        }
        let mut superblock = host.get(0);
        superblock[1024 + at] ^= bit;
        host.put(0, &superblock);
        wait_for(&volume, "the next scan", |volume| {
            !volume.stats().commits.looking
        });
        let before = pledged();
        let is_pledged = (0..commits).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            host.commit(20);
            pledged() > before
        });
        assert_eq!(is_pledged, goes_on, "byte {at:#x}");
    }
}
