//! What a scan of the device finds.

use super::{BLOCK, BLOCKS, Device, ext4};
use vellum_ext4::freed::Freed;
use vellum_ext4::journal::Layout;
use vellum_ext4::{Allowance, Source, Unreadable, scan};

/// The sound volume with the journal that the device has.
struct Scanned<'a> {
    volume: ext4::Volume,
    layout: Layout,
    device: &'a Device,
}

impl Source for Scanned<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        self.volume.read(offset, out)?;
        for (at, page) in (offset..)
            .step_by(BLOCK as usize)
            .zip(out.chunks_mut(BLOCK as usize))
        {
            let written = self.device.has.get(&(at / BLOCK));
            if let Some(bytes) = written.filter(|_| self.layout.block_at(at).is_some()) {
                page.copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

/// Opens the device, or scans it again: returns where the journal is, and a follower that has seen nothing.
pub fn follow(device: &Device, flushes: u64) -> (Layout, Freed) {
    let mut volume = ext4::mounted();
    let found = scan(&mut volume, BLOCKS);
    let found = &found.file_systems[0];
    let journal = found.journal.as_ref().unwrap();
    let layout = Layout::new(&journal.extents, 4096);
    let mut source = Scanned {
        volume,
        layout: layout.clone(),
        device,
    };
    let mut freed = Freed::new(found, &mut source, BLOCKS, &mut Allowance::to_follow(1)).unwrap();
    freed.flush(flushes);
    (layout, freed)
}
