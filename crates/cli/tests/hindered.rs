//! What ordinary users can do to keep root from its work: mounts with a volume's device in their name, and descriptors that look like
//! its users.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Running, can_attach, dir, eventually, ok, run, text, vellum};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// A volume that is attached over FUSE, detached when the test ends.
struct Disk {
    dir: tempfile::TempDir,
    volume: String,
    device: String,
}

impl Disk {
    fn new() -> Self {
        let dir = dir();
        let volume = text(&dir.path().join("v")).to_owned();
        ok(&["create", &volume, "--size=64M"]);
        let mut it = Self {
            dir,
            volume,
            device: String::new(),
        };
        let device = ok(&["attach", &it.volume, "--via=fuse", "--mkfs"]);
        it.device = device.trim().to_owned();
        it
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    }

    /// Where `list` says that it is mounted.
    fn mounts(&self) -> Vec<String> {
        let listed: serde_json::Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
        let mut listed = listed.as_array().unwrap().iter();
        let it = listed.find(|it| it["path"] == self.volume.as_str());
        serde_json::from_value(it.unwrap()["mounts"].clone()).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vellum(&["detach", &self.volume]);
    }
}

/// Something mounted, unmounted when the test ends.
struct Mounted(PathBuf);

impl Mounted {
    fn new(source: &str, on: &Path, kind: &str, options: &str) -> Self {
        let [source, path, kind, options] =
            [source, text(on), kind, options].map(|it| CString::new(it).unwrap());
        // SAFETY: terminated texts that outlive the call.
        let done = unsafe {
            libc::mount(
                source.as_ptr(),
                path.as_ptr(),
                kind.as_ptr(),
                0,
                options.as_ptr().cast(),
            )
        };
        assert_eq!(done, 0, "{:?}", std::io::Error::last_os_error());
        Self(on.to_owned())
    }

    fn is_there(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&format!(" {} ", text(&self.0)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = CString::new(text(&self.0)).unwrap();
        // SAFETY: a terminated text that outlives the call.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Opens a path, but not what is there.
fn pinned(path: &Path) -> File {
    let mut open = File::options();
    let open = open.read(true).custom_flags(libc::O_PATH);
    open.open(path).unwrap()
}

/// As `fusermount3 -o fsname=/dev/loop0` does for anybody.
#[test]
fn a_users_mount_with_the_name_of_a_device_is_no_mount_of_it() {
    if !can_attach("a_users_mount_with_the_name_of_a_device_is_no_mount_of_it") {
        return;
    }
    let disk = Disk::new();
    let (theirs, ours) = (disk.folder("theirs"), disk.folder("ours"));
    let connection = File::options().read(true).write(true).open("/dev/fuse");
    let connection = connection.unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id=65534,group_id=65534",
        connection.as_raw_fd()
    );
    let of_user = Mounted::new(&disk.device, &theirs, "fuse", &options);
    let _pinned = pinned(&theirs);
    assert_eq!(disk.mounts(), [""; 0]);
    run("mount", &[&disk.device, text(&ours)]);
    assert_eq!(disk.mounts(), [text(&ours)]);
    ok(&["snapshot", &disk.volume, "one", "--freeze"]);
    assert_eq!(ok(&["detach", &disk.volume]), "detached\n");
    assert!(of_user.is_there());
}

/// A `mount` that does not look links up, such as BusyBox's, gives the kernel the name as it is.
#[test]
fn a_mount_of_a_device_by_another_name_is_found() {
    if !can_attach("a_mount_of_a_device_by_another_name_is_found") {
        return;
    }
    let disk = Disk::new();
    let (link, folder) = (disk.dir.path().join("link"), disk.folder("ours"));
    symlink(&disk.device, &link).unwrap();
    let mounted = Mounted::new(text(&link), &folder, "ext4", "");
    assert_eq!(disk.mounts(), [text(&folder)]);
    assert_eq!(ok(&["detach", text(&folder)]), "detached\n");
    assert!(!mounted.is_there());
}

/// Anybody may have a file of that name in a namespace of mounts, and may name the device itself without opening it.
#[test]
fn who_has_not_opened_a_device_does_not_use_it() {
    if !can_attach("who_has_not_opened_a_device_does_not_use_it") {
        return;
    }
    let disk = Disk::new();
    let script = "mount -t tmpfs none /dev; : > $0; exec < $0; : > $1; exec sleep 600";
    let there = disk.dir.path().join("there");
    let args = ["-m", "sh", "-c", script, &disk.device, text(&there)];
    let _other = Running(common::program("unshare", &args).spawn().unwrap());
    eventually("the file is open", || there.exists());
    let _pinned = pinned(Path::new(&disk.device));
    assert_eq!(ok(&["detach", &disk.volume]), "detached\n");
}
