//! The notes that accompany every figure: its drive, its load, and the reasons to doubt it.

use crate::setup::{DEPTH, Ready, Setup};
use vellum_lab::made_up::MadeUp;
use vellum_lab::replay::TraceFile;
use vellum_lab::report;
use vellum_lab::scenario::Load;
use vellum_lab::sizes;
use vellum_lab::trace::{Class, Known, Sizes};
use vellum_policies::size::counted;

impl Setup {
    /// Returns what a reader has to know about the device and the load, and the reasons to doubt the figures.
    pub fn about(&self, ready: &Ready) -> (Vec<String>, Vec<String>) {
        let drive = &ready.device;
        let mut about = vec![
            format!("{}: {}", drive.name, drive.about),
            format!("figures: {}", drive.source),
        ];
        about.extend(self.speeds.about());
        about.extend(self.flash.about());
        let mut warnings = Vec::new();
        if let Some(trace) = &ready.trace {
            describe("trace", trace, &mut about, &mut warnings);
            warnings.extend(self.made_up("trace", trace));
            warnings.extend(self.numbered("trace", trace));
            warnings.extend(self.bursts("trace", trace));
        }
        for tenant in ready.tenants.iter().flat_map(|tenants| tenants.all()) {
            let name = format!("tenant {}", tenant.name);
            describe(&name, &tenant.trace, &mut about, &mut warnings);
            warnings.extend(self.made_up(&name, &tenant.trace));
            warnings.extend(self.numbered(&name, &tenant.trace));
            warnings.extend(self.bursts(&name, &tenant.trace));
        }
        let load = self.workload.map(|workload| self.synthetic(workload));
        if let Some(Ok(Load::Synthetic(load))) = load {
            let mut line = format!("load: {}", load.told());
            if self.duplicates > 0 {
                line += &format!(
                    ", {}% of the blocks with a content that comes again ({})",
                    self.duplicates, self.again
                );
            }
            if let Some(mode) = &self.journal {
                let mode = mode.replace("data", "journal");
                line += &format!(", through a modelled journal (data={mode})");
            }
            about.push(line);
        }
        if let Some((job, (load, _))) = self.fio.fio.as_ref().and_then(|f| Some((f, f.one()?))) {
            about.push(format!(
                "load: {}: the job {}, requests of {}",
                load.told(),
                job.name(),
                report::bytes(u64::from(load.request_blocks) * 4096)
            ));
        }
        if let Some(jobs) = &ready.jobs {
            about.push("load: fio (synthetic), jobs".into());
            about.extend(jobs.all().iter().map(|job| format!("      {}", job.told())));
        }
        let passed_over = self
            .fio
            .fio
            .as_ref()
            .map_or(&[][..], |file| file.passed_over());
        if !passed_over.is_empty() {
            about.push(format!(
                "      passed over, for it changes nothing here: {}",
                passed_over.join(", ")
            ));
        }
        if let Some(model) = self.sizes.as_deref().and_then(sizes::find) {
            about.push(format!(
                "sizes: {} (synthetic): {}",
                model.name, model.about
            ));
        }
        (about, warnings)
    }

    /// Warns that the times in the trace were not measured, and says what to do.
    fn made_up(&self, name: &str, trace: &TraceFile) -> Option<String> {
        let times = match trace.summary().made_up_times()? {
            MadeUp::Same => "all its requests have one time",
            MadeUp::Falling => "most of its requests are dated before the one before them",
        };
        let asked = match self.depth {
            Some(_) => "--depth says how many are asked at a time".into(),
            None => format!("{DEPTH} requests are asked at a time (another: --depth)"),
        };
        let years = match self.daily {
            Some(_) => "",
            None => "; years need what the host writes a day (--daily)",
        };
        Some(format!(
            "the {name}'s times are made up: {times}. {asked}{years}"
        ))
    }

    /// Warns that what stands for times may be row numbers, where anything follows from them.
    fn numbered(&self, name: &str, trace: &TraceFile) -> Option<String> {
        let asked = match (self.depth, self.daily) {
            (Some(_), Some(_)) => return None,
            (Some(_), None) => "--daily says what the host writes a day",
            (None, Some(_)) => "--depth leaves them aside",
            (None, None) => {
                "--depth leaves them aside, and --daily says what the host writes a day"
            }
        };
        trace.summary().may_be_numbered().then(|| {
            format!(
                "each request of the {name} is dated one unit of time after the one before it: if these are \
                 row numbers and no times, {asked}"
            )
        })
    }

