//! Journals are found, followed and forgotten as clients write; what they hold is not written twice.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Client, Random, assert_sound, block_of, create, forget, open, settled, small};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::seam::WriteOnce;
use vellum_device::block::{BlockDevice, Op};
use vellum_device::policy::{Policy, WeakHash};
use vellum_device::stats::VolumeStats;
use vellum_device::{JournalError, OpenOptions, Volume};
use vellum_medium::fault::{Fault, Plan, Rule};
use vellum_medium::{FaultMedium, Medium, MemoryMedium};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The place of the journal that the tests set.
const JOURNAL: (u64, u64) = (100, 50);

fn volume(blocks: u64) -> (Arc<dyn Medium>, Arc<Volume>) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(blocks));
    create(&*medium);
    let volume = open(&medium);
    (medium, volume)
}

fn policy(write_once: WriteOnce, hash: WeakHash) -> Policy {
    Policy {
        write_once,
        hash,
        ..Policy::default()
    }
}

fn core(volume: &Volume, name: &str) -> u64 {
    settled(volume).core[name]
}

fn eventually(volume: &Volume, what: &str, holds: impl Fn(&VolumeStats) -> bool) {
    let start = Instant::now();
    while !holds(&volume.stats()) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not in time: {what}: {:?}",
            volume.stats().write_once
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_journal_holds_is_not_written_again() {
    for hash in WeakHash::ALL {
        let (medium, volume) = volume(3000);
        volume
            .set_journal(JOURNAL.0 * BLOCK, JOURNAL.1 * BLOCK)
            .unwrap();
        volume.set_policy(policy(WriteOnce::Hash, hash)).unwrap();
        let mut client = Client::new(&volume);
        let fills: Vec<u64> = (1..=20).collect();
        client.write(JOURNAL.0 + 3, &fills).unwrap();
        client.flush().unwrap();
        let written = volume.stats().medium.by_cause.data_bytes;
        client.write(400, &fills).unwrap();
        client.write(600, &[77]).unwrap();
        client.flush().unwrap();
        assert_eq!(core(&volume, "remapped_blocks"), 20, "{hash}");
        assert_eq!(core(&volume, "missing_blocks"), 1, "{hash}");
        assert_eq!(
            volume.stats().medium.by_cause.data_bytes - written,
            BLOCK,
            "{hash}"
        );
        // The journal continues; home blocks stay.
        client.write(JOURNAL.0 + 3, &[9; 20]).unwrap();
        assert_eq!(client.read(400, 20).unwrap(), fills, "{hash}");
        volume.stop().unwrap();
        drop((client, volume));
        assert_sound(&*medium);
    }
}

#[test]
fn a_hash_of_the_head_is_not_believed() {
    let (_, volume) = volume(3000);
    volume
        .set_journal(JOURNAL.0 * BLOCK, JOURNAL.1 * BLOCK)
        .unwrap();
    volume
        .set_policy(policy(WriteOnce::Hash, WeakHash::Head64))
        .unwrap();
    let mut client = Client::new(&volume);
    let mut like = client.write_request(500, &[5], false);
    let mut tail = block_of(5);
    tail[BLOCK_BYTES - 1] ^= 1;
    like.frames.block_mut(0).copy_from_slice(&tail);
    client.write(JOURNAL.0, &[5]).unwrap();
    client.call(like).unwrap();
    assert_eq!(core(&volume, "compared_unequal"), 1);
    assert_eq!(core(&volume, "remapped_blocks"), 0);
    let request = client.request(Op::Read, 500, 1);
    assert_eq!(client.call(request).unwrap().frames.block(0), tail);
    volume.stop().unwrap();
}

#[test]
fn switching_takes_effect_at_once() {
    let (_, volume) = volume(3000);
    let mut client = Client::new(&volume);
    volume
        .set_journal(JOURNAL.0 * BLOCK, JOURNAL.1 * BLOCK)
        .unwrap();
    let mut remapped = |rule, hash| {
        volume.set_policy(policy(rule, hash)).unwrap();
        let before = core(&volume, "remapped_blocks");
        client.write(JOURNAL.0, &[1, 2, 3]).unwrap();
        client.write(300, &[1, 2, 3]).unwrap();
        client.write(300, &[0, 0, 0]).unwrap();
        core(&volume, "remapped_blocks") - before
    };
    assert_eq!(remapped(WriteOnce::Hash, WeakHash::Xxh3), 3);
    assert_eq!(remapped(WriteOnce::Off, WeakHash::Xxh3), 0);
    assert_eq!(remapped(WriteOnce::Hash, WeakHash::Md5), 3);
    assert_eq!(remapped(WriteOnce::HashUnlessCollided, WeakHash::Head64), 3);
    // The home addresses of a journal that was set by hand are not known, so its hashes are used.
    assert_eq!(remapped(WriteOnce::Descriptor, WeakHash::Xxh3), 3);
    volume.clear_journals();
    assert_eq!(remapped(WriteOnce::Hash, WeakHash::Xxh3), 0);
    assert_eq!(core(&volume, "pool_blocks"), 0);

    let zeros = core(&volume, "zero_blocks");
    volume
        .set_policy(Policy {
            zero: false,
            ..Policy::default()
        })
        .unwrap();
    client.write(700, &[0, 0]).unwrap();
    assert_eq!(core(&volume, "zero_blocks"), zeros);
    assert_eq!(client.read(700, 2).unwrap(), [0, 0]);
    assert!(client.volume.extents(vellum_core::addr::Lba(700), 2, 9)[0].mapped);
    volume.stop().unwrap();
}

#[test]
fn journals_set_by_hand_are_checked() {
    let (medium, volume) = volume(3000);
    let set = |start, bytes| volume.set_journal(start, bytes);
    assert!(matches!(set(1, BLOCK), Err(JournalError::Unaligned { .. })));
    let end = volume.blocks() * BLOCK;
    assert!(matches!(
        set(end, BLOCK),
        Err(JournalError::OutOfRange { .. })
    ));
    set(0, BLOCK).unwrap();
    assert!(matches!(
        set(0, 2 * BLOCK),
        Err(JournalError::Overlap { .. })
    ));
    assert_eq!(volume.stats().write_once.set_journals.len(), 1);
    volume.stop().unwrap();
    drop(volume);
    let options = OpenOptions {
        read_only: true,
        ..common::small()
    };
    let volume = Volume::open(Arc::clone(&medium), &options).unwrap();
    assert_eq!(volume.set_journal(0, BLOCK), Err(JournalError::ReadOnly));
}

/// The nonzero blocks of a fresh ext4; `None` if mkfs.ext4 is missing.
fn image(test: &str, blocks: u64, flags: &[&str]) -> Option<Vec<(u64, Vec<u8>)>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(blocks * BLOCK).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let made = std::process::Command::new("mkfs.ext4")
        .env("PATH", path)
        .args(["-q", "-F", "-b", "4096", "-J", "size=4"])
        .args(flags)
        .arg(file.path())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIP: {test}: it needs mkfs.ext4").unwrap();
        return None;
    }
    let bytes = std::fs::read(file.path()).unwrap();
    let blocks = bytes.chunks(BLOCK_BYTES).map(<[u8]>::to_vec);
    let numbered = (0..).zip(blocks);
    Some(
        numbered
            .filter(|(_, block)| block.iter().any(|&b| b != 0))
            .collect(),
    )
}

