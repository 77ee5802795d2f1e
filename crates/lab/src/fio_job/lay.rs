//! Turns the jobs of a file into a load: one, or several side by side or in sequence, each in its file.

use super::options::{Asks, DEPTH_MAX, Paced, Reading};
use super::said::{FioError, of_file};
use crate::jobs::{Amount, JOBS_MAX, Job, Jobs, Place, Way, When};
use crate::scenario::{Area, Synthetic};
use crate::sim::Pace;
use crate::workload::{Pattern, Workload};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The load of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Load {
    One(Box<(Synthetic, Pace)>),
    Jobs(Arc<Jobs>),
}

/// A job as written in the file.
pub(super) struct Section {
    pub name: String,
    pub line: usize,
    pub reading: Reading,
}

impl Section {
    fn wrong(&self, key: &str, wrong: &str) -> FioError {
        FioError {
            line: self.line,
            key: key.into(),
            wrong: wrong.into(),
        }
    }

    /// Its file, if that is a whole device.
    fn device(&self) -> Option<&str> {
        let file = self.reading.space.file.as_deref();
        file.filter(|file| file.starts_with("/dev/"))
    }

    /// Checks what every job must satisfy.
    fn check(&self) -> Result<Pattern, FioError> {
        let Reading { what, paced, .. } = &self.reading;
        let mixed = what.asks == Asks::Mixed;
        paced
            .check(mixed)
            .map_err(|told| self.wrong("rate", told))?;
        if u32::from(what.zeros) * 100 + what.duplicates > 100 {
            return Err(self.wrong("dedupe_percentage", "zero_buffers are all duplicates"));
        }
        what.pattern()
            .ok_or_else(|| self.wrong("random_distribution", "it is of a random rw"))
    }
}

/// Builds the load of these jobs.
pub(super) fn load(sections: &[Section]) -> Result<Load, FioError> {
    let first = sections
        .first()
        .ok_or_else(|| of_file(1, "it has a job: a section [NAME]"))?;
    if sections.len() == 1
        && let Some(simple) = Simple::of(first)
    {
        return simple.load(first);
    }
    let mut all = Laying::default();
    for section in sections {
        all.section(section)?;
    }
    all.finish()
}

/// A job that is equal to a simple load: it needs no order, no file, no flush and no mix of lengths.
struct Simple {
    reads: u32,
    block: u32,
    size: u64,
    io: Option<u64>,
    offset: u64,
}

impl Simple {
    fn of(section: &Section) -> Option<Self> {
        let Reading {
            what, space, paced, ..
        } = &section.reading;
        let (reads, others) = what.used();
        let share = match what.asks {
            Asks::Reads => 100,
            Asks::Writes => 0,
            Asks::Mixed if what.random => what.mix,
            _ => return None,
        };
        // Several random jobs in one file are equal to one with more requests open.
        let is_one = section.reading.after.job.is_none()
            && (paced.jobs == 1 || (what.random && space.file.is_some()));
        // Each copy waits only for its own flushes, and flushes do not count towards `size`.
        let is_awaited = what.durable || what.flush_every > 0;
        let is_plain = !is_awaited && paced.think.is_none() && space.file_size.is_none();
        if !is_one || !is_plain || reads != others || space.increment != Amount::NONE {
            return None;
        }
        let blocks = |amount| match amount {
            Amount::Blocks(blocks) => Some(blocks),
            Amount::Percent(_) => None,
        };
        Some(Self {
            reads: share,
            block: reads.only()?,
            size: blocks(space.size?)?,
            io: match space.io {
                Some(io) => Some(blocks(io)?),
                None => None,
            },
            offset: blocks(space.offset)?,
        })
    }

    fn load(&self, section: &Section) -> Result<Load, FioError> {
        let Reading {
            what, space, paced, ..
        } = &section.reading;
        let block = u64::from(self.block);
        if self.size < block {
            return Err(section.wrong("size", NO_SIZE));
        }
        let depth = depth(paced) * paced.jobs;
        if depth > DEPTH_MAX {
            return Err(section.wrong("numjobs", "more than 65536 requests at a time"));
        }
        let workload = Workload {
            name: "fio",
            about: "a job file of fio",
            pattern: section.check()?,
            reads: self.reads,
        };
        // number_ios can end a job early, but never makes it longer.
        let each = self.io.unwrap_or(self.size) / block;
        let each = space.count.map_or(each, |count| count.min(each));
        let all = each.saturating_mul(paced.jobs).saturating_mul(space.loops);
        let endless = paced.time_based && paced.runtime.is_some();
        let think = paced.gap(block as f64, paced.jobs);
        let depth = depth as u32;
        let load = Synthetic {
            requests: if endless { u64::MAX - 1 } else { all.max(1) },
            request_blocks: self.block,
            zeros: u32::from(what.zeros) * 100,
            duplicates: what.duplicates,
            area: Some(Area {
                first: self.offset,
                blocks: self.size,
            }),
            runtime_ns: paced.runtime,
            ramp_ns: paced.ramp,
            ..Synthetic::new(workload)
        };
        let pace = match think {
            Some(_) => Pace::Elastic { depth, think },
            None => Pace::Closed { depth },
        };
        Ok(Load::One(Box::new((load, pace))))
    }
}

