//! Names the tenants or jobs in the results.

use crate::jobs::Jobs;
use crate::outcome::OfTenant;
use crate::tenants::Tenants;

/// Fills in the names of tenants.
pub(super) fn tenants(tenants: &Tenants, seen: &mut [OfTenant]) {
    for (of, (tenant, first)) in seen.iter_mut().zip(tenants.parts()) {
        of.name.clone_from(&tenant.name);
        (of.first_block, of.blocks) = (first, tenant.trace.blocks());
    }
}

/// Fills in the names of jobs.
pub(super) fn jobs(jobs: &Jobs, seen: &mut [OfTenant], logical: u64) {
    for (of, job) in seen.iter_mut().zip(jobs.all()) {
        of.name.clone_from(&job.name);
        if let Ok(placed) = job.on(logical) {
            (of.first_block, of.blocks) = (placed.first, placed.blocks);
        }
    }
}
