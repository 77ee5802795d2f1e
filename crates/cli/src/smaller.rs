//! Checks whether a volume may become smaller: what is on it must end before the new end, and say so.

use crate::size::Size;
use anyhow::{Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::Volume;
use vellum_device::block::BlockDevice;
use vellum_device::migrate::{MigrateError, ends_before};
use vellum_frontend::unaligned::ByteDevice;

/// The bytes needed to recognize a file system: the last one, btrfs, is 64 KiB after the start.
const HEAD_BYTES: usize = 68 << 10;

/// Refuses a size that would cut off something.
pub fn fits(volume: &Arc<Volume>, size: Size) -> Result<()> {
    let end = size.0 / BLOCK_BYTES as u64;
    if end >= volume.blocks() {
        return Ok(());
    }
    ends_before_size(volume, size)?;
    match ends_before(&**volume, end) {
        Err(MigrateError::Behind { lba, .. }) => bail!(
            "--size {size}: there is data behind it, first at byte {}. If it is left of a file system \
             that was shrunk, attach the volume and give it up: `blkdiscard -f --offset {} DEVICE`",
            lba.0 * BLOCK_BYTES as u64,
            size.0
        ),
        done => Ok(done?),
    }
}

/// What tells which file system is on a volume.
fn head_of(volume: &Arc<Volume>) -> Result<Vec<u8>> {
    let device = ByteDevice::from(Arc::clone(volume) as Arc<dyn BlockDevice>);
    let mut head = vec![0; HEAD_BYTES];
    let there = head.len().min(device.bytes() as usize);
    device.read(0, &mut head[..there])?;
    Ok(head)
}

/// Refuses if an ext4 on the volume, which is not mounted, has a journal to replay: its size may be another one then.
pub fn is_unmounted(volume: &Arc<Volume>) -> Result<()> {
    is_clean(&head_of(volume)?)
}

/// As [`is_unmounted`], by the volume's block device.
pub fn is_device_unmounted(device: &Path) -> Result<()> {
    let mut head = Vec::new();
    let file = File::open(device)?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    is_clean(&head)
}

fn is_clean(head: &[u8]) -> Result<()> {
    let needs_recovery = low(head, 1024 + 0x60).is_some_and(|features| features & 4 != 0);
    if ext4(head).is_some() && needs_recovery {
        bail!(
            "the ext4 on it was not unmounted: attach the volume, and mount and unmount that first"
        );
    }
    Ok(())
}

/// Refuses a size that ends before the file system on the volume does, or before its last partition.
pub fn ends_before_size(volume: &Arc<Volume>, size: Size) -> Result<()> {
    let head = head_of(volume)?;
    if let Some((kind, bytes)) = found(&head)
        && bytes > size.0
    {
        bail!(
            "--size {}: the {kind} on it ends at {}, and would be cut off: shrink it first. \
             An ext4 is shrunk by `resize2fs DEVICE {}K`, and XFS not at all",
            size.beside(Size(bytes)),
            Size(bytes).beside(size),
            size.0 >> 10
        );
    }
    Ok(())
}

/// The kind of data at a volume's start, and the byte where they say they end.
fn found(head: &[u8]) -> Option<(&'static str, u64)> {
    ext4(head)
        .map(|bytes| ("ext4", bytes))
        .or_else(|| xfs(head).map(|bytes| ("XFS", bytes)))
        .or_else(|| btrfs(head).map(|bytes| ("btrfs", bytes)))
        .or_else(|| partitions(head).map(|bytes| ("last partition", bytes)))
}

fn bytes_at<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at + N)?.try_into().ok()
}

fn low(head: &[u8], at: usize) -> Option<u64> {
    Some(u32::from_le_bytes(bytes_at(head, at)?).into())
}

/// Also for ext2 and ext3.
fn ext4(head: &[u8]) -> Option<u64> {
    let head = head.get(1024..)?;
    if bytes_at(head, 0x38)? != 0xEF53_u16.to_le_bytes() {
        return None;
    }
    let is_long = low(head, 0x60)? & 0x80 != 0;
    let high = if is_long { low(head, 0x150)? } else { 0 };
    let blocks = high << 32 | low(head, 4)?;
    blocks.checked_mul(1024_u64.checked_shl(low(head, 0x18)? as u32)?)
}

fn xfs(head: &[u8]) -> Option<u64> {
    if &bytes_at::<4>(head, 0)? != b"XFSB" {
        return None;
    }
    let block = u32::from_be_bytes(bytes_at(head, 4)?);
    u64::from_be_bytes(bytes_at(head, 8)?).checked_mul(block.into())
}

/// The space that it takes on this device.
fn btrfs(head: &[u8]) -> Option<u64> {
    let head = head.get(64 << 10..)?;
    if &bytes_at::<8>(head, 0x40)? != b"_BHRfS_M" {
        return None;
    }
    Some(u64::from_le_bytes(bytes_at(head, 0xC9 + 8)?))
}

/// The end of the last partition of a DOS table. A GPT takes the whole device.
fn partitions(head: &[u8]) -> Option<u64> {
    if bytes_at(head, 510)? != [0x55, 0xAA] {
        return None;
    }
    let end = |entry: usize| Some((low(head, entry + 8)? + low(head, entry + 12)?) * 512);
    (0..4).filter_map(|i| end(446 + 16 * i)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_data_do_not_say_where_they_end() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[0; HEAD_BYTES]), None);
        let nonsense = vec![0xFF; HEAD_BYTES];
        assert_eq!(found(&nonsense), None);
    }

    #[test]
    fn a_partition_table_ends_with_its_last_partition() {
        let mut head = vec![0; HEAD_BYTES];
        head[510..512].copy_from_slice(&[0x55, 0xAA]);
        for (entry, start, blocks) in [(446, 2048_u32, 2048_u32), (462, 8192, 4096)] {
            head[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
            head[entry + 12..entry + 16].copy_from_slice(&blocks.to_le_bytes());
        }
        assert_eq!(found(&head), Some(("last partition", 12_288 * 512)));
    }
}
