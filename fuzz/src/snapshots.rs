//! Whatever is in the blocks that belong to snapshots, they are refused or their contents can be used.

use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::format::history::{History, Identity, Mark, Name, Number};
use vellum_core::snapshots::{Slot, Snapshots};

const BLOCKS: u64 = 400;
const KEPT: u64 = 600;

/// A block of the list, one of rows, and then the queries.
pub fn snapshots(bytes: &[u8]) {
    let mut snapshots = Snapshots::new(History::new(Lba(BLOCKS), KEPT));
    let (list, rest) = bytes.split_at(bytes.len().min(512));
    let (rows, orders) = rest.split_at(rest.len().min(1024));
    if snapshots.load_list(0, &block(list)).is_err() {
        return;
    }
    snapshots.load_rows(0, &block(rows));
    for order in orders.as_chunks::<2>().0 {
        carry_out(&mut snapshots, *order);
    }
    let (kept, room) = snapshots.room();
    assert!(kept <= room, "{kept} of {room}");
    let mut again = Snapshots::new(snapshots.history());
    let mut out = [0; BLOCK_BYTES];
    snapshots.encode_list(0, &mut out);
    assert!(again.load_list(0, &out).is_ok(), "what it writes, it takes");
}

fn block(bytes: &[u8]) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

fn carry_out(snapshots: &mut Snapshots, [what, which]: [u8; 2]) {
    let lba = Lba(u64::from(which));
    let newest = snapshots.newest();
    match (what % 4, newest) {
        (0, _) => {
            let name = Name::new(&format!("s{which}"));
            if let Ok((snapshot, place)) = name.map_or(Err(()), |name| {
                snapshots.propose(called(name)).map_err(drop)
            }) {
                snapshots.add(snapshot, place);
            }
        }
        (1, Some(number)) => {
            if let Ok(plan) = snapshots.plan(number, (lba.0..lba.0 + 3).map(Lba)) {
                snapshots.keep(plan);
            }
        }
        (2, Some(number)) => {
            let place = snapshots.place(number, lba);
            let all = snapshots.history().end();
            assert!(place < all, "{place} of {all}");
            let _ = snapshots.changed(number, None).count() + snapshots.kept_by(number).len();
        }
        (_, Some(number)) => delete(snapshots, number),
        (_, None) => {}
    }
}

fn delete(snapshots: &mut Snapshots, number: Number) {
    let mut from = Some(Slot::default());
    while let Some(slot) = from {
        from = snapshots.forget(number, slot, 7).next;
    }
    snapshots.remove(number);
}

fn called(name: Name) -> Identity {
    Identity {
        name,
        taken: 0,
        mark: Mark::default(),
    }
}