const NO_SIZE: &str = "the job has one, of a request at least: how much of the drive it is over";

/// Requests open at a time for one copy of a job.
fn depth(paced: &Paced) -> u64 {
    if paced.waits { 1 } else { paced.depth }
}

/// A file, and its blocks so far.
struct OfFile<'a> {
    /// None: the file of one job only.
    name: Option<&'a str>,
    blocks: u64,
}

/// Lays out jobs.
#[derive(Default)]
struct Laying<'a> {
    jobs: Vec<Job>,
    /// The file of each job; none: the device.
    file_of: Vec<Option<usize>>,
    files: Vec<OfFile<'a>>,
    device: Option<&'a str>,
    names: BTreeSet<String>,
    /// The name of each job's section.
    sections: Vec<&'a str>,
    /// Where the jobs of this group begin, and those of the previous group, which it waits for.
    group: usize,
    group_before: usize,
    depth: u64,
    ramps: Vec<(u64, usize)>,
    ends_all: Option<usize>,
}

impl<'a> Laying<'a> {
    fn section(&mut self, section: &'a Section) -> Result<(), FioError> {
        let Reading { paced, after, .. } = &section.reading;
        section.check()?;
        if after.stonewall && self.jobs.len() > self.group {
            self.group_before = self.group;
            self.group = self.jobs.len();
        }
        let begins = self.begins_after(section)?;
        self.ends_all = self.ends_all.or(after.ends_all);
        self.depth += depth(paced) * paced.jobs;
        if self.depth > DEPTH_MAX {
            return Err(section.wrong("iodepth", "more than 65536 requests at a time"));
        }
        if self.jobs.len() as u64 + paced.jobs > JOBS_MAX as u64 {
            return Err(section.wrong("numjobs", "the file has more than 128 jobs in all"));
        }
        for copy in 0..paced.jobs {
            let (file, place) = self.place(section, copy)?;
            let job = job(section, self.name(section, copy), place, begins.clone())?;
            self.jobs.push(job);
            self.file_of.push(file);
            self.sections.push(&section.name);
            self.ramps.push((paced.ramp, section.line));
        }
        Ok(())
    }

    /// The jobs that a section waits for.
    fn begins_after(&self, section: &Section) -> Result<Vec<usize>, FioError> {
        let mut all: Vec<usize> = (self.group_before..self.group).collect();
        if let Some((name, line)) = &section.reading.after.job {
            let named = |at: &usize| self.sections[*at] == name;
            let waited: Vec<usize> = (0..self.jobs.len()).filter(named).collect();
            if waited.is_empty() {
                return Err(FioError {
                    line: *line,
                    key: "wait_for".into(),
                    wrong: "it is the name of a job above".into(),
                });
            }
            all.extend(waited.into_iter().filter(|at| *at >= self.group));
        }
        Ok(all)
    }

