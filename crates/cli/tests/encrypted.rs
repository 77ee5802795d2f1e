//! Encrypted volumes, through the command: no plain text reaches the medium, each command opens them, and no wrong key does.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Running, Server, dir, eventually, fails, ok, run, skipped, text};
use nbd_client::NbdClient;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

const MIB: usize = 1 << 20;
/// Bytes of the header, and the place of its second copy.
const HEAD: usize = MIB;
const SECOND: u64 = 128 * 4096;

/// What a client writes: it does not compress away, and is not zeros.
const PATTERN: &[u8] = b"a secret of sixteen and more bytes, in each block of it: ";

struct Place {
    dir: tempfile::TempDir,
    disk: PathBuf,
    socket: PathBuf,
    key: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = dir();
        let at = |name: &str| dir.path().join(name);
        let (disk, socket, key) = (at("d.vellum"), at("s"), key_file(dir.path(), "k", 7));
        Self {
            disk,
            socket,
            key,
            dir,
        }
    }

    fn disk(&self) -> &str {
        text(&self.disk)
    }

    fn key(&self) -> &str {
        text(&self.key)
    }

    fn create(&self, more: &[&str]) {
        let args = ["create", self.disk(), "--size=64M"];
        ok(&[&args, more].concat());
    }

    fn serve(&self, more: &[&str]) -> (Server, NbdClient) {
        let args = [self.disk(), "--socket", text(&self.socket)];
        let server = Server::start(self.dir.path(), &[&args, more].concat());
        let client = NbdClient::connect(&self.socket, "d.vellum").unwrap();
        (server, client)
    }

    /// Writes patterns everywhere, twice, so that there is something to collect and to pack.
    fn fill(&self, more: &[&str]) {
        let (server, mut client) = self.serve(more);
        for round in 0..2u8 {
            for index in 0..24u64 {
                let mut bytes = vec![index as u8 ^ round; 256 << 10];
                for block in bytes.chunks_exact_mut(4096) {
                    block[100..100 + PATTERN.len()].copy_from_slice(PATTERN);
                }
                client.write(index * (256 << 10), &bytes).unwrap();
            }
            client.flush().unwrap();
        }
        drop(client);
        assert_eq!(server.term(), Some(0));
    }

    fn read(&self, more: &[&str]) -> Vec<u8> {
        let (server, mut client) = self.serve(more);
        let mut read = vec![0; 4096];
        client.read(23 * (256 << 10), &mut read).unwrap();
        drop(client);
        assert_eq!(server.term(), Some(0));
        read
    }

    /// Returns which of these words occur in the raw file, after its header.
    fn seen(&self, words: &[&'static [u8]]) -> Vec<&'static [u8]> {
        let raw = std::fs::read(&self.disk).unwrap();
        let found = |word: &&'static [u8]| raw[HEAD..].windows(word.len()).any(|at| *at == **word);
        words.iter().copied().filter(found).collect()
    }
}

fn key_file(folder: &Path, name: &str, byte: u8) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, [byte; 64]).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A client's bytes, and the first bytes of Vellum's structures: a superblock's, a chunk's, a summary's, a root's and a leaf's.
const WORDS: &[&[u8]] = &[PATTERN, b"VELLUM"];

#[test]
fn nothing_plain_gets_to_the_medium() {
    let place = Place::new();
    // The words are found without encryption.
    let plain = ["--set", "compress=off"];
    place.create(&plain);
    place.fill(&[]);
    assert_eq!(place.seen(WORDS), WORDS, "the test would see nothing");
    std::fs::remove_file(&place.disk).unwrap();

    let key = ["--key-file", place.key()];
    place.create(&[&plain[..], &["--encrypt"], &key].concat());
    place.fill(&key);
    assert!(place.seen(WORDS).is_empty());
    let read = place.read(&key);
    assert_eq!(&read[100..100 + PATTERN.len()], PATTERN);
    // The key is not there either.
    assert!(place.seen(&[&[7; 64]]).is_empty());
}

