//! Making and mounting an ext4 on a volume.

use crate::host;
use crate::outcome::usage;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::borrow::Cow;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use vellum_core::format::areas::Layout;

/// The mount options that a volume makes cheap: every write journaled, one flush for each commit.
pub const MOUNT_OPTIONS: &str = "data=journal,journal_async_commit";

/// The options for a volume that does not keep the order of writes: two flushes for each commit.
const UNORDERED_MOUNT_OPTIONS: &str = "data=journal";

/// The kernel's default, for a file system that is not ext4 and would refuse ext4's options.
pub const OF_ANOTHER: &str = "rw";

/// The option that is safe only if commit blocks wait for the blocks they commit.
const ASYNC_COMMIT: &str = "journal_async_commit";

/// Where an ext4's superblock has its magic.
const MAGIC: Range<usize> = 56..58;

/// Where it has `s_mount_opts`.
const OWN_OPTIONS: Range<usize> = 0x200..0x240;

/// The mount options. One flush for each commit is used only on a volume that keeps the order of writes (promise 3).
pub fn mount_options(layout: Layout, asked: Option<&str>) -> Result<&str> {
    options(
        asked,
        unsafe_because(layout, asked.unwrap_or_default()).as_deref(),
    )
}

/// Why journal_async_commit is not safe on a volume of this layout, beside these options, if so.
pub fn unsafe_because(layout: Layout, options: &str) -> Option<String> {
    if !layout.keeps_order() {
        return Some(format!(
            "it needs a volume that keeps the order of writes, and the layout {} does not: use the layout \
             log or shadow",
            layout.name()
        ));
    }
    let switched_off = "it needs barriers, and these options switch them off";
    (barriers(options) == Some(false)).then(|| switched_off.to_owned())
}

/// The mount options, given a reason, if any, why journal_async_commit is not safe.
pub fn options<'a>(asked: Option<&'a str>, unsafe_because: Option<&str>) -> Result<&'a str> {
    let default = match unsafe_because {
        None => MOUNT_OPTIONS,
        Some(_) => UNORDERED_MOUNT_OPTIONS,
    };
    match (asked, unsafe_because) {
        (Some(asked), Some(reason)) if is_async(asked) => Err(usage(format!(
            "--options {asked}: {ASYNC_COMMIT} is not safe here: {reason}, so a crash could destroy \
             the file system. Leave it out"
        ))),
        (asked, _) => Ok(asked.unwrap_or(default)),
    }
}

/// True if these options include journal_async_commit.
pub fn is_async(options: &str) -> bool {
    options
        .split(',')
        .any(|option| option.trim() == ASYNC_COMMIT)
}

/// Whether these options switch barriers on or off, if they do. As for the kernel, the last one counts, and 0x00 is 0.
fn barriers(options: &str) -> Option<bool> {
    let says = |option: &str| match option.trim().split_once('=') {
        None if option.trim() == "nobarrier" => Some(false),
        None => (option.trim() == "barrier").then_some(true),
        Some(("barrier", number)) => Some(number.contains(|c| !matches!(c, '0' | 'x' | 'X' | '+'))),
        Some(_) => None,
    };
    options.split(',').rev().find_map(says)
}

/// Adds that barriers are on, unless the options say already whether: a file system's superblock may switch them off (`tune2fs -o
/// nobarrier`).
pub fn with_barriers(options: &str) -> Cow<'_, str> {
    match barriers(options) {
        None => format!("{options},barrier=1").into(),
        Some(_) => options.into(),
    }
}

/// Refuses to mount an ext4 whose own options ask for journal_async_commit where that is not safe. No option of a mount takes it back.
pub fn refuse_own(own: &str, unsafe_because: &str) -> Result<()> {
    if is_async(own) {
        bail!(
            "its ext4 asks for {ASYNC_COMMIT} by itself, and that is not safe here: {unsafe_because}, so a \
             crash could destroy the file system. Attach it without --mount, and take the option out: \
             `tune2fs -E mount_opts= DEVICE`"
        );
    }
    Ok(())
}

/// Reads from a server's answer about journals why commit blocks of the file system that fills the volume do not wait for the blocks they
/// commit; `Some(None)`: they do. `None` while the server has not looked.
pub fn unordered_because(journals: &Value) -> Option<Option<String>> {
    let list = journals.get("file_systems")?.as_array()?;
    let looking = journals.get("looking")?.as_bool()?;
    let fills = |found: &&Value| found.get("start").and_then(Value::as_u64) == Some(0);
    match (looking, list.iter().find(fills)) {
        (true, _) => None,
        (false, None) => Some(Some("no ext4 was found on it".to_owned())),
        (false, Some(found)) => {
            let reason = found.get("commits_do_not_wait").and_then(Value::as_str);
            Some(reason.map(|reason| format!("its journal is not followed: {reason}")))
        }
    }
}

