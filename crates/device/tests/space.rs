//! What a volume reports about the room that its contents take.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;

use common::{Client, create, open};
use std::sync::Arc;
use vellum_device::policy::Policy;
use vellum_medium::{Medium, MemoryMedium};

const CONTENTS: u64 = 300;

#[test]
fn saved_room_is_reported() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(4096));
    create(&*medium);
    let volume = open(&medium);
    let told = || {
        let (space, dedup) = (volume.stats().space, volume.stats().dedup);
        assert_eq!(
            space.mapped_bytes,
            space.unique_bytes + space.shared_bytes + space.packed_bytes
        );
        assert_eq!(space.saved_bytes, space.mapped_bytes - space.stored_bytes);
        let blocks = [space.mapped_bytes, space.unique_bytes, space.saved_bytes];
        (blocks.map(|bytes| bytes / 4096), dedup)
    };
    assert_eq!(told().1.index_percent, None);
    volume
        .set_policy(Policy {
            dedup: true,
            index_bytes: 1 << 20,
            ..Policy::default()
        })
        .unwrap();
    assert_eq!(told().1.hit_percent, None);
    let mut client = Client::new(&volume);
    for round in 0..3 {
        for content in 0..CONTENTS {
            let lba = round * CONTENTS + content;
            client.write(lba, &[content + 1]).unwrap();
        }
    }
    let (blocks, dedup) = told();
    assert_eq!(blocks, [3 * CONTENTS, 0, 2 * CONTENTS]);
    assert!((dedup.hit_percent.unwrap() - 200.0 / 3.0).abs() < 0.01);
    assert!(dedup.index_percent.unwrap() > 0.0);
    // Zeros take no room.
    client.write(3 * CONTENTS, &[0, CONTENTS + 1]).unwrap();
    assert_eq!(told().0, [3 * CONTENTS + 1, 1, 2 * CONTENTS]);
    // One of three owners leaves, and then another.
    client.discard(0, 1).unwrap();
    assert_eq!(told().0, [3 * CONTENTS, 1, 2 * CONTENTS - 1]);
    client.discard(CONTENTS, 1).unwrap();
    assert_eq!(told().0, [3 * CONTENTS - 1, 2, 2 * CONTENTS - 2]);
    volume.stop().unwrap();
}