#[test]
fn each_command_needs_the_right_key() {
    let place = Place::new();
    let key = ["--key-file", place.key()];
    let encrypt = [&["--encrypt"], &key[..]].concat();
    place.create(&encrypt);
    place.fill(&key);
    let disk = place.disk();
    let at = |name: &str| place.dir.path().join(name);
    let (archive, pack, copy, saved) = (at("a"), at("p"), at("m"), at("r"));
    let wrong = key_file(place.dir.path(), "w", 8);
    let plain = at("plain");
    ok(&["create", text(&plain), "--size=64M"]);
    for args in [
        &["info", disk][..],
        &["check", disk],
        &["get", disk],
        &["set", disk, "label=mine"],
        &["dump", disk],
        &["dump", disk, "--whole", text(&archive)],
        &["pack", disk, text(&pack)],
        &["scrub", disk],
        &["migrate", disk, text(&copy), "--layout=shadow"],
        &["rescue", disk, text(&saved)],
    ] {
        let with = |file| [args, &["--key-file", text(file)]].concat();
        fails(
            2,
            &with(&wrong),
            &["this key file opens none of its key slots"],
        );
        // With a key, a plain volume put in the place of the encrypted one is not accepted.
        let swapped: Vec<_> = with(&place.key)
            .into_iter()
            .map(|arg| if arg == disk { text(&plain) } else { arg })
            .collect();
        fails(2, &swapped, &["is not encrypted"]);
        if args[0] != "info" {
            fails(2, args, &["is encrypted", "--key-file"]);
        }
        ok(&with(&place.key));
    }
    assert!(ok(&["info", disk]).contains("a key file"));
    // No boot asks for a passphrase.
    let enable = ["enable", disk, "--root", text(place.dir.path())];
    fails(2, &enable, &["--key-file FILE", "LoadCredential="]);
    ok(&[&enable, &key[..]].concat());
    let told = |path: &Path| ok(&["info", text(path), "--key-file", place.key(), "--json"]);
    let again = ["migrate", disk, text(&copy), "--layout=log"];
    let says = ["is encrypted already", "leave out --encrypt"];
    fails(2, &[&again, &encrypt[..]].concat(), &says);
    for encrypted in [&copy, &saved] {
        assert!(told(encrypted).contains("\"encrypted\":true"));
        ok(&["check", text(encrypted), "--key-file", place.key()]);
    }
    // Through a plain archive, and back.
    let restored = at("restored");
    ok(&["restore", text(&archive), text(&restored)]);
    ok(&["check", text(&restored)]);
    let again = at("again");
    let migrate = ["migrate", text(&restored), text(&again), "--layout=log"];
    ok(&[&migrate, &encrypt[..]].concat());
    ok(&["check", text(&again), "--key-file", place.key()]);
    // A server is found without the key.
    let (server, client) = place.serve(&key);
    ok(&["stats", disk]);
    assert!(ok(&["get", disk, "label"]).contains("mine"));
    assert!(ok(&["info", disk]).contains("served now          yes"));
    drop(client);
    assert_eq!(server.term(), Some(0));
}

