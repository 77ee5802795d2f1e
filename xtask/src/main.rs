//! `cargo run -p xtask -- tidy` checks the repository, `... -- dependencies` lists external dependencies, `... -- shape` measures
//! the source, and `... -- coverage` checks what no simulated life reaches.

use std::process::ExitCode;
use xtask::{
    coverage, dependencies, guide, imports, links, promise, shape, text, trips, words,
    workspace::Workspace,
};

fn main() -> anyhow::Result<ExitCode> {
    let root = xtask::root();
    let workspace = Workspace::read(&root)?;
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            let mut complaints = imports::check(&workspace, &root)?;
            complaints.extend(text::check(&root)?);
            complaints.extend(links::check(&root)?);
            complaints.extend(guide::check(&root)?);
            complaints.extend(promise::check(&root)?);
            complaints.extend(trips::check(&root)?);
            complaints.extend(words::check(&root)?);
            complaints.extend(shape::check(&root)?);
            complaints.extend(coverage::check_list(&root)?);
            complaints.extend(dependencies::check(&workspace, &root)?);
            for complaint in &complaints {
                println!("{complaint}");
            }
            println!("{} complaint(s)", complaints.len());
            Ok(ExitCode::from(u8::from(!complaints.is_empty())))
        }
        Some("dependencies") => {
            for package in workspace.packages.iter().filter(|p| !p.ours) {
                println!("{} {}: {}", package.name, package.version, package.license);
            }
            Ok(ExitCode::SUCCESS)
        }
        Some("shape") => {
            match std::env::args().nth(2).as_deref() {
                Some("--shrink") => shape::shrink(&root)?,
                _ => print!("{}", shape::print(&root)?),
            }
            Ok(ExitCode::SUCCESS)
        }
        Some("coverage") => {
            let (options, traces): (Vec<_>, Vec<_>) = std::env::args()
                .skip(2)
                .partition(|argument| argument == "--shrink");
            let traces: Vec<_> = traces.into_iter().map(Into::into).collect();
            let (text, complaints) = coverage::run(&root, &traces, !options.is_empty())?;
            print!("{text}");
            for complaint in &complaints {
                println!("{complaint}");
            }
            Ok(ExitCode::from(u8::from(!complaints.is_empty())))
        }
        _ => anyhow::bail!(
            "usage: cargo run -p xtask -- tidy | dependencies | shape [--shrink] | coverage [--shrink] \
             TRACE..."
        ),
    }
}