    /// A unique name, of characters that tables and columns can have.
    fn name(&mut self, section: &Section, copy: u64) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let name = section.name.chars().take(20);
        let name: String = name.map(|c| if fits(c) { c } else { '_' }).collect();
        let name = match section.reading.paced.jobs {
            1 => name,
            _ => format!("{name}.{copy}"),
        };
        let mut one = name.clone();
        let mut number = 2;
        while !self.names.insert(one.clone()) {
            one = format!("{name}-{number}");
            number += 1;
        }
        one
    }

    /// Where a copy of a job goes. The beginning of its file is not known yet.
    fn place(
        &mut self,
        section: &'a Section,
        copy: u64,
    ) -> Result<(Option<usize>, Place), FioError> {
        let space = &section.reading.space;
        let device = section.device();
        let offset = added(space.offset, space.increment, copy).ok_or_else(|| {
            section.wrong(
                "offset_increment",
                "offset and offset_increment are both bytes or both percent",
            )
        })?;
        let size = match (space.size, space.file_size, offset) {
            (Some(size), None, _) => size,
            (None, None, _) if device.is_some() => Amount::Percent(100),
            (size, Some(file), Amount::Blocks(offset)) => {
                let rest = file.saturating_sub(offset);
                Amount::Blocks(match size {
                    None => rest,
                    Some(Amount::Blocks(size)) => size.min(rest),
                    Some(Amount::Percent(percent)) => {
                        ((u128::from(file) * u128::from(percent) / 100) as u64).min(rest)
                    }
                })
            }
            _ => return Err(section.wrong("size", NO_SIZE)),
        };
        let io = space.io;
        let place = Place {
            base: 0,
            offset,
            size,
            io,
            count: space.count.unwrap_or(u64::MAX),
            loops: space.loops,
        };
        let file = self.file(section, device, place)?;
        Ok((file, place))
    }

    /// The file of a place; it grows to the length the place needs.
    fn file(
        &mut self,
        section: &'a Section,
        device: Option<&'a str>,
        place: Place,
    ) -> Result<Option<usize>, FioError> {
        if let Some(name) = device {
            if self.device.is_some_and(|other| other != name) || !self.files.is_empty() {
                return Err(section.wrong("filename", ONE_DRIVE));
            }
            self.device = Some(name);
            return Ok(None);
        }
        if self.device.is_some() {
            return Err(section.wrong("filename", ONE_DRIVE));
        }
        let (Amount::Blocks(offset), Amount::Blocks(size)) = (place.offset, place.size) else {
            return Err(section.wrong(
                "size",
                "percent are of a device (filename=/dev/...) or of a filesize",
            ));
        };
        if matches!(place.io, Some(Amount::Percent(_))) {
            return Err(section.wrong("io_size", "percent are of a device (filename=/dev/...)"));
        }
        let name = section.reading.space.file.as_deref();
        let known = name.and_then(|_| self.files.iter().position(|file| file.name == name));
        let at = known.unwrap_or_else(|| {
            self.files.push(OfFile { name, blocks: 0 });
            self.files.len() - 1
        });
        let file = &mut self.files[at];
        file.blocks = file.blocks.max(offset.saturating_add(size));
        Ok(Some(at))
    }

    /// Puts the files one after the other and builds the load.
    fn finish(mut self) -> Result<Load, FioError> {
        let mut next = 0u64;
        let bases: Vec<u64> = self
            .files
            .iter()
            .map(|file| {
                let base = next;
                next = next.saturating_add(file.blocks);
                base
            })
            .collect();
        for (job, file) in self.jobs.iter_mut().zip(&self.file_of) {
            job.place.base = file.map_or(0, |file| bases[file]);
        }
        if let Some(line) = self.ends_all.filter(|_| self.jobs.len() > 1) {
            return Err(FioError {
                line,
                key: "exitall".into(),
                wrong: "that the end of one job is the end of all is not modelled: say a runtime"
                    .into(),
            });
        }
        let ramp = self.ramp()?;
        let jobs =
            Jobs::new(self.jobs, ramp).ok_or_else(|| of_file(1, "it has from 1 to 128 jobs"))?;
        Ok(Load::Jobs(Arc::new(jobs)))
    }

    /// How long all jobs run before they are measured.
    fn ramp(&self) -> Result<u64, FioError> {
        let (first, _) = self.ramps.first().copied().unwrap_or_default();
        let waits = self.jobs.iter().any(|job| !job.when.after.is_empty());
        let other = |(ramp, _): &&(u64, usize)| *ramp != first || (*ramp > 0 && waits);
        match self.ramps.iter().find(other) {
            None => Ok(first),
            Some((_, line)) => Err(FioError {
                line: *line,
                key: "ramp_time".into(),
                wrong: "all jobs have the same, and none of them waits for another".into(),
            }),
        }
    }
}

const ONE_DRIVE: &str = "there is one drive: all jobs have one /dev/..., or none has";

/// The offset of a copy, moved by the increment; none if one is in bytes and the other in percent.
fn added(offset: Amount, increment: Amount, copy: u64) -> Option<Amount> {
    match (offset, increment) {
        (offset, Amount::NONE) => Some(offset),
        (Amount::Blocks(offset), Amount::Blocks(more)) => Some(Amount::Blocks(
            offset.saturating_add(more.saturating_mul(copy)),
        )),
        (Amount::Blocks(0), Amount::Percent(more)) => {
            Some(Amount::Percent(more.saturating_mul(copy as u32).min(100)))
        }
        (Amount::Percent(offset), Amount::Percent(more)) => {
            let all = offset.saturating_add(more.saturating_mul(copy as u32));
            Some(Amount::Percent(all.min(100)))
        }
        _ => None,
    }
}

/// Builds a copy of a job.
fn job(section: &Section, name: String, place: Place, after: Vec<usize>) -> Result<Job, FioError> {
    let Reading { what, paced, .. } = &section.reading;
    let (reads, others) = what.used();
    let longest = u64::from(reads.most().max(others.most()));
    if matches!(place.size, Amount::Blocks(blocks) if blocks < longest) {
        return Err(section.wrong("size", NO_SIZE));
    }
    let way = match what.asks {
        Asks::Reads => Way::Read,
        Asks::Writes => Way::Write,
        Asks::Trims => Way::Trim,
        Asks::Mixed => Way::Mixed { reads: what.mix },
        Asks::TrimWrites => Way::TrimWrite,
    };
    let pattern = section.check()?;
    Ok(Job {
        name,
        way,
        reads,
        others,
        pattern,
        flush_every: what.flush_every,
        durable: what.durable,
        zeros: u32::from(what.zeros) * 100,
        duplicates: what.duplicates,
        place,
        when: When {
            depth: depth(paced) as u32,
            gap_ns: paced.gap(others.mean(), 1),
            think: paced.think.map(|nanos| (paced.think_blocks, nanos)),
            runtime_ns: paced.runtime,
            endless: paced.time_based && paced.runtime.is_some(),
            after,
        },
    })
}
