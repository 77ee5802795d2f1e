//! Blocks stored as their difference from what they replace (CSA-FS §3.2): written, read, moved, freed, damaged.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{
    Client, Random, assert_sound, create, open_under, set_superblock, small, superblock_of,
    wait_for, with_crc_sums,
};
use journal::{HOME, JOURNAL, mounted};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::format::SumKind;
use vellum_device::block::{BlockError, Op};
use vellum_device::pack::Compression;
use vellum_device::policy::{Deltas, Policy};
use vellum_device::stats::DeltaStats;
use vellum_device::{Haste, OpenError, OpenOptions, Sought, Volume};
use vellum_medium::{Medium, MemoryMedium};

/// Version `n` of the block at `lba`: 2000 bytes that do not repeat, a few of which depend on the version.
fn version(lba: u64, n: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut random = Random(lba << 32);
    for bytes in block[..2000].chunks_exact_mut(8) {
        bytes.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
    }
    let at = 8 * (n as usize % 200);
    block[at..at + 8].copy_from_slice(&(n << 20 | lba).to_le_bytes());
    block
}

struct Versions {
    client: Client,
    now: Vec<u64>,
}

impl Versions {
    fn new(volume: &Arc<Volume>, blocks: usize) -> Self {
        Self {
            client: Client::new(volume),
            now: vec![0; blocks],
        }
    }

    fn write(&mut self, lba: u64, n: u64) {
        let mut request = self.client.request(Op::Write { fua: false }, lba, 1);
        request
            .frames
            .block_mut(0)
            .copy_from_slice(&version(lba, n));
        self.client.call(request).unwrap();
        self.now[lba as usize] = n;
    }

    fn read(&mut self, lba: u64) -> Result<Vec<u8>, BlockError> {
        let request = self.client.request(Op::Read, lba, 1);
        let request = self.client.call(request)?;
        Ok(request.frames.block(0).to_vec())
    }

    fn verify(&mut self) {
        for lba in 0..self.now.len() as u64 {
            let expected = version(lba, self.now[lba as usize]);
            assert!(self.read(lba).unwrap() == expected, "LBA {lba}");
        }
    }
}

fn core(volume: &Volume, name: &str) -> u64 {
    volume.stats().core[name]
}

fn open(medium: &Arc<dyn Medium>, compression: Compression, deltas: Deltas) -> Arc<Volume> {
    let policy = Policy {
        compression,
        deltas,
        ..Policy::default()
    };
    open_under(medium, policy)
}

fn medium(blocks: u64) -> (Arc<MemoryMedium>, Arc<dyn Medium>) {
    let memory = Arc::new(MemoryMedium::new(blocks));
    create(&*memory);
    let medium: Arc<dyn Medium> = memory.clone();
    (memory, medium)
}

/// Writes `count` versions of each LBA, with a flush after each version.
fn write_versions(versions: &mut Versions, count: u64) {
    for n in 1..=count {
        write_version(versions, n);
    }
}

fn write_version(versions: &mut Versions, n: u64) {
    for lba in 0..versions.now.len() as u64 {
        versions.write(lba, n);
    }
    versions.client.flush().unwrap();
}

#[test]
fn a_small_change_is_written_as_a_delta() {
    let newer = Compression::ALL.map(|how| (how, SumKind::Xxh3));
    let older = [(Compression::ZSTD, SumKind::Crc32c)];
    for (how, sums) in newer.into_iter().chain(older) {
        let written = [Deltas::Off, Deltas::Packed].map(|deltas| {
            let (_, medium) = medium(6000);
            if sums == SumKind::Crc32c {
                with_crc_sums(&*medium);
            }
            let volume = open(&medium, how, deltas);
            let mut versions = Versions::new(&volume, 20);
            write_versions(&mut versions, 30);
            versions.verify();
            let bytes = volume.stats().medium.by_cause.data_bytes;
            let made = core(&volume, "delta_blocks");
            assert_eq!(made > 0, deltas.are_made(), "{how}: {made}");
            volume.stop().unwrap();
            drop(volume);
            assert_sound(&*medium);
            // From the medium alone; a later opening need not make deltas.
            let volume = open(&medium, Compression::Off, Deltas::Off);
            let now = versions.now.clone();
            let mut versions = Versions::new(&volume, 20);
            versions.now = now;
            versions.verify();
            let reads = core(&volume, "base_reads");
            assert_eq!(reads > 0, made > 0, "{how}: {reads}");
            // Bases are freed with their deltas.
            write_versions(&mut versions, 2);
            assert_eq!(core(&volume, "deltas"), 0);
            assert_eq!(core(&volume, "base_pages"), 0);
            assert_eq!(core(&volume, "live_blocks"), 20);
            bytes
        });
        assert!(written[1] * 4 < written[0], "{how}: {written:?}");
    }
}

