//! Properties are changed durably, on a volume that is served and on one at rest; a crash leaves the old ones or the new.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{create_as, open, set_superblock, small, superblock_of};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::areas::Layout;
use vellum_core::format::properties::{Properties, PropertyError, Value};
use vellum_device::block::BlockError;
use vellum_device::{ChangeError, OpenOptions, Volume, change_at_rest, crc32c};
use vellum_medium::fault::{Asked, Event, Recorder};
use vellum_medium::{Medium, MemoryMedium};

const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Ordered, Layout::Shadow];

fn with(mut properties: Properties, name: &str, value: &str) -> Properties {
    properties.set(name, Some(Value::text(value))).unwrap();
    properties
}

fn text(properties: &Properties, name: &str) -> Option<String> {
    let value = properties.get(name).and_then(Value::as_text);
    value.map(str::to_owned)
}

fn set_at_rest(medium: &dyn Medium, name: &str, value: &str) {
    let changed = change_at_rest(medium, |superblock| {
        Ok::<_, PropertyError>(with(superblock.properties().clone(), name, value))
    });
    assert_eq!(
        text(changed.unwrap().properties(), name).as_deref(),
        Some(value)
    );
}

#[test]
fn a_property_set_on_a_served_volume_survives_a_crash() {
    for layout in LAYOUTS {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2000));
        create_as(&*medium, layout);
        let volume = open(&medium);
        assert!(volume.properties().is_empty());
        let label = with(volume.properties(), "label", "photos");
        volume.set_properties(&label).unwrap();
        let both = with(volume.properties(), "compress", "zstd");
        volume.set_properties(&both).unwrap();
        // Dropped as in a crash.
        drop(volume);
        let volume = open(&medium);
        let found = volume.properties();
        assert_eq!(
            text(&found, "label").as_deref(),
            Some("photos"),
            "{layout:?}"
        );
        assert_eq!(text(&found, "compress").as_deref(), Some("zstd"));
        volume.stop().unwrap();
        set_at_rest(&*medium, "label", "films");
        assert_eq!(
            text(&open(&medium).properties(), "label").as_deref(),
            Some("films")
        );
    }
}

#[test]
fn concurrent_changes_happen_one_after_the_other() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2000));
    create_as(&*medium, Layout::Log);
    let volume = open(&medium);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                for n in 0..20 {
                    let own = format!("{writer}-{n}");
                    let both = with(with(Properties::default(), "label", &own), "the-same", &own);
                    volume.set_properties(&both).unwrap();
                }
            });
        }
    });
    let found = volume.properties();
    assert_eq!(text(&found, "label"), text(&found, "the-same"));
    assert_eq!(found.generation(), 80);
    drop(volume);
    assert_eq!(open(&medium).properties(), found);
}

#[test]
fn with_one_torn_mirror_the_other_has_the_properties() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2000));
    create_as(&*medium, Layout::Log);
    set_at_rest(&*medium, "label", "old");
    let [first, last] = superblock_of(&*medium).mirrors();
    let mut old = [0; BLOCK_BYTES];
    medium.read(first, &mut old).unwrap();
    set_at_rest(&*medium, "label", "new");
    let mut new = [0; BLOCK_BYTES];
    medium.read(first, &mut new).unwrap();
    let torn: Vec<u8> = [&new[..512], &old[512..]].concat();
    let label = |blocks: [&[u8]; 2]| {
        let places: [Pba; 2] = [first, last];
        for (at, block) in places.into_iter().zip(blocks) {
            medium.write(at, block).unwrap();
        }
        text(&open(&medium).properties(), "label")
    };
    for (blocks, found) in [
        ([&old[..], &torn[..]], "old"),
        ([&old[..], &new[..]], "new"),
        ([&new[..], &old[..]], "new"),
        ([&torn[..], &new[..]], "new"),
    ] {
        assert_eq!(label(blocks).as_deref(), Some(found));
    }
}

const SECTOR: usize = 512;

fn block_at(medium: &MemoryMedium, at: Pba) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    medium.read(at, &mut block).unwrap();
    block
}

