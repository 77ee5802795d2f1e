//! A load on a drive, under policies.

use crate::drives;
use crate::errors::{self, RunError};
use crate::own::{self, Chosen, Given};
use crate::trace::Trace;
use crate::watched::{tell, watched};
use pyo3::prelude::*;
use std::sync::Arc;
use vellum_lab::outcome::Outcome;
use vellum_lab::progress::Watch;
use vellum_lab::scenario::Scenario;
use vellum_lab::{compare, csv, parallel, report};
use vellum_options::setup::{Ready, Setup};
use vellum_options::words;

/// The results of runs: as JSON, as CSV (a line per policy), their steps as CSV, as the command's table; and each run's own CSV, steps and
/// table.
type Forms = (String, String, String, String, Vec<[String; 3]>);

/// The results; notes and warnings about them; the policies that could not be run, and why.
type Ran = (Forms, (Vec<String>, Vec<String>), Vec<(String, String)>);

/// Runs policies as `vellum lab compare` does; if none is given, the same ones as that.
#[pyfunction]
#[pyo3(signature = (
    options, policies, trace=None, drive=None, threads=None, progress=None, tenants=Vec::new()
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword in Python")]
pub fn run(
    py: Python<'_>,
    options: Vec<String>,
    policies: Vec<Given>,
    trace: Option<&Bound<'_, Trace>>,
    drive: Option<(String, String)>,
    threads: Option<usize>,
    progress: Option<&Bound<'_, PyAny>>,
    tenants: Vec<(String, Py<Trace>)>,
) -> PyResult<Ran> {
    let setup = said(options, (trace, &tenants), drive)?;
    let ready = ready(&setup, (trace, &tenants))?;
    let scenario = setup
        .scenario(&ready)
        .map_err(|error| errors::option(&error))?;
    let policies = chosen(policies, &scenario)?;
    let watches: Vec<Watch> = policies.iter().map(|_| Watch::default()).collect();
    let threads = threads.unwrap_or_else(parallel::cores);
    let one = |at: usize, policy: &Chosen| {
        let watch = watches.get(at);
        policy.run(&Scenario { watch, ..scenario })
    };
    let work = || parallel::map(&policies, threads, one);
    let raised = || policies.iter().try_for_each(Chosen::raised);
    let heed = || raised().and_then(|()| tell(&watches, progress));
    let interrupt = || policies.iter().try_for_each(|own| own.interrupt(py));
    let results = watched(py, &watches, heed, interrupt, work)?;
    raised()?;
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for (policy, result) in policies.iter().zip(results) {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => failed.push((policy.name(), errors::told(&error))),
        }
    }
    Ok((forms(&outcomes)?, setup.about(&ready), failed))
}

fn forms(outcomes: &[Outcome]) -> PyResult<Forms> {
    let json = serde_json::to_string(outcomes);
    let json = json.map_err(|error| RunError::new_err(error.to_string()))?;
    let each = outcomes.chunks(1);
    Ok((
        json,
        csv::lines(outcomes),
        csv::steps(outcomes),
        report::table(outcomes),
        each.map(|one| [csv::lines(one), csv::steps(one), report::table(one)])
            .collect(),
    ))
}

/// Checks that these options and policies are valid together, as far as that is known without a run.
#[pyfunction]
#[pyo3(signature = (options, policies, trace=None, drive=None, tenants=Vec::new()))]
pub fn check(
    options: Vec<String>,
    policies: Vec<String>,
    trace: Option<&Bound<'_, Trace>>,
    drive: Option<(String, String)>,
    tenants: Vec<(String, Py<Trace>)>,
) -> PyResult<()> {
    let setup = said(options, (trace, &tenants), drive)?;
    let ready = ready(&setup, (trace, &tenants))?;
    let scenario = setup.scenario(&ready);
    scenario.map_err(|error| errors::option(&error))?;
    policies
        .iter()
        .try_for_each(|name| own::read(name).map(|_| ()))
}

/// A trace that was read, or the tenants' traces by name.
type Read<'a, 'py> = (Option<&'a Bound<'py, Trace>>, &'a [(String, Py<Trace>)]);

/// Combines the options with the traces.
fn ready(setup: &Setup, (trace, tenants): Read<'_, '_>) -> PyResult<Ready> {
    let file = |trace: &Trace| Arc::clone(trace.file());
    let each = tenants.iter();
    let each = each.map(|(name, trace)| (name.as_str(), file(trace.get())));
    let tenants = vellum_options::tenants::tenants(each);
    let tenants = tenants.map_err(|error| errors::option(&error))?;
    Ok(setup.ready_with(trace.map(|trace| file(trace.get())), tenants))
}

/// Parses the options.
fn said(
    options: Vec<String>,
    (trace, tenants): Read<'_, '_>,
    drive: Option<(String, String)>,
) -> PyResult<Setup> {
    let of_trace = trace.map(|trace| ["--".into(), trace.get().path().to_owned()]);
    let of_tenant = |(name, trace): &(String, Py<Trace>)| {
        let path = trace.get().path();
        format!("--tenant={name}={path}")
    };
    let words = options.into_iter().chain(tenants.iter().map(of_tenant));
    let words = words.chain(of_trace.into_iter().flatten());
    let setup: Setup = words::parse("vellum", words).map_err(|error| errors::option(&error))?;
    Ok(match drive {
        Some((name, text)) => setup.on(Arc::new(drives::read(&name, &text)?)),
        None => setup,
    })
}

/// The policies that are given; if none is, those that fit the drive and the load.
fn chosen(given: Vec<Given>, scenario: &Scenario<'_>) -> PyResult<Vec<Chosen>> {
    if given.is_empty() {
        let preset = &scenario.device.preset;
        let fit = compare::policies(preset, compare::Known::of(scenario));
        return Ok(fit.into_iter().map(Chosen::from).collect());
    }
    given.into_iter().map(Chosen::read).collect()
}