/// Who says that a volume is encrypted is not served another one: also if the key comes from systemd, or from the process that starts
/// the server.
#[test]
fn a_key_from_elsewhere_refuses_a_plain_volume_too() {
    let place = Place::new();
    place.create(&[]);
    let folder = place.dir.path();
    std::fs::copy(&place.key, folder.join("vellum.key")).unwrap();
    let run = |args: &[&str], credential: bool, given: &[u8]| {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "20", env!("CARGO_BIN_EXE_vellum")]);
        if credential {
            command.env("CREDENTIALS_DIRECTORY", folder);
        }
        let piped = [Stdio::piped(), Stdio::piped(), Stdio::piped()];
        let [stdin, stdout, stderr] = piped;
        let command = command.args(args).stdin(stdin).stdout(stdout);
        let mut child = command.stderr(stderr).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(given);
        let out = child.wait_with_output().unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let disk = place.disk();
    let serve = ["serve", disk, "--socket", text(&place.socket)];
    let secret = [&b"K"[..], &[7; 64]].concat();
    for (code, said) in [
        run(&serve, true, b""),
        run(&[&serve[..], &["--key-on-stdin"]].concat(), false, &secret),
        run(&["info", disk], true, b""),
        run(&["check", disk], true, b""),
    ] {
        assert!(
            code == Some(2) && said.contains("is not encrypted"),
            "{code:?} {said}"
        );
    }
    // Nothing is said of a volume that is not there yet, nor of what is to be encrypted.
    let (new, copy) = (folder.join("new"), folder.join("copy"));
    let create = ["create", text(&new), "--size=64M"];
    let (code, said) = run(&create, true, b"");
    assert_eq!(code, Some(0), "{said}");
    let encrypt = ["migrate", text(&new), text(&copy), "--encrypt"];
    let (code, said) = run(&[&encrypt[..], &["--layout=log"]].concat(), true, b"");
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run(&["check", text(&copy)], true, b"");
    assert_eq!(code, Some(0), "{said}");
}

/// A list shows which slot a key file opens, if it opens one.
fn told_apart(disk: &str, second: &Path, third: &Path) {
    let list = |file| ["key", "list", disk, "--key-file", file];
    let told = ok(&list(text(second)));
    let marked = format!("slot 1: a key file: {}\n", text(second));
    assert!(
        told.starts_with("slot 0: a key file\n") && told.ends_with(&marked),
        "{told}"
    );
    fails(2, &list(text(third)), &["opens none"]);
}

#[test]
fn keys_change_and_the_data_stays() {
    let place = Place::new();
    let key = ["--key-file", place.key()];
    place.create(&[&["--encrypt"], &key[..]].concat());
    place.fill(&key);
    let body = |place: &Place| std::fs::read(&place.disk).unwrap().split_off(HEAD);
    let before = body(&place);
    let (second, third) = (
        key_file(place.dir.path(), "k2", 2),
        key_file(place.dir.path(), "k3", 3),
    );
    let disk = place.disk();
    let order = |order, with: &Path, new: Option<&Path>| {
        let mut args = vec!["key", order, disk, "--key-file", text(with)];
        args.extend(
            new.into_iter()
                .flat_map(|new| ["--new-key-file", text(new)]),
        );
        args.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |args: &[String]| ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |args: &[String], says| {
        fails(
            2,
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
            &[says],
        );
    };
    refused(&order("remove", &place.key, None), "the last secret");
    let nothing = place.dir.path().join("nothing");
    let says = format!("vellum: --new-key-file {}: cannot open", text(&nothing));
    refused(&order("add", &place.key, Some(&nothing)), &says);
    run(&order("add", &place.key, Some(&second)));
    // In two slots, it would still open the volume when it is removed from one.
    refused(&order("add", &place.key, Some(&second)), "already");
    refused(&order("change", &place.key, Some(&second)), "already");
    assert_eq!(ok(&["key", "list", disk]).lines().count(), 2);
    told_apart(disk, &second, &third);
    run(&order("change", &second, Some(&third)));
    refused(&order("remove", &second, None), "opens none");
    run(&order("remove", &place.key, None));
    refused(&order("add", &place.key, Some(&second)), "opens none");
    assert!(before == body(&place), "no data is written anew");
    ok(&["check", disk, "--key-file", text(&third)]);

    // Either copy of the header is enough, and the next writer repairs the other.
    for at in [0, SECOND] {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&place.disk)
            .unwrap();
        file.write_all_at(&[0xff; 4096], at).unwrap();
        ok(&["check", disk, "--key-file", text(&third)]);
        assert!(ok(&["info", disk]).contains("damaged or older"));
        ok(&["set", disk, "label=mine", "--key-file", text(&third)]);
        assert!(!ok(&["info", disk]).contains("damaged or older"));
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&place.disk)
        .unwrap();
    for at in [0, SECOND] {
        file.write_all_at(&[0xff; 1], at + 70).unwrap();
    }
    fails(
        1,
        &["check", disk, "--key-file", text(&third)],
        &["the header is damaged"],
    );
}

