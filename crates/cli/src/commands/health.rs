//! `vellum health`: an exit code for programs that monitor machines.

use crate::outcome::{Special, out, plain, tell};
use crate::state::State;
use crate::{control, observed, state, whose};
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use vellum_ops::Observed;
use vellum_ops::health::{self, Finding, Grade};

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes, as Nagios and its kin have them: 0 all well, 1 somebody should look, \
    2 data is lost or not served, 3 a server does not answer.\n\n\
    Examples:\n  vellum health disk.vellum\n  \
    sudo vellum health        # all volumes that are served or attached now"
)]
pub struct Args {
    /// The volumes; one that is not served is not well. If none is given, those that are served or attached now.
    volumes: Vec<PathBuf>,
    /// As JSON, a line for each volume.
    #[arg(long)]
    json: bool,
}

/// A volume, and what is wrong with it.
struct Verdict {
    name: String,
    findings: Vec<Finding>,
}

/// Reports the health. What keeps it from that must not look like a grade.
pub fn run(args: &Args) -> Result<()> {
    reported(args).map_err(|error| {
        if error.is::<Special>() {
            return error;
        }
        tell(format_args!("vellum: {error:#}"));
        Special::Health(Grade::Unknown).into()
    })
}

fn reported(args: &Args) -> Result<()> {
    let verdicts: Vec<Verdict> = match args.volumes.is_empty() {
        true => {
            let served = observed::all()?;
            let attached = state::records()?;
            // One that is served has its verdict.
            let is_served = |uuid: &str| served.iter().any(|one| one.uuid() == uuid);
            let unserved = attached
                .iter()
                .filter(|(uuid, _)| !is_served(uuid))
                .filter_map(|(_, state)| Verdict::of_unserved(state));
            served
                .iter()
                .map(Verdict::of_observed)
                .chain(unserved)
                .collect()
        }
        false => args
            .volumes
            .iter()
            .map(|path| Verdict::of_volume(path))
            .collect(),
    };
    for verdict in &verdicts {
        let grade = health::worst(&verdict.findings);
        let words = verdict
            .findings
            .iter()
            .map(|finding| finding.words.as_str());
        let words = words.collect::<Vec<_>>();
        if args.json {
            let line = json!({"volume": verdict.name, "health": grade.name(), "findings": words});
            writeln!(out(), "{line}")?;
        } else if words.is_empty() {
            writeln!(out(), "{}: {} is well", grade.name(), plain(&verdict.name))?;
        } else {
            writeln!(
                out(),
                "{}: {}: {}",
                grade.name(),
                plain(&verdict.name),
                plain(&words.join("; "))
            )?;
        }
    }
    if verdicts.is_empty() {
        match args.json {
            true => {
                let none = json!({"volume": null, "health": Grade::Well.name(), "findings": []});
                writeln!(out(), "{none}")?;
            }
            false => writeln!(out(), "OK: nothing is served")?,
        }
    }
    let all = verdicts
        .iter()
        .map(|verdict| health::worst(&verdict.findings));
    match all.max() {
        None | Some(Grade::Well) => Ok(()),
        Some(grade) => Err(Special::Health(grade).into()),
    }
}

impl Verdict {
    fn of_observed(observed: &Observed) -> Self {
        let findings = match observed.told() {
            Some(told) => health::findings(told),
            None => vec![silent(
                state::control_socket(observed.uuid()).ok().as_deref(),
            )],
        };
        Self {
            name: observed.name().to_owned(),
            findings,
        }
    }

    /// The verdict for an attached volume that nobody serves. A server that was killed answers no more before its process has ended.
    fn of_unserved(state: &State) -> Option<Self> {
        let server = state.server?;
        let is_answered = state.control.as_deref().is_none_or(control::is_answered);
        let finding = match is_answered {
            true if server.alive() => return None,
            false if control::lives(server) => silent(state.control.as_deref()),
            _ => dead(),
        };
        Some(Self {
            name: state.volume.display().to_string(),
            findings: vec![finding],
        })
    }

    fn of_volume(path: &Path) -> Self {
        let name = path.display().to_string();
        let failed = |grade, words: String| vec![Finding { grade, words }];
        let findings = match whose::server_of(path) {
            Err(error) => failed(Grade::Critical, format!("{error:#}")),
            Ok((socket, file)) => match control::ask(&socket, "stats") {
                Err(_) if !control::is_answered(&socket) => vec![dead()],
                Err(_) => vec![silent(Some(&socket))],
                Ok(answer) => {
                    let volumes = answer["volumes"].as_array();
                    let mut volumes = volumes.into_iter().flatten();
                    let is_it = |told: &&serde_json::Value| {
                        told["path"].as_str() == Some(&*file.to_string_lossy())
                    };
                    match volumes.find(is_it) {
                        Some(told) => health::findings(told),
                        None => failed(Grade::Critical, "it is not served, but a copy is".into()),
                    }
                }
            },
        };
        Self { name, findings }
    }
}

fn dead() -> Finding {
    Finding {
        grade: Grade::Critical,
        words: "its server is dead: detach it, and attach it again".to_owned(),
    }
}

fn silent(socket: Option<&Path>) -> Finding {
    let why = socket.map_or("it hangs, or stops".to_owned(), control::silence);
    Finding {
        grade: Grade::Unknown,
        words: format!("its server does not answer: {why}"),
    }
}
