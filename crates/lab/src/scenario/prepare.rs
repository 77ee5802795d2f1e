//! Brings a drive to the state in which a run begins.

use super::{Precondition, Scenario, ScenarioError};
use crate::content::Content;
use crate::outcome::Snapshot;
use crate::rng::Rng;
use crate::sim::{Pace, Sim};
use crate::trace::Op;
use crate::workload::Request;

impl Scenario<'_> {
    /// Brings the drive to the state in which the run begins, and says how.
    pub(super) fn prepare(
        &self,
        sim: &mut Sim,
        logical: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), ScenarioError> {
        if self.precondition == Precondition::None {
            notes.push("a new drive".into());
            return Ok(());
        }
        let whole = Pace::Closed { depth: 1 };
        let seed = self.seed ^ 0x0f11;
        let write = |lba: u64, blocks: u32, version: u64| Request {
            at: 0,
            op: Op::Write { fua: false },
            lba,
            blocks,
            contents: (lba..lba + u64::from(blocks))
                .map(|lba| Content::synthetic(seed, lba, version))
                .collect(),
            ..Request::flush(0)
        };
        let mut fill = (0..logical)
            .step_by(64)
            .map(|lba| write(lba, (logical - lba).min(64) as u32, 0));
        sim.run(&mut self.unseen(&mut fill), whole)?;
        if self.precondition == Precondition::Load {
            return Ok(());
        }
        if self.precondition == Precondition::Fill {
            notes.push("filled once, in order, before the run".into());
            return Ok(());
        }
        // Windows of half a volume, until two in a row amplify alike; at most 16 volumes.
        let mut rng = Rng::new(seed);
        let mut last = f64::INFINITY;
        let mut alike = 0;
        for window in 1..=32u64 {
            let before = Snapshot::begin(sim);
            let mut requests =
                (0..logical / 2).map(|n| write(rng.below(logical), 1, window * logical + n));
            sim.run(&mut self.unseen(&mut requests), whole)?;
            let now = before
                .until_now(sim)
                .write_amplification
                .unwrap_or_default();
            alike = if (now / last - 1.0).abs() < 0.01 {
                alike + 1
            } else {
                0
            };
            if alike == 2 || window == 32 {
                let why = match alike {
                    2 => "until the amplification of half a volume changed by less than 1% twice",
                    _ => "and its amplification still changes from half a volume to the next",
                };
                let times = window as f64 / 2.0;
                notes.push(format!(
                    "filled, then overwritten at random {times:.1} times, {why}: {now:.3}"
                ));
                break;
            }
            last = now;
        }
        Ok(())
    }
}
