//! Volumes attached at boot: the entries, the units generated from them, and what those run. Real boots are in `tests/boot.sh`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, ok, run, server_pid, skipped, text, vellum};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A system's directory with two volumes, with the entries below it; detached when the test ends.
struct System(tempfile::TempDir);

impl System {
    fn new() -> Self {
        let system = Self(dir());
        for name in ["a", "b", "c"] {
            ok(&["create", text(&system.at(name)), "--size", "32M"]);
            fs::create_dir(system.at(&format!("mnt-{name}"))).unwrap();
        }
        system
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn root(&self) -> &str {
        text(self.0.path())
    }

    /// Returns a unique name for an entry, because all systems share one run-time directory.
    fn name(&self, name: &str) -> String {
        let unique = self.0.path().file_name().unwrap().to_str().unwrap();
        format!("{name}-{}", unique.trim_start_matches("vellum-test-"))
    }

    fn entry(&self, name: &str) -> PathBuf {
        self.at(&format!("etc/vellum/volumes/{}.toml", self.name(name)))
    }

    /// Enables a volume.
    fn enable(&self, name: &str, more: &[&str]) {
        let (volume, mount) = (self.at(name), self.at(&format!("mnt-{name}")));
        let (name, root) = (self.name(name), self.root());
        let args = [
            "enable",
            text(&volume),
            "--mount",
            text(&mount),
            "--name",
            &name,
            "--root",
            root,
        ];
        ok(&[&args, more].concat());
    }

    fn make_file_system(&self, name: &str) {
        let volume = self.at(name);
        ok(&["attach", text(&volume), "--via=fuse", "--mkfs"]);
        ok(&["detach", text(&volume)]);
    }
}

impl Drop for System {
    fn drop(&mut self) {
        for name in ["a", "b", "c", "copy"] {
            vellum(&["detach", text(&self.at(name))]);
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(&format!(" {} ", text(dir)))
}

#[test]
fn two_entries_for_one_volume_are_refused() {
    let system = System::new();
    let (a, mount) = (system.at("a"), system.at("mnt-b"));
    system.enable("a", &[]);
    let before = fs::read(system.entry("a")).unwrap();
    let again = [
        "enable",
        text(&a),
        "--name",
        "other",
        "--mount",
        text(&mount),
        "--root",
        system.root(),
    ];
    let name = system.name("a");
    fails(1, &again, &[&format!("enabled already, as {name}")]);
    let (b, taken) = (system.at("b"), system.at("mnt-a"));
    let there = [
        "enable",
        text(&b),
        "--mount",
        text(&taken),
        "--root",
        system.root(),
    ];
    fails(1, &there, &[&format!("where {name} is mounted at boot")]);
    fails(
        2,
        &[
            "enable",
            text(&b),
            "--name",
            "../x",
            "--root",
            system.root(),
        ],
        &["a name has letters"],
    );
    fails(1, &["enable", text(&mount), "--root", system.root()], &[]);
    assert_eq!(fs::read(system.entry("a")).unwrap(), before);
    assert!(ok(&["boot", "list", "--root", system.root()]).starts_with(&format!("{name}: ")));
    // By its name, its file or its mount point.
    fails(
        2,
        &["disable", text(&b), "--root", system.root()],
        &["nothing is enabled as"],
    );
    ok(&[
        "disable",
        text(&system.at("mnt-a")),
        "--root",
        system.root(),
    ]);
    assert_eq!(
        ok(&["boot", "list", "--root", system.root()]),
        "nothing is attached at boot\n"
    );
}

#[test]
fn a_full_etc_loses_nothing() {
    if !can_attach("a_full_etc_loses_nothing") {
        return;
    }
    let system = System::new();
    let etc = system.at("etc");
    fs::create_dir(&etc).unwrap();
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=64k", "tmpfs", text(&etc)],
    );
    system.enable("a", &[]);
    let before = fs::read(system.entry("a")).unwrap();
    let filled = fs::write(etc.join("filler"), vec![1; 1 << 20]);
    let (a, b, name) = (system.at("a"), system.at("b"), system.name("a"));
    let refused = [
        vellum(&["enable", text(&b), "--root", system.root()]),
        // A change of an existing entry.
        vellum(&["enable", text(&a), "--name", &name, "--root", system.root()]),
    ];
    let after = fs::read(system.entry("a"));
    let names = fs::read_dir(etc.join("vellum/volumes")).unwrap().count();
    run("umount", &[text(&etc)]);
    assert!(filled.is_err());
    for out in refused {
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && said.contains("No space left"),
            "{said}"
        );
        assert!(said.contains("nothing is enabled by this"), "{said}");
    }
    assert_eq!(after.unwrap(), before);
    assert_eq!(names, 1, "something is left of what failed");
}

#[test]
fn what_is_refused_leaves_nothing() {
    let system = System::new();
    let (a, typo) = (system.at("a"), system.at("typo"));
    let args = ["enable", text(&a), "--root"];
    fails(
        2,
        &[&args[..], &[text(&typo)]].concat(),
        &["no such folder"],
    );
    assert!(!typo.exists());
    let root = common::dir();
    let for_root = [&args[..], &[text(root.path()), "--before", "root"]].concat();
    fails(1, &for_root, &["below /dev"]);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn nothing_stops_that_is_not_there() {
    let nonsense = format!("nonsense-{}", std::process::id());
    fails(1, &["boot", "stop", &nonsense], &["nothing is enabled as"]);
    // What a unit runs, whose entry may be gone.
    ok(&["boot", "stop", "--if-attached", &nonsense]);
}

/// Entries of this machine are in its own folder, so this test has a folder of its own there for a while.
#[test]
fn an_entry_whose_volume_is_gone_or_another_is_told() {
    const NAME: &str = "an_entry_whose_volume_is_gone_or_another_is_told";
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        skipped(format_args!("{NAME}: needs root for a mount namespace"));
        return;
    }
    let system = System::new();
    for name in ["a", "b", "c"] {
        system.enable(name, &[]);
    }
    fs::remove_file(system.at("b")).unwrap();
    ok(&["create", text(&system.at("c")), "--size=64M", "--force"]);
    let (etc, program) = (system.at("etc"), env!("CARGO_BIN_EXE_vellum"));
    let script = format!("mount --bind {} /etc && {program} boot list", text(&etc));
    let told = run("unshare", &["--mount", "sh", "-c", &script]);
    let line = |name: &str| {
        let begins = format!("{}: ", system.name(name));
        told.lines()
            .find(|line| line.starts_with(&begins))
            .unwrap()
            .to_owned()
    };
    assert!(!line("a").contains("wrong"), "{told}");
    assert!(
        line("b").contains("wrong: ") && line("b").contains("does not exist"),
        "{told}"
    );
    assert!(
        line("c").contains("not the volume that was enabled"),
        "{told}"
    );
}

#[test]
fn the_units_that_follow_are_right() {
    let system = System::new();
    system.enable("a", &["--before", "local-fs"]);
    system.enable("b", &["--before", "multi-user"]);
    fs::write(system.entry("broken"), "volume = '/d'\nmuont = '/m'\n").unwrap();
    let units = system.at("units");
    let told = vellum(&["boot", "generate", text(&units), "--root", system.root()]);
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{said}");
    let [a, b, broken] = ["a", "b", "broken"].map(|name| system.name(name));
    let says = format!("{broken}.toml, line 2: unknown field `muont`");
    assert!(said.contains(&says), "{said}");
    let holds = |path: &str, line: &str| {
        let text = fs::read_to_string(units.join(path)).unwrap();
        assert!(text.lines().any(|l| l == line), "{path}: {text}");
    };
    let folders = fs::read_dir(&units).unwrap().flatten();
    let of_fuse = folders.filter(|e| text(&e.path()).ends_with(".fuse.mount.d"));
    assert_eq!(of_fuse.count(), 2);
    let wants = |name: &str| format!("Wants=vellum@{name}.service");
    holds(&format!("local-fs.target.d/vellum-{a}.conf"), &wants(&a));
    let own = format!("vellum@{a}.service.d/volume.conf");
    holds(&own, "Before=local-fs.target");
    holds(&format!("multi-user.target.d/vellum-{b}.conf"), &wants(&b));
    // Its service fails with a reason; nothing else in the boot waits for it.
    holds(
        &format!("multi-user.target.d/vellum-{broken}.conf"),
        &wants(&broken),
    );

    ok(&[
        "boot",
        "install",
        text(&system.at("lib")),
        "--program",
        env!("CARGO_BIN_EXE_vellum"),
    ]);
    fs::copy(
        system.at("lib/system/vellum@.service"),
        units.join("vellum@.service"),
    )
    .unwrap();
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        skipped("the_units_that_follow_are_right: needs systemd-analyze to verify them");
        return;
    }
    for name in [a, b, broken] {
        is_verified(&units, &name);
    }
}

