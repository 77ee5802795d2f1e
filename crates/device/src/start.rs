//! Makes a volume, or begins a new life of one: everything that is written before the core runs.

use crate::damage::Damage;
use crate::digest::crc32c;
use crate::entropy;
use crate::info::hex_uuid;
use crate::leaves::Leaves;
use crate::limits::{BLANK_BLOCKS, ERASE_BLOCKS_MAX};
use crate::options::{CreateError, CreateOptions, OpenError, OpenOptions};
use crate::source::MediumSource;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::engine::Options;
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::{Params, plan_tables, plan_with_history};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::{SumKind, blank};
use vellum_core::layout::{self, Recovered};
use vellum_core::limits::CACHED_SUMS;
use vellum_core::recovery::{RecoveryError, find_superblock};
use vellum_core::state::{Nodes, Paging};
use vellum_medium::{Medium, MediumError};

pub(crate) fn create(
    medium: &dyn Medium,
    options: &CreateOptions,
) -> Result<Superblock, CreateError> {
    if !options.force {
        may_take(medium)?;
    }
    let mut uuid = entropy::bytes::<16>().map_err(CreateError::Random)?;
    // RFC 4122: version 4, variant 1.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let params = Params {
        medium_blocks: medium.blocks(),
        logical_blocks: options.logical_blocks,
        over_provisioning: options.over_provisioning,
        segment_blocks: options.segment_blocks,
        uuid,
        secret: entropy::bytes().map_err(CreateError::Random)?,
        sums: SumKind::default(),
    };
    let planned = match options.layout {
        Layout::Log => plan_with_history(&params, options.history),
        layout => plan_tables(&params, layout),
    };
    let mut superblock = planned.map_err(|source| CreateError::Geometry {
        name: medium.name().to_owned(),
        source,
    })?;
    if !options.properties.is_empty() {
        superblock.set_properties(options.properties.clone().with_clones(false));
    }
    // An older volume's superblock must not outlive its roots: if this is cut short, there is no volume.
    for mirror in superblock.mirrors() {
        medium.write(mirror, &[0; BLOCK_BYTES])?;
    }
    medium.sync()?;
    let mut result = Ok(());
    blank(&superblock, crc32c, &mut |at, bytes| {
        if result.is_ok() {
            // Everything that a superblock leads to is durable before it, and one mirror before the other.
            let leads = superblock.mirrors().contains(&at);
            let ready = if leads { medium.sync() } else { Ok(()) };
            result = ready.and_then(|()| medium.write(at, bytes));
        }
    });
    result?;
    medium.sync()?;
    Ok(superblock)
}

/// Checks that making a volume here loses neither a volume nor anything else.
///
/// # Errors
/// When something is there, or when the medium fails.
pub fn may_take(medium: &dyn Medium) -> Result<(), CreateError> {
    let mut source = MediumSource::new(medium);
    match find_superblock(&mut source, medium.blocks(), crc32c) {
        Ok((there, _)) => {
            return Err(CreateError::Exists {
                name: medium.name().to_owned(),
                uuid: hex_uuid(&there.uuid()),
            });
        }
        Err(RecoveryError::Superblock { error, .. }) if error.is_newer() => {
            return Err(CreateError::Newer {
                name: medium.name().to_owned(),
                source: error,
            });
        }
        Err(_) => {}
    }
    if let Some(offset) = first_byte(medium)? {
        return Err(CreateError::NotBlank {
            name: medium.name().to_owned(),
            offset,
        });
    }
    Ok(())
}

/// The first byte that is not zero, in the blocks where file systems, partition tables and the like begin.
fn first_byte(medium: &dyn Medium) -> Result<Option<u64>, MediumError> {
    let blocks = medium.blocks().min(BLANK_BLOCKS);
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    medium.read(Pba(0), &mut bytes)?;
    let first = bytes.iter().position(|&byte| byte != 0);
    Ok(first.map(|at| at as u64))
}

/// Recovers a volume. A damaged one that is not to be written is recovered as far as it is whole. A pack is refused.
pub(crate) fn recover(
    medium: &Arc<dyn Medium>,
    source: &mut MediumSource<'_>,
    options: &OpenOptions,
) -> Result<(Recovered, Option<Damage>), OpenError> {
    let found = recover_any(medium, source, options);
    let medium = &**medium;
    let is_pack = |superblock: &Superblock| superblock.without_data().is_some();
    let is_pack = match &found {
        Ok((recovered, _)) => is_pack(recovered.superblock()),
        // Do not decide by what the cache holds: a sync may have failed.
        Err(_) if !source.is_past_cache() => false,
        Err(_) => find_superblock(source, medium.blocks(), crc32c)
            .is_ok_and(|(superblock, _)| is_pack(&superblock)),
    };
    match is_pack {
        true => Err(OpenError::WithoutData(medium.name().to_owned())),
        false => found,
    }
}

