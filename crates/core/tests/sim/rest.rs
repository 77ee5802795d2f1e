//! What happens to a volume between two of its lives.

use super::driver::Failure;
use super::medium::Rot;
use super::open;
use super::world::World;
use vellum_core::format::areas::Layout;

impl World {
    /// What happens to a volume before its next life.
    pub(super) fn at_rest(&mut self) -> Result<(), Failure> {
        self.shrink()?;
        self.shorten()?;
        self.grow()?;
        self.rot_spare_blocks();
        Ok(())
    }

    /// Makes blocks of fingerprints and counts rot. They read as before when the life ends, unless it has written them.
    fn rot_spare_blocks(&mut self) {
        if !self.faults || self.volume.layout == Layout::Log || !self.rng.percent(30) {
            return;
        }
        for _ in 0..self.rng.range(1, 3) {
            if let Some(at) = open::spare_block(&self.medium, &mut self.rng) {
                let rot = Rot::any(&mut self.rng, self.medium.blocks());
                self.medium.rot.insert(at, rot);
            }
        }
    }
}