/// systemd's score for how exposed a service is: 0 is not at all, 10 is fully.
#[test]
fn the_service_is_fenced_in() {
    const NAME: &str = "the_service_is_fenced_in";
    const TENTHS_MAX: &str = "--threshold=30";
    let folder = common::dir();
    ok(&["boot", "install", text(folder.path())]);
    let unit = folder.path().join("system/vellum@.service");
    let judged = |unit: &Path| {
        let mut command = Command::new("systemd-analyze");
        let command = command.args(["security", "--offline=true", "--no-pager", TENTHS_MAX]);
        let told = command.arg(unit).output().ok()?;
        let said = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
        // Older versions only judge running services.
        said.contains("Overall exposure level")
            .then_some((told.status.success(), said))
    };
    let Some((fenced, said)) = judged(&unit) else {
        skipped(format_args!(
            "{NAME}: needs the systemd-analyze of systemd 250"
        ));
        return;
    };
    assert!(fenced, "{said}");
    let open = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, open.replace("PrivateNetwork=yes\n", "")).unwrap();
    assert!(!judged(&unit).unwrap().0, "it takes anything");
}

/// Checks that systemd finds no error in the service of an entry.
fn is_verified(units: &Path, name: &str) {
    let folders = format!("{}:/usr/lib/systemd/system", text(units));
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", &format!("vellum@{name}.service")])
        .env("SYSTEMD_UNIT_PATH", folders)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    // Messages about the machine's own units are ignored.
    let is_ours = said.lines().any(|line| line.contains("vellum"));
    assert!(verified.status.success() && !is_ours, "{name}: {said}");
}

