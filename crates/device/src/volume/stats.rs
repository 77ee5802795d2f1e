//! What a volume counts.

use super::Volume;
use crate::frames::Quota;
use crate::refusals::map_is_damaged;
use crate::stats::{
    CommitStats, DedupStats, DeltaStats, FlushStats, MemoryStats, RoomStats, SpaceStats,
    VolumeStats, WriteOnceStats,
};
use std::sync::atomic::Ordering;
use vellum_policies::words::rule_name;

impl Volume {
    /// The current counters and gauges.
    #[must_use]
    pub fn stats(&self) -> VolumeStats {
        let (core, counters, in_flight, requests, commits, room, damaged) = {
            let inner = self.shared.knowing_all();
            (
                inner.core.stats(),
                inner.counters,
                inner.operations.in_flight(),
                inner.requests.len(),
                inner.gate.stats(),
                RoomStats::new(inner.gauge.level(), inner.core.room()),
                inner.core.damaged_table(),
            )
        };
        let frames = &self.shared.frames;
        let medium = counters.medium(&core, in_flight);
        let mut clients = counters.clients;
        (clients.refused, clients.in_flight) = (
            counters.refused + frames.refused.load(Ordering::Relaxed),
            requests as u64 + commits.waiting,
        );
        let scout = &self.shared.scout;
        let chosen = self.shared.choices.lock();
        let watching = scout.now_in_force();
        let write_once = WriteOnceStats {
            policy: rule_name(chosen.policy.write_once).to_owned(),
            hash: chosen.policy.hash.name().to_owned(),
            commits: scout.commits(),
            scans: scout.scans_ended(),
            set_journals: chosen.journals.clone(),
            file_systems: watching.file_systems(),
            table_faults: watching.table_faults(),
        };
        drop(chosen);
        VolumeStats {
            room,
            space: SpaceStats::new(self.shared.blocks, &core),
            dedup: DedupStats::new(&core),
            deltas: DeltaStats::new(&counters.deltas, &core),
            flushes: FlushStats::new(&core, self.shared.waits.stats()),
            write_once,
            commits: CommitStats {
                looking: scout.is_behind(),
                ..commits
            },
            freed: scout.freed.stats(),
            history: self.history(),
            uptime_ms: self.shared.now().0 / 1_000_000,
            poisoned: core.poisoned != 0,
            poisoned_by: damaged.filter(|_| core.poisoned != 0).map(map_is_damaged),
            wakeups: counters.wakeups,
            checksum_failures: core.corrupt_blocks,
            write_amplification: (clients.write.bytes > 0)
                .then(|| medium.written_bytes as f64 / clients.write.bytes as f64),
            clients,
            medium,
            memory: MemoryStats {
                write_frames: frames.capacity(Quota::Write) as u64,
                write_frames_free: frames
                    .available(Quota::Write)
                    .min(frames.capacity(Quota::Write)) as u64,
                read_frames: frames.capacity(Quota::Read) as u64,
                read_frames_free: frames.available(Quota::Read) as u64,
            },
            recovery: self.recovery,
            core: core
                .named()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }
}