fn recover_any(
    medium: &Arc<dyn Medium>,
    source: &mut MediumSource<'_>,
    options: &OpenOptions,
) -> Result<(Recovered, Option<Damage>), OpenError> {
    let leaves = Leaves::of(medium);
    let paging = options
        .map_leaves
        .map(|most| Paging::new(Arc::clone(&leaves) as Arc<dyn Nodes>, most));
    // Nothing is written to a volume that is only read, so nothing need be counted. But what is damaged has to be found before it is served:
    // then the rest is.
    let paging = match options.read_only {
        true => paging,
        false => paging.map(Paging::with_census),
    };
    let medium = &**medium;
    let recovered = layout::recover_within(source, medium.blocks(), crc32c, paging);
    leaves.opened();
    let error = match recovered {
        Ok(recovered) => match recovered.unread().filter(|_| options.read_only) {
            None => return Ok((recovered, None)),
            Some(unread) => unread.into(),
        },
        Err(error) => error,
    };
    // Do not rescue from what the cache holds: it may never have been on the medium.
    if options.read_only
        && source.is_past_cache()
        && let Ok((recovered, loss)) =
            layout::rescue(source, medium.blocks(), crc32c, options.trust)
    {
        return Ok((recovered, Some(Damage::new(error, loss))));
    }
    Err(recovery_error(medium, source, error))
}

/// Raises the volume's life in both mirrors, durably.
pub(crate) fn begin_life(
    medium: &dyn Medium,
    source: &mut MediumSource<'_>,
    recovered: &mut Recovered,
) -> Result<(), OpenError> {
    let found = recovered.superblock().clone();
    let mirror_lost = recovered.replayed().mirror_lost;
    let next = recovered
        .begin_life()
        .map_err(|error| recovery_error(medium, source, error))?;
    forget_growth(medium, &found)?;
    Ok(replace(medium, &found, mirror_lost, next)?)
}

/// Before a volume is written to, makes what an interrupted growth has left in the medium's last block a copy of the current
/// superblock. If the first block were lost later, the leftover would pass for the volume's superblock.
fn forget_growth(medium: &dyn Medium, volume: &Superblock) -> Result<(), MediumError> {
    let last = Pba(medium.blocks() - 1);
    let mut block = [0; BLOCK_BYTES];
    if medium.blocks() == volume.medium_blocks() || medium.read(last, &mut block).is_err() {
        return Ok(());
    }
    match Superblock::decode(&block, medium.blocks(), crc32c) {
        Ok(found) if found.uuid() == volume.uuid() && found.mirrors() != volume.mirrors() => {
            sign(medium, volume)
        }
        _ => Ok(()),
    }
}

/// For a volume that is about to grow into the rest of its medium: writes a superblock to the medium's last block, so that the last
/// mirror is found without the first.
pub(crate) fn sign(medium: &dyn Medium, volume: &Superblock) -> Result<(), MediumError> {
    let mut block = [0; BLOCK_BYTES];
    volume.encode(crc32c, &mut block);
    medium.write(Pba(medium.blocks() - 1), &block)?;
    medium.sync()
}

/// Replaces the superblock that was found by the next one, in the same mirrors: durably, one after the other, so that one is whole at
/// any instant.
///
/// The first mirror comes first: if the last one is of a newer life, recovery takes the first for stale. So a lost last mirror gets
/// what was found, before the first one is written.
pub(crate) fn replace(
    medium: &dyn Medium,
    found: &Superblock,
    mirror_lost: bool,
    next: &Superblock,
) -> Result<(), MediumError> {
    let [first, last] = found.mirrors();
    if mirror_lost && decodes_to(medium, first, found) {
        write(medium, found, &[last])?;
    }
    write(medium, next, &[first, last])
}

/// Writes the superblock to these mirrors, durably, one after the other.
pub(crate) fn write(
    medium: &dyn Medium,
    superblock: &Superblock,
    mirrors: &[Pba],
) -> Result<(), MediumError> {
    let mut block = [0; BLOCK_BYTES];
    superblock.encode(crc32c, &mut block);
    for &mirror in mirrors {
        medium.write(mirror, &block)?;
        medium.sync()?;
    }
    Ok(())
}

fn decodes_to(medium: &dyn Medium, mirror: Pba, superblock: &Superblock) -> bool {
    let mut block = [0; BLOCK_BYTES];
    medium.read(mirror, &mut block).is_ok()
        && Superblock::decode(&block, medium.blocks(), crc32c)
            .is_ok_and(|found| found.mirrors_same_life(superblock))
}

/// Returns the core's error, or the medium's own if that caused it.
pub(crate) fn recovery_error(
    medium: &dyn Medium,
    source: &mut MediumSource<'_>,
    error: RecoveryError,
) -> OpenError {
    match (error, source.take_error()) {
        (RecoveryError::Unreadable(_), Some(error)) => OpenError::Medium(error),
        (error, _) => OpenError::Recovery {
            name: medium.name().to_owned(),
            source: Box::new(error),
        },
    }
}

/// What the core needs to know of a medium, and of its user's choices.
pub(crate) fn core_options(medium: &dyn Medium, options: &OpenOptions) -> Options {
    Options {
        victim: options.victim,
        discard: options.discard.unwrap_or_else(|| medium.wants_discard()),
        erase_blocks_max: ERASE_BLOCKS_MAX,
        discard_blocks_min: medium.discard_blocks_min(),
        cached_sums: options.cached_sums.unwrap_or(CACHED_SUMS),
        write_buffers: options.write_frames,
        segments_end: options.segments_end,
        ..Options::default()
    }
}
