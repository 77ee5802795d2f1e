//! Makes volumes from files, and inspects them.

use crate::claim;
use crate::opened;
use crate::outcome::usage;
use crate::replace;
use crate::room::free_bytes;
use crate::size::Size;
use anyhow::{Context, Result, bail};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::entry::MAX_PBA;
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{GeometryError, Params, plan_tables, plan_with_history};
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::find_superblock;
use vellum_device::info::VolumeInfo;
use vellum_device::{CreateOptions, MediumSource, Volume, crc32c};
use vellum_medium::envelope::{Envelope, Header, START, Secret, Slot, VolumeKey, wipe};
use vellum_medium::{EncryptedMedium, FileMedium, Medium, Prealloc};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks written at once to fill a file.
const FILL_BLOCKS: usize = 1024;

/// How much snapshots can keep by default, in thousandths of what clients see.
pub const HISTORY: u32 = 1000;

/// The description of a new volume.
pub struct NewVolume {
    /// Bytes that clients see.
    pub size: Option<u64>,
    /// Bytes of the medium.
    pub medium_size: Option<u64>,
    /// The over-provisioning, in thousandths.
    pub over_provisioning: u32,
    /// Bytes in a segment.
    pub segment_size: Option<u64>,
    /// Allocates all of the file's space now.
    pub preallocate: bool,
    /// Overwrites what is there.
    pub force: bool,
    /// The layout of blocks and metadata on the medium.
    pub layout: Layout,
    /// How much snapshots can keep, in thousandths of what clients see.
    pub history: u32,
    /// Chooses the properties of the planned volume.
    pub choose: Choose,
    /// Encrypts it, to be opened by this secret.
    pub secret: Option<Secret>,
}

impl NewVolume {
    /// A log of this size; all else is as by default.
    pub fn of(size: u64) -> Self {
        Self {
            size: Some(size),
            medium_size: None,
            over_provisioning: CreateOptions::default().over_provisioning,
            segment_size: None,
            preallocate: false,
            force: false,
            layout: Layout::Log,
            history: HISTORY,
            choose: choose_nothing(),
            secret: None,
        }
    }
}

/// See [`NewVolume::choose`].
pub type Choose = Box<dyn Fn(&Superblock) -> Result<Properties>>;

/// Leaves all properties at their defaults.
pub fn choose_nothing() -> Choose {
    Box::new(|_| Ok(Properties::default()))
}

/// Makes a volume. While its space is being allocated, `interrupted` can end that, and what was made is removed.
pub fn create(path: &Path, new: &NewVolume, interrupted: &dyn Fn() -> bool) -> Result<VolumeInfo> {
    create_named(path, path, new, interrupted)
}

