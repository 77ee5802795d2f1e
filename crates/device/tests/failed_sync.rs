//! A sync failed, and a server is started again: the page cache has other contents than the medium.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Client, assert_sound, create_as, open};
use std::sync::Arc;
use vellum_core::format::areas::Layout;
use vellum_device::{OpenOptions, Volume};
use vellum_medium::{Fault, FaultMedium, Medium, Plan};

const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Ordered, Layout::Shadow];
const BLOCKS: u64 = 40;

/// Writes while a sync fails, starts again, writes more, flushes that, and cuts the power. What was flushed is present. What the
/// second life has read is durable, because it has flushed since.
fn one(layout: Layout, seed: u64) {
    let fault = Arc::new(FaultMedium::over_memory(4096, Plan::seeded(seed)));
    let medium: Arc<dyn Medium> = Arc::clone(&fault) as _;
    create_as(&*fault, layout);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(0, &[1; BLOCKS as usize]).unwrap();
    client.flush().unwrap();
    // Which of the syncs fails depends on layout and seed.
    fault.set_plan(Plan::seeded(seed).with_nth(Fault::SyncError, seed % 3));
    let mut flushed = 1;
    for fill in 2..8 {
        let fills: Vec<u64> = (0..BLOCKS)
            .map(|lba| if lba % fill == 0 { fill } else { 1 })
            .collect();
        let result = client.write(0, &fills).and_then(|()| client.flush());
        match result {
            Ok(()) => flushed = fill,
            Err(_) => break,
        }
    }
    drop(client);
    drop(volume);
    fault.set_plan(Plan::seeded(seed));
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let found = client.read(0, BLOCKS).unwrap();
    let newest = *found.iter().max().unwrap();
    assert!(
        newest >= flushed,
        "{layout:?}, seed {seed}: {newest} after a flush of {flushed}"
    );
    client.write(BLOCKS, &[9; 8]).unwrap();
    client.flush().unwrap();
    fault.power_cut(seed);
    drop(client);
    drop(volume);
    fault.restart();
    assert_sound(&*fault);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    assert_eq!(
        client.read(0, BLOCKS).unwrap(),
        found,
        "{layout:?}, seed {seed}: read, flushed, and gone"
    );
    assert_eq!(
        client.read(BLOCKS, 8).unwrap(),
        [9; 8],
        "{layout:?}, seed {seed}: flushed, and gone"
    );
    drop(client);
    volume.stop().unwrap();
}

#[test]
fn a_restart_does_not_believe_what_a_failed_sync_left_in_the_cache() {
    for layout in LAYOUTS {
        (0..24).for_each(|seed| one(layout, seed));
    }
}

/// An opening whose own sync fails is refused, for readers and writers alike; the next one finds what is durable.
#[test]
fn an_opening_that_cannot_sync_is_refused() {
    let fault = Arc::new(FaultMedium::over_memory(4096, Plan::default()));
    let medium: Arc<dyn Medium> = Arc::clone(&fault) as _;
    create_as(&*fault, Layout::Log);
    for read_only in [false, true] {
        fault.set_plan(Plan::default().with_nth(Fault::SyncError, 0));
        let options = OpenOptions {
            read_only,
            ..common::small()
        };
        let error = Volume::open(Arc::clone(&medium), &options).unwrap_err();
        assert!(error.to_string().contains("sync"), "{error}");
        Volume::open(Arc::clone(&medium), &options)
            .unwrap()
            .stop()
            .unwrap();
    }
}