/// The medium after each power cut in the write of a block: some of the sectors that differ are new.
fn torn(medium: &MemoryMedium, at: Pba, new: &[u8]) -> Vec<MemoryMedium> {
    let old = block_at(medium, at);
    let sectors = |of: usize| of * SECTOR..(of + 1) * SECTOR;
    let differ = (0..BLOCK_BYTES / SECTOR).filter(|&of| old[sectors(of)] != new[sectors(of)]);
    let differ: Vec<usize> = differ.collect();
    let cuts = (0..1 << differ.len()).map(|arrived: usize| {
        let (cut, mut block) = (medium.fork(), old);
        for (bit, &of) in differ.iter().enumerate() {
            if arrived >> bit & 1 == 1 {
                block[sectors(of)].copy_from_slice(&new[sectors(of)]);
            }
        }
        cut.write(at, &block).unwrap();
        cut
    });
    cuts.collect()
}

/// What an opening writes to the mirrors before anything else, in order.
fn written_first(medium: &MemoryMedium, mirrors: [Pba; 2]) -> Vec<(Pba, Box<[u8]>)> {
    let recorder = Arc::new(Recorder::new(medium.fork()));
    let opened: Arc<dyn Medium> = recorder.clone();
    drop(open(&opened));
    let tape = recorder.take();
    let writes = tape.events().filter_map(|event| match event {
        Event::Issued(Asked::Write { at, bytes, .. }) => Some((*at, bytes.clone())),
        _ => None,
    });
    writes.take_while(|(at, _)| mirrors.contains(at)).collect()
}

/// One tears the last mirror while properties are changed, or a bit of it flips. The other one comes when the next life begins.
#[test]
fn two_power_cuts_in_a_row_leave_a_volume_that_can_be_written() {
    let long = |letter: &str| letter.repeat(SECTOR);
    let start = MemoryMedium::new(2000);
    create_as(&start, Layout::Log);
    set_at_rest(&start, "label", &long("o"));
    let mirrors = superblock_of(&start).mirrors();
    let [_, last] = mirrors;
    let changed = start.fork();
    set_at_rest(&changed, "label", &long("n"));
    let mut once = torn(&start, last, &block_at(&changed, last));
    let flipped = start.fork();
    let mut block = block_at(&start, last);
    block[SECTOR + 9] ^= 1;
    flipped.write(last, &block).unwrap();
    once.push(flipped);
    assert_eq!(once.len(), 9, "three sectors change");
    for medium in once {
        let mut lives = 0;
        for (at, bytes) in written_first(&medium, mirrors) {
            for twice in torn(&medium, at, &bytes) {
                let twice: Arc<dyn Medium> = Arc::new(twice);
                let label = text(&open(&twice).properties(), "label");
                assert!([long("o"), long("n")].map(Some).contains(&label));
            }
            medium.write(at, &bytes).unwrap();
            lives += 1;
        }
        assert!(lives >= 2, "a life begins in both mirrors");
    }
}

#[test]
fn properties_change_only_on_a_writable_volume() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2000));
    create_as(&*medium, Layout::Log);
    let options = OpenOptions {
        read_only: true,
        ..small()
    };
    let volume = Volume::open(Arc::clone(&medium), &options).unwrap();
    let refused = volume.set_properties(&with(Properties::default(), "label", "x"));
    assert!(matches!(refused, Err(BlockError::ReadOnly)), "{refused:?}");
    drop(volume);
    // From a later version, with a feature that a program that writes must know.
    set_superblock(&*medium, &[("read_only_compatible", 4)]);
    let change = |_: &_| Ok::<_, PropertyError>(Properties::default());
    let refused = change_at_rest(&*medium, change).unwrap_err();
    assert!(matches!(refused, ChangeError::Recovery(_)), "{refused}");
}

#[test]
fn older_versions_may_not_write_a_volume_with_properties() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2000));
    create_as(&*medium, Layout::Log);
    let feature = || {
        let mut block = [0; BLOCK_BYTES];
        medium.read(Pba(0), &mut block).unwrap();
        let fields = vellum_core::format::superblock::FIELDS;
        let field = fields
            .iter()
            .find(|f| f.name == "read_only_compatible")
            .unwrap();
        assert_ne!(crc32c(&block), 0);
        block[field.offset]
    };
    assert_eq!(feature(), 0, "what nobody has changed every version writes");
    set_at_rest(&*medium, "label", "x");
    assert_eq!(feature(), 1);
}
