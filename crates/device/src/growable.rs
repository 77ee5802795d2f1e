//! A volume that may become larger or smaller while it is served.
//!
//! It stops, changes at rest, and is opened again with the same memory. Requests that arrive meanwhile wait; to clients it is one
//! volume all the time. Its counters begin anew. A snapshot or a clone that is open belongs to the volume that stops, so the
//! volume keeps its size while one is.
//!
//! A volume that stops refuses what waits for another request, such as a commit block, and a file system that sees this gives up. So
//! it stops when nothing waits.

use crate::block::{BlockDevice, BlockError, Extent, Replies, Request};
use crate::frames::FramePool;
use crate::grow::{self, GrowError, NewSize};
use crate::layouts;
use crate::limits::RESIZE_PATIENCE;
use crate::options::{OpenError, OpenOptions, StopError};
use crate::shrink::{self, ShrinkError};
use crate::volume::Volume;
use parking_lot::{RwLock, RwLockWriteGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::addr::Lba;
use vellum_core::format::shrunk::ended_at;
use vellum_core::format::superblock::Superblock;
use vellum_medium::{Lost, Medium};

/// See the module.
pub struct Growable {
    medium: Arc<dyn Medium>,
    frames: Arc<FramePool>,
    /// Locked for reading by each submission, for as long as it takes.
    now: RwLock<Arc<Volume>>,
}

impl Growable {
    /// Opens a volume, like [`Volume::open`].
    ///
    /// # Errors
    /// As for that.
    pub fn open(medium: Arc<dyn Medium>, options: &OpenOptions) -> Result<Self, OpenError> {
        let volume = Volume::open(Arc::clone(&medium), options)?;
        Ok(Self {
            medium,
            frames: Arc::clone(volume.frames()),
            now: RwLock::new(Arc::new(volume)),
        })
    }

    /// The current volume, until it grows or shrinks.
    #[must_use]
    pub fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.now.read())
    }

    /// Damage to its medium that reads and writes do not show.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.medium.lost()
    }

    /// Holds requests up when none that was handed over waits any more, or when waiting for that is in vain: it takes too long, or the
    /// medium has no room.
    fn held_up(&self) -> RwLockWriteGuard<'_, Arc<Volume>> {
        let began = Instant::now();
        loop {
            let now = self.now.write();
            if now.is_quiet() || now.lacks_room() || began.elapsed() >= RESIZE_PATIENCE {
                return now;
            }
            // What waits may need a request that is still to come.
            drop(now);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes it larger. It is opened again with `options`, but with its old memory; also when it did not grow. What still waits in
    /// the core after ten seconds is refused: it may be waiting for the room that growing gives.
    ///
    /// # Errors
    /// When clients would see less, the medium cannot hold it or has no room, or a commit block still waits: then it was not stopped.
    /// When the medium fails: if the volume cannot be opened again, all requests are refused from then on.
    pub fn grow(&self, size: NewSize, options: &OpenOptions) -> Result<Superblock, GrowError> {
        let mut now = self.held_up();
        if now.read_only {
            return Err(GrowError::ReadOnly);
        }
        if now.lacks_room() {
            return Err(GrowError::NoRoom);
        }
        // Before it is stopped: an open snapshot or clone belongs to the volume that stops.
        if let Some(name) = now.in_use() {
            return Err(GrowError::InUse(name));
        }
        // It would go on without what it commits, which may still come.
        if let Some(waits) = now.uncommitted() {
            return Err(waits.into());
        }
        grow::lengthen(&*self.medium, now.superblock(), size)?;
        self.anew(&mut now, options, || {
            grow::grow_stopped(&*self.medium, size.logical_blocks)
        })
    }

    /// Makes it smaller: clients see `blocks` of it from then on. It is opened again with `options`, but with its old memory; also
    /// when it did not shrink.
    ///
    /// # Errors
    /// When something lies behind that end, or one of the journals in `options` does, or the medium has no room: then it was not
    /// stopped. When the medium fails: if the volume cannot be opened again, all requests are refused from then on.
    pub fn shrink(&self, blocks: u64, options: &OpenOptions) -> Result<Superblock, ShrinkError> {
        let mut now = self.held_up();
        if now.read_only {
            return Err(ShrinkError::ReadOnly);
        }
        if now.lacks_room() {
            return Err(ShrinkError::NoRoom);
        }
        if !now.is_quiet() {
            return Err(ShrinkError::Busy);
        }
        if let Some(name) = now.in_use() {
            return Err(ShrinkError::InUse(name));
        }
        let next = ended_at(now.superblock(), blocks)?;
        layouts::check_choice(
            &next,
            &options.policy,
            options.persistence,
            &options.journals,
        )?;
        shrink::may_end(&now, blocks)?;
        self.anew(&mut now, options, || {
            shrink::end_stopped(&*self.medium, blocks)
        })
    }

    /// Stops the volume, changes it at rest, and opens it again.
    fn anew<E: From<StopError> + From<OpenError>>(
        &self,
        now: &mut Arc<Volume>,
        options: &OpenOptions,
        change: impl FnOnce() -> Result<Superblock, E>,
    ) -> Result<Superblock, E> {
        let frames = Arc::clone(&self.frames);
        frames.await_next(true);
        let no_room = || {
            let told = "no room below the volume for what is to be written before it gets its new size: all \
                        requests wait until some is freed there";
            now.shared.events.tell("resize", told.to_owned());
        };
        let stopped = now.stop_telling(no_room);
        let opened = stopped.map_err(E::from).and_then(|()| {
            let changed = change();
            // The next volume does not refuse what the stopped one has refused.
            frames.await_next(false);
            let medium = Arc::clone(&self.medium);
            let next = Volume::open_with(medium, options, Arc::clone(&frames))?;
            Ok((next, changed))
        });
        if opened.is_err() {
            frames.await_next(false);
            frames.refuse_writes(Some(BlockError::Stopping));
        }
        let (next, changed) = opened?;
        *now = Arc::new(next);
        changed
    }
}

impl BlockDevice for Growable {
    fn blocks(&self) -> u64 {
        self.now.read().blocks()
    }

    fn read_only(&self) -> bool {
        self.now.read().read_only()
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.frames
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        self.now.read().submit(requests, replies);
    }

    fn refused(&self, lba: Lba, blocks: u64, why: &BlockError) {
        self.now.read().refused(lba, blocks, why);
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        self.now.read().extents(lba, blocks, max)
    }
}
