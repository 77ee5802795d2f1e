//! The systemd units: a service template, and the order of each entry's service. A generator derives the order at each boot, so that an
//! entry changed by hand takes effect.

use super::entry::{Entry, Name, Target};
use super::tab::Tab;
use crate::attachment::Via;
use crate::outcome::tell;
use crate::{host, replace, strangers};
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Where installed units may be, the administrator's own first.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The template, and the program that derives the rest.
const TEMPLATE: &str = "vellum@.service";
const GENERATOR: &str = "vellum-generator";
/// The folder with the files of running servers.
const RUN: &str = "/run/vellum";
/// The longest name of a unit.
const UNIT_NAME_MAX: usize = 255;

/// The service for an entry.
pub fn service(name: &Name) -> String {
    format!("vellum@{name}.service")
}

/// True if systemd runs this machine.
pub fn runs() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Makes systemd read the changes to the tab.
pub fn reload() -> Result<()> {
    host::run("systemctl", &["daemon-reload"]).map(drop)
}

/// Starts or stops the service of an entry.
pub fn order(verb: &str, name: &Name) -> Result<()> {
    let service = service(name);
    let done = host::run("systemctl", &[verb, &service]);
    done.map(drop)
        .with_context(|| format!("see `systemctl status {service}`"))
}

/// The service's template, for a program installed at this path.
fn template(program: &str) -> String {
    include_str!("vellum@.service").replace("@PROGRAM@", program)
}

fn generator(program: &str) -> String {
    format!(
        "\
#!/bin/sh
# systemd runs this at each boot and `systemctl daemon-reload`: it derives from /etc/vellum/volumes what the
# services vellum@NAME wait for.
exec {program} boot generate \"$1\"
"
    )
}

/// Writes the template and the generator into a folder of systemd's, like /etc/systemd.
pub fn install(folder: &Path, program: &str) -> Result<()> {
    let files = [
        (
            folder.join("system").join(TEMPLATE),
            0o644,
            template(program),
        ),
        (
            folder.join("system-generators").join(GENERATOR),
            0o755,
            generator(program),
        ),
    ];
    for (path, mode, text) in files {
        let failed = || format!("cannot write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(failed)?;
        }
        replace::file(&path, mode, text.as_bytes()).with_context(failed)?;
    }
    Ok(())
}

/// Installs them for this program if no package has. Root will run it at each boot, so no other user may be able to change it.
pub fn ensure_installed() -> Result<()> {
    if UNITS
        .iter()
        .any(|folder| Path::new(folder).join(TEMPLATE).exists())
    {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find the vellum program itself")?;
    let shown = program.display();
    if let Some(place) = strangers::first_untrusted(&program)? {
        bail!(
            "root would run {shown} at each boot, and others than root may change {}: install it first \
             (`sudo install {shown} /usr/local/bin/`)",
            place.display()
        );
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let program = program.to_str().filter(|text| text.chars().all(is_plain));
    let program = program.with_context(|| format!("{shown}: a unit cannot name such a path"))?;
    install(Path::new("/etc/systemd"), program)?;
    tell(format_args!(
        "wrote /etc/systemd/system/{TEMPLATE} and /etc/systemd/system-generators/{GENERATOR}"
    ));
    Ok(())
}

/// Writes the units that follow from the tab into a generator's folder. A damaged entry gets a service too, which fails and
/// says why, but delays nothing.
pub fn generate(tab: &Tab, folder: &Path) -> Result<()> {
    for (stem, read) in tab.entries()? {
        let (name, entry) = match (read, stem.parse::<Name>()) {
            (Ok((name, entry)), _) => (name, Some(entry)),
            (Err(error), named) => {
                tell(format_args!("vellum: {error:#}"));
                let Ok(name) = named else { continue };
                (name, None)
            }
        };
        let target = match entry.as_ref().map(|entry| entry.before) {
            // It was attached before systemd began.
            Some(Target::Root) => continue,
            Some(Target::LocalFs) => "local-fs.target",
            Some(Target::MultiUser) | None => "multi-user.target",
        };
        let service = service(&name);
        let source = tab.path(&name);
        let wants = format!(
            "# Derived from {}\n[Unit]\nWants={service}\n",
            source.display()
        );
        put(
            &folder.join(format!("{target}.d/vellum-{name}.conf")),
            &wants,
        )?;
        let order = ordering(target, entry.as_ref());
        let own = format!("# Derived from {}\n{order}", source.display());
        put(&folder.join(format!("{service}.d/volume.conf")), &own)?;
        if let Some(fuse) = entry.and_then(fuse_mount) {
            // It is below a loop device until the volume is detached, so a shutdown must not try to unmount it earlier.
            let apart = "[Unit]\nDefaultDependencies=no\n";
            put(&folder.join(format!("{fuse}.d/volume.conf")), apart)?;
        }
    }
    Ok(())
}

/// The unit of the FUSE directory in which a volume may be served.
fn fuse_mount(entry: Entry) -> Option<String> {
    let folder = Path::new(RUN).join(entry.uuid? + ".fuse");
    unit(&folder, "mount")
}

fn put(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    fs::write(path, text).with_context(failed)
}

/// The order of a service: after its medium, with its mount, and before the target. At a shutdown the order is reversed.
pub fn ordering(target: &str, entry: Option<&Entry>) -> String {
    let mut text = format!("[Unit]\nBefore={target}\n");
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "{key}={value}");
    };
    if target != "local-fs.target" {
        line("After", "local-fs.target remote-fs.target");
    }
    let Some(entry) = entry else { return text };
    let via = likely(entry.via);
    for module in modules(via) {
        // The service itself may not load modules.
        let loads = format!("modprobe@{module}.service");
        line("Wants", &loads);
        line("After", &loads);
    }
    line("RequiresMountsFor", &quoted(&entry.volume));
    let device = unit(&entry.volume, "device").filter(|_| entry.volume.starts_with("/dev"));
    if let Some(device) = device {
        // Not required: the device may appear by another name, and the service itself reports what is missing.
        line("Wants", &device);
        line("After", &device);
    }
    if let Some(mount) = &entry.mount {
        if let Some(folder) = mount.parent() {
            line("RequiresMountsFor", &quoted(folder));
        }
        // systemd finds that mount in the kernel's table; at a shutdown it must be undone first.
        if let Some(mount) = unit(mount, "mount") {
            line("Before", &mount);
        }
    }
    if via == Via::Nbd {
        // The kernel does not accept nbd configuration from a process with a private network.
        text.push_str("[Service]\nPrivateNetwork=no\n");
    }
    text
}

