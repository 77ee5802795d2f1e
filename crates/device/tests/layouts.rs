//! Volumes of tables in place, on a device: what the answer to a write promises, what a restart knows, what is refused.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Client, create_as, wait_for};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::check::{Options, Severity};
use vellum_core::format::areas::Layout;
use vellum_core::format::table::Kind;
use vellum_core::seam::Commits;
use vellum_core::tables::Persistence;
use vellum_device::inspect::check_medium;
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy, PrintHash};
use vellum_device::{Haste, OpenError, OpenOptions, Sought, SweepError, Volume};
use vellum_medium::fault::{Fault, FaultMedium, Plan};
use vellum_medium::{Medium, MemoryMedium};

const TABLES: [Layout; 2] = [Layout::Ordered, Layout::Shadow];

fn medium(layout: Layout) -> Arc<MemoryMedium> {
    let medium = Arc::new(MemoryMedium::new(8000));
    create_as(&*medium, layout);
    medium
}

fn open(medium: &Arc<impl Medium + 'static>, persistence: Persistence, dedup: bool) -> Arc<Volume> {
    let options = OpenOptions {
        persistence,
        policy: Policy {
            dedup,
            ..Policy::default()
        },
        ..OpenOptions::default()
    };
    Arc::new(Volume::open(medium.clone(), &options).unwrap())
}

/// A strong write survives a crash as soon as it is answered, without a flush.
#[test]
fn strong_writes_are_durable_when_they_are_answered() {
    for layout in TABLES {
        let medium = medium(layout);
        let volume = open(&medium, Persistence::Strong, false);
        let mut client = Client::new(&volume);
        for n in 0..50 {
            client.write(n * 7, &[n + 1, n + 2]).unwrap();
        }
        drop(client);
        // As a crash would leave it.
        drop(volume);
        let volume = open(&medium, Persistence::Strong, false);
        let mut client = Client::new(&volume);
        for n in 0..50 {
            assert_eq!(client.read(n * 7, 2).unwrap(), [n + 1, n + 2], "{layout:?}");
        }
        volume.stop().unwrap();
    }
}