#[test]
fn outcomes_of_possible_deltas_are_counted() {
    let (_, medium) = medium(6000);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    let mut versions = Versions::new(&volume, 20);
    let counted = || volume.stats().deltas;
    write_version(&mut versions, 1);
    assert_eq!(counted(), DeltaStats::default(), "nothing was replaced");
    // The first version of a block is not kept, because it may be the only one.
    write_version(&mut versions, 2);
    let second = DeltaStats {
        asked_blocks: 20,
        base_misses: 20,
        ..DeltaStats::default()
    };
    assert_eq!(counted(), second);
    write_version(&mut versions, 3);
    write_version(&mut versions, 4);
    let written = || DeltaStats {
        read_blocks: 0,
        base_reads: 0,
        ..counted()
    };
    let deltas = DeltaStats {
        asked_blocks: 60,
        base_hits: 40,
        stored_blocks: 40,
        whole_bytes: 40 * BLOCK_BYTES as u64,
        stored_bytes: core(&volume, "delta_bytes"),
        ..second
    };
    assert_eq!(written(), deltas);
    assert!((40..40 * 50).contains(&deltas.stored_bytes));
    versions.verify();
    // The volume itself reads where a partition table may be.
    assert!((20..40).contains(&core(&volume, "packed_blocks_read")));
    assert!((20..40).contains(&counted().read_blocks));
    assert!((20..40).contains(&counted().base_reads));
    // Noise is unlike the old contents, and is not stored as a part.
    for fill in [1, 2] {
        let mut request = versions.client.request(Op::Write { fua: false }, 7, 1);
        let mut random = Random(fill);
        for bytes in request.frames.block_mut(0).chunks_exact_mut(8) {
            bytes.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
        }
        versions.client.call(request).unwrap();
        versions.client.flush().unwrap();
    }
    let noise = DeltaStats {
        asked_blocks: 62,
        unfit_blocks: 1,
        base_hits: 41,
        long_blocks: 1,
        ..deltas
    };
    assert_eq!(written(), noise);
    drop(versions);
    volume.stop().unwrap();
}

#[test]
fn deltas_and_their_bases_are_moved_and_switched_off_and_on() {
    let (_, medium) = medium(2200);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    let mut versions = Versions::new(&volume, 1000);
    let mut random = Random(7);
    write_versions(&mut versions, 1);
    for n in 1..20_000 {
        // Some are written again and again.
        let among = if random.below(3) > 0 { 60 } else { 1000 };
        versions.write(random.below(among), n);
        if n % 61 == 0 {
            versions.client.flush().unwrap();
        }
        if n % 4000 == 0 {
            versions.verify();
            let mut policy = volume.policy();
            policy.deltas = match policy.deltas {
                Deltas::Off => Deltas::Packed,
                Deltas::Packed => Deltas::Log,
                Deltas::Log => Deltas::Off,
            };
            volume.set_policy(policy).unwrap();
        }
    }
    assert!(core(&volume, "medium_moved") > 0);
    assert!(core(&volume, "delta_blocks") > 1000);
    versions.verify();
    volume.stop().unwrap();
    let now = std::mem::take(&mut versions.now);
    drop((versions, volume));
    assert_sound(&*medium);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    let mut versions = Versions::new(&volume, 1000);
    versions.now = now;
    versions.verify();
    versions.client.discard(0, 1000).unwrap();
    assert_eq!(core(&volume, "live_blocks"), 0);
    assert_eq!(core(&volume, "deltas"), 0);
}

/// Deltas of sparse pages are stored again as deltas, or, in a log of deltas, merged back.
#[test]
fn deltas_of_sparse_pages_are_folded() {
    for (deltas, are_merged_back) in [(Deltas::Packed, false), (Deltas::Log, true)] {
        let (_, medium) = medium(4000);
        let volume = open(&medium, Compression::Lz4, deltas);
        let mut versions = Versions::new(&volume, 200);
        write_versions(&mut versions, 3);
        // Three of four blocks no longer have their delta in those pages.
        for lba in (0..200).filter(|lba| lba % 4 > 0) {
            versions.write(lba, 4);
        }
        // Reads from the medium: blocks in an open chunk do not count as deltas.
        let mut read_as_deltas = || {
            versions.client.flush().unwrap();
            let before = volume.stats().deltas.read_blocks;
            versions.verify();
            volume.stats().deltas.read_blocks - before
        };
        let before = read_as_deltas();
        assert!(before > 100, "{before}");
        volume.sweep(Sought::SparsePages, Haste::Now).unwrap();
        wait_for(&volume, "the fold ends", |volume| {
            volume.sweep_progress(Sought::SparsePages).ended == 1
        });
        let folded = core(&volume, "folded_blocks");
        assert!(folded >= 40, "{deltas:?}: {folded}");
        // Blocks in memory are not read as deltas, so if nothing is merged back there may be more of them.
        let merged_back = before.saturating_sub(read_as_deltas());
        assert_eq!(
            merged_back > 20,
            are_merged_back,
            "{deltas:?}: {merged_back}"
        );
        assert!(merged_back <= folded, "{merged_back} of {folded}");
        volume.stop().unwrap();
        let now = std::mem::take(&mut versions.now);
        drop((versions, volume));
        assert_sound(&*medium);
        let volume = open(&medium, Compression::Lz4, deltas);
        let mut versions = Versions::new(&volume, 200);
        versions.now = now;
        versions.verify();
    }
}

