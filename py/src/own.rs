//! A policy as the package gives it: a built-in one, and the Python functions that decide in it.

use crate::admit::Admission;
use crate::asked::Asked;
use crate::errors::OptionError;
use crate::hot::Hot;
use crate::victim::Victim;
use pyo3::prelude::*;
use vellum_lab::admission::Admit;
use vellum_lab::base::{Choose, Separate};
use vellum_lab::outcome::Outcome;
use vellum_lab::policy::Policy;
use vellum_lab::scenario::{Own, Scenario, ScenarioError};

/// A built-in policy; its name in the results, if it has another one; the functions for victims, hot pages and admission.
pub type Given = (
    String,
    Option<String>,
    Option<Py<PyAny>>,
    Option<Py<PyAny>>,
    Option<Py<PyAny>>,
);

/// A policy to run.
pub struct Chosen {
    policy: Policy,
    name: Option<String>,
    victim: Option<Asked>,
    hot: Option<Asked>,
    admit: Option<Asked>,
}

impl From<Policy> for Chosen {
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            name: None,
            victim: None,
            hot: None,
            admit: None,
        }
    }
}

impl Chosen {
    /// Reads the policy's name.
    pub fn read((policy, name, victim, hot, admit): Given) -> PyResult<Self> {
        let policy = read(&policy)?;
        let [victim, hot, admit] = [victim, hot, admit].map(|own| own.map(Asked::new));
        Ok(Self {
            policy,
            name,
            victim,
            hot,
            admit,
        })
    }

    /// Its name in the results.
    pub fn name(&self) -> String {
        let name = self.name.clone();
        name.unwrap_or_else(|| self.policy.to_string())
    }

    /// Raises what a function has raised, once.
    pub fn raised(&self) -> PyResult<()> {
        let mut all = self.victim.iter().chain(&self.hot).chain(&self.admit);
        all.try_for_each(Asked::raised)
    }

    /// Interrupts what runs of its functions.
    pub fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        let mut all = self.victim.iter().chain(&self.hot).chain(&self.admit);
        all.try_for_each(|asked| asked.interrupt(py))
    }

    /// Runs it.
    pub fn run(&self, scenario: &Scenario<'_>) -> Result<Outcome, ScenarioError> {
        let victim = self.victim.clone();
        let victim = victim.map(|asked| move || Box::new(Victim(asked.clone())) as Box<dyn Choose>);
        let hot = self.hot.clone();
        let hot = hot.map(|asked| move || Box::new(Hot(asked.clone())) as Box<dyn Separate>);
        let admit = self.admit.clone();
        let admit = admit.map(|asked| move || Box::new(Admission(asked.clone())) as Box<dyn Admit>);
        let own = Own {
            victims: victim.as_ref().map(|make| make as _),
            separation: hot.as_ref().map(|make| make as _),
            admission: admit.as_ref().map(|make| make as _),
        };
        let mut outcome = Scenario { own, ..*scenario }.run(&self.policy)?;
        if let Some(name) = &self.name {
            outcome.policy.clone_from(name);
        }
        Ok(outcome)
    }
}

/// Reads the name of a built-in policy.
pub fn read(name: &str) -> PyResult<Policy> {
    let policy = name.parse::<Policy>();
    policy.map_err(|error| OptionError::new_err(format!("policy {error}")))
}