/// Damages both of them, and what follows the first.
fn damage_superblocks(volume: &Path) {
    let file = fs::File::options().write(true).open(volume).unwrap();
    let end = file.metadata().unwrap().len();
    for at in [0, end - (1 << 20)] {
        file.write_all_at(&common::noise(at, 1 << 20), at).unwrap();
    }
}

#[test]
fn a_boot_attaches_whole_volumes_and_reports_the_rest() {
    if !can_attach("a_boot_attaches_whole_volumes_and_reports_the_rest") {
        return;
    }
    let system = System::new();
    system.make_file_system("a");
    system.enable("a", &["--via", "fuse"]);
    system.enable("b", &["--via", "fuse"]);
    system.enable("c", &["--via", "fuse"]);
    fs::remove_file(system.at("b")).unwrap();
    damage_superblocks(&system.at("c"));
    fs::write(system.entry("broken"), "volume = 'relative'\n").unwrap();
    let start = ["boot", "start", "--root", system.root()];
    let name = system.name("a");
    let says = [
        "3 of 4 volumes are not attached",
        &format!("{}.toml", system.name("b")),
        &format!("{}.toml", system.name("c")),
        "both superblocks are lost",
        &format!("{}.toml", system.name("broken")),
        "absolute path",
    ];
    fails(1, &start, &says);
    let mount = system.at("mnt-a");
    assert!(is_mounted(&mount));
    // A second start succeeds.
    ok(&["boot", "start", &name, "--root", system.root()]);
    let pid = server_pid(&system.at("a"));
    let told = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    assert!(told("cmdline").starts_with('@'), "a shutdown kills it");
    // Root in a container may lack the right: then the score is unchanged.
    let lowered = "echo -900 2>/dev/null >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj";
    let may = run("sh", &["-c", lowered]);
    assert_eq!(told("oom_score_adj"), may);
    let status = told("status");
    let kib = |key: &str| -> u64 {
        let value = status.lines().find_map(|line| line.strip_prefix(key));
        let mut words = value.unwrap().split_whitespace();
        words.next().unwrap().parse().unwrap()
    };
    assert!(kib("VmLck:") > 0, "it may be swapped out");
    // Memory that is mapped and never used, such as stacks and buffers, takes no space.
    assert!(kib("VmRSS:") < 64 << 10, "{} KiB", kib("VmRSS:"));

    // The state after a start was killed before it mounted.
    run("umount", &[text(&mount)]);
    let says = [&format!("{name} is attached, but not mounted"), "boot stop"];
    fails(1, &["boot", "start", &name, "--root", system.root()], &says);
    ok(&["boot", "stop", &name]);
    ok(&["boot", "start", &name, "--root", system.root()]);
    assert!(is_mounted(&mount));

    // While in use it stays, with its entry; then it is detached, even if the entry is gone.
    let file = fs::File::create(mount.join("held")).unwrap();
    let says = [&format!("{name}: cannot unmount"), "stays attached"];
    fails(1, &["boot", "stop", &name], &says);
    assert!(is_mounted(&mount));
    drop(file);
    ok(&["disable", &name, "--root", system.root()]);
    assert!(is_mounted(&mount));
    ok(&["boot", "stop", &name]);
    assert!(!is_mounted(&mount));
    ok(&["boot", "stop", "--if-attached", &name]);
}

