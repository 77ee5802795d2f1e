//! Which encoding for which blocks: `choice LOG...` reads logs of what real file systems wrote (made by
//! `benches/encodings.sh`) and prints, in Markdown, the bytes and the time of every candidate, and the pages that
//! a limit leaves.

mod candidates;
mod log;
mod pages;
mod samples;
mod tables;

use anyhow::{Context, ensure};
use samples::Workload;
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    ensure!(!paths.is_empty(), "usage: choice LOG...");
    let mut workloads = Vec::new();
    for path in &paths {
        let name = Path::new(path)
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        let found = Workload::read(name, Path::new(path)).with_context(|| path.clone())?;
        eprintln!("{}: {} blocks", found.name, found.samples.len());
        workloads.push(found);
    }
    println!("# In how few bytes: what ext4 writes, by encoding\n");
    println!(
        "Printed by `benches/encodings.sh`; what follows from it: decision 0008. Of the times only"
    );
    println!("the ratios within a line mean something.\n");
    tables::print(&workloads)?;
    pages::print(&workloads)
}