fn write_bytes(client: &mut Client, lba: u64, bytes: &[u8]) {
    let mut request = client.write_request(lba, &[1], false);
    request.frames.block_mut(0).copy_from_slice(bytes);
    client.call(request).unwrap();
}

#[test]
fn a_file_system_is_found_when_it_is_made_and_when_it_is_there() {
    let Some(image) = image("found", 8000, &[]) else {
        return;
    };
    let (medium, volume) = volume(12_000);
    let mut client = Client::new(&volume);
    eventually(&volume, "the first scan", |s| s.write_once.scans == 1);
    assert!(volume.stats().write_once.file_systems.is_empty());
    for (lba, bytes) in &image {
        write_bytes(&mut client, *lba, bytes);
    }
    let watched = |s: &VolumeStats| s.core["pool_blocks"] == 1024;
    eventually(&volume, "made", watched);
    let found = volume.stats().write_once.file_systems;
    let journal = &found[0].journal;
    assert_eq!((found.len(), found[0].stood_aside.as_ref()), (1, None));
    assert_eq!(
        journal.iter().map(|extent| extent.bytes).sum::<u64>(),
        4 << 20
    );

    // It works, and commits are seen.
    let place = journal[0].start / BLOCK;
    client.write(place + 7, &[41, 42]).unwrap();
    client.write(7000, &[41, 42]).unwrap();
    assert_eq!(core(&volume, "remapped_blocks"), 2);
    let mut commit = vec![0; BLOCK_BYTES];
    commit[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2]);
    write_bytes(&mut client, place + 9, &commit);
    write_bytes(&mut client, 7100, &commit);
    assert_eq!(volume.stats().write_once.commits, 1);
    volume.stop().unwrap();
    drop((client, volume));

    // Found when the volume is opened, gone when it is wiped, and back when it is restored.
    let volume = open(&medium);
    eventually(&volume, "opened", watched);
    let mut client = Client::new(&volume);
    let gone = |s: &VolumeStats| s.write_once.file_systems.is_empty() && s.core["pool_blocks"] == 0;
    client.discard(0, 1).unwrap();
    eventually(&volume, "wiped", gone);
    write_bytes(&mut client, 0, &image[0].1);
    eventually(&volume, "restored", watched);
    // A damaged file system is left alone, with a reason.
    let mut damaged = image[0].1.clone();
    damaged[1024 + 0x4C] ^= 0xff;
    write_bytes(&mut client, 0, &damaged);
    eventually(&volume, "damaged", |s| {
        let systems = &s.write_once.file_systems;
        s.core["pool_blocks"] == 0 && systems[0].stood_aside.is_some()
    });
    volume.stop().unwrap();
}

