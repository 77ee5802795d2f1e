//! Volumes by their files: made, opened, looked at.

use crate::claim;
use crate::outcome::{tell, usage};
use crate::policy;
use crate::raw::RawFile;
use crate::size::Size;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::engine::Victim;
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{Params, plan, plan_tables};
use vellum_core::format::superblock::Superblock;
use vellum_core::map::MAX_PBA;
use vellum_core::recovery::{RecoveryError, Source, Unreadable, find_superblock};
use vellum_core::tables::Persistence;
use vellum_device::block::BlockDevice;
use vellum_device::info::{VolumeInfo, hex_uuid};
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, Extent, OpenError, Volume, crc32c};
use vellum_frontend::unaligned::ByteDevice;
use vellum_medium::{FileMedium, Medium, Prealloc};
use vellum_record::{Recorder, Sizes, State};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that are written at once when a file is filled.
const FILL_BLOCKS: usize = 1024;

/// What a new volume shall be.
pub struct NewVolume {
    /// Bytes that clients see.
    pub size: Option<u64>,
    /// Bytes of the medium.
    pub medium_size: Option<u64>,
    /// In thousandths.
    pub over_provisioning: u32,
    /// Bytes in a segment.
    pub segment_size: Option<u64>,
    /// Give the file all of its space now.
    pub preallocate: bool,
    /// Write over what is there.
    pub force: bool,
    /// How blocks, and what is known of them, lie on the medium.
    pub layout: Layout,
}

