//! A regular file or a block device.

use crate::completions::Completions;
use crate::error::MediumError;
use crate::io::{Done, Io};
use crate::lost::Lost;
use crate::medium::Medium;
use crate::open::{self, Engine, OpenError, OpenOptions, Prealloc, Tuning};
use crate::target::{DiscardBy, Target};
use crate::threads::Pool;
use crate::uring::Uring;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::Pba;

/// Threads that do I/O if io_uring cannot.
const THREADS_MAX: usize = 8;

/// The fewest blocks (64 KiB) that are worth a hole.
const HOLE_BLOCKS_MIN: u32 = 16;

/// The environment variable that forbids io_uring if it is set to anything but `0` or the empty string.
pub const NO_URING: &str = "VELLUM_NO_URING";

/// A regular file or a block device, locked until this is dropped.
#[derive(Debug)]
pub struct FileMedium {
    // Before the target, so that it is dropped first, after its I/O has ended.
    way: Way,
    target: Arc<Target>,
}

#[derive(Debug)]
enum Way {
    Uring(Box<Uring>),
    Threads {
        pool: Pool,
        completions: Arc<Completions>,
    },
}

impl FileMedium {
    /// Opens an existing file or device.
    ///
    /// # Errors
    /// If it does not exist, is not a file or block device, may not be opened, has an impossible size, or is in use.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, OpenError> {
        Self::open_tuned(path, options, &Tuning::default())
    }

    /// Opens an existing file or device with these tunings.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if io_uring is required but refused.
    pub fn open_tuned(
        path: impl AsRef<Path>,
        options: OpenOptions,
        tuning: &Tuning,
    ) -> Result<Self, OpenError> {
        Self::over(
            open::existing(path.as_ref(), None, options, tuning)?,
            tuning,
        )
    }

    /// Opens what is open already, whatever is at its path by now. The path is for errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_again(
        held: &File,
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<Self, OpenError> {
        let tuning = Tuning::default();
        let target = open::existing(path.as_ref(), Some(held), options, &tuning)?;
        Self::over(target, &tuning)
    }

    /// Makes a file of `bytes` bytes, durably, or uses that much of an existing block device (0: all).
    ///
    /// # Errors
    /// As [`open`](Self::open), and if a file already exists or there is no room for it. A file that could not
    /// be completed is removed again.
    pub fn create(
        path: impl AsRef<Path>,
        bytes: u64,
        prealloc: Prealloc,
    ) -> Result<Self, OpenError> {
        Self::create_tuned(path, bytes, prealloc, &Tuning::default())
    }

    /// Makes a file that gets the name `later` when it is complete, and has that name in errors.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_named(
        path: impl AsRef<Path>,
        later: impl AsRef<Path>,
        bytes: u64,
        prealloc: Prealloc,
    ) -> Result<Self, OpenError> {
        let tuning = Tuning::default();
        let made = open::new_named(path.as_ref(), later.as_ref(), bytes, prealloc, &tuning)?;
        Self::over(made, &tuning)
    }

    /// Makes a file with these tunings.
    ///
    /// # Errors
    /// As [`create`](Self::create), and if io_uring is required but refused.
    pub fn create_tuned(
        path: impl AsRef<Path>,
        bytes: u64,
        prealloc: Prealloc,
        tuning: &Tuning,
    ) -> Result<Self, OpenError> {
        Self::over(open::new(path.as_ref(), bytes, prealloc, tuning)?, tuning)
    }

    fn over(target: Target, tuning: &Tuning) -> Result<Self, OpenError> {
        let target = Arc::new(target);
        let forbidden = std::env::var_os(NO_URING).is_some_and(|v| !v.is_empty() && v != "0");
        let way = match tuning.engine {
            Engine::Auto if forbidden => Self::threads(&target),
            Engine::Auto => match Uring::new(&target) {
                Ok(uring) => Way::Uring(Box::new(uring)),
                Err(_) => Self::threads(&target),
            },
            Engine::Uring => match Uring::new(&target) {
                Ok(uring) => Way::Uring(Box::new(uring)),
                Err(source) => {
                    let path = target.name.clone().into();
                    return Err(OpenError::Io {
                        operation: "set up io_uring for",
                        path,
                        source,
                    });
                }
            },
            Engine::Threads => Self::threads(&target),
        };
        Ok(Self { way, target })
    }

    fn threads(target: &Arc<Target>) -> Way {
        let completions = Arc::new(Completions::default());
        let sink = Arc::clone(&completions);
        let pool = Pool::new(
            Arc::clone(target),
            THREADS_MAX,
            Box::new(move |done| sink.push(done)),
        );
        Way::Threads { pool, completions }
    }

    /// How it does I/O: `io_uring` or `threads`.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self.way {
            Way::Uring(_) => "io_uring",
            Way::Threads { .. } => "threads",
        }
    }

    /// True if I/O certainly bypasses the page cache. That direct I/O was requested is not enough.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.target.direct
    }
}

impl Medium for FileMedium {
    fn name(&self) -> &str {
        &self.target.name
    }

    fn blocks(&self) -> u64 {
        self.target.blocks()
    }

    fn lengthen(&self, blocks: u64) -> Result<(), MediumError> {
        self.target.lengthen(blocks)
    }

    fn shorten(&self, blocks: u64) -> Result<bool, MediumError> {
        self.target.shorten(blocks)
    }

    fn wants_discard(&self) -> bool {
        self.target.writable && self.target.discard != DiscardBy::Nothing
    }

    /// Each hole in a file is an extent in its file system, and costs an allocation when it is filled.
    fn discard_blocks_min(&self) -> u32 {
        match self.target.discard {
            DiscardBy::Ioctl => 1,
            _ => HOLE_BLOCKS_MIN,
        }
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        match &self.way {
            Way::Uring(uring) => uring.submit(ios),
            Way::Threads { pool, .. } => pool.submit(ios.drain(..)),
        }
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        let result = self.target.perform(&io);
        Ok(self.target.ended(io, result))
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        match &self.way {
            Way::Uring(uring) => uring.wait(done, timeout),
            Way::Threads { completions, .. } => completions.wait(done, timeout),
        }
    }

    fn wake(&self) {
        match &self.way {
            Way::Uring(uring) => uring.wake(),
            Way::Threads { completions, .. } => completions.wake(),
        }
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.target.read(at, bytes)
    }

    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        self.target.write(at, bytes)
    }

    fn write_zeros(&self, at: Pba, blocks: u64) -> Result<(), MediumError> {
        self.target.write_zeros(at, blocks)
    }

    fn next_data(&self, at: Pba) -> Pba {
        self.target.next_data(at)
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.target.sync()
    }

    fn drop_cache(&self) -> Result<(), MediumError> {
        self.target.drop_cache()
    }

    fn lost(&self) -> Lost {
        self.target.lost(false).unwrap_or_default()
    }
}