/// Write-once maps whole blocks of the volume. A file system with smaller ones is reported with that reason, and works as on any
/// disk.
#[test]
fn a_journal_of_smaller_blocks_is_not_watched_and_says_why() {
    for bytes in ["1024", "2048"] {
        let Some(image) = image("smaller", 8000, &["-b", bytes]) else {
            return;
        };
        let (_, volume) = volume(12_000);
        let mut client = Client::new(&volume);
        for (lba, bytes) in &image {
            write_bytes(&mut client, *lba, bytes);
        }
        let expected = format!("blocks of {bytes} bytes are smaller");
        // Until all of it is written, another reason may be reported.
        eventually(&volume, "found", |s| {
            let found = s.write_once.file_systems.first();
            let why = found.and_then(|found| found.stood_aside.as_ref());
            why.is_some_and(|why| why.contains(&expected))
        });
        assert_eq!(core(&volume, "pool_blocks"), 0);
        volume.stop().unwrap();
    }
}

/// The scan reads while clients write: whatever it saw, in the end it has the latest state.
#[test]
fn no_change_is_missed_while_scans_run() {
    let Some(image) = image("missed", 8000, &[]) else {
        return;
    };
    let (_, volume) = volume(12_000);
    let mut client = Client::new(&volume);
    for (lba, bytes) in &image {
        write_bytes(&mut client, *lba, bytes);
    }
    let superblock = &image[0].1;
    let mut random = common::Random(7);
    let deadline = Instant::now() + Duration::from_secs(6);
    let mut is_there = true;
    while Instant::now() < deadline {
        is_there = random.below(2) == 0;
        match is_there {
            true => write_bytes(&mut client, 0, superblock),
            false => client.write(0, &[3]).unwrap(),
        }
        // Around the time that a scan begins.
        std::thread::sleep(Duration::from_micros(45_000 + random.below(15_000)));
    }
    eventually(&volume, "the last state", |s| {
        (s.core["pool_blocks"] == 1024) == is_there
    });
    eventually(&volume, "the last scan", |s| !s.commits.looking);
    assert_eq!(core(&volume, "pool_blocks") == 1024, is_there);
    volume.stop().unwrap();
}