    /// Warns that requests come at once because the trace's clock is coarse, where its times are those of the run.
    fn bursts(&self, name: &str, trace: &TraceFile) -> Option<String> {
        let is_of_bursts = self.depth.is_none() && trace.summary().is_of_bursts();
        is_of_bursts.then(|| {
            format!(
                "the {name}'s times are whole seconds: all requests of a second come at once, and latencies \
                 are mostly of waiting for each other (--depth leaves the times aside)"
            )
        })
    }
}

fn describe(name: &str, trace: &TraceFile, about: &mut Vec<String>, warnings: &mut Vec<String>) {
    let summary = trace.summary();
    about.push(format!(
        "{name}: {}, {} in {}: {}, {}, {}, {}; over {:.1} s; {} touched",
        trace.format().name(),
        counted(summary.seen.requests, "request"),
        counted(summary.seen.lines, "line"),
        counted(summary.reads, "read"),
        counted(summary.writes, "write"),
        counted(summary.discards, "discard"),
        counted(summary.flushes, "flush"),
        (summary.last_at - summary.first_at) as f64 / 1e9,
        report::bytes(trace.blocks() * 4096),
    ));
    let content = match (summary.blocks_told, summary.blocks_written) {
        (_, 0) => "it writes nothing",
        (0, _) => "it does not say what is written: every block is taken to be new",
        (told, all) if told == all => "it says what is written",
        _ => "of some blocks it says what is written; the others are taken to be new",
    };
    about.push(format!("       {content}"));
    if summary.unaligned > 0 {
        about.push(format!(
            "       {} requests were not of whole blocks of 4 KiB and are made so",
            summary.unaligned
        ));
    }
    if let Some(known) = &summary.known {
        about.push(format!("       {}", described(known)));
    }
    if summary.journals > 0 {
        let (first, blocks) = trace.journal().unwrap_or_default();
        about.push(format!(
            "       a journal of {blocks} blocks at block {first}"
        ));
    }
    if summary.journals > 1 {
        warnings.push(format!(
            "the {name} has {} journals; the first one is watched (another: --journal-at)",
            summary.journals
        ));
    }
    if summary.seen.lost > 0 {
        warnings.push(format!(
            "{} requests are missing in the {name}: they came faster than they could be recorded",
            summary.seen.lost
        ));
    }
    if summary.seen.cut {
        warnings.push(format!(
            "the {name} breaks off: the recording did not end in order"
        ));
    }
    if summary.seen.backwards > 0 {
        warnings.push(format!(
            "{} requests of the {name} are dated before the one before them and are taken to come with it",
            summary.seen.backwards
        ));
    }
}

/// Describes what one of our traces records about blocks, besides their digests.
fn described(known: &Known) -> String {
    let mean = |(blocks, bytes): (u64, u64)| {
        (blocks > 0).then(|| 100.0 * bytes as f64 / (blocks * 4096) as f64)
    };
    let mut parts = Vec::new();
    if let Some(percent) = mean(known.packed) {
        let by = match known.sizes {
            Sizes::None => "",
            Sizes::Lz4 => " by LZ4",
            Sizes::Zstd => " by zstd",
        };
        parts.push(format!("compressed{by} to {percent:.0}%"));
    }
    if let Some(percent) = mean(known.delta) {
        let blocks = known.delta.0;
        parts.push(format!(
            "{blocks} whose version before is known, as a difference to it {percent:.0}%"
        ));
    }
    let classes = Class::ALL.iter().zip(known.classes);
    parts.extend(
        classes
            .filter(|(class, blocks)| *blocks > 0 && **class != Class::Unknown)
            .map(|(class, blocks)| format!("{blocks} {}", class.name())),
    );
    match parts.is_empty() {
        true => "nothing is known of the blocks but their contents".into(),
        false => format!("blocks written: {}", parts.join(", ")),
    }
}