/// The way in which a volume will probably be attached: the entry's, or ublk if this kernel should have it, or else nbd. If the
/// guess is wrong, the service may be allowed less than it could use, or more.
fn likely(via: Option<Via>) -> Via {
    static HAS_UBLK: LazyLock<bool> = LazyLock::new(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        is_enough(&release) && has_module("ublk_drv")
    });
    via.unwrap_or_else(|| match *HAS_UBLK {
        true => Via::Ublk,
        false => Via::Nbd,
    })
}

/// True if a Linux of this release has everything we need of ublk.
fn is_enough(release: &str) -> bool {
    const ENOUGH: [u32; 2] = [6, 5];
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|n| n.parse().ok());
    [0; 2].map(|_| numbers.next().unwrap_or(0)) >= ENOUGH
}

/// Checks for a module without loading it.
fn has_module(module: &str) -> bool {
    Path::new("/sys/module").join(module).exists()
        || host::run("modprobe", &["--dry-run", "--quiet", module]).is_ok()
}

fn modules(via: Via) -> &'static [&'static str] {
    match via {
        Via::Ublk => &["ublk_drv"],
        Via::Nbd => &["nbd"],
        Via::Fuse => &["fuse", "loop"],
    }
}

/// A path quoted for a unit's line.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let text = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%");
    format!("\"{text}\"")
}

/// The unit for a path, named as by `systemd-escape --path`; `None` if the name is too long.
fn unit(path: &Path, suffix: &str) -> Option<String> {
    let mut name = String::new();
    let parts = path.iter().filter(|part| *part != "/").collect::<PathBuf>();
    for (at, byte) in parts.to_string_lossy().bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b':' | b'_' | b'.' => name.push(byte.into()),
            byte => {
                let _ = write!(name, "\\x{byte:02x}");
            }
        }
    }
    if name.is_empty() {
        name.push('-');
    }
    let name = format!("{name}.{suffix}");
    (name.len() <= UNIT_NAME_MAX).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_named_as_systemd_names_them() {
        for (path, name) in [
            ("/", "-.mount"),
            ("/mnt/data", "mnt-data.mount"),
            ("//srv//a b/", "srv-a\\x20b.mount"),
            ("/.hidden/x-y", "\\x2ehidden-x\\x2dy.mount"),
            ("/ü", "\\xc3\\xbc.mount"),
        ] {
            assert_eq!(unit(Path::new(path), "mount").as_deref(), Some(name));
        }
        assert_eq!(
            unit(Path::new(&format!("/{}", "a".repeat(255))), "mount"),
            None
        );
        assert_eq!(
            quoted(Path::new("/a \"b\"\\50%")),
            "\"/a \\\"b\\\"\\\\50%%\""
        );
    }

    #[test]
    fn a_volume_comes_between_its_medium_and_its_mount() {
        let entry = "volume = '/dev/disk/by-id/a-b'\nmount = '/srv/data'\n";
        let entry = Entry::parse(entry, Path::new("e")).unwrap();
        let text = ordering("local-fs.target", Some(&entry));
        for line in [
            "Before=local-fs.target",
            "Before=srv-data.mount",
            "After=dev-disk-by\\x2did-a\\x2db.device",
            "RequiresMountsFor=\"/srv\"",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        assert!(!text.contains("After=local-fs.target"), "{text}");
        assert!(ordering("multi-user.target", None).contains("After=local-fs.target"));
    }

    /// A service has a network if it needs one, and its modules are loaded by others.
    #[test]
    fn a_service_may_do_what_its_way_to_attach_needs() {
        for (via, module, has_network) in [
            ("ublk", "ublk_drv", false),
            ("nbd", "nbd", true),
            ("fuse", "loop", false),
        ] {
            let entry = format!("volume = '/a'\nvia = '{via}'\n");
            let entry = Entry::parse(&entry, Path::new("e")).unwrap();
            let text = ordering("local-fs.target", Some(&entry));
            assert!(
                text.contains(&format!("Wants=modprobe@{module}.service\n")),
                "{text}"
            );
            assert_eq!(
                text.contains("[Service]\nPrivateNetwork=no\n"),
                has_network,
                "{text}"
            );
        }
        for (release, enough) in [
            ("6.1.0-28-amd64", false),
            ("6.5.0\n", true),
            ("10.0", true),
            ("", false),
        ] {
            assert_eq!(is_enough(release), enough, "{release}");
        }
    }
}