/// Adjacent copies are read back together; one that cannot be read does not affect the others.
#[test]
fn a_copy_that_cannot_be_read_costs_itself_alone() {
    let medium = Arc::new(FaultMedium::over_memory(3000, Plan::default()));
    create(&*medium);
    let as_medium: Arc<dyn Medium> = medium.clone();
    let volume = open(&as_medium);
    volume
        .set_journal(JOURNAL.0 * BLOCK, JOURNAL.1 * BLOCK)
        .unwrap();
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=20).collect();
    client.write(JOURNAL.0, &fills).unwrap();
    client.flush().unwrap();
    let bad = (0..3000).find(|&at| {
        let mut block = [0; BLOCK_BYTES];
        medium.read(Pba(at), &mut block).unwrap();
        block == block_of(9)
    });
    let bad = bad.unwrap();
    forget(&volume);
    medium.set_plan(Plan::default().with_rule(Rule {
        fault: Fault::ReadError,
        blocks: bad..bad + 1,
        skip: 0,
        times: 2,
    }));
    client.write(400, &fills).unwrap();
    assert_eq!(core(&volume, "remapped_blocks"), 19);
    assert_eq!(core(&volume, "compare_reads"), 20);
    assert_eq!(volume.stats().medium.compared.compare_reads, 1 + 20);
    assert_eq!(client.read(400, 20).unwrap(), fills);
    volume.stop().unwrap();
}

/// A recent write is compared in memory; one that has left memory is read back. Both are right.
#[test]
fn a_copy_is_read_back_only_when_its_frame_is_gone() {
    let (medium, volume) = volume(3000);
    volume
        .set_journal(JOURNAL.0 * BLOCK, JOURNAL.1 * BLOCK)
        .unwrap();
    let mut client = Client::new(&volume);
    let fills: Vec<u64> = (1..=20).collect();
    client.write(JOURNAL.0, &fills).unwrap();
    // Written as well, but nothing will be compared with these.
    client.write(900, &[70; 20]).unwrap();
    client.flush().unwrap();
    client.write(400, &fills[..10]).unwrap();
    let medium_stats = || volume.stats().medium;
    assert_eq!(core(&volume, "remapped_blocks"), 10);
    assert_eq!(
        (
            medium_stats().compared.compare_kept,
            medium_stats().compared.compare_reads
        ),
        (10, 0)
    );
    let free = volume.stats().memory;
    assert_eq!(free.write_frames, free.write_frames_free);
    forget(&volume);
    client.write(410, &fills[10..]).unwrap();
    assert_eq!(core(&volume, "remapped_blocks"), 20);
    assert_eq!(
        (
            medium_stats().compared.compare_kept,
            medium_stats().compared.compare_reads
        ),
        (10, 1)
    );
    // The same journal blocks with other contents, elsewhere in the log.
    client.write(JOURNAL.0, &[31; 20]).unwrap();
    client.flush().unwrap();
    client.write(400, &[31]).unwrap();
    client.write(401, &[2]).unwrap();
    assert_eq!(core(&volume, "remapped_blocks"), 21);
    assert_eq!(client.read(400, 4).unwrap(), [31, 2, 3, 4]);
    volume.stop().unwrap();
    drop((client, volume));
    assert_sound(&*medium);
}

/// Copies are compared with what is still in memory while the log's segments are overwritten again and again, and the collector
/// moves their blocks. All blocks look alike to the hash: an entry that outlived its block on the medium would be taken for it,
/// and a client would read another block's bytes.
#[test]
fn what_is_in_memory_is_what_is_on_the_medium() {
    const BLOCKS: u64 = 1100;
    const IN_JOURNAL: u64 = 20;
    let alike = |number: u64| {
        let mut block = block_of(number);
        block[..64].fill(1);
        block
    };
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2048));
    create(&*medium);
    let options = OpenOptions {
        // One frame for each block of the medium and more, so that none is reused for lack of frames.
        write_frames: 4096,
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    volume.set_journal(0, IN_JOURNAL * BLOCK).unwrap();
    volume
        .set_policy(policy(WriteOnce::Hash, WeakHash::Head64))
        .unwrap();
    let mut client = Client::new(&volume);
    let mut random = Random(7);
    let mut model = vec![[0; BLOCK_BYTES]; BLOCKS as usize];
    for _ in 0..40 {
        let mut put = |lba: u64, block: [u8; BLOCK_BYTES]| {
            let mut request = client.write_request(lba, &[0], false);
            request.frames.block_mut(0).copy_from_slice(&block);
            client.call(request).unwrap();
            model[lba as usize] = block;
        };
        // So few contents that a wrong copy often happens to equal what is written.
        for lba in 0..IN_JOURNAL {
            put(lba, alike(1 + random.below(2)));
        }
        // Until the collector has moved some of these, which then are in none of our frames.
        for _ in 0..random.below(2000) {
            let lba = IN_JOURNAL + random.below(BLOCKS - IN_JOURNAL);
            put(lba, block_of(random.below(u64::MAX)));
        }
        for _ in 0..40 {
            let lba = IN_JOURNAL + random.below(BLOCKS - IN_JOURNAL);
            put(lba, alike(1 + random.below(2)));
        }
        client.flush().unwrap();
        for (lba, block) in model.iter().enumerate() {
            let request = client.request(Op::Read, lba as u64, 1);
            let read = client.call(request).unwrap();
            assert!(read.frames.block(0) == block, "LBA {lba}");
        }
    }
    let stats = volume.stats();
    assert!(
        stats.medium.compared.compare_kept > 100,
        "{:?}",
        stats.medium
    );
    assert!(
        stats.medium.compared.compare_reads > 100,
        "{:?}",
        stats.medium
    );
    assert_eq!(stats.memory.write_frames, stats.memory.write_frames_free);
    volume.stop().unwrap();
    drop((client, volume));
    assert_sound(&*medium);
}

