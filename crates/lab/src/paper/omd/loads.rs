//! The loads: six synthetic ones, with the paper's shares of duplicates and as much space as its workloads write to
//! (§4.4); or traces of real activity.

use crate::content::Content;
use crate::paper::failure::PaperError;
use crate::paper::size::Size;
use crate::replay::{Reading, TraceFile};
use crate::rng::{Rng, mix};
use crate::shares::Shares;
use crate::trace::Op;
use crate::workload::Request;
use std::path::{Path, PathBuf};

/// The most blocks that a captured load may write: it is kept in memory.
const BLOCKS_MAX: u64 = 1 << 24;
/// The most traces of a directory.
const TRACES_MAX: usize = 64;

/// A load; see the module.
pub struct Load {
    pub name: String,
    /// The device it runs on.
    pub device: &'static str,
    pub requests: Vec<Request>,
    /// The same requests with every write durable when answered: what a plain device does under strong persistence.
    pub durable: Vec<Request>,
    pub shares: Shares,
    /// Blocks that a volume needs for it.
    pub blocks: u64,
}

impl Load {
    fn new(name: String, device: &'static str, requests: Vec<Request>, blocks: u64) -> Self {
        let durable = requests.iter().cloned().map(|mut request| {
            if let Op::Write { fua } = &mut request.op {
                *fua = true;
            }
            request
        });
        Self {
            name,
            device,
            shares: Shares::of(requests.iter().cloned()),
            durable: durable.collect(),
            requests,
            blocks,
        }
    }

    /// Percent of the written blocks that would remain if each content were stored once.
    pub fn ideal(&self) -> f64 {
        100.0 - self.shares.percent()
    }
}

/// A synthetic load.
struct Synthetic {
    name: &'static str,
    /// The device the paper runs it on.
    device: &'static str,
    /// Percent of the written blocks whose content was written before.
    duplicates: u64,
    requests: u64,
    /// Blocks of a request.
    blocks: u64,
    /// Blocks of the volume that it writes to.
    span: u64,
    /// Percent of the requests that continue where the last one ended.
    sequential: u64,
    flush_every: u64,
    /// Time between two requests.
    gap_us: u64,
}

const TABLET: &str = "omd-tablet";
const SERVER: &str = "omd-server";
/// The device for captured loads: neither of the paper's.
const CAPTURED: &str = "moderate-ssd";

const LOADS: [Synthetic; 6] = [
    Synthetic {
        name: "index update",
        device: TABLET,
        duplicates: 23,
        requests: 4000,
        blocks: 8,
        span: 43_000,
        sequential: 90,
        flush_every: 400,
        gap_us: 300,
    },
    Synthetic {
        name: "installation",
        device: TABLET,
        duplicates: 30,
        requests: 6000,
        blocks: 4,
        span: 35_000,
        sequential: 70,
        flush_every: 60,
        gap_us: 200,
    },
    Synthetic {
        name: "web browsing",
        device: TABLET,
        duplicates: 73,
        requests: 3000,
        blocks: 1,
        span: 2800,
        sequential: 40,
        flush_every: 40,
        gap_us: 3000,
    },
    Synthetic {
        name: "camera frames",
        device: TABLET,
        duplicates: 27,
        requests: 4000,
        blocks: 2,
        span: 3300,
        sequential: 95,
        flush_every: 200,
        gap_us: 2000,
    },
    Synthetic {
        name: "sort of files",
        device: SERVER,
        duplicates: 55,
        requests: 3000,
        blocks: 16,
        span: 20_000,
        sequential: 85,
        flush_every: 500,
        gap_us: 250,
    },
    Synthetic {
        name: "database",
        device: SERVER,
        duplicates: 24,
        requests: 8000,
        blocks: 2,
        span: 95_000,
        sequential: 30,
        flush_every: 200,
        gap_us: 150,
    },
];

/// What the paper does not state about its loads, and an experiment varies.
#[derive(Clone, Copy)]
pub struct Made {
    /// By how much longer the application takes between two requests.
    pub slower: f64,
    /// How many times as many requests there are between two flushes.
    pub fewer_flushes: f64,
    /// Of how many of the newest contents one comes again.
    pub newest: f64,
}

