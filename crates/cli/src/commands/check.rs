//! `vellum check`: checks every invariant, and changes nothing; exit code 3 if one does not hold.

use crate::claim::is_served;
use crate::keys::Key;
use crate::opened;
use crate::outcome::{counted, damage, out};
use crate::size::Size;
use crate::unfinished;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::check::{Options, Problem, Report, Severity};
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::RecoveryError;
use vellum_device::info::hex_uuid;
use vellum_device::inspect::check_volume;
use vellum_medium::Medium;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume; no server may have it open.
    volume: PathBuf,
    /// Do not read the data: only what leads to it.
    #[arg(long)]
    quick: bool,
    /// List so many findings at most.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    findings: usize,
    #[command(flatten)]
    key: Key,
}

/// Checks the volume.
pub fn run(args: &Args) -> Result<()> {
    let shown = args.volume.display();
    let medium: Arc<dyn Medium> = Arc::new(opened::open(&args.volume, true, &args.key)?);
    let report = check_volume(
        &medium,
        Options {
            data: !args.quick,
            findings_max: args.findings,
        },
    )?;
    let newer = report.findings.iter().find_map(|finding| match finding {
        Problem::Unopenable(error @ RecoveryError::Superblock { error: of, .. }) => {
            of.is_newer().then_some(error)
        }
        _ => None,
    });
    if let Some(error) = newer {
        bail!("{shown}: {error}");
    }
    for finding in &report.findings {
        let severity = match finding.severity() {
            Severity::Note => "note",
            Severity::Redundancy => "second copy",
            Severity::Damage => "DAMAGE",
        };
        writeln!(out(), "{severity}: {finding}")?;
    }
    if report.unlisted > 0 {
        writeln!(
            out(),
            "and {} more: list them with --findings",
            report.unlisted
        )?;
    }
    count(&report)?;
    judge(&args.volume, &report)
}

/// Says what was looked at.
fn count(report: &Report) -> Result<()> {
    let layout = report.superblock.as_ref().map(Superblock::layout);
    if layout.is_some_and(|layout| layout != Layout::Log) {
        writeln!(
            out(),
            "{} mapped, {} of it read; {}; {} of tables read",
            Size(report.mapped_blocks * BLOCK_BYTES as u64),
            Size(report.verified_blocks * BLOCK_BYTES as u64),
            counted(report.shared_pages, "shared block"),
            counted(report.replayed.leaves, "block")
        )?;
    } else if layout.is_some() {
        writeln!(
            out(),
            "{} mapped, {} of it read; {} of zeros, {}; {} replayed; {} with live data",
            Size(report.mapped_blocks * BLOCK_BYTES as u64),
            Size(report.verified_blocks * BLOCK_BYTES as u64),
            counted(report.zero_blocks, "block"),
            counted(report.shared_pages, "shared page"),
            counted(report.replayed.chunks, "chunk"),
            counted(report.segments, "segment")
        )?;
    }
    Ok(())
}

/// The last line, or the error.
fn judge(volume: &Path, report: &Report) -> Result<()> {
    let shown = volume.display();
    if !report.is_sound() {
        let first = report
            .findings
            .iter()
            .find(|f| f.severity() == Severity::Damage);
        let first = first.map_or(String::new(), |f| format!(": {f}"));
        let uuid = report.superblock.as_ref().map(|sb| hex_uuid(&sb.uuid()));
        let served = match uuid.is_some_and(|uuid| is_served(&uuid)) {
            true => {
                "; a volume with its UUID is being served: if it is this one, by another path, stop that \
                 server and check again"
            }
            false => "",
        };
        return Err(damage(format!("{shown} is damaged{first}{served}")));
    }
    match report.worst() {
        Some(Severity::Redundancy) => {
            writeln!(
                out(),
                "{shown} is sound, but a second copy is damaged: the next `vellum serve` repairs what it can"
            )?;
        }
        _ => writeln!(out(), "{shown} is sound")?,
    }
    match &report.superblock {
        Some(superblock) => unfinished::refuse(volume, superblock),
        None => Ok(()),
    }
}