/// Fingerprints are on the medium: after a restart contents are known without reading any, even those that have no owner any
/// more.
#[test]
fn a_restart_knows_all_contents() {
    for layout in TABLES {
        let medium = medium(layout);
        let volume = open(&medium, Persistence::Weak, true);
        let fills: Vec<u64> = (1..200).collect();
        let mut client = Client::new(&volume);
        client.write(0, &fills).unwrap();
        client.flush().unwrap();
        client.discard(0, 100).unwrap();
        drop(client);
        volume.stop().unwrap();

        let volume = open(&medium, Persistence::Weak, true);
        // The index is filled while requests are served.
        let began = Instant::now();
        while volume.stats().core["index_entries"] < 199 {
            assert!(began.elapsed() < Duration::from_secs(30), "{layout:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut client = Client::new(&volume);
        client.write(1000, &fills).unwrap();
        assert_eq!(client.read(1000, 199).unwrap(), fills);
        let core = volume.stats().core;
        assert_eq!(core["dedup_blocks"], 199, "{layout:?}");
        assert_eq!(core["live_blocks"], 199, "{layout:?}");
        let space = volume.stats().space;
        assert_eq!(space.mapped_bytes, (99 + 199) * 4096, "{layout:?}");
        assert_eq!(space.saved_bytes, 99 * 4096, "{layout:?}");
        volume.stop().unwrap();
    }
}

/// What only a log has.
fn of_a_log() -> [(&'static str, Policy); 4] {
    let none = Policy::default();
    [
        (
            "compress=",
            Policy {
                compression: Compression::Lz4,
                ..none
            },
        ),
        (
            "delta=",
            Policy {
                deltas: Deltas::Packed,
                ..none
            },
        ),
        (
            "replay=",
            Policy {
                replay: true,
                ..none
            },
        ),
        (
            "decide=",
            Policy {
                fingerprint: Some(PrintHash::Blake3),
                ..none
            },
        ),
    ]
}

/// What only tables have.
fn of_tables() -> [(&'static str, Commits); 3] {
    let rare = Commits::default();
    [
        (
            "commit-every=",
            Commits {
                requests: 100,
                ..rare
            },
        ),
        (
            "merging=",
            Commits {
                merging: false,
                ..rare
            },
        ),
        (
            "anticipation=",
            Commits {
                anticipation: false,
                ..rare
            },
        ),
    ]
}

/// What only some layouts have is refused by the others, with the reason, both when a volume is opened and while it is served.
#[test]
fn what_a_layout_does_not_have_is_refused() {
    let refused = |layout: Layout, options: &OpenOptions, what: &str| {
        let refused = Volume::open(medium(layout), options);
        let Err(error @ OpenError::Layout { .. }) = refused else {
            panic!("{layout:?} takes {what}");
        };
        let error = error.to_string();
        assert!(
            error.contains(layout.name()) && error.contains(what),
            "{error}"
        );
    };
    let taken = |layout: Layout, options: &OpenOptions| {
        let volume = Volume::open(medium(layout), options).unwrap();
        volume.stop().unwrap();
    };
    for (what, policy) in of_a_log() {
        let options = OpenOptions {
            policy,
            ..OpenOptions::default()
        };
        taken(Layout::Log, &options);
        for layout in TABLES {
            refused(layout, &options, what);
            let volume = open(&medium(layout), Persistence::Weak, true);
            let error = volume.takes(&policy).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            volume.stop().unwrap();
        }
    }
    for (what, commits) in of_tables() {
        let options = OpenOptions {
            policy: Policy {
                commits,
                ..Policy::default()
            },
            ..OpenOptions::default()
        };
        refused(Layout::Log, &options, what);
        for layout in TABLES {
            taken(layout, &options);
        }
    }
    let strong = OpenOptions {
        persistence: Persistence::Strong,
        ..OpenOptions::default()
    };
    refused(Layout::Log, &strong, "persistence=strong");
    for layout in TABLES {
        taken(layout, &strong);
    }
}

/// Changes that no answer waits for are held back for longer than this test waits, unless the policy says otherwise.
#[test]
fn how_tables_are_committed_can_be_changed_while_they_are_served() {
    let medium = medium(Layout::Ordered);
    let volume = open(&medium, Persistence::Weak, false);
    let mut client = Client::new(&volume);
    for fill in 1..=2 {
        client.write(5, &[fill]).unwrap();
        client.flush().unwrap();
    }
    assert_eq!(volume.stats().core["commits"], 2);
    volume
        .set_policy(Policy {
            commits: Commits {
                merging: false,
                ..Commits::default()
            },
            ..volume.policy()
        })
        .unwrap();
    wait_for(&volume, "the old block's count is written", |volume| {
        volume.stats().core["commits"] == 3
    });
    drop(client);
    volume.stop().unwrap();
}

/// Every write has a cause, and each table is one of the causes.
#[test]
fn every_byte_written_has_its_cause() {
    for layout in TABLES {
        let medium = medium(layout);
        let volume = open(&medium, Persistence::Weak, true);
        let mut client = Client::new(&volume);
        for n in 0..50 {
            client.write(n * 7, &[n % 5 + 1, n + 10]).unwrap();
            client.flush().unwrap();
        }
        client.discard(0, 20).unwrap();
        drop(client);
        volume.stop().unwrap();
        let medium = volume.stats().medium;
        let written = medium.by_cause;
        let tables = [
            written.link_bytes,
            written.count_bytes,
            written.fingerprint_bytes,
        ];
        assert!(tables.iter().all(|&bytes| bytes > 0), "{medium:?}");
        let shadowing = written.directory_bytes + written.map_bytes;
        let causes =
            written.data_bytes + tables.iter().sum::<u64>() + written.edition_bytes + shadowing;
        assert_eq!(medium.written_bytes, causes, "{layout:?}: {medium:?}");
        match layout {
            Layout::Shadow => assert!(written.directory_bytes > 0, "{medium:?}"),
            // The superblock says that the stop was clean.
            _ => assert_eq!(shadowing, 4096, "{medium:?}"),
        }
    }
}

/// A volume that never has anything for a sweep to find does not pretend to make one.
#[test]
fn a_sweep_that_a_volume_never_makes_is_refused() {
    for layout in TABLES {
        let volume = open(&medium(layout), Persistence::Weak, true);
        assert_eq!(
            volume.sweep(Sought::Duplicates, Haste::Beside),
            Err(SweepError::Layout(layout.name()))
        );
        assert_eq!(
            volume.sweep(Sought::SparsePages, Haste::Beside),
            Err(SweepError::NoParts(layout.name()))
        );
        volume.stop().unwrap();
    }
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(medium(Layout::Log), &options).unwrap();
    assert_eq!(
        volume.sweep(Sought::Duplicates, Haste::Beside),
        Err(SweepError::ReadOnly)
    );
    volume.stop().unwrap();
    let volume = open(&medium(Layout::Log), Persistence::Weak, true);
    assert_eq!(
        volume.sweep(Sought::SparsePages, Haste::Beside),
        Err(SweepError::NotPacking)
    );
    volume.stop().unwrap();
}

/// Bad sectors under all fingerprints and counts only cost hints: the volume opens, reads what was written, and rewrites them.
#[test]
fn bad_sectors_under_fingerprints_and_counts_cost_hints_alone() {
    for layout in TABLES {
        let medium = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
        create_as(&*medium, layout);
        let volume = open(&medium, Persistence::Weak, true);
        let superblock = volume.superblock().clone();
        let fills: Vec<u64> = (1..200).collect();
        let mut client = Client::new(&volume);
        client.write(0, &fills).unwrap();
        client.flush().unwrap();
        // Contents that only fingerprints lead to.
        client.discard(0, 100).unwrap();
        drop(client);
        volume.stop().unwrap();
        drop(volume);

        let all: u64 = superblock.table_blocks().iter().sum();
        let first = superblock.table_number(Kind::Counts, 0);
        let bad = superblock.table_at(first, 0).0..superblock.table_at(all, 0).0;
        medium.set_plan(Plan::default().with_every(Fault::ReadError, bad));
        let report = check_medium(&*medium, Options::default());
        assert_eq!(report.worst(), Some(Severity::Redundancy), "{layout:?}");
        let volume = open(&medium, Persistence::Weak, true);
        let core = volume.stats().core;
        assert!(core["lost_fingerprint_blocks"] > 0, "{layout:?}");
        assert!(core["rebuilt_count_blocks"] > 0, "{layout:?}");
        let told = volume.events();
        assert!(told.iter().any(|event| event.kind == "tables"), "{told:?}");
        let mut client = Client::new(&volume);
        assert_eq!(client.read(100, 99).unwrap(), fills[100..]);
        client.write(1000, &fills).unwrap();
        drop(client);
        volume.stop().unwrap();
        drop(volume);

        medium.set_plan(Plan::default());
        let report = check_medium(&*medium, Options::default());
        assert_eq!(report.worst(), None, "{layout:?}: {:?}", report.findings);
        let volume = open(&medium, Persistence::Weak, true);
        assert_eq!(volume.stats().core["lost_fingerprint_blocks"], 0);
        let mut client = Client::new(&volume);
        assert_eq!(client.read(100, 99).unwrap(), fills[100..]);
        assert_eq!(client.read(1000, 199).unwrap(), fills);
        drop(client);
        volume.stop().unwrap();
    }
}

/// Only the directory says which copy of each table block counts. If some of it cannot be read, reads that depend on it fail, and
/// nothing is changed. So nothing is lost if the drive can read it again later.
#[test]
fn a_bad_directory_of_shadow_is_refused_and_named() {
    let medium = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
    create_as(&*medium, Layout::Shadow);
    let volume = open(&medium, Persistence::Weak, false);
    let superblock = volume.superblock().clone();
    Client::new(&volume).write(0, &[1, 2, 3]).unwrap();
    volume.stop().unwrap();
    drop(volume);

    let copies = superblock.directory_at(0, 0)..superblock.directory_at(0, 1).plus(1);
    let twins = [0, 1].map(|slot| superblock.directory_twin(0, slot).unwrap());
    let copies_at = copies.start.0..copies.end.0;
    let without = Plan::default().with_every(Fault::ReadError, copies_at);
    medium.set_plan(without.clone());
    let told = open(&medium, Persistence::Weak, false);
    assert_eq!(Client::new(&told).read(0, 3).unwrap(), [1, 2, 3]);
    told.stop().unwrap();
    drop(told);
    medium.set_plan(without.with_every(Fault::ReadError, twins[0].0..twins[1].0 + 1));
    let Err(error) = Volume::open(medium.clone(), &OpenOptions::default()) else {
        panic!("opened without its directory");
    };
    let told = error.to_string();
    let names = |at: u64| told.contains(&format!("at byte {}", at * 4096));
    let twins = twins.map(|twin| twin.0);
    let mut bad = (copies.start.0..copies.end.0).chain(twins);
    assert!(bad.any(names), "{told}");
    let read_only = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Arc::new(Volume::open(medium.clone(), &read_only).unwrap());
    let told = Client::new(&volume).read(0, 3).unwrap_err().to_string();
    assert!(told.contains("LBA 0 is lost"), "{told}");
    volume.stop().unwrap();
    drop(volume);
    medium.set_plan(Plan::default());
    let volume = open(&medium, Persistence::Weak, false);
    assert_eq!(Client::new(&volume).read(0, 3).unwrap(), [1, 2, 3]);
    volume.stop().unwrap();
}

/// A map write that the medium acknowledged and lost, in both copies, has too old an edition: an error at the next opening.
#[test]
fn a_lost_write_to_the_map_is_found_out() {
    let medium = medium(Layout::Ordered);
    let volume = open(&medium, Persistence::Weak, false);
    let (at, twin) = {
        let superblock = volume.superblock();
        let number = superblock.table_number(Kind::Map, 0);
        let twin = superblock.map_twin(number, 0).unwrap();
        (superblock.table_at(number, 0), twin)
    };
    let write = |volume: &Arc<Volume>, fill: u64| {
        let mut client = Client::new(volume);
        client.write(5, &[fill]).unwrap();
        client.flush().unwrap();
    };
    write(&volume, 1);
    volume.stop().unwrap();
    let mut before = [0; 4096];
    medium.read(at, &mut before).unwrap();

    let volume = open(&medium, Persistence::Weak, false);
    write(&volume, 2);
    volume.stop().unwrap();
    medium.write(at, &before).unwrap();
    medium.write(twin, &before).unwrap();
    let error = Volume::open(medium, &OpenOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("edition 1 of a block"),
        "{error}"
    );
}