#[test]
fn a_journal_copy_stored_as_a_delta_serves_its_home_write() {
    let (_, medium) = medium(6000);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    volume.set_journal(0, 10 * BLOCK_BYTES as u64).unwrap();
    let mut versions = Versions::new(&volume, 200);
    // The same place of the journal is written again and again, and its contents are then written home.
    for n in 1..40 {
        let mut request = versions.client.request(Op::Write { fua: false }, 5, 1);
        request.frames.block_mut(0).copy_from_slice(&version(5, n));
        versions.client.call(request).unwrap();
        versions.client.flush().unwrap();
        let mut request = versions.client.request(Op::Write { fua: false }, 100, 1);
        request.frames.block_mut(0).copy_from_slice(&version(5, n));
        versions.client.call(request).unwrap();
        versions.client.flush().unwrap();
    }
    assert_eq!(core(&volume, "remapped_blocks"), 39);
    assert!(core(&volume, "delta_blocks") > 30);
    // The journal's contents are not encoded once more: only the copies requested a base.
    assert_eq!(volume.stats().deltas.asked_blocks, 38);
    assert!(versions.read(100).unwrap() == version(5, 39));
}

#[test]
fn a_block_committed_again_before_it_is_home_is_a_delta() {
    let (medium, volume, mut host) =
        mounted(|medium| open(medium, Compression::Lz4, Deltas::Packed));
    let home = u64::from(HOME);
    host.begin_log();
    wait_for(&volume, "the scan that this requests", |volume| {
        !volume.stats().commits.looking
    });
    let copies = |n| [version(home, n), version(home + 1, n)];
    let made = || core(&volume, "delta_blocks");
    let mut n = 0;
    // Home has nothing, and the log has not come round, so nothing else can be a base.
    wait_for(&volume, "copies are deltas", |_| {
        let before = made();
        n += 1;
        assert!(n < 90, "the log comes round");
        host.commit_blocks(copies(n).each_ref());
        made() == before + 2
    });
    let mut places = Vec::new();
    let mut commit = |host: &mut journal::Host, n| {
        let at = JOURNAL + u64::from(host.next_block());
        host.commit_blocks(copies(n).each_ref());
        places.push((at + 1, n));
    };
    // Once round the log: the bases of the first deltas are overwritten.
    let before = made();
    for n in n + 1..n + 130 {
        commit(&mut host, n);
        // Now and then it is written home, with the contents of that copy.
        if n % 16 == 0 {
            for (lba, block) in (home..).zip(copies(n)) {
                host.put(lba, &block);
            }
        }
    }
    assert!(made() > before + 200, "{} of 258", made() - before);
    assert!(core(&volume, "remapped_blocks") >= 14);
    volume.stop().unwrap();
    drop((host, volume));
    assert_sound(&*medium);
    let volume = open(&medium, Compression::Off, Deltas::Off);
    let mut client = Client::new(&volume);
    let mut read = |lba| {
        let request = client.request(Op::Read, lba, 1);
        let request = client.call(request).unwrap();
        request.frames.block(0).to_vec()
    };
    for (at, n) in places.split_off(30) {
        let [first, second] = copies(n);
        assert!(read(at) == first && read(at + 1) == second, "commit {n}");
    }
}

/// Damages the bytes of LBA 3 that no version has changed: they are only in its base. Returns where they are.
fn damage_base(memory: &dyn Medium) -> Vec<u64> {
    let pattern = &version(3, 0)[1900..1924];
    let mut block = vec![0; BLOCK_BYTES];
    let mut damaged = Vec::new();
    for at in 0..3000 {
        memory.read(Pba(at), &mut block).unwrap();
        if let Some(place) = block.windows(24).position(|bytes| bytes == pattern) {
            block[place + 3] ^= 1;
            memory.write(Pba(at), &block).unwrap();
            damaged.push(at);
        }
    }
    assert!(!damaged.is_empty());
    damaged
}

