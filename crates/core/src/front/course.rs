//! Where a volume is in its course: what time it is, whether it runs, and whether it may promise anything.
//!
//! Time does not go back. What is stopping does not run again. Whatever fails for good, fails for good: a sync that is tried again
//! could succeed without the pages that were lost.

use crate::addr::Nanos;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    /// What is left of a damaged volume is read; nothing moves.
    Reading,
    Stopping,
    Stopped,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    now: Nanos,
    mode: Mode,
    poisoned: bool,
}

impl Course {
    /// The beginning, with a volume, or with what is left of one.
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

    /// Whether nothing is to be stopped.
    pub fn is_running(&self) -> bool {
        self.mode == Mode::Running
    }

    /// Whether only reads are served.
    pub fn is_reading(&self) -> bool {
        self.mode == Mode::Reading
    }

    pub fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    pub fn is_stopping(&self) -> bool {
        self.mode == Mode::Stopping
    }

    /// What is under way is to be ended. Where nothing but reads is served, nothing is.
    pub fn stop(&mut self) {
        if self.is_running() {
            self.mode = Mode::Stopping;
        }
    }

    /// It has been.
    pub fn on_stopped(&mut self) {
        debug_assert!(self.is_stopping());
        self.mode = Mode::Stopped;
    }

    /// What is durable is unknown from here on, so nothing more is accepted.
    pub fn poison(&mut self) {
        self.poisoned = true;
    }

    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Whether it runs, and may promise something.
    pub fn is_sound(&self) -> bool {
        self.is_running() && !self.poisoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stops_does_not_run_again() {
        let mut course = Course::begin(false);
        assert!(course.is_running() && course.is_sound());
        course.stop();
        assert!(course.is_stopping() && !course.is_sound());
        course.on_stopped();
        course.stop();
        assert!(!course.is_stopping() && !course.is_running());
    }

    #[test]
    fn what_is_poisoned_is_so_whatever_it_does() {
        let mut course = Course::begin(false);
        course.poison();
        assert!(course.is_running() && !course.is_sound());
        course.stop();
        assert!(course.is_poisoned() && course.is_stopping());
    }

    #[test]
    fn what_is_left_of_a_volume_is_read_and_never_stops() {
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
