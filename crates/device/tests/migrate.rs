//! From one layout to another and back: all contents are kept, even if the first attempt was interrupted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::Client;
use std::sync::Arc;
use vellum_core::format::areas::Layout;
use vellum_core::tables::Persistence;
use vellum_device::migrate::{MigrateError, copy, ends_before, verify};
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::MemoryMedium;

const BLOCKS: u64 = 40_000;

fn volume(layout: Layout) -> (Arc<MemoryMedium>, Arc<Volume>) {
    let medium = Arc::new(MemoryMedium::new(60_000));
    let options = CreateOptions {
        logical_blocks: Some(BLOCKS),
        layout,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    let volume = open(&medium);
    (medium, volume)
}

fn open(medium: &Arc<MemoryMedium>) -> Arc<Volume> {
    let options = OpenOptions {
        persistence: Persistence::Weak,
        ..OpenOptions::default()
    };
    Arc::new(Volume::open(medium.clone(), &options).unwrap())
}

/// Writes runs of blocks here and there, some of them alike, with holes between them.
fn fill(volume: &Arc<Volume>) {
    let mut client = Client::new(volume);
    for run in 0..60 {
        let lba = run * 617 % (BLOCKS - 40);
        let fills: Vec<u64> = (0..run % 40 + 1)
            .map(|block| run * 100 + block % 7 + 1)
            .collect();
        client.write(lba, &fills).unwrap();
    }
    client.write(BLOCKS - 1, &[77]).unwrap();
}

#[test]
fn every_layout_migrates_to_every_other() {
    for from in [Layout::Log, Layout::Ordered, Layout::Shadow] {
        let (_, source) = volume(from);
        fill(&source);
        for to in [Layout::Log, Layout::Ordered, Layout::Shadow] {
            let (medium, target) = volume(to);
            let copied = copy(&*source, &*target, 0, &mut |_| Ok(())).unwrap();
            assert!(copied.blocks > 1000, "{from:?} {to:?}: {copied:?}");
            let compared = verify(&*source, &*target, &mut |_| Ok(())).unwrap();
            assert_eq!(compared, copied);
            // What was reported is durable: a crash loses none of it.
            drop(target);
            let again = open(&medium);
            assert_eq!(verify(&*source, &*again, &mut |_| Ok(())).unwrap(), copied);
            again.stop().unwrap();
        }
        source.stop().unwrap();
    }
}

#[test]
fn an_interrupted_migration_goes_on_where_it_was() {
    let (_, source) = volume(Layout::Log);
    fill(&source);
    let (medium, target) = volume(Layout::Ordered);
    let mut reached = 0;
    let stopped = copy(&*source, &*target, 0, &mut |at| {
        reached = at;
        Err(std::io::Error::other("enough").into())
    });
    assert!(
        matches!(stopped, Err(MigrateError::Report(_))),
        "{stopped:?}"
    );
    assert!((1..BLOCKS).contains(&reached), "{reached}");
    drop(target);
    let target = open(&medium);
    copy(&*source, &*target, reached, &mut |_| Ok(())).unwrap();
    verify(&*source, &*target, &mut |_| Ok(())).unwrap();
    target.stop().unwrap();
    source.stop().unwrap();
}

#[test]
fn a_block_that_differs_is_found() {
    let (_, source) = volume(Layout::Log);
    fill(&source);
    let (_, target) = volume(Layout::Shadow);
    copy(&*source, &*target, 0, &mut |_| Ok(())).unwrap();
    Client::new(&target).write(BLOCKS - 1, &[78]).unwrap();
    let found = verify(&*source, &*target, &mut |_| Ok(()));
    assert!(
        matches!(found, Err(MigrateError::Differs(lba)) if lba.0 == BLOCKS - 1),
        "{found:?}"
    );
    target.stop().unwrap();
    source.stop().unwrap();
}

fn volume_of(logical_blocks: u64) -> Arc<Volume> {
    let medium = Arc::new(MemoryMedium::new(2 * logical_blocks));
    let options = CreateOptions {
        logical_blocks: Some(logical_blocks),
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    open(&medium)
}

#[test]
fn a_copy_may_be_larger_and_what_is_new_is_zeros() {
    let (_, source) = volume(Layout::Log);
    fill(&source);
    let larger = volume_of(BLOCKS + 5000);
    let mut reached = 0;
    let copied = copy(&*source, &*larger, 0, &mut |at| {
        reached = at;
        Ok(())
    });
    assert_eq!(reached, BLOCKS);
    assert_eq!(
        verify(&*source, &*larger, &mut |_| Ok(())).unwrap(),
        copied.unwrap()
    );
    Client::new(&larger).write(BLOCKS + 7, &[78]).unwrap();
    let found = verify(&*source, &*larger, &mut |_| Ok(()));
    assert!(
        matches!(found, Err(MigrateError::Differs(lba)) if lba.0 == BLOCKS + 7),
        "{found:?}"
    );
    larger.stop().unwrap();
    source.stop().unwrap();
}

#[test]
fn a_copy_may_be_smaller_where_nothing_is_cut_off() {
    let (_, source) = volume(Layout::Log);
    fill(&source);
    let end = BLOCKS - 1000;
    let smaller = volume_of(end);
    ends_before(&*source, BLOCKS).unwrap();
    copy(&*source, &*smaller, 0, &mut |_| Ok(())).unwrap();
    for found in [
        ends_before(&*source, end),
        verify(&*source, &*smaller, &mut |_| Ok(())).map(drop),
    ] {
        assert!(
            matches!(found, Err(MigrateError::Behind { lba, end: at }) if lba.0 >= end && at.0 == end),
            "{found:?}"
        );
    }
    let mut client = Client::new(&source);
    for lba in end..BLOCKS {
        client.write(lba, &[0]).unwrap();
    }
    ends_before(&*source, end).unwrap();
    verify(&*source, &*smaller, &mut |_| Ok(())).unwrap();
    smaller.stop().unwrap();
    source.stop().unwrap();
}
