//! The scout's thread.

use super::source::VolumeSource;
use crate::orders;
use crate::shared::SharedVolume;
use std::sync::Arc;
use vellum_ext4::scan;
use vellum_watch::Classes;

/// The thread's main loop. The first scan has begun already.
pub(crate) fn run(shared: &Arc<SharedVolume>) {
    let scout = &shared.scout;
    loop {
        let mut source = VolumeSource::new(shared);
        let number = scout.freed.number();
        let found = Arc::new(scan(&mut source, shared.blocks));
        if scout.is_stopping() {
            return;
        }
        let follow = shared.choices.policy().semantics;
        let stop = || scout.is_stopping();
        let classes = Classes::new(&found, &mut source, shared.blocks, follow, &stop);
        orders::scanned(shared, &found, classes);
        scout
            .freed
            .follow(&found, &mut source, shared.blocks, number);
        if !scout.wait(|| shared.now()) {
            return;
        }
    }
}