#[test]
fn an_encrypted_volume_is_replaced_only_by_force() {
    let place = Place::new();
    let key = ["--key-file", place.key()];
    let encrypt = [&["--encrypt"], &key[..]].concat();
    place.create(&encrypt);
    fails(1, &["create", place.disk(), "--size=64M"], &["exists"]);
    place.create(&["--force"]);
    ok(&["check", place.disk()]);
    fails(
        2,
        &[
            "create",
            text(&place.dir.path().join("x")),
            "--size=64M",
            "--key-file",
            place.key(),
        ],
        &["--encrypt"],
    );
    std::fs::set_permissions(&place.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let x = place.dir.path().join("x");
    let args = ["create", text(&x), "--size=64M"];
    fails(
        2,
        &[&args, &encrypt[..]].concat(),
        &["other users can read it", "chmod 600"],
    );
    assert!(!x.exists());
}

/// True if a program reads single characters from the terminal whose name is in this file.
fn is_read(terminal: &Path) -> bool {
    let name = std::fs::read_to_string(terminal).unwrap_or_default();
    let stty = Command::new("stty")
        .args(["-a", "-F", name.trim()])
        .output();
    let told = stty.unwrap().stdout;
    String::from_utf8_lossy(&told).contains("-icanon")
}

/// Runs a command whose terminal answers each question with the next of these lines. Afterwards it is what it was.
fn at_a_terminal(args: &[&str], lines: &[&str]) -> (bool, String) {
    let answers: Vec<_> = lines.iter().map(|line| Answer::Line(line)).collect();
    let (code, told) = answered(args, &answers);
    (code == Some(0), told)
}

/// What comes to a command that asks for a passphrase.
enum Answer<'a> {
    Line(&'a str),
    /// A signal, from elsewhere.
    Signal(&'a str),
}

/// Like [`at_a_terminal`]. Returns the exit code as a shell has it.
fn answered(args: &[&str], answers: &[Answer<'_>]) -> (Option<i32>, String) {
    let dir = dir();
    let [terminal, modes, pid] = ["terminal", "modes", "pid"].map(|name| dir.path().join(name));
    let quoted: Vec<_> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let program = env!("CARGO_BIN_EXE_vellum");
    let command = format!(
        "tty >'{}'; stty -g >'{modes}'; sh -c 'echo $$ >{pid}; exec \"$0\" \"$@\"' '{program}' {}; \
         status=$?; stty -g >>'{modes}'; exit $status",
        text(&terminal),
        quoted.join(" "),
        modes = text(&modes),
        pid = text(&pid)
    );
    let mut script = Command::new("script");
    script
        .args(["-q", "-e", "-E", "never", "-c", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // SAFETY: that call may be made here. Under `nohup` all programs would ignore the signal.
    unsafe {
        script.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        })
    };
    let mut script = Running(script.spawn().unwrap());
    let mut typed = script.0.stdin.take().unwrap();
    let mut output = script.0.stdout.take().unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let reader = {
        let shown = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(got @ 1..) = output.read(&mut piece) {
                *shown.lock().unwrap() += &String::from_utf8_lossy(&piece[..got]);
            }
        })
    };
    let mut seen = 0;
    for answer in answers {
        // Input before the question is discarded.
        eventually("a question, or the end", || {
            let length = shown.lock().unwrap().len();
            let asks = shown.lock().unwrap()[seen..].ends_with(": ") && is_read(&terminal);
            seen = if asks { length } else { seen };
            asks || script.0.try_wait().unwrap().is_some()
        });
        let _ = match answer {
            Answer::Line(line) => writeln!(typed, "{line}").map(drop),
            Answer::Signal(name) => {
                let pid = std::fs::read_to_string(&pid).unwrap();
                run("kill", &[&format!("-{name}"), pid.trim()]);
                Ok(())
            }
        };
    }
    eventually("the end", || script.0.try_wait().unwrap().is_some());
    let status = script.0.wait().unwrap();
    reader.join().unwrap();
    let modes = std::fs::read_to_string(&modes).unwrap();
    let (before, after) = modes.trim_end().split_once('\n').unwrap();
    assert_eq!(before, after);
    let told = shown.lock().unwrap().clone();
    (status.code(), told)
}

#[test]
fn a_passphrase_is_asked_for() {
    if Command::new("script").arg("--version").output().is_err() {
        skipped("there is no `script`, which has a terminal");
        return;
    }
    let place = Place::new();
    let disk = place.disk();
    let create = ["create", disk, "--size=64M", "--encrypt"];
    let (done, told) = at_a_terminal(&create, &["correct horse", "another"]);
    assert!(!done && told.contains("differ"), "{told}");
    assert!(!place.disk.exists());
    let (done, told) = at_a_terminal(&create, &["correct horse", "correct horse"]);
    assert!(done, "{told}");
    assert!(!told.contains("horse"), "it is shown: {told}");
    let (done, told) = at_a_terminal(&["check", disk], &["correct horse"]);
    assert!(done && told.contains("is sound"), "{told}");
    let (done, told) = at_a_terminal(&["check", disk], &["battery staple"]);
    assert!(
        !done && told.contains("this passphrase opens none"),
        "{told}"
    );
    let (done, _) = at_a_terminal(&["check", disk], &["correct\x03"]);
    assert!(!done);
    fails(2, &["check", disk], &["there is no terminal"]);
    let add = ["key", "add", disk, "--new-key-file", place.key()];
    let (done, told) = at_a_terminal(&add, &["correct horse"]);
    assert!(done, "{told}");
    ok(&["check", disk, "--key-file", place.key()]);
}

/// The second one stops on signals in an orderly way, and there is nothing to stop before the passphrase is there.
#[test]
fn a_signal_at_the_question_leaves_the_terminal_as_it_was() {
    if Command::new("script").arg("--version").output().is_err() {
        skipped("there is no `script`, which has a terminal");
        return;
    }
    let place = Place::new();
    place.create(&["--encrypt", "--key-file", place.key()]);
    let archive = place.dir.path().join("archive");
    let whole = ["dump", place.disk(), "--whole", text(&archive)];
    for args in [&["check", place.disk()][..], &whole] {
        for (name, number) in [("TERM", 15), ("HUP", 1), ("INT", 2), ("QUIT", 3)] {
            let (code, told) = answered(args, &[Answer::Signal(name)]);
            assert_eq!(code, Some(128 + number), "{name}: {told}");
        }
    }
    assert!(!archive.exists());
}

/// `attach` passes the secret to the server it starts through a pipe; here the test does that.
#[test]
fn a_secret_is_handed_to_a_server() {
    let place = Place::new();
    place.create(&["--encrypt", "--key-file", place.key()]);
    let mut server = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args([
            "serve",
            place.disk(),
            "--key-on-stdin",
            "--socket",
            text(&place.socket),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = server.stdin.take().unwrap();
    pipe.write_all(&[&b"K"[..], &[7; 64]].concat()).unwrap();
    drop(pipe);
    eventually("the server is ready", || {
        NbdClient::connect(&place.socket, "d.vellum").is_ok()
    });
    run("kill", &[&server.id().to_string()]);
    assert!(server.wait().unwrap().success());
}
