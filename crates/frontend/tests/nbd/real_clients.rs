//! Common clients. Each test prints a message when it is skipped because its client is missing.

use crate::disks::{LateDisk, Served, pattern};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vellum_frontend::nbd::Export;
use vellum_frontend::testing::{RamDisk, skipped};

fn missing(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        skipped(format_args!("{program} is not installed"));
    }
    missing
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {} {}",
        words(&output.stdout),
        words(&output.stderr)
    );
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn disk() -> (Served, Arc<RamDisk>) {
    let ram = Arc::new(RamDisk::new(16_384, 1024, 1024));
    (
        Served::of(LateDisk::new(Arc::clone(&ram), Duration::ZERO)),
        ram,
    )
}

#[test]
fn nbdinfo_understands_all_that_is_said() {
    if missing("nbdinfo") {
        return;
    }
    let (served, _) = disk();
    served
        .server
        .add(
            Export::new("second", Arc::new(RamDisk::new(8, 4, 4)))
                .described("words")
                .read_only_if(true),
        )
        .unwrap();
    let info = text(&run(Command::new("nbdinfo").arg(served.uri("disk"))));
    for line in [
        "export-size: 67108864",
        "base:allocation",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "is_read_only: false",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(info.contains(line), "{line:?} is not in {info}");
    }
    let list = text(&run(Command::new("nbdinfo")
        .arg("--list")
        .arg(served.uri(""))));
    assert!(
        list.contains("export=\"disk\"") && list.contains("export=\"second\""),
        "{list}"
    );
    assert!(
        list.contains("is_read_only: true") && list.contains("description: words"),
        "{list}"
    );
    let map = text(&run(Command::new("nbdinfo")
        .arg("--map")
        .arg(served.uri("disk"))));
    assert!(
        map.contains("67108864") && map.contains("hole,zero"),
        "{map}"
    );
}

#[test]
fn nbdcopy_copies_there_and_back_on_several_connections() {
    if missing("nbdcopy") {
        return;
    }
    let (served, ram) = disk();
    let (from, to) = (served.folder().join("from"), served.folder().join("to"));
    let mut bytes = pattern(1, 64 << 20);
    bytes[10 << 20..30 << 20].fill(0);
    std::fs::write(&from, &bytes).unwrap();
    let uri = served.uri("disk");
    let copy = |args: [&std::ffi::OsStr; 2]| {
        run(Command::new("nbdcopy")
            .args(["--connections=4", "--requests=64", "--flush"])
            .args(args));
    };
    copy([from.as_os_str(), uri.as_ref()]);
    copy([uri.as_ref(), to.as_os_str()]);
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert!(ram.flushes.load(Ordering::Relaxed) > 0);
    drop(served);
    assert!(ram.all_frames_free());
}

#[test]
fn qemu_io_sends_each_command() {
    if missing("qemu-io") {
        return;
    }
    let (served, ram) = disk();
    let io = |commands: &[&str]| {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", "-t", "none"]);
        commands.iter().for_each(|c| {
            command.args(["-c", c]);
        });
        let output = text(&run(command.arg(served.uri("disk"))));
        assert!(
            !output.contains("failed") && !output.contains("error"),
            "{output}"
        );
        output
    };
    io(&[
        "write -P 0x11 0 1M",
        "write -f -P 0x22 512 512",
        "write -P 0x33 5k 3k",
        "read -P 0x22 512 512",
    ]);
    assert!(
        ram.flushes.load(Ordering::Relaxed) > 0,
        "FUA reached the disk"
    );
    io(&[
        "read -P 0x11 0 512",
        "read -P 0x33 5k 3k",
        "read -P 0x11 8k 1016k",
        "flush",
    ]);
    io(&[
        "write -z 64k 64k",
        "read -P 0 64k 64k",
        "write -z -u 256k 64k",
        "read -P 0 256k 64k",
    ]);
    io(&[
        "discard 512k 256k",
        "read -P 0 512k 256k",
        "read -P 0x11 768k 256k",
    ]);
    let map = io(&["map"]);
    assert!(map.contains("allocated"), "{map}");
    let past = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write 64M 512"])
        .arg(served.uri("disk"))
        .output()
        .unwrap();
    assert!(
        text(&past).contains("failed") || text(&past).contains("range"),
        "{}",
        text(&past)
    );
}

#[test]
fn qemu_img_converts_and_compares() {
    if missing("qemu-img") {
        return;
    }
    let (served, _) = disk();
    let image = served.folder().join("image");
    let mut bytes = pattern(8, 64 << 20);
    bytes[..20 << 20].fill(0);
    std::fs::write(&image, &bytes).unwrap();
    let uri = served.uri("disk");
    run(Command::new("qemu-img")
        .args(["convert", "-n", "-f", "raw", "-O", "raw"])
        .arg(&image)
        .arg(&uri));
    let same = run(Command::new("qemu-img")
        .args(["compare", "-f", "raw", "-F", "raw"])
        .arg(&image)
        .arg(&uri));
    assert!(text(&same).contains("identical"), "{}", text(&same));
    let map = text(&run(Command::new("qemu-img")
        .args(["map", "--output=json", "-f", "raw"])
        .arg(&uri)));
    assert!(
        map.contains("\"zero\": true") && map.contains("\"data\": true"),
        "{map}"
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    if missing("fio") {
        return;
    }
    let (served, ram) = disk();
    let engines = text(&run(Command::new("fio").arg("--enghelp")));
    if !engines.contains("nbd") {
        skipped("this fio has no nbd engine");
        return;
    }
    for (size, depth) in [("4k", "32"), ("512", "4"), ("128k", "8"), ("5k", "16")] {
        run(Command::new("fio")
            .current_dir(served.folder())
            .args([
                "--name=x",
                "--ioengine=nbd",
                "--rw=randwrite",
                "--verify=crc32c",
                "--size=8m",
                "--fsync=64",
            ])
            .args([
                format!("--bs={size}"),
                format!("--iodepth={depth}"),
                format!("--uri={}", served.uri("disk")),
            ]));
    }
    assert!(ram.flushes.load(Ordering::Relaxed) > 0);
}