/// Who else may write to it could let a program of his own run as root.
#[test]
fn a_boot_trusts_the_options_of_a_volume_that_only_root_can_change() {
    if !can_attach("a_boot_trusts_the_options_of_a_volume_that_only_root_can_change") {
        return;
    }
    const NOBODY: u32 = 65_534;
    let system = System::new();
    system.make_file_system("a");
    let (volume, name) = (system.at("a"), system.name("a"));
    ok(&["set", text(&volume), "mount-options=suid,dev"]);
    system.enable("a", &["--via", "fuse"]);
    let start = ["boot", "start", &name, "--root", system.root()];
    let mounted = |owners: [u32; 2], mode: u32| {
        let [folder, file] = owners;
        chown(&volume, Some(file), None).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(mode)).unwrap();
        chown(system.0.path(), Some(folder), None).unwrap();
        ok(&start);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let place = format!(" {} ", text(&system.at("mnt-a")));
        let line = mounts.lines().find(|line| line.contains(&place)).unwrap();
        let guarded = ["nosuid", "nodev"].map(|option| line.contains(option));
        ok(&["boot", "stop", &name]);
        guarded
    };
    assert_eq!(mounted([0, 0], 0o600), [false; 2]);
    assert_eq!(mounted([0, NOBODY], 0o600), [true; 2]);
    assert_eq!(mounted([NOBODY, 0], 0o600), [true; 2]);
    assert_eq!(mounted([0, 0], 0o620), [true; 2]);
    assert_eq!(mounted([0, 0], 0o1606), [true; 2]);
}