/// Makes a volume; while its space is taken, `interrupted` ends that, and what was made goes.
pub fn create(path: &Path, new: &NewVolume, interrupted: &dyn Fn() -> bool) -> Result<VolumeInfo> {
    let blocks = |bytes: u64, flag: &str| match bytes {
        bytes if bytes > 0 && bytes % BLOCK == 0 => Ok(bytes / BLOCK),
        _ => Err(usage(format!(
            "--{flag} {bytes}: it must be a multiple of {BLOCK} bytes, and not 0"
        ))),
    };
    let logical_blocks = new.size.map(|n| blocks(n, "size")).transpose()?;
    let medium_blocks = new
        .medium_size
        .map(|n| blocks(n, "medium-size"))
        .transpose()?;
    let segment_blocks = match new
        .segment_size
        .map(|n| blocks(n, "segment-size"))
        .transpose()?
    {
        None => None,
        Some(n) => Some(u32::try_from(n).map_err(|_| usage("--segment-size is too large"))?),
    };
    let device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    let bytes = match (medium_blocks, logical_blocks) {
        (Some(blocks), _) => blocks * BLOCK,
        // All of the device.
        (None, _) if device => 0,
        (None, Some(logical)) => {
            medium_for(new.layout, logical, new.over_provisioning, segment_blocks)? * BLOCK
        }
        (None, None) => {
            return Err(usage("say how large the volume shall be: --size 10G"));
        }
    };
    let prealloc = if new.preallocate {
        Prealloc::Full
    } else {
        Prealloc::Sparse
    };
    if new.force && !device && path.is_file() {
        // Held while it goes, so that no server loses its volume.
        match FileMedium::open(path, vellum_medium::OpenOptions::default()) {
            Err(
                error @ (vellum_medium::OpenError::Locked(_)
                | vellum_medium::OpenError::Permission { .. }),
            ) => {
                return Err(error.into());
            }
            _held => std::fs::remove_file(path)
                .with_context(|| format!("cannot replace {}", path.display()))?,
        }
    }
    let medium = FileMedium::create(path, bytes, prealloc)?;
    if device {
        // Locked by now, and nothing is written to it.
        claim::may_be_lost(path)?;
    }
    let options = CreateOptions {
        logical_blocks,
        over_provisioning: new.over_provisioning,
        segment_blocks,
        force: new.force,
        layout: new.layout,
        ..CreateOptions::default()
    };
    let written = if new.preallocate && !device {
        write_all(&medium, interrupted)
    } else {
        Ok(())
    };
    let made = written.and_then(|()| Ok(Volume::create(&medium, &options)?));
    if made.is_err() && !device {
        // Ours: `FileMedium::create` takes no file that was there.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Writes zeros everywhere. Space that a file system has only reserved is marked as written when it first is,
/// in a journal of its own: that would cost each sync of a log a second one.
fn write_all(medium: &FileMedium, interrupted: &dyn Fn() -> bool) -> Result<()> {
    let zeros = vec![0; FILL_BLOCKS * BLOCK_BYTES];
    let mut at = 0;
    while at < medium.blocks() {
        if interrupted() {
            bail!("interrupted");
        }
        let blocks = (medium.blocks() - at).min(FILL_BLOCKS as u64);
        medium.write(Pba(at), &zeros[..blocks as usize * BLOCK_BYTES])?;
        at += blocks;
    }
    Ok(medium.sync()?)
}

/// The least medium that holds a volume of this size with its over-provisioning.
fn medium_for(
    layout: Layout,
    logical: u64,
    over_provisioning: u32,
    segment_blocks: Option<u32>,
) -> Result<u64> {
    let fits = |medium_blocks| {
        let params = Params {
            medium_blocks,
            logical_blocks: None,
            over_provisioning,
            segment_blocks,
            uuid: [0; 16],
            secret: [0; 32],
            sums: SumKind::default(),
        };
        let planned = match layout {
            Layout::Log => plan(&params),
            tables => plan_tables(&params, tables),
        };
        planned.map(|sb| sb.logical_blocks() >= logical)
    };
    let (mut low, mut high) = (logical, MAX_PBA);
    // What is wrong with the other options is said now, and that it is too large.
    if logical > high || !fits(high)? {
        return Err(usage(format!(
            "--size {}: it is too large: with what it keeps from clients it takes more than 8 TiB, the most a medium may have",
            Size(logical.saturating_mul(BLOCK))
        )));
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            Ok(true) => high = middle,
            _ => low = middle,
        }
    }
    Ok(high)
}

/// A volume for the demonstration, its file written in full.
pub fn create_for_demo(path: &Path, size: u64) -> Result<()> {
    let new = NewVolume {
        size: Some(size),
        medium_size: None,
        over_provisioning: CreateOptions::default().over_provisioning,
        segment_size: None,
        preallocate: true,
        force: false,
        layout: Layout::Log,
    };
    create(path, &new, &|| false).map(drop)
}

/// How to open what is served.
pub struct OpenOptions {
    /// Refuse writes.
    pub read_only: bool,
    /// Memory for blocks in flight.
    pub buffer_bytes: u64,
    /// How the collector chooses.
    pub victim: Victim,
    /// What is done with what is written.
    pub policy: Policy,
    /// Journals set by hand.
    pub journals: Vec<Extent>,
    /// When a write is answered.
    pub persistence: Persistence,
    /// Record what is asked.
    pub record: Option<Recording>,
}

/// What is asked of a volume, as a trace.
#[derive(Clone, Debug)]
pub struct Recording {
    /// A new file.
    pub trace: PathBuf,
    /// The encoding whose sizes it tells.
    pub sizes: Sizes,
}

/// Something that is served.
pub struct Served {
    /// The export's name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    kind: Kind,
    recorder: Option<Arc<Recorder>>,
    device: ByteDevice,
    victim: &'static str,
    read_only: bool,
}

enum Kind {
    Volume(Arc<Volume>),
    Raw(Arc<RawFile>),
}

impl Served {
    /// Opens it: for a volume, whose medium is given, that is its recovery. Otherwise it is a plain file.
    pub fn open(
        name: String,
        path: &Path,
        medium: Option<FileMedium>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let kind = if let Some(medium) = medium {
            let frames = |share: u64| {
                u32::try_from(options.buffer_bytes / BLOCK / share).unwrap_or(u32::MAX)
            };
            let trouble = path.display().to_string();
            let how = vellum_device::OpenOptions {
                read_only: options.read_only,
                write_frames: frames(2),
                read_frames: frames(4),
                collector_frames: frames(4),
                victim: options.victim,
                policy: options.policy,
                journals: options.journals.clone(),
                persistence: options.persistence,
                on_event: Some(Arc::new(move |event| {
                    tell(format_args!("{trouble}: {}", event.message))
                })),
                ..vellum_device::OpenOptions::default()
            };
            let volume = Volume::open(Arc::new(medium), &how).map_err(|error| match error {
                OpenError::Journal(error) => usage(format!("--journal: {error}")),
                error => error.into(),
            })?;
            Kind::Volume(Arc::new(volume))
        } else {
            Kind::Raw(RawFile::open(path)?)
        };
        let device: Arc<dyn BlockDevice> = match &kind {
            Kind::Volume(volume) => volume.clone(),
            Kind::Raw(raw) => raw.clone(),
        };
        let recorder = match &options.record {
            None => None,
            Some(Recording { trace, sizes }) => {
                let trouble = path.display().to_string();
                let on_event =
                    Arc::new(move |event: &str| tell(format_args!("{trouble}: {event}")));
                let recorder = Recorder::start(Arc::clone(&device), trace, *sizes, on_event);
                if recorder.is_err() {
                    // The volume was opened: it ends in order, whatever else is wrong.
                    end(&kind, path)?;
                }
                Some(recorder?)
            }
        };
        let device = match &recorder {
            Some(recorder) => Arc::clone(recorder).into(),
            None => device.into(),
        };
        let victim = match options.victim {
            Victim::Greedy => "greedy",
            Victim::CostBenefit => "cost-benefit",
        };
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            name,
            path,
            kind,
            recorder,
            device,
            victim,
            read_only: options.read_only,
        })
    }

    /// For front ends: one for all of them.
    pub fn device(&self) -> ByteDevice {
        self.device.clone()
    }

    /// A volume's UUID.
    pub fn uuid(&self) -> Option<String> {
        match &self.kind {
            Kind::Volume(volume) => Some(volume.info().uuid),
            Kind::Raw(_) => None,
        }
    }

    /// All counters.
    pub fn stats(&self) -> Value {
        let stats = match &self.kind {
            Kind::Volume(volume) => volume.stats(),
            Kind::Raw(raw) => raw.stats(),
        };
        serde_json::to_value(stats).unwrap_or(Value::Null)
    }

    /// How the recording is doing, if there is one.
    pub fn recording(&self) -> Option<State> {
        self.recorder.as_ref().map(|recorder| recorder.state())
    }

    /// What went wrong lately.
    pub fn events(&self) -> Value {
        match &self.kind {
            Kind::Volume(volume) => serde_json::to_value(volume.events()).unwrap_or(Value::Null),
            Kind::Raw(_) => json!([]),
        }
    }

    /// The policies in force.
    pub fn policy(&self) -> Value {
        let mut shown = match &self.kind {
            Kind::Volume(volume) => policy::shown(&volume.policy()),
            Kind::Raw(_) => json!({}),
        };
        shown["victim"] = self.victim.into();
        shown["read_only"] = self.read_only.into();
        shown
    }

    /// The volume, if it is one.
    pub fn volume(&self) -> Option<&Volume> {
        match &self.kind {
            Kind::Volume(volume) => Some(volume),
            Kind::Raw(_) => None,
        }
    }

    /// Makes everything durable and ends it. How a recording ends changes nothing in that: it is told.
    pub fn stop(&self) -> Result<()> {
        let ended = end(&self.kind, &self.path);
        if let Some(recorder) = &self.recorder {
            let State {
                path,
                requests,
                lost,
                without_contents,
                bytes,
                ended,
                ..
            } = recorder.stop();
            let path = path.display();
            let missing = match (lost, without_contents) {
                (0, 0) => String::new(),
                (lost, without) => format!(
                    "; missing: {lost} requests, and what {without} writes wrote: they came too fast"
                ),
            };
            let why = ended.map_or(String::new(), |why| format!("; ended early: {why}"));
            tell(format_args!(
                "{path}: {requests} requests recorded in {bytes} bytes{missing}{why}"
            ));
        }
        ended
    }
}

