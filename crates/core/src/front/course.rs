//! The course of a volume: its time, whether it runs, and whether it may promise anything.
//!
//! Time does not go back. A volume that is stopping does not run again. A permanent failure stays: a repeated sync could succeed
//! without the lost pages.

use crate::addr::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    /// Only reads are served, of the rest of a damaged volume; nothing is written.
    Reading,
    Stopping,
    Stopped,
}

/// The course of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    now: Nanos,
    mode: Mode,
    poisoned: bool,
}

impl Course {
    /// Starts the course of a volume, or of the rest of a damaged one.
    pub fn begin(is_rest: bool) -> Self {
        Self {
            now: Nanos(0),
            mode: match is_rest {
                true => Mode::Reading,
                false => Mode::Running,
            },
            poisoned: false,
        }
    }

    #[inline]
    pub fn on_time(&mut self, now: Nanos) {
        debug_assert!(now >= self.now, "time went backwards");
        self.now = now;
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// True if the volume runs and is not stopping.
    pub fn is_running(&self) -> bool {
        self.mode == Mode::Running
    }

    /// True if only reads are served.
    pub fn is_reading(&self) -> bool {
        self.mode == Mode::Reading
    }

    pub fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    pub fn is_stopping(&self) -> bool {
        self.mode == Mode::Stopping
    }

    /// Starts to stop. A volume that serves only reads has nothing to stop.
    pub fn stop(&mut self) {
        if self.is_running() {
            self.mode = Mode::Stopping;
        }
    }

    /// Notes that it has stopped.
    pub fn on_stopped(&mut self) {
        debug_assert!(self.is_stopping());
        self.mode = Mode::Stopped;
    }

    /// Stops accepting requests: from here on nobody knows what is durable.
    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// True if the volume runs and may promise something.
    pub fn is_sound(&self) -> bool {
        self.is_running() && !self.poisoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_stops_does_not_run_again() {
        let mut course = Course::begin(false);
        assert!(course.is_running() && course.is_sound());
        course.stop();
        assert!(course.is_stopping() && !course.is_sound());
        course.on_stopped();
        course.stop();
        assert!(!course.is_stopping() && !course.is_running());
    }

    #[test]
    fn a_poisoned_volume_stays_poisoned() {
        let mut course = Course::begin(false);
        course.poison();
        assert!(course.is_running() && !course.is_sound());
        course.stop();
        assert!(course.is_poisoned() && course.is_stopping());
    }

    #[test]
    fn the_rest_of_a_damaged_volume_is_read_and_never_stops() {
        let mut course = Course::begin(true);
        course.stop();
        assert!(course.is_reading() && !course.is_stopping() && !course.is_running());
    }

    #[test]
    #[should_panic(expected = "time went backwards")]
    fn time_does_not_go_back() {
        let mut course = Course::begin(false);
        course.on_time(Nanos(5));
        course.on_time(Nanos(5));
        assert_eq!(course.now(), Nanos(5));
        course.on_time(Nanos(4));
    }
}