/// A file system's copies of vital blocks stay copies, from the first write after deduplication was switched on; before that the
/// volume does not look for them.
#[test]
fn copies_that_are_there_on_purpose_are_not_shared() {
    let Some(image) = image("copies", 8000, &["-g", "2048"]) else {
        return;
    };
    let (_, volume) = volume(12_000);
    let mut client = Client::new(&volume);
    for (lba, bytes) in &image {
        write_bytes(&mut client, *lba, bytes);
    }
    eventually(&volume, "the file system is found", |stats| {
        !stats.write_once.file_systems.is_empty()
    });
    volume
        .set_policy(Policy {
            dedup: true,
            ..Policy::default()
        })
        .unwrap();
    // After the superblocks of groups 1 and 3: the descriptors of all groups. Recognised only by their place.
    let mut shared_by = |lba| {
        let before = core(&volume, "dedup_blocks");
        write_bytes(&mut client, lba, &vec![9; BLOCK_BYTES]);
        core(&volume, "dedup_blocks") - before
    };
    assert_eq!([2049, 6145, 2049, 6145].map(&mut shared_by), [0; 4]);
    assert_eq!([8500, 8501].map(&mut shared_by), [0, 1]);
    volume.stop().unwrap();
}

/// mkfs writes the first superblock last: until then the copies of the descriptors are recognised by their contents.
#[test]
fn copies_of_descriptors_are_not_shared_before_their_file_system_is_known() {
    // Descriptors of 64 bytes and of 32; and, with `meta_bg`, those of 64 groups in the first, the second and the last of these
    // groups.
    let kinds: [(&[&str], u64); 3] = [
        (&["-g", "2048"], 2048),
        (&["-g", "2048", "-O", "^64bit"], 2048),
        (&["-g", "256", "-O", "meta_bg,^resize_inode"], 256),
    ];
    for (kind, group_blocks) in kinds {
        let Some(image) = image("copies before", 65 * 256, kind) else {
            return;
        };
        let (_, volume) = volume(40_000);
        let mut client = Client::new(&volume);
        volume
            .set_policy(Policy {
                dedup: true,
                ..Policy::default()
            })
            .unwrap();
        let copy = group_blocks + 1;
        let copied = &image.iter().find(|(lba, _)| *lba == copy).unwrap().1;
        let others = image
            .iter()
            .filter(|(lba, block)| *lba > copy && block == copied);
        let others: Vec<_> = others.map(|(lba, _)| *lba).collect();
        assert!(!others.is_empty(), "{kind:?}");
        for lba in [copy].into_iter().chain(others) {
            write_bytes(&mut client, lba, copied);
        }
        assert_eq!(core(&volume, "dedup_blocks"), 0, "{kind:?}");
        // Data is shared.
        for lba in [30_000, 30_001] {
            write_bytes(&mut client, lba, &vec![7; BLOCK_BYTES]);
        }
        assert_eq!(core(&volume, "dedup_blocks"), 1);
        volume.stop().unwrap();
    }
}