impl Made {
    /// What the loads have but for an experiment.
    pub const USUAL: Self = Self {
        slower: 1.0,
        fewer_flushes: 1.0,
        newest: ALL,
    };
}

/// More contents than a load has.
pub const ALL: f64 = 100_000.0;

/// The six loads.
pub fn made(size: Size, how: Made) -> Vec<Load> {
    let part = if size == Size::Tiny { 8 } else { 1 };
    LOADS.iter().map(|load| make(load, how, part)).collect()
}

fn make(made: &Synthetic, how: Made, part: u64) -> Load {
    let gap = (made.gap_us as f64 * 1000.0 * how.slower) as u64;
    let flush_every = (made.flush_every as f64 * how.fewer_flushes) as u64;
    let newest = how.newest as u64;
    let mut rng = Rng::new(7);
    let percent = |rng: &mut Rng, percent: u64| rng.below(100) < percent;
    let (mut contents, mut lba) = (0_u64, 0);
    let mut requests = Vec::new();
    for number in 0..made.requests / part {
        let at = number * gap;
        if !percent(&mut rng, made.sequential) {
            lba = rng.below(made.span);
        }
        lba %= made.span;
        let each = (0..made.blocks).map(|_| {
            let again = contents > 0 && percent(&mut rng, made.duplicates);
            let content = match again {
                true => contents.saturating_sub(newest) + rng.below(contents.min(newest)),
                false => {
                    contents += 1;
                    contents - 1
                }
            };
            Content::of(mix(content + 1))
        });
        requests.push(Request {
            at,
            op: Op::Write { fua: false },
            lba,
            blocks: made.blocks as u32,
            contents: each.collect(),
            ..Request::flush(0)
        });
        lba += made.blocks;
        if (number + 1).is_multiple_of(flush_every) {
            requests.push(Request::flush(at));
        }
    }
    Load::new(made.name.into(), made.device, requests, 100_000)
}

/// The traces of a directory, in the order of their names.
///
/// # Errors
/// When there is none, or one cannot be read.
pub fn captured(directory: &Path) -> Result<Vec<Load>, PaperError> {
    let path = directory.display().to_string();
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(directory)?.take(TRACES_MAX + 1);
        let paths: std::io::Result<Vec<_>> = entries.map(|e| e.map(|e| e.path())).collect();
        Ok(paths?.into_iter().filter(|path| path.is_file()).collect())
    };
    let mut paths = match list() {
        Ok(paths) => paths,
        Err(source) => return Err(PaperError::Directory { path, source }),
    };
    if paths.is_empty() || paths.len() > TRACES_MAX {
        let found = paths.len();
        return Err(PaperError::Traces { path, found });
    }
    paths.sort();
    paths.iter().map(|path| one(path)).collect()
}

fn one(path: &Path) -> Result<Load, PaperError> {
    let trace = TraceFile::read(path, &Reading::default())?;
    let blocks = trace.summary().blocks_written;
    if blocks > BLOCKS_MAX {
        let path = path.display().to_string();
        return Err(PaperError::Long { path, blocks });
    }
    let mut replay = trace.replay(1, 1)?;
    let requests: Vec<Request> = replay.by_ref().collect();
    if let Some(error) = replay.error() {
        return Err(error.into());
    }
    let name = path.file_stem().unwrap_or(path.as_os_str());
    let name = name.to_string_lossy().into_owned();
    Ok(Load::new(name, CAPTURED, requests, trace.blocks()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_has_its_share_of_duplicates_and_its_space() {
        for (load, made) in made(Size::Short, Made::USUAL).iter().zip(&LOADS) {
            let percent = load.shares.percent();
            assert!(
                (percent - made.duplicates as f64).abs() < 1.5,
                "{}: {percent}",
                load.name
            );
            assert!(load.shares.touched <= made.span + made.blocks);
            assert_eq!(load.shares.flushes, made.requests / made.flush_every);
        }
    }
}
