//! `vellum lab compare`: runs all policies with one load.

use super::output::{Course, Output};
use super::progress::{interrupted, watched};
use super::source;
use crate::outcome::tell;
use anyhow::{Result, bail};
use vellum_lab::compare;
use vellum_lab::parallel;
use vellum_lab::policy::{NAMES, Policy};
use vellum_options::number::number;
use vellum_options::setup::Setup;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    setup: Setup,
    /// A policy; may be repeated. Default: the page map and the plain log, each greedy and by cost and benefit; the log with each
    /// saving alone, and with all; the log and tables in place above a drive.
    #[arg(
        long,
        value_name = "POLICY",
        long_help = format!("A policy; give it several times. There are {NAMES}.")
    )]
    policy: Vec<Policy>,
    /// Runs at the same time; by default one a core. The results are the same.
    #[arg(long, value_name = "COUNT", value_parser = number::<u16>(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    course: Course,
}

impl Args {
    /// Runs the comparison.
    pub fn run(&self) -> Result<()> {
        let ready = source::ready(&self.setup)?;
        let scenario = self.setup.scenario(&ready)?;
        let policies = match self.policy.is_empty() {
            true => compare::policies(&ready.device.preset, compare::Known::of(&scenario)),
            false => self.policy.clone(),
        };
        let threads = self.threads.map_or_else(parallel::cores, usize::from);
        let (outcomes, failed) = watched(&policies, |watches| {
            compare::run(&scenario, &policies, watches, threads)
        })?;
        // Policies that the user did not name are left out silently if they do not fit, as long as others do.
        let quietly = self.policy.is_empty() && !outcomes.is_empty();
        let (left_out, failed): (Vec<_>, Vec<_>) = failed
            .into_iter()
            .partition(|failed| quietly && failed.source.is_for_want_of_room());
        let failed: Vec<anyhow::Error> = failed.into_iter().map(Into::into).collect();
        for failed in &failed {
            tell(format_args!("vellum: {failed:#}"));
        }
        if outcomes.is_empty() {
            bail!("none of the policies could be run");
        }
        let (mut about, mut warnings) = self.setup.about(&ready);
        if !left_out.is_empty() {
            let names: Vec<String> = left_out
                .iter()
                .map(|left| left.policy.to_string())
                .collect();
            about.push(format!(
                "left out, for this drive keeps too little over-provisioning for them (--op): {}",
                names.join("; ")
            ));
        }
        if !compare::knows_journal(&scenario.load) {
            warnings.push(
                "the place of the journal is not known, so write-once is left out (use --journal-at \
                 for a trace, --journal for a load)"
                    .into(),
            );
        }
        warnings.extend(failed.iter().map(|f| format!("not run: {f:#}")));
        self.output
            .give("Policies compared", about, warnings, &outcomes)?;
        self.course.give(&outcomes)?;
        interrupted(&outcomes)?;
        match failed.is_empty() {
            true => Ok(()),
            false => bail!(
                "{} of {} policies could not be run",
                failed.len(),
                policies.len()
            ),
        }
    }
}
