//! The fuzz targets, over some thousands of seeded inputs each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod ext4;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, below: u64) -> Vec<u8> {
        (0..self.next() % below)
            .map(|_| self.next() as u8)
            .collect()
    }
}

#[test]
fn a_scan_answers_whatever_it_is_given() {
    for kind in [0, 1] {
        let sound = ext4::scan_changed(&[kind]).unwrap();
        let [found] = &sound.file_systems[..] else {
            panic!("{sound:?}");
        };
        let journal = found.journal.as_ref().unwrap_or_else(|e| panic!("{e}"));
        assert!(!journal.extents.is_empty());
    }
    let mut rng = Rng(1);
    let (mut trusted, mut refused) = (0, 0);
    for _ in 0..6000 {
        let mut bytes = vec![rng.next() as u8];
        for _ in 0..=rng.next() % 3 {
            // Fields are at the start of their structures, which begin at the start of pages or of their second KiB.
            let at = (rng.next() % 160 + 1024 * (rng.next() % 4)) as u16;
            let value = match rng.next() % 4 {
                0 => 0,
                1 => 0xFF,
                2 => 1 << (rng.next() % 8),
                _ => rng.next() as u8,
            };
            bytes.push(rng.next() as u8);
            bytes.extend(at.to_le_bytes());
            bytes.extend([value, rng.next() as u8]);
        }
        let found = ext4::scan_changed(&bytes).unwrap();
        match found
            .file_systems
            .first()
            .map(|found| found.journal.is_ok())
        {
            Some(true) => trusted += 1,
            _ => refused += 1,
        }
    }
    assert!(trusted > 100 && refused > 100, "{trusted}, {refused}");
}

#[test]
fn a_follower_answers_whatever_it_is_given() {
    let mut rng = Rng(2);
    let mut said = 0;
    for _ in 0..20_000 {
        said += ext4::journal(&rng.bytes(2000));
    }
    assert!(said > 1000, "{said}");
}

#[test]
fn commit_blocks_are_judged_whatever_is_written() {
    let mut rng = Rng(4);
    let mut complete = 0;
    for _ in 0..20_000 {
        let mut bytes = rng.bytes(400);
        for op in bytes.chunks_exact_mut(4) {
            // Places and numbers that collide.
            (op[1], op[2], op[3]) = (op[1] % 16, 0, op[3] % 4);
        }
        complete += ext4::commits(&bytes);
    }
    assert!(complete > 1000, "{complete}");
}

#[test]
fn a_follower_of_free_space_answers_whatever_it_is_given() {
    let mut rng = Rng(3);
    let mut dropped = 0;
    for _ in 0..4000 {
        dropped += ext4::freed(&rng.bytes(600));
    }
    assert!(dropped > 1000, "{dropped}");
}