/// Makes a volume in a file that gets the name `later` when it is complete, and has that name in errors.
pub fn create_named(
    path: &Path,
    later: &Path,
    new: &NewVolume,
    interrupted: &dyn Fn() -> bool,
) -> Result<VolumeInfo> {
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
    let segment = |n| {
        let blocks = u32::try_from(blocks(n, "segment-size")?);
        blocks.map_err(|_| usage("--segment-size is too large"))
    };
    let segment_blocks = new.segment_size.map(segment).transpose()?;
    let device = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    let bytes = match (medium_blocks, logical_blocks) {
        (Some(blocks), _) => blocks * BLOCK,
        // The whole device.
        (None, _) if device => 0,
        (None, Some(logical)) => {
            let head = new.secret.as_ref().map_or(0, |_| START);
            let blocks = medium_for(new, logical, segment_blocks)?;
            (blocks + head) * BLOCK
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
    let plan = |blocks| plan(later, new, blocks, (logical_blocks, segment_blocks));
    // Planned first: if the volume cannot be made, nothing is lost.
    let planned = match device {
        true => None,
        false => Some(plan(bytes / BLOCK)?),
    };
    if new.force && !device && path.is_file() {
        if new.preallocate {
            has_room(path, bytes)?;
        }
        make_way(path)?;
    }
    let medium = FileMedium::create_named(path, later, bytes, prealloc)?;
    if device {
        // It is locked by now, and nothing is written to it.
        claim::may_be_lost(path)?;
    }
    let options = planned.map_or_else(|| plan(medium.blocks()), Ok)?;
    let fill = |medium: &dyn Medium| match new.preallocate && !device {
        true => write_all(medium, interrupted),
        false => Ok(()),
    };
    let made = made_on(medium, new.secret.as_ref(), options, &fill);
    if made.is_err() && !device {
        // It is ours: `FileMedium::create` does not take an existing file.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Plans the volume for a medium of this many blocks. Writes nothing.
fn plan(
    path: &Path,
    new: &NewVolume,
    medium_blocks: u64,
    (logical_blocks, segment_blocks): (Option<u64>, Option<u32>),
) -> Result<CreateOptions> {
    let name = path.display();
    let head = new.secret.as_ref().map_or(0, |_| START);
    let Some(blocks @ 1..) = medium_blocks.checked_sub(head) else {
        return Err(usage(format!(
            "{name}: an encrypted volume takes {} more for its header",
            Size(START * BLOCK)
        )));
    };
    let params = Params {
        logical_blocks,
        ..params(blocks, new.over_provisioning, segment_blocks)
    };
    let planned = planned(new.layout, &params, new.history);
    let planned = planned.map_err(|error| usage(format!("{name}: {error}")))?;
    Ok(CreateOptions {
        logical_blocks,
        over_provisioning: new.over_provisioning,
        segment_blocks,
        force: new.force,
        layout: new.layout,
        properties: (new.choose)(&planned)?,
        history: new.history,
    })
}

/// Refuses to replace a file by one that needs more bytes than would be free without it.
fn has_room(path: &Path, bytes: u64) -> Result<()> {
    let old = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    // With a second name, its bytes stay.
    let its_own = if old.nlink() == 1 {
        old.blocks() * 512
    } else {
        0
    };
    match free_bytes(path).map(|free| free + its_own) {
        Some(room) if room < bytes => bail!(
            "{}: --preallocate takes {}, and only {} would be free without the old file, which is as it \
             was: free more, or leave out --preallocate",
            path.display(),
            Size(bytes).beside(Size(room)),
            Size(room).beside(Size(bytes))
        ),
        _ => Ok(()),
    }
}

/// Removes a file, or a link to one, that is to be replaced. It is locked meanwhile, so that no server loses its volume.
fn make_way(path: &Path) -> Result<()> {
    let refused = || format!("cannot replace {}", path.display());
    let seen = path.symlink_metadata().with_context(refused)?;
    let is_same = |now: Metadata| (now.dev(), now.ino()) == (seen.dev(), seen.ino());
    match FileMedium::open(path, vellum_medium::OpenOptions::default()) {
        Err(
            error @ (vellum_medium::OpenError::Locked(_)
            | vellum_medium::OpenError::Permission { .. }),
        ) => Err(error.into()),
        // What is locked may be another one, if it was replaced in between.
        _held if !path.symlink_metadata().is_ok_and(is_same) => {
            bail!(
                "{}: something else has just taken its place, and is left as it is",
                refused()
            )
        }
        _held => replace::remove(path, &seen).with_context(refused),
    }
}

/// Makes it on a file or device, encrypted if there is a secret. The header is written last: without it there is no volume.
fn made_on(
    medium: FileMedium,
    secret: Option<&Secret>,
    options: CreateOptions,
    fill: &dyn Fn(&dyn Medium) -> Result<()>,
) -> Result<VolumeInfo> {
    let is_encrypted = !matches!(opened::envelope_of(&medium), Ok(None));
    if is_encrypted && !options.force {
        bail!(
            "{} holds an encrypted vellum volume already; --force overwrites it",
            medium.name()
        );
    }
    let Some(secret) = secret else {
        if is_encrypted {
            wipe(&medium)?;
        }
        fill(&medium)?;
        return Ok(Volume::create(&medium, &options)?);
    };
    if !options.force {
        vellum_device::may_take(&medium)?;
    }
    let key = VolumeKey::random().context("no random bytes")?;
    let slot = Slot::new(&key, secret).context("cannot wrap the volume's key")?;
    wipe(&medium)?;
    let medium = EncryptedMedium::new(medium, &key);
    fill(&medium)?;
    // The medium was checked before. Old bytes on it decrypt to noise.
    let forced = CreateOptions {
        force: true,
        ..options
    };
    let info = Volume::create(&medium, &forced)?;
    let (superblock, _) =
        find_superblock(&mut MediumSource::new(&medium), medium.blocks(), crc32c)?;
    let header = Header::new(superblock.uuid()).with_slot(0, Some(slot));
    Envelope::new(header.clone()).replace(medium.below(), header)?;
    Ok(info)
}

fn planned(layout: Layout, params: &Params, history: u32) -> Result<Superblock, GeometryError> {
    match layout {
        Layout::Log => plan_with_history(params, history),
        tables => plan_tables(params, tables),
    }
}

fn params(medium_blocks: u64, over_provisioning: u32, segment_blocks: Option<u32>) -> Params {
    Params {
        medium_blocks,
        logical_blocks: None,
        over_provisioning,
        segment_blocks,
        uuid: [0; 16],
        secret: [0; 32],
        sums: SumKind::default(),
    }
}

/// Writes zeros everywhere. A file system marks space that it only reserved as written at the first write, in its own journal.
/// For a log, that would cost a second sync with each sync.
fn write_all(medium: &dyn Medium, interrupted: &dyn Fn() -> bool) -> Result<()> {
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

/// The smallest medium that holds a volume of this size with its over-provisioning.
fn medium_for(new: &NewVolume, logical: u64, segment_blocks: Option<u32>) -> Result<u64> {
    let fits = |medium_blocks| {
        let params = params(medium_blocks, new.over_provisioning, segment_blocks);
        planned(new.layout, &params, new.history).map(|sb| sb.logical_blocks() >= logical)
    };
    let (mut low, mut high) = (logical, MAX_PBA);
    // Report errors in the other options now, and a size that is too large.
    if logical > high || !fits(high)? {
        return Err(usage(format!(
            "--size {}: it is too large: with its spare room (--over-provisioning) it would take more \
             than 8 TiB, the most that a volume can take",
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

/// Makes a volume for the demonstration, with its file fully written.
pub fn create_for_demo(path: &Path, size: u64) -> Result<()> {
    let new = NewVolume {
        preallocate: true,
        ..NewVolume::of(size)
    };
    create(path, &new, &|| false).map(drop)
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
            preallocate: true,
            ..NewVolume::of(16 << 20)
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
