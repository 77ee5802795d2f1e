//! The fuzz targets of the format, with some thousands of seeded mutations each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::type_complexity,
    reason = "a test"
)]

#[path = "../../../fuzz/src/disk.rs"]
mod disk;
#[path = "../../../fuzz/src/format.rs"]
mod format;
#[path = "../../../fuzz/src/life.rs"]
mod life;
#[path = "../../../fuzz/src/tables.rs"]
mod tables;

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

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A number that may trip a decoder.
    fn number(&mut self) -> u32 {
        match self.below(5) {
            0 => self.next() as u32,
            1 => u32::MAX - self.below(4) as u32,
            2 => 1 << self.below(32),
            3 => self.below(2048) as u32,
            _ => self.below(4) as u32,
        }
    }
}

#[test]
fn decoders_answer_whatever_they_are_given() {
    let mut rng = Rng(1);
    for (name, target, seed) in format::seeds() {
        target(&seed);
        for round in 0..3000 {
            let mut bytes = seed.clone();
            for _ in 0..=rng.below(4) {
                // Fields are at the start; records and tables follow them.
                let room = if rng.below(2) == 0 { 128 } else { bytes.len() };
                let at = rng.below(room.min(bytes.len()) - 3);
                let at = if rng.below(4) == 0 { at } else { at & !3 };
                let number = rng.number();
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            if rng.below(50) == 0 {
                bytes.truncate(rng.below(bytes.len()));
            }
            let ended = std::panic::catch_unwind(|| target(&bytes));
            assert!(ended.is_ok(), "{name}, mutation {round}");
        }
    }
}

fn some_edits(rng: &mut Rng) -> Vec<u8> {
    let edits = (0..=rng.below(6)).flat_map(|_| {
        let place = rng.next() as u8;
        let room = if rng.below(3) == 0 { 4093 } else { 160 };
        let offset = rng.below(room) as u16 & !3;
        let [low, high] = offset.to_le_bytes();
        let value = rng.number().to_le_bytes();
        let used = rng.next() as u8;
        [
            place, low, high, used, value[0], value[1], value[2], value[3],
        ]
    });
    edits.collect()
}

#[test]
fn a_rescue_answers_whatever_is_on_the_medium() {
    assert!(format::rescued(&[]), "sound before it is mutated");
    // A superblock with room for snapshots that loses their kept blocks.
    let with_snapshots = [
        [0, 62, 0, 0, 0, 0, 0, 1],
        [3, 0, 0, 0, 255, 255, 1, 39],
        [1, 255, 255, 255, 255, 255, 255, 255],
        [255; 8],
    ];
    format::rescued(with_snapshots.as_flattened());
    let mut rng = Rng(4);
    let found = (0..1500).filter(|_| format::rescued(&some_edits(&mut rng)));
    let found = found.count();
    assert!(
        (1000..=1500).contains(&found),
        "{found} of 1500 were rescued"
    );
}

#[test]
fn recovery_and_the_check_answer_whatever_is_on_the_medium() {
    assert!(
        format::volume(&[]),
        "the volume is sound before it is mutated"
    );
    let mut rng = Rng(2);
    let mut opened = 0;
    for _ in 0..2000 {
        let edits = some_edits(&mut rng);
        opened += u32::from(format::volume(&edits));
    }
    assert!(
        (200..1990).contains(&opened),
        "{opened} of 2000 still opened"
    );
}

#[test]
fn tables_answer_whatever_is_in_them() {
    use vellum_core::format::SumKind::{Crc32c, Xxh3};
    use vellum_core::format::areas::Layout::{Ordered, Shadow};
    let mut rng = Rng(3);
    for (layout, sums) in [(Ordered, Crc32c), (Shadow, Crc32c), (Shadow, Xxh3)] {
        let volume = |edits: &[u8]| tables::volume(layout, sums, edits);
        assert!(volume(&[]), "sound before it is mutated");
        let mut opened = 0;
        for _ in 0..1500 {
            let edits: Vec<u8> = (0..=rng.below(5))
                .flat_map(|_| {
                    let place = rng.below(16) as u8;
                    let room = if rng.below(2) == 0 { 4093 } else { 200 };
                    let offset = rng.below(room) as u16 & !1;
                    let [low, high] = offset.to_le_bytes();
                    let value = match rng.below(3) {
                        0 => rng.number(),
                        _ => rng.below(600) as u32,
                    };
                    let value = value.to_le_bytes();
                    let used = rng.next() as u8;
                    [
                        place, low, high, used, value[0], value[1], value[2], value[3],
                    ]
                })
                .collect();
            opened += u32::from(volume(&edits));
        }
        assert!(
            (100..1499).contains(&opened),
            "{layout:?}: {opened} of 1500 still opened"
        );
    }
}