#[test]
fn a_boot_attaches_nothing_else() {
    if !can_attach("a_boot_attaches_nothing_else") {
        return;
    }
    let system = System::new();
    system.make_file_system("a");
    system.enable("a", &["--via", "fuse"]);
    let (a, b) = (system.at("a"), system.at("b"));
    let (name, twin) = (system.name("a"), system.name("twin"));
    let start = ["boot", "start", &name, "--root", system.root()];
    // Another volume in its place.
    fs::rename(&a, system.at("copy")).unwrap();
    fs::rename(&b, &a).unwrap();
    fails(1, &start, &["not the volume that was enabled"]);
    fs::rename(&a, &b).unwrap();
    fs::rename(system.at("copy"), &a).unwrap();
    // A volume attached by hand is not mistaken for the one of the entry.
    ok(&["attach", text(&a), "--via=fuse"]);
    fails(1, &start, &["attached by hand"]);
    ok(&["boot", "stop", "--if-attached", &name]);
    assert!(
        ok(&["list"]).contains(text(&a)),
        "a stop detached what is somebody else's"
    );
    ok(&["detach", text(&a)]);
    // Two entries for one volume, written by hand: the second is refused because of the first.
    let again = fs::read_to_string(system.entry("a")).unwrap();
    fs::write(system.entry("twin"), again.replace("mnt-a", "mnt-b")).unwrap();
    ok(&start);
    fails(
        1,
        &["boot", "start", &twin, "--root", system.root()],
        &[&format!("attached already, as {name}")],
    );
    // Two entries for one folder, too.
    let folder = text(&system.at("mnt-a")).to_owned();
    let beside = format!("volume = '{}'\nmount = '{folder}'\n", text(&system.at("b")));
    fs::write(system.entry("beside"), beside).unwrap();
    fails(
        1,
        &[
            "boot",
            "start",
            &system.name("beside"),
            "--root",
            system.root(),
        ],
        &[&folder, &format!("where {name} is mounted")],
    );
    ok(&["boot", "stop", &name]);
    // Something else is mounted there.
    run(
        "mount",
        &["-t", "tmpfs", "tmpfs", text(&system.at("mnt-a"))],
    );
    let refused = vellum(&start);
    run("umount", &[text(&system.at("mnt-a"))]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("has something mounted on it already"),
        "{said}"
    );
}

/// An initramfs has only the entry of the root file system; the units of the booted system do not contain it.
#[test]
fn an_initramfs_has_only_the_entry_of_the_root() {
    let system = System::new();
    system.enable("a", &[]);
    let early = system.at("early");
    let make = ["boot", "initramfs", text(&early), "--root", system.root()];
    assert_eq!(ok(&make), "");
    assert!(!early.exists(), "there is nothing to attach in it");

    let name = system.name("system");
    let entry = "volume = '/dev/disk/by-id/a-b'\nbefore = 'root'\n";
    fs::write(system.entry("system"), entry).unwrap();
    let line = format!("{name} /dev/disk/by-id/a-b\n");
    assert_eq!(ok(&make), line);
    let told = early.join("etc/vellum/initramfs");
    assert_eq!(fs::read_to_string(told).unwrap(), line);
    let files = fs::read_dir(early.join("etc/vellum/volumes")).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, [format!("{name}.toml").as_str()]);
    assert_eq!(
        ok(&["boot", "list", "--root", text(&early)])
            .lines()
            .count(),
        1
    );

    let units = system.at("units");
    ok(&["boot", "generate", text(&units), "--root", system.root()]);
    let of_it = run("find", &[text(&units), "-path", &format!("*{name}*")]);
    assert_eq!(of_it, "");
    let a = fs::read_to_string(system.entry("a")).unwrap();
    fs::write(system.entry("a"), a + "nonsense = 1\n").unwrap();
    fails(2, &make, &["is damaged", "unknown field `nonsense`"]);

    let volume = system.at("b");
    let enable = [
        "enable",
        text(&volume),
        "--before",
        "root",
        "--root",
        system.root(),
    ];
    fails(1, &enable, &["give one below /dev"]);
}
