//! An encrypted medium: the bytes below it, and the copies of its header after an interrupted write.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Memory, finish, run};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::envelope::{COPIES, Envelope, Header, START, Secret, Slot, VolumeKey, wipe};
use vellum_medium::{EncryptedMedium, Fault, FaultMedium, Io, Kind, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 64;

fn below() -> Arc<MemoryMedium> {
    Arc::new(MemoryMedium::new(START + BLOCKS))
}

fn header(uuid: u8) -> Header {
    Header::new([uuid; 16])
}

fn find(medium: &dyn Medium) -> Option<Envelope> {
    Envelope::find(medium, || false).unwrap()
}

#[test]
fn only_encrypted_bytes_are_below_and_the_writer_s_memory_stays_unchanged() {
    let below = below();
    let medium = EncryptedMedium::new(below.clone(), &VolumeKey::random().unwrap());
    assert_eq!(medium.blocks(), BLOCKS);
    let mut memory = Memory::new(8);
    (0..8).for_each(|i| memory.block_mut(i).fill(0x5a));
    let ios = vec![
        memory.io(7, Kind::Write { durable: true }, 3, 0, 2),
        memory.io(8, Kind::Write { durable: false }, 30, 4, 4),
    ];
    let mut back = run(&medium, ios);
    back.sort_by_key(|done| done.io.token);
    let was: Vec<_> = back
        .iter()
        .map(|done| (done.io.token, done.io.at))
        .collect();
    assert_eq!(was, [(7, Pba(3)), (8, Pba(30))], "as they were submitted");
    assert!((0..8).all(|i| memory.block(i) == &[0x5a; BLOCK_BYTES]));
    medium.write(Pba(50), &[0x5a; BLOCK_BYTES]).unwrap();
    let mut raw = vec![0; (START + BLOCKS) as usize * BLOCK_BYTES];
    below.read(Pba(0), &mut raw).unwrap();
    assert!(!raw.windows(16).any(|bytes| bytes == [0x5a; 16]));
    let written: Vec<u64> = (0..START + BLOCKS)
        .filter(|&at| raw[at as usize * BLOCK_BYTES..][..BLOCK_BYTES] != [0; BLOCK_BYTES])
        .map(|at| at - START)
        .collect();
    assert_eq!(written, [3, 4, 30, 31, 32, 33, 50]);
    let mut read = vec![1; BLOCKS as usize * BLOCK_BYTES];
    medium.read(Pba(0), &mut read).unwrap();
    for (at, block) in read.chunks_exact(BLOCK_BYTES).enumerate() {
        let byte = if written.contains(&(at as u64)) {
            0x5a
        } else {
            0
        };
        assert!(block.iter().all(|&b| b == byte), "block {at}");
    }
}

#[test]
fn failed_operations_come_back_as_they_were_submitted() {
    let medium = EncryptedMedium::new(below(), &VolumeKey::random().unwrap());
    let mut memory = Memory::new(1);
    for at in [BLOCKS, u64::MAX - 1, u64::MAX] {
        for kind in [
            Kind::Write { durable: false },
            Kind::Read,
            Kind::Discard { blocks: 1 },
        ] {
            let io = match kind {
                Kind::Discard { .. } => Io::new(9, kind, Pba(at)),
                _ => memory.io(9, kind, at, 0, 1),
            };
            medium.submit(&mut vec![io]);
            let done = finish(&medium, 1);
            assert!(done[0].result.is_err());
            assert_eq!((done[0].io.token, done[0].io.at), (9, Pba(at)));
        }
        assert!(medium.read(Pba(at), &mut [0; BLOCK_BYTES]).is_err());
        assert!(medium.write(Pba(at), &[0; BLOCK_BYTES]).is_err());
        assert!(medium.write_zeros(Pba(at), 1).is_err());
    }
}

#[test]
fn a_header_is_the_old_or_the_new_after_any_cut() {
    let writes_of = |medium: &FaultMedium, envelope: &mut Envelope| {
        envelope
            .replace(medium, envelope.header().with_slot(0, None))
            .is_ok()
    };
    for damaged in [None, Some(0), Some(1)] {
        for cut_after in 0..3 {
            let below = below();
            Envelope::new(header(1))
                .replace(&*below, header(1))
                .unwrap();
            if let Some(copy) = damaged {
                below.write(Pba(COPIES[copy]), &[9; BLOCK_BYTES]).unwrap();
            }
            let mut envelope = find(&*below).unwrap();
            assert_eq!(envelope.is_whole(), damaged.is_none());
            // The interrupted write leaves half of its block.
            let order = if envelope.is_whole() || damaged == Some(1) {
                [1, 0]
            } else {
                [0, 1]
            };
            let plan = order.get(cut_after).map_or_else(Plan::default, |&copy| {
                let block = COPIES[copy];
                Plan::default().with_every(Fault::WriteError, block..block + 1)
            });
            let fault = FaultMedium::new(Box::new(below.clone()), plan);
            let done = writes_of(&fault, &mut envelope);
            assert_eq!(done, cut_after == 2);
            drop(fault);
            if let Some(&copy) = order.get(cut_after) {
                let mut half = vec![0; BLOCK_BYTES];
                below.read(Pba(COPIES[copy]), &mut half).unwrap();
                half[BLOCK_BYTES / 2..].fill(0xee);
                below.write(Pba(COPIES[copy]), &half).unwrap();
            }
            let mut found = find(&*below).expect("one copy is whole");
            assert_eq!(found.header().generation(), u64::from(cut_after > 0));
            found.repair(&*below).unwrap();
            assert!(find(&*below).unwrap().is_whole());
        }
    }
}

#[test]
fn the_newer_copy_counts_and_the_older_is_replaced() {
    let below = below();
    let old = header(1);
    let new = old.with_slot(0, None);
    for (first, second) in [(&old, &new), (&new, &old)] {
        below.write(Pba(COPIES[0]), &first.bytes()).unwrap();
        below.write(Pba(COPIES[1]), &second.bytes()).unwrap();
        let mut found = find(&*below).unwrap();
        assert_eq!((found.header(), found.is_whole()), (&new, false));
        found.repair(&*below).unwrap();
        assert!(find(&*below).unwrap().is_whole());
    }
}

#[test]
fn a_block_that_a_client_wrote_to_a_plain_volume_is_no_header() {
    let below = below();
    below.write(Pba(COPIES[1]), &header(1).bytes()).unwrap();
    assert!(Envelope::find(&*below, || true).unwrap().is_none());
    assert!(
        Envelope::find(&*below, || false).unwrap().is_some(),
        "the first copy is lost"
    );
    wipe(&*below).unwrap();
    assert!(find(&*below).is_none());
    // With two damaged headers it is not a plain medium.
    below.write(Pba(0), &header(1).bytes()).unwrap();
    let mut block = header(1).bytes();
    block[100] ^= 1;
    below.write(Pba(0), &block).unwrap();
    assert!(Envelope::find(&*below, || false).is_err());
}

#[test]
fn a_small_medium_has_none() {
    assert!(find(&MemoryMedium::new(16)).is_none());
    assert!(find(&MemoryMedium::new(START)).is_none());
}

#[test]
fn a_new_secret_opens_what_was_written_before_it() {
    let secret = |byte| Secret::key_file(vec![byte; 32]).unwrap();
    let below = below();
    let key = VolumeKey::random().unwrap();
    let mut envelope = Envelope::new(header(1));
    let first = header(1).with_slot(0, Some(Slot::new(&key, &secret(1)).unwrap()));
    envelope.replace(&*below, first).unwrap();
    EncryptedMedium::new(below.clone(), &key)
        .write(Pba(5), &[7; BLOCK_BYTES])
        .unwrap();
    let (slot, key) = envelope.header().open(&secret(1)).unwrap().unwrap();
    let changed = envelope
        .header()
        .with_slot(slot, Some(Slot::new(&key, &secret(2)).unwrap()));
    envelope.replace(&*below, changed).unwrap();
    let found = find(&*below).unwrap();
    assert!(found.header().open(&secret(1)).unwrap().is_none());
    let (_, key) = found.header().open(&secret(2)).unwrap().unwrap();
    let mut bytes = [0; BLOCK_BYTES];
    EncryptedMedium::new(below, &key)
        .read(Pba(5), &mut bytes)
        .unwrap();
    assert_eq!(bytes, [7; BLOCK_BYTES]);
}