fn end(kind: &Kind, path: &Path) -> Result<()> {
    let no_room = || {
        tell(format_args!(
            "{0}: no room on its file system or device for what is to be written last: waiting for it. Free some (`df {0}`), and \
             the server ends by itself. A second signal ends it at once, without a checkpoint: nothing durable is lost, the \
             next start recovers it",
            path.display()
        ));
    };
    match kind {
        Kind::Volume(volume) => Ok(volume.stop_telling(no_room)?),
        Kind::Raw(raw) => raw.stop(),
    }
}

/// A volume's file as it is, without a lock: for what may be looked at beside a server.
pub struct Peek {
    file: File,
    blocks: u64,
}

impl Peek {
    /// Opens it.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let kind = std::fs::metadata(path)
            .with_context(|| format!("cannot find {shown}"))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            bail!("{shown} is neither a regular file nor a block device");
        }
        let mut file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let bytes = file.seek(SeekFrom::End(0))?;
        let blocks = bytes / BLOCK;
        if blocks == 0 {
            bail!("{shown} is no vellum volume: it has {bytes} bytes");
        }
        Ok(Self { file, blocks })
    }

    /// The volume's superblock, and whether a mirror of it is lost.
    pub fn superblock(&mut self) -> Result<(Superblock, bool), RecoveryError> {
        let blocks = self.blocks;
        find_superblock(self, blocks, crc32c)
    }
}

impl Source for Peek {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        self.file
            .read_exact_at(bytes, at.byte_offset())
            .map_err(|_| Unreadable { at, blocks })
    }

    /// Beside a server the cache is its own: what is looked at here is told, and nothing is built on it.
    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// A volume's superblock, read beside a server if there is one.
pub fn superblock_of(path: &Path) -> Result<(Superblock, bool)> {
    Peek::open(path)?
        .superblock()
        .with_context(|| path.display().to_string())
}

/// A volume's UUID.
pub fn uuid_of(path: &Path) -> Result<String> {
    Ok(hex_uuid(&superblock_of(path)?.0.uuid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn an_interrupted_create_leaves_no_file() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("v");
        let new = NewVolume {
            size: Some(16 << 20),
            medium_size: None,
            over_provisioning: CreateOptions::default().over_provisioning,
            segment_size: None,
            preallocate: true,
            force: false,
            layout: Layout::Log,
        };
        let asked = Cell::new(0);
        let second = || {
            asked.set(asked.get() + 1);
            asked.get() == 2
        };
        let refused = create(&path, &new, &second).unwrap_err();
        assert_eq!(
            (refused.to_string().as_str(), asked.get()),
            ("interrupted", 2)
        );
        assert!(!path.exists());
        assert!(create(&path, &new, &|| false).is_ok());
    }
}