/// Makes an ext4 with complete journal and tables, so that the kernel does not initialize them later in the background.
pub fn make(device: &Path) -> Result<()> {
    let options = [
        "-q",
        "-F",
        "-b",
        "4096",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
    ];
    host::run(
        "mkfs.ext4",
        &[&options[..], &[&device.to_string_lossy()]].concat(),
    )?;
    Ok(())
}

/// True if there is something that a new file system would destroy: a file system of any kind, a partition table, a member of LVM
/// or RAID, an encrypted disk.
pub fn holds_something(device: &Path) -> Result<bool> {
    if is_on(device)? {
        return Ok(true);
    }
    let mut probe = host::command("blkid");
    probe.args(["-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE"]);
    let found = probe.arg(device).output();
    let found = found.context(
        "cannot run blkid, to see whether something is there: install util-linux, or add --force",
    )?;
    // 2: it found nothing, or could not read the device, and then it says so. 8: it found more than one thing.
    Ok(found.status.code() != Some(2) || !found.stderr.is_empty())
}

/// True if there is a superblock of ext2, ext3 or ext4.
pub fn is_on(device: &Path) -> Result<bool> {
    Ok(own_options(device)?.is_some())
}

/// The mount options in the superblock of an ext4 (`tune2fs -E mount_opts`). The kernel applies them before those of a mount. `None`:
/// there is no ext2, ext3 or ext4.
pub fn own_options(device: &Path) -> Result<Option<String>> {
    let mut superblock = [0; OWN_OPTIONS.end];
    let mut file =
        std::fs::File::open(device).with_context(|| format!("cannot open {}", device.display()))?;
    let read = file.seek(SeekFrom::Start(1024));
    let read = read.and_then(|_| file.read_exact(&mut superblock));
    read.with_context(|| format!("cannot read {}", device.display()))?;
    let own = superblock[OWN_OPTIONS].split(|&byte| byte == 0).next();
    let own = String::from_utf8_lossy(own.unwrap_or_default());
    Ok((superblock[MAGIC] == [0x53, 0xEF]).then(|| own.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_a_commit_needs_a_layout_that_keeps_the_order() {
        for layout in [Layout::Log, Layout::Shadow] {
            assert_eq!(mount_options(layout, None).unwrap(), MOUNT_OPTIONS);
            assert!(mount_options(layout, Some("ro,journal_async_commit")).is_ok());
        }
        assert_eq!(
            mount_options(Layout::Ordered, None).unwrap(),
            "data=journal"
        );
        let asked = "noatime,journal_async_commit";
        let refused = mount_options(Layout::Ordered, Some(asked)).unwrap_err();
        assert!(refused.to_string().contains("layout ordered"), "{refused}");
        assert!(mount_options(Layout::Ordered, Some("data=journal,noatime")).is_ok());
    }

    /// Without flushes, what is sent after the answer to a commit block may be there before it.
    #[test]
    fn one_flush_a_commit_needs_that_flush() {
        for none in [
            "nobarrier",
            "barrier=0",
            "barrier=0x00",
            "barrier=+0",
            "barrier=1, barrier=0",
        ] {
            let asked = format!("{none},{MOUNT_OPTIONS}");
            let refused = mount_options(Layout::Log, Some(&asked)).unwrap_err();
            assert!(refused.to_string().contains("barriers"), "{refused}");
            assert!(mount_options(Layout::Log, Some(none)).is_ok());
        }
        for some in ["barrier", "barrier=1", "nobarrier,barrier", "noatime"] {
            let asked = format!("{some},{MOUNT_OPTIONS}");
            assert!(mount_options(Layout::Log, Some(&asked)).is_ok(), "{some}");
            let is_said = some != "noatime";
            assert_eq!(with_barriers(&asked).ends_with(",barrier=1"), !is_said);
        }
    }

    #[test]
    fn one_flush_a_commit_needs_a_journal_that_is_followed() {
        let told = |found: Value| {
            let all =
                serde_json::json!({"looking": false, "file_systems": [{"start": 4096}, found]});
            unordered_because(&all).unwrap()
        };
        let fine = serde_json::json!({"start": 0, "commits_do_not_wait": null});
        assert_eq!(told(fine), None);
        let small = serde_json::json!({"start": 0, "commits_do_not_wait": "its blocks are small"});
        let reason = told(small).unwrap();
        assert!(reason.contains("its blocks are small"), "{reason}");
        assert!(told(serde_json::json!({"start": 512})).is_some());
        let looking = serde_json::json!({"looking": true, "file_systems": []});
        assert_eq!(unordered_because(&looking), None);
        assert_eq!(options(None, Some(&reason)).unwrap(), "data=journal");
        assert_eq!(options(None, None).unwrap(), MOUNT_OPTIONS);
        let refused = options(Some(MOUNT_OPTIONS), Some(&reason)).unwrap_err();
        assert!(
            refused.to_string().contains("its blocks are small"),
            "{refused}"
        );
        assert!(options(Some("noatime"), Some(&reason)).is_ok());
    }
}
