//! A volume, or a plain file, while it is served.

use crate::outcome::{counted, tell, usage};
use crate::properties::{Chosen, Run, Settings};
use crate::raw::RawFile;
use crate::server_log::NO_ROOM;
use crate::size::Size;
use crate::{ago, drives, smaller, snapshots};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::recovery::find_superblock;
use vellum_device::block::BlockDevice;
use vellum_device::info::VolumeInfo;
use vellum_device::{Growable, MediumSource, NewSize, OpenError, Volume, crc32c};
use vellum_frontend::fuse::Resized;
use vellum_frontend::unaligned::ByteDevice;
use vellum_medium::Medium;
use vellum_record::{Recorder, Sizes, State};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How to open what is to be served.
pub struct OpenOptions {
    /// Refuses writes.
    pub read_only: bool,
    /// Serves this snapshot or clone of the volume instead of the volume.
    pub snapshot: Option<String>,
    /// It is a clone, which is writable.
    pub is_clone: bool,
    /// What differs from the volume's properties in this run.
    pub run: Run,
    /// Records all requests.
    pub record: Option<Recording>,
}

/// A recording of a volume's requests, as a trace.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The new file.
    pub trace: PathBuf,
    /// The encoding whose sizes it records.
    pub sizes: Sizes,
}

/// A volume or file that is served.
pub struct Served {
    /// The export's name.
    pub name: String,
    /// The path of its file.
    pub path: PathBuf,
    kind: Kind,
    recorder: Option<Arc<Recorder>>,
    device: ByteDevice,
    /// The drive below it, and what had been written to that when this was `opened`.
    drive: Value,
    /// The name of the snapshot or clone that it is, and not the whole volume.
    pub view: Option<String>,
    /// A volume that grows is opened again, and its own clock begins anew.
    opened: Instant,
    /// Where clients reach it.
    places: Mutex<Vec<String>>,
    /// The kernels that cache its size.
    resized: Mutex<Vec<Resized>>,
    /// Keeps a snapshot or a clone for as long as it is served.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

enum Kind {
    Volume(Arc<Growable>, Box<Chosen>),
    Raw(Arc<RawFile>),
}

/// A snapshot, by its name or its age, or a clone; and its name.
fn shown(volume: &Volume, asked: &str, read_only: bool) -> Result<(Arc<dyn BlockDevice>, String)> {
    let name = match ago::is_age(asked) {
        true => ago::meant(asked, &volume.listed_snapshots()?)?,
        false => asked.to_owned(),
    };
    Ok((snapshots::device(volume, &name, !read_only)?.0, name))
}

impl Served {
    /// Opens it. For a volume, whose medium is given, this is its recovery. Otherwise it is a plain file.
    pub fn open(
        name: String,
        path: &Path,
        medium: Option<Box<dyn Medium>>,
        options: &OpenOptions,
    ) -> Result<Self> {
        // Read before we write anything.
        let (drive, opened) = (drives::told_of(path), Instant::now());
        let kind = match medium {
            Some(medium) => open_volume(path, medium, options)?,
            None => Kind::Raw(RawFile::open(path)?),
        };
        let mut view = None;
        let device: Arc<dyn BlockDevice> = match (&kind, &options.snapshot) {
            (Kind::Volume(volume, _), None) => volume.clone(),
            (Kind::Volume(volume, _), Some(name)) => {
                match shown(&volume.volume(), name, options.read_only) {
                    Ok((device, name)) => {
                        view = Some(name);
                        device
                    }
                    Err(error) => {
                        end(&kind, path)?;
                        return Err(error.context(format!("{}@{name}", path.display())));
                    }
                }
            }
            (Kind::Raw(raw), _) => raw.clone(),
        };
        let held = options.snapshot.as_ref().and_then(|_| device.hold());
        let recorder = match &options.record {
            None => None,
            Some(Recording { trace, sizes }) => {
                let trouble = path.display().to_string();
                let on_event =
                    Arc::new(move |event: &str| tell(format_args!("{trouble}: {event}")));
                let recorder = Recorder::start(Arc::clone(&device), trace, *sizes, on_event);
                if recorder.is_err() {
                    // The volume is open, so it must be closed in order, whatever else is wrong.
                    end(&kind, path)?;
                }
                Some(recorder?)
            }
        };
        let device = match &recorder {
            Some(recorder) => Arc::clone(recorder).into(),
            None => device.into(),
        };
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            name,
            path,
            kind,
            recorder,
            device,
            drive,
            view,
            opened,
            places: Mutex::default(),
            resized: Mutex::default(),
            _held: held,
        })
    }

    /// Notes where clients reach it.
    pub fn is_at(&self, place: String) {
        self.places.lock().push(place);
    }

    /// Notes that a kernel caches its size.
    pub fn is_file(&self, resized: Resized) {
        self.resized.lock().push(resized);
    }

    /// Where clients reach it.
    pub fn places(&self) -> Vec<String> {
        self.places.lock().clone()
    }

    /// The device that all front ends share.
    pub fn device(&self) -> ByteDevice {
        self.device.clone()
    }

    /// A volume's UUID.
    pub fn uuid(&self) -> Option<String> {
        match &self.kind {
            Kind::Volume(volume, _) => Some(volume.volume().info().uuid),
            Kind::Raw(_) => None,
        }
    }

    /// All counters.
    pub fn stats(&self) -> Value {
        let stats = match &self.kind {
            Kind::Volume(volume, _) => volume.volume().stats(),
            Kind::Raw(raw) => raw.stats(),
        };
        serde_json::to_value(stats).unwrap_or(Value::Null)
    }

    /// The drive below it, for monitoring.
    pub fn drive(&self) -> Value {
        let mut drive = self.drive.clone();
        if let Some(told) = drive.as_object_mut() {
            let since = u64::try_from(self.opened.elapsed().as_millis());
            told.insert("since_ms".to_owned(), json!(since.unwrap_or(u64::MAX)));
        }
        drive
    }

    /// Damage to its file that reads and writes do not report.
    pub fn file(&self) -> Value {
        match &self.kind {
            Kind::Volume(volume, _) => {
                let lost = volume.lost();
                json!({"deleted": lost.is_deleted, "missing_bytes": lost.missing_bytes})
            }
            Kind::Raw(_) => Value::Null,
        }
    }

    /// The state of the recording, if there is one.
    pub fn recording(&self) -> Option<State> {
        self.recorder.as_ref().map(|recorder| recorder.state())
    }

    /// Recent troubles.
    pub fn events(&self) -> Value {
        match &self.kind {
            Kind::Volume(volume, _) => {
                serde_json::to_value(volume.volume().events()).unwrap_or(Value::Null)
            }
            Kind::Raw(_) => json!([]),
        }
    }

    /// The volume and its chosen properties, if it is a volume.
    pub fn chosen(&self) -> Option<(&Growable, &Chosen)> {
        match &self.kind {
            Kind::Volume(volume, chosen) => Some((volume, chosen)),
            Kind::Raw(_) => None,
        }
    }

    /// The volume as it is now, if it is one.
    pub fn volume(&self) -> Option<Arc<Volume>> {
        self.chosen().map(|(volume, _)| volume.volume())
    }

    /// The volume, for requests about its snapshots.
    pub fn with_snapshots(&self) -> Result<Arc<Volume>, String> {
        self.volume()
            .ok_or_else(|| "a plain file has no snapshots".to_owned())
    }

    /// The volume, for finding its snapshots.
    pub fn growable(&self) -> Option<Arc<Growable>> {
        match &self.kind {
            Kind::Volume(volume, _) => Some(Arc::clone(volume)),
            Kind::Raw(_) => None,
        }
    }

    /// Makes a volume larger, and tells the kernels that cache its size.
    pub fn grow(&self, size: NewSize) -> Result<VolumeInfo> {
        let Kind::Volume(volume, chosen) = &self.kind else {
            bail!("a plain file does not grow while it is served");
        };
        if self.recorder.is_some() {
            bail!("it is being recorded, and a trace is of a disk of one size: end that first");
        }
        chosen.reopened(volume, |settings| {
            volume.grow(size, &how_to_open(&self.path, settings, false))
        })?;
        self.tell_size();
        Ok(volume.volume().info())
    }

    /// Makes a volume smaller, and tells the kernels that cache its size.
    pub fn shrink(&self, blocks: u64) -> Result<VolumeInfo> {
        let Kind::Volume(volume, chosen) = &self.kind else {
            bail!("a plain file does not shrink while it is served");
        };
        if self.recorder.is_some() {
            bail!("it is being recorded, and a trace is of a disk of one size: end that first");
        }
        let ublk = |place: &&String| place.starts_with("/dev/ublk");
        if let Some(device) = self.places.lock().iter().find(ublk) {
            bail!("{device} keeps its size as long as it exists: detach it first");
        }
        let size = Size(blocks.saturating_mul(BLOCK));
        smaller::ends_before_size(&volume.volume(), size)?;
        chosen.reopened(volume, |settings| {
            volume.shrink(blocks, &how_to_open(&self.path, settings, false))
        })?;
        self.tell_size();
        Ok(volume.volume().info())
    }

    /// Tells the kernels that cache its size.
    fn tell_size(&self) {
        for resized in &*self.resized.lock() {
            if let Err(error) = resized.tell() {
                tell(format_args!(
                    "{}: the kernel does not take its new size: {error}",
                    self.path.display()
                ));
            }
        }
    }

    /// Makes everything durable and closes it. A failed recording does not change that: it is reported.
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
                    "; missing: {}, and what {} wrote: they came too fast",
                    counted(lost, "request"),
                    counted(without, "write")
                ),
            };
            let why = ended.map_or(String::new(), |why| format!("; ended early: {why}"));
            tell(format_args!(
                "{path}: {} recorded in {}{missing}{why}",
                counted(requests, "request"),
                counted(bytes, "byte")
            ));
        }
        ended
    }
}

