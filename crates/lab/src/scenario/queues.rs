//! The submission queues of a scenario's drive.

use super::build::Built;
use super::{Load, Scenario, ScenarioError};
use crate::flash::Queues;
use crate::queues::plan::{Plan, QueueError};

impl Load<'_> {
    /// The names of its tenants, in order; none if it is not of several.
    #[must_use]
    pub fn tenants(&self) -> Vec<&str> {
        match self {
            Self::Tenants { tenants, .. } => {
                tenants.all().iter().map(|one| one.name.as_str()).collect()
            }
            Self::Jobs(jobs) => jobs.all().iter().map(|job| job.name.as_str()).collect(),
            Self::Synthetic(_) | Self::Trace { .. } | Self::Requests(_) => Vec::new(),
        }
    }
}

impl Scenario<'_> {
    /// The queue of each tenant; none if the drive has no queues.
    ///
    /// # Errors
    /// When a tenant cannot have the queue that is named for it.
    pub fn plan(&self) -> Result<Option<Plan>, QueueError> {
        let queues = self.device.preset.queues.as_ref();
        Plan::new(queues, &self.load.tenants(), self.queues)
    }

    /// Puts the drive's submission queues before it.
    pub(super) fn put_queues(&self, built: &mut Built) -> Result<(), ScenarioError> {
        let plan = self.plan()?;
        if let (Some(queues), Some(plan)) = (&self.device.preset.queues, plan)
            && self.timed
        {
            built.notes.push(told(queues));
            if queues.count > 1 && self.load.tenants().is_empty() {
                let note = "the load has no tenants, so all its requests go into queue 0";
                built.notes.push(note.into());
            }
            built.sim.put_queues(queues, plan);
        }
        Ok(())
    }
}

/// A note about the queues.
fn told(queues: &Queues) -> String {
    let Queues {
        count,
        depth,
        commands,
        burst,
        ..
    } = queues;
    let how = match queues.weights {
        None => "round robin".into(),
        Some(weights) => format!(
            "weighted round robin, {} to {} to {}",
            weights.high, weights.medium, weights.low
        ),
    };
    let queues = if *count == 1 { "queue" } else { "queues" };
    format!(
        "{count} submission {queues} of {depth} commands, {how} in bursts of {burst}; the controller works \
         on {commands} commands at a time"
    )
}
