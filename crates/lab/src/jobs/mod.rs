//! Loads of several jobs on one drive, side by side or in sequence. Each has a part of the volume, a pace and a seed.

mod asking;
mod job;
mod lengths;

pub use asking::Asking;
pub use job::{Amount, Job, JobsError, Place, Placed, Way, When};
pub use lengths::{LENGTHS_MAX, Lengths};

use crate::rng::mix;

/// The most jobs of one load.
pub const JOBS_MAX: usize = 128;

/// The jobs of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Jobs {
    all: Vec<Job>,
    ramp_ns: u64,
}

impl Jobs {
    /// Jobs that run for `ramp_ns` before they are measured. None if there are none or too many, or one begins after a
    /// later one.
    #[must_use]
    pub fn new(all: Vec<Job>, ramp_ns: u64) -> Option<Self> {
        let in_order = |(at, job): (usize, &Job)| job.when.after.iter().all(|&other| other < at);
        let fits = (1..=JOBS_MAX).contains(&all.len()) && all.iter().enumerate().all(in_order);
        fits.then_some(Self { all, ramp_ns })
    }

    /// The jobs.
    #[must_use]
    pub fn all(&self) -> &[Job] {
        &self.all
    }

    /// How long they run before they are measured.
    #[must_use]
    pub fn ramp_ns(&self) -> u64 {
        self.ramp_ns
    }

    /// True if time limits how much they request.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        let timed = |job: &Job| job.when.runtime_ns.is_some();
        self.ramp_ns > 0 || self.all.iter().any(timed)
    }

    /// The fewest blocks that a volume must have for them.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let end = |job: &Job| {
            let Place {
                base, offset, size, ..
            } = job.place;
            base.saturating_add(offset.of(0)).saturating_add(size.of(0))
        };
        self.all.iter().map(end).max().unwrap_or(0)
    }

    /// Where each goes on a volume of this many blocks.
    ///
    /// # Errors
    /// When there is no room for one.
    pub fn on(&self, volume: u64) -> Result<Vec<Placed>, JobsError> {
        self.all.iter().map(|job| job.on(volume)).collect()
    }

    /// Describes the jobs.
    #[must_use]
    pub fn told(&self) -> String {
        let each: Vec<String> = self.all.iter().map(Job::told).collect();
        format!("fio (synthetic): {}", each.join("; "))
    }
}

/// The seed of one of several jobs.
pub(crate) fn seed_of(seed: u64, job: usize) -> u64 {
    mix(seed ^ mix(job as u64 ^ 0x10b5))
}