/// A client that overwrites an unreadable block must be able to read what it wrote.
#[test]
fn a_write_over_a_damaged_block_does_not_depend_on_it() {
    let (memory, medium) = medium(3000);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    let mut versions = Versions::new(&volume, 8);
    write_versions(&mut versions, 6);
    damage_base(&*memory);
    assert!(versions.read(3).is_err());
    versions.write(3, 7);
    versions.client.flush().unwrap();
    assert!(versions.read(3).unwrap() == version(3, 7));
    volume.stop().unwrap();
}

#[test]
fn a_damaged_base_is_an_error_for_its_deltas_and_never_data() {
    let (memory, medium) = medium(3000);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    let mut versions = Versions::new(&volume, 8);
    write_versions(&mut versions, 6);
    // A block that no model covers is written beside them.
    assert_eq!(core(&volume, "deltas"), 8);
    volume.stop().unwrap();
    let now = std::mem::take(&mut versions.now);
    drop((versions, volume));
    let damaged = damage_base(&*memory);
    // The page has no owner by now, but is checked all the same.
    let options = vellum_core::check::Options {
        data: true,
        ..Default::default()
    };
    assert!(!vellum_device::inspect::check_medium(&*medium, options).is_sound());
    let volume = open(&medium, Compression::Off, Deltas::Off);
    let mut versions = Versions::new(&volume, 8);
    let mut refused = 0;
    for lba in 0..8 {
        match versions.read(lba) {
            Ok(block) => assert!(block == version(lba, now[lba as usize]), "LBA {lba}"),
            Err(BlockError::Io(text)) => {
                let named = damaged.iter().any(|at| text.contains(&at.to_string()));
                assert!(named, "{text} names none of {damaged:?}");
                refused += 1;
            }
            Err(error) => unreachable!("{error}"),
        }
    }
    assert!(versions.read(3).is_err());
    assert!((1..8).contains(&refused), "{refused} of 8 are refused");
}

/// Promise 7: a volume that is not thin takes everything that its clients see, whatever is kept because deltas need it.
#[test]
fn a_full_volume_takes_overwrites_whatever_deltas_keep() {
    let (_, medium) = medium(2200);
    let volume = open(&medium, Compression::Lz4, Deltas::Packed);
    let blocks = volume.superblock().logical_blocks();
    let mut client = Client::new(&volume);
    // Contents that fill three quarters of a page, change a little, and are then different in every other place.
    let block = |lba: u64, n: u64| {
        let mut block = [0; BLOCK_BYTES];
        let mut random = Random(if n < 4 { lba << 32 } else { n << 48 | lba });
        let words = if n < 4 { 370 } else { 512 };
        for bytes in block.chunks_exact_mut(8).take(words) {
            bytes.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
        }
        block[8 * n as usize] ^= 1;
        block
    };
    let mut write = |lba: u64, n: u64| {
        let mut request = client.request(Op::Write { fua: false }, lba, 1);
        request.frames.block_mut(0).copy_from_slice(&block(lba, n));
        client.call(request).map(drop)
    };
    for n in 1..=5 {
        for lba in (0..blocks).filter(|lba| n < 4 || lba % 2 == n % 2) {
            write(lba, n).unwrap();
        }
    }
    assert!(core(&volume, "delta_blocks") > 0);
    let (bases, capacity) = (
        core(&volume, "base_pages"),
        core(&volume, "capacity_blocks"),
    );
    assert!(
        bases * 4 <= capacity - blocks,
        "{bases} of {capacity} for {blocks}"
    );
}

/// Makes the volume look like one from before deltas: it has no table of deltas, whose leaves belong to shared pages instead.
fn as_older_versions_made_it(medium: &dyn Medium) {
    let superblock = superblock_of(medium);
    let shared = superblock.shared_leaves() + superblock.delta_leaves();
    let values = [("shared_leaves", shared.into()), ("delta_leaves", 0)];
    set_superblock(medium, &values);
}

#[test]
fn a_volume_that_is_older_than_deltas_refuses_them() {
    let (_, medium) = medium(3000);
    as_older_versions_made_it(&*medium);
    let wanting = |deltas| Policy {
        deltas,
        ..Policy::default()
    };
    let options = OpenOptions {
        policy: wanting(Deltas::Packed),
        ..small()
    };
    let refused = Volume::open(Arc::clone(&medium), &options).map(drop);
    assert!(matches!(refused, Err(OpenError::NoDeltas)), "{refused:?}");
    let volume = open(&medium, Compression::Lz4, Deltas::Off);
    assert_eq!(volume.superblock().delta_leaves(), 0);
    let refused = volume.takes(&wanting(Deltas::Log));
    assert!(matches!(refused, Err(OpenError::NoDeltas)), "{refused:?}");
    volume.takes(&wanting(Deltas::Off)).unwrap();
    let mut versions = Versions::new(&volume, 20);
    write_versions(&mut versions, 3);
    versions.verify();
}