fn open_volume(path: &Path, medium: Box<dyn Medium>, options: &OpenOptions) -> Result<Kind> {
    let (superblock, _) = find_superblock(&mut MediumSource::new(&medium), medium.blocks(), crc32c)
        .with_context(|| path.display().to_string())?;
    let chosen = Chosen::new(&superblock, &options.run);
    let settings = chosen.in_force();
    settings.check(&superblock)?;
    let read_only = options.read_only || (options.snapshot.is_some() && !options.is_clone);
    let how = how_to_open(path, &settings, read_only);
    let volume = Growable::open(Arc::new(medium), &how).map_err(|error| match error {
        OpenError::Journal(error) => usage(format!("journals: {error}")),
        error => error.into(),
    })?;
    if read_only && options.snapshot.is_none() {
        // Opened for writing, it would have completed a rollback, or refused half a snapshot.
        volume.volume().check_unmixed()?;
    }
    chosen.opened(&volume.volume());
    Ok(Kind::Volume(Arc::new(volume), Box::new(chosen)))
}

fn how_to_open(path: &Path, settings: &Settings, read_only: bool) -> vellum_device::OpenOptions {
    let frames =
        |share: u64| u32::try_from(settings.buffer_bytes / BLOCK / share).unwrap_or(u32::MAX);
    let trouble = path.display().to_string();
    vellum_device::OpenOptions {
        read_only,
        schedule: settings.schedule(),
        write_frames: frames(2),
        read_frames: frames(4),
        collector_frames: frames(4),
        map_leaves: (settings.map_bytes > 0).then_some((settings.map_bytes / BLOCK) as usize),
        victim: settings.victim,
        policy: settings.policy,
        journals: settings.journals.clone(),
        persistence: settings.persistence,
        on_event: Some(Arc::new(move |event| {
            tell(format_args!("{trouble}: {}", event.message))
        })),
        ..vellum_device::OpenOptions::default()
    }
}

fn end(kind: &Kind, path: &Path) -> Result<()> {
    let no_room = || {
        tell(format_args!(
            "{0}: {NO_ROOM}. Free some (`df {0}`), and the server ends by itself. A second signal \
             (`kill {1}`) ends it at once, without a checkpoint: nothing durable is lost, the next \
             start recovers it",
            path.display(),
            std::process::id()
        ));
    };
    match kind {
        Kind::Volume(volume, _) => Ok(volume.volume().stop_telling(no_room)?),
        Kind::Raw(raw) => raw.stop(),
    }
}
