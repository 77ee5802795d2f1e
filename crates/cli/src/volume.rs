//! Volumes by their files: made, and looked at.

use crate::claim;
use crate::opened;
use crate::outcome::usage;
use crate::size::Size;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::FileTypeExt;
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
/// Blocks that are written at once when a file is filled.
const FILL_BLOCKS: usize = 1024;

/// How much snapshots can keep if nobody says so, in thousandths of what clients see.
pub const HISTORY: u32 = 1000;

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
    /// How much snapshots can keep, in thousandths of what clients see.
    pub history: u32,
    /// What its user chooses, of the volume as it will be.
    pub choose: Choose,
    /// Encrypt it, and let this open it.
    pub secret: Option<Secret>,
}

/// See [`NewVolume::choose`].
pub type Choose = Box<dyn Fn(&Superblock) -> Result<Properties>>;

/// Leaves all as it is usual.
pub fn choose_nothing() -> Choose {
    Box::new(|_| Ok(Properties::default()))
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
    if new.force && !device && path.is_file() {
        make_way(path)?;
    }
    let medium = FileMedium::create(path, bytes, prealloc)?;
    if device {
        // Locked by now, and nothing is written to it.
        claim::may_be_lost(path)?;
    }
    let made = made_on(
        medium,
        new,
        (logical_blocks, segment_blocks),
        &|medium| match new.preallocate && !device {
            true => write_all(medium, interrupted),
            false => Ok(()),
        },
    );
    if made.is_err() && !device {
        // Ours: `FileMedium::create` takes no file that was there.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Removes a file that is to be replaced. It is held while it goes, so that no server loses its volume.
fn make_way(path: &Path) -> Result<()> {
    match FileMedium::open(path, vellum_medium::OpenOptions::default()) {
        Err(
            error @ (vellum_medium::OpenError::Locked(_)
            | vellum_medium::OpenError::Permission { .. }),
        ) => Err(error.into()),
        _held => {
            std::fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))
        }
    }
}

/// Makes it on a file or device, encrypted if it shall be. The header comes last: without it nothing is there.
fn made_on(
    medium: FileMedium,
    new: &NewVolume,
    blocks: (Option<u64>, Option<u32>),
    fill: &dyn Fn(&dyn Medium) -> Result<()>,
) -> Result<VolumeInfo> {
    let is_encrypted = !matches!(opened::envelope_of(&medium), Ok(None));
    if is_encrypted && !new.force {
        bail!(
            "{} holds an encrypted vellum volume already; --force overwrites it",
            medium.name()
        );
    }
    let Some(secret) = &new.secret else {
        if is_encrypted {
            wipe(&medium)?;
        }
        return made(&medium, new, new.force, blocks, fill);
    };
    if medium.blocks() <= START {
        return Err(usage(format!(
            "{}: an encrypted volume takes {} more for its header",
            medium.name(),
            Size(START * BLOCK)
        )));
    }
    if !new.force {
        vellum_device::may_take(&medium)?;
    }
    let key = VolumeKey::random().context("no random bytes")?;
    let slot = Slot::new(&key, secret).context("cannot wrap the volume's key")?;
    wipe(&medium)?;
    let medium = EncryptedMedium::new(medium, &key);
    // What was asked for was looked at, and what its old bytes are decrypted to is noise.
    let info = made(&medium, new, true, blocks, fill)?;
    let (superblock, _) =
        find_superblock(&mut MediumSource::new(&medium), medium.blocks(), crc32c)?;
    let header = Header::new(superblock.uuid()).with_slot(0, Some(slot));
    Envelope::new(header.clone()).replace(medium.below(), header)?;
    Ok(info)
}

/// Makes it on its medium, which `fill` prepares.
fn made(
    medium: &dyn Medium,
    new: &NewVolume,
    force: bool,
    (logical_blocks, segment_blocks): (Option<u64>, Option<u32>),
    fill: &dyn Fn(&dyn Medium) -> Result<()>,
) -> Result<VolumeInfo> {
    let params = Params {
        logical_blocks,
        ..params(medium.blocks(), new.over_provisioning, segment_blocks)
    };
    let mut options = CreateOptions {
        logical_blocks,
        over_provisioning: new.over_provisioning,
        segment_blocks,
        force,
        layout: new.layout,
        properties: Properties::default(),
        history: new.history,
    };
    // What is wrong with the geometry is said by the creation.
    if let Ok(planned) = planned(new.layout, &params, new.history) {
        options.properties = (new.choose)(&planned)?;
    }
    fill(medium)?;
    Ok(Volume::create(medium, &options)?)
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

/// Writes zeros everywhere. Space that a file system has only reserved is marked as written when it first is,
/// in a journal of its own: that would cost each sync of a log a second one.
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

/// The least medium that holds a volume of this size with its over-provisioning.
fn medium_for(new: &NewVolume, logical: u64, segment_blocks: Option<u32>) -> Result<u64> {
    let fits = |medium_blocks| {
        let params = params(medium_blocks, new.over_provisioning, segment_blocks);
        planned(new.layout, &params, new.history).map(|sb| sb.logical_blocks() >= logical)
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
        history: HISTORY,
        choose: choose_nothing(),
        secret: None,
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
            size: Some(16 << 20),
            medium_size: None,
            over_provisioning: CreateOptions::default().over_provisioning,
            segment_size: None,
            preallocate: true,
            force: false,
            layout: Layout::Log,
            history: HISTORY,
            choose: choose_nothing(),
            secret: None,
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
