//! The mount options of a volume that a stranger may have made. They reach the file system, and not the mount program.
//! And what strangers may change.

use crate::group::Group;
use crate::host::Mounted;
use crate::outcome::{tell, usage};
use anyhow::{Context, Result, bail};
use std::ffi::{CString, OsStr};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

/// Words by which mount(8) does something else, or more, than to mount this device here. A dot or a dash at the end: all that begin so.
const OF_THE_PROGRAM: [&str; 13] = [
    "loop",
    "offset",
    "sizelimit",
    "encryption",
    "bind",
    "rbind",
    "move",
    "remount",
    "make-",
    "x-",
    "helper",
    "uhelper",
    "verity.",
];

/// Options that the kernel must have for such a mount.
const GUARDS: [&str; 2] = ["nosuid", "nodev"];

/// What to do about options that are not taken from a volume.
const ADVICE: &str = "name its options with --options if you trust the volume, or for a boot let root alone \
                      change it, and the folders above it";

/// In a folder with this bit, users cannot move or replace each other's files.
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// The first place that somebody other than root may change: the file or device at `path`, what that device lies on, or a folder above one
/// of these. `None` if root alone can change them all.
pub fn first_untrusted(path: &Path) -> Result<Option<PathBuf>> {
    for place in path.ancestors() {
        let found = place.metadata();
        let meta = found.with_context(|| format!("cannot look at {}", place.display()))?;
        if meta.file_type().is_block_device() {
            for lower in below(meta.rdev()) {
                // What cannot be looked at may be anybody's.
                if let Some(found) = first_untrusted(&lower).unwrap_or(Some(lower)) {
                    return Ok(Some(found));
                }
            }
        }
        if is_untrusted(place, &meta) {
            return Ok(Some(place.to_owned()));
        }
    }
    Ok(None)
}

/// True if somebody other than root may change this place itself.
fn is_untrusted(place: &Path, meta: &Metadata) -> bool {
    if meta.uid() != 0 {
        return true;
    }
    if meta.is_dir() && meta.mode() & STICKY != 0 {
        return false;
    }
    // Machines let the group `disk` write all drives, so it is trusted as root is. With an access control list, the group's bits are those
    // of all whom the list names.
    let trusts_group =
        meta.file_type().is_block_device() && is_of_drives(meta.gid()) && !has_list(place);
    let writers = match trusts_group {
        true => OTHERS_WRITE,
        false => GROUP_WRITES | OTHERS_WRITE,
    };
    meta.mode() & writers != 0
}

/// What a block device or a partition lies on, if that is not a drive: the file that a loop device serves, and the devices below one that
/// the kernel maps. Who may change these may change it.
fn below(number: u64) -> Vec<PathBuf> {
    let (major, minor) = (libc::major(number), libc::minor(number));
    let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let mut below = Vec::new();
    // The folder of a partition is inside its device's.
    for node in [node.clone(), node.join("..")] {
        if let Ok(name) = std::fs::read(node.join("loop/backing_file")) {
            let name = name.strip_suffix(b"\n").unwrap_or(&name);
            below.push(OsStr::from_bytes(name).into());
        }
        let devices = std::fs::read_dir(node.join("slaves"));
        let devices = devices.into_iter().flatten().flatten();
        below.extend(devices.map(|device| Path::new("/dev").join(device.file_name())));
    }
    below
}

/// True if a file has an access control list.
fn has_list(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return true;
    };
    let name = c"system.posix_acl_access";
    // SAFETY: two terminated strings, and no room for an answer: only its length comes back.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), null_mut(), 0) };
    length > 0
}

fn is_of_drives(group: u32) -> bool {
    group == 0 || "disk".parse() == Ok(Group(group))
}

/// Refuses mount options that the mount program would interpret itself, and characters that would hide the options after them.
pub fn check(options: &str) -> Result<()> {
    let wrong = match options.contains(['"', '\\']) {
        true => Some("a quote or a backslash".to_owned()),
        false => options.split(',').find_map(of_the_program),
    };
    match wrong {
        None => Ok(()),
        Some(wrong) => Err(usage(format!(
            "the volume's property mount-options has {wrong}, which a volume may not ask for \
             (mount-options={options}): {ADVICE}"
        ))),
    }
}

fn of_the_program(option: &str) -> Option<String> {
    let name = option.split('=').next().unwrap_or_default().trim();
    let name = name.to_ascii_lowercase();
    let is_it = |word: &&str| match word.ends_with(['-', '.']) {
        true => name.starts_with(word),
        false => name == *word,
    };
    let found = OF_THE_PROGRAM.iter().any(is_it);
    found.then_some(name)
}

/// These options, without what they allow the volume's programs and its device files.
pub fn guarded(options: &str) -> String {
    let lifts = |option: &str| matches!(option.trim(), "suid" | "dev");
    if options.split(',').any(lifts) {
        tell(format_args!(
            "mounting with nosuid,nodev, although the volume's property mount-options says otherwise: \
             {ADVICE}"
        ));
    }
    let guards = GUARDS.join(",");
    format!("{guards},{options},{guards}")
}

/// Checks that the kernel has them.
pub fn is_guarded(mounted: Option<Mounted>, dir: &Path) -> Result<()> {
    match mounted.is_some_and(|it| GUARDS.iter().all(|option| it.has(option))) {
        true => Ok(()),
        false => bail!(
            "{} was mounted without nosuid,nodev, because of the volume's property mount-options, and does \
             not stay mounted: {ADVICE}",
            dir.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_options_of_the_file_system_are_taken_from_a_volume() {
        for fine in [
            "",
            "noatime",
            "data=journal,journal_async_commit",
            "errors=remount-ro,ro",
            "suid,dev",
        ] {
            check(fine).unwrap();
        }
        for wrong in [
            "noatime,x-a=\"",
            "a\\",
            "loop",
            "ro, LOOP=/dev/loop1",
            "offset=1",
            "make-shared",
            "X-mount.mkdir",
            "x-systemd.automount",
            "verity.hashdevice=/dev/sda",
            "helper=x",
            "remount,rw",
        ] {
            let error = check(wrong).unwrap_err().to_string();
            assert!(error.contains("mount-options"), "{error}");
        }
    }

    #[test]
    fn a_loop_device_is_as_safe_as_its_file() {
        // SAFETY: it has no arguments and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        if !is_root || !Path::new("/dev/loop-control").exists() {
            writeln!(std::io::stderr(), "SKIP: needs root and loop devices").unwrap();
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, [0; 1 << 20]).unwrap();
        let mode = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        let device = host::loop_attach(&file).unwrap();
        let safe = first_untrusted(&device);
        mode(0o666);
        let open = first_untrusted(&device);
        std::fs::remove_file(&file).unwrap();
        let gone = first_untrusted(&device);
        let device = device.to_string_lossy();
        host::run("losetup", &["--detach", &device]).unwrap();
        assert_eq!(safe.unwrap(), None);
        assert_eq!(open.unwrap(), Some(file));
        assert!(gone.unwrap().is_some(), "nobody knows whose it is");
    }
}
