//! Moves the journal's thread from processor to processor, so that the requests of one commit arrive through all queues of a
//! device that has a queue for each processor.

use crate::common::chain::Way;
use std::fs;

/// The thread of one device's journal.
pub struct Wanderer {
    thread: Option<i32>,
    cpus: usize,
    at: usize,
}

impl Wanderer {
    /// Finds the thread of a mounted device; none if there is only one queue anyway.
    pub fn of(device: &str) -> Self {
        let name = format!("jbd2/{}-", device.trim_start_matches("/dev/"));
        let is_it = |pid: &i32| {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            comm.starts_with(&name)
        };
        let found = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            pids.find(is_it)
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let has_queues = Way::asked_for() == Way::Ublk;
        let thread = if has_queues { found() } else { None };
        assert!(!has_queues || thread.is_some(), "no thread is {name}");
        Self {
            thread,
            cpus,
            at: 0,
        }
    }

    /// Moves it to the next processor.
    pub fn go_on(&mut self) {
        let Some(thread) = self.thread else {
            return;
        };
        self.at = (self.at + 1) % self.cpus;
        // SAFETY: a set of processors is plain memory, and all zeros is an empty one; the number is below its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(self.at, &mut set);
            libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}
