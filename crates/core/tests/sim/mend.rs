//! The repairs that a scrub may request, whatever it has found. They change nothing that a client reads.

use vellum_core::addr::Leaf;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::{Input, Mend, Service};

pub fn of(superblock: &Superblock, number: u64) -> Input<'static> {
    let leaves = match superblock.layout() {
        Layout::Log => u64::from(superblock.leaves()),
        _ => superblock.directory_blocks(),
    };
    let tables: u64 = match superblock.layout() {
        Layout::Log => 1,
        _ => superblock.table_blocks().iter().sum(),
    };
    Input::Service(Service::Mend(match number % 4 {
        2 if number % 8 == 6 => Mend::Mirror((number / 8 % 2) as u32),
        0 => Mend::Leaf(Leaf((number / 4 % leaves.max(1)) as u32)),
        1 => Mend::Table(number / 4 % tables.max(1)),
        2 if number % 32 == 2 => Mend::Checkpoint,
        _ => Mend::Scrubbed {
            to: number as u32,
            keep: number % 16 == 3,
        },
    }))
}
