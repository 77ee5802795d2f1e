//! The guide does what it says: the commands of each page (docs/guide/src) are run in order, in a clean directory.
//!
//! A block of a page is `sh`, whose commands are run; `text` right after one, which is its output except for numbers; or text
//! to read in another language. A comment before a block marks exceptions:
//!
//! - `<!-- not run: WHY -->`: this test skips it, and lists it.
//! - `<!-- ends with: N -->`: its exit code.
//! - `<!-- goes on -->`: after its line `ready:` it runs until the next such block, or the page's end.
//! - `<!-- typed: WORDS -->`: its only command asks at a terminal, and gets these words each time.
//! - `<!-- needs: PROGRAM -->`: skipped, and listed, if there is no such program.
//!
//! A comment that begins with `<!-- given` has commands that are run and not shown: the page's prerequisites.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, eventually, skipped};
use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What replaces a reader's devices: a file of this size under a loop device for each.
const DEVICES: [&str; 2] = ["/dev/sdb", "/dev/sdc"];
const DEVICE_BYTES: &str = "2G";
/// What replaces the machine's own parts: a private network, and empty directories. They last as long as this process.
const OWN: &str = "\
    PATH=$PATH:/usr/sbin:/sbin
    ip link set lo up
    mount -t tmpfs none own; mkdir own/upper own/work
    mount -t overlay none -o lowerdir=/etc,upperdir=own/upper,workdir=own/work /etc
    mkdir -p /etc/vellum /etc/systemd/system
    for folder in /mnt /srv /etc/vellum /etc/systemd/system /run/systemd; do
        [ ! -d $folder ] || mount -t tmpfs none $folder
    done
    echo; exec sleep infinity";

/// How a block is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    Run { ends_with: i32 },
    GoesOn,
    Typed(String),
    NotRun(String),
    Needs(String),
}

/// A code block of a page.
#[derive(Debug)]
struct Block {
    line: usize,
    language: String,
    text: String,
    how: How,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut how = None;
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let mut until = |end: &str| -> String {
            let body = lines.by_ref().map(|(_, line)| line);
            body.take_while(|line| *line != end)
                .map(|line| line.to_owned() + "\n")
                .collect()
        };
        let language = match (line.strip_prefix("```"), line) {
            (Some(language), _) => language,
            (None, "<!-- given") => "given",
            (None, "") => continue,
            (None, other) => {
                how = other
                    .strip_prefix("<!-- ")
                    .map(|it| said(it.trim_end_matches(" -->")));
                assert!(
                    !line.starts_with("    "),
                    "{}: code without a fence: {line}",
                    index + 1
                );
                continue;
            }
        };
        let (language, end) = (
            language.to_owned(),
            if language == "given" { "-->" } else { "```" },
        );
        let text = until(end);
        let how = how.take().unwrap_or(How::Run { ends_with: 0 });
        blocks.push(Block {
            line: index + 1,
            language,
            text,
            how,
        });
    }
    blocks
}

fn said(comment: &str) -> How {
    let (what, rest) = comment.split_once(": ").unwrap_or((comment, ""));
    let rest = rest.to_owned();
    match what {
        "not run" => How::NotRun(rest),
        "needs" => How::Needs(rest),
        "typed" => How::Typed(rest),
        "goes on" => How::GoesOn,
        "ends with" => How::Run {
            ends_with: rest.parse().unwrap(),
        },
        _ => panic!("a comment that means nothing: {comment}"),
    }
}

/// A clean directory, with replacements for the reader's machine.
struct Place {
    dir: tempfile::TempDir,
    devices: Vec<String>,
    server: Option<Child>,
    /// The process that keeps the namespaces.
    keeper: Child,
}

impl Place {
    /// Returns `None` if this machine has no namespaces.
    fn new() -> Option<Self> {
        let dir = common::dir();
        for folder in ["bin", "page", "own"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let bin = |name: &str| dir.path().join("bin").join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vellum"), bin("vellum")).unwrap();
        // The test runs as root, and each host is this one.
        std::os::unix::fs::symlink("/usr/bin/env", bin("sudo")).unwrap();
        std::fs::write(bin("ssh"), "#!/bin/sh\nshift\neval \"$@\"\n").unwrap();
        std::fs::set_permissions(bin("ssh"), Permissions::from_mode(0o755)).unwrap();
        let mut keeper = Command::new("unshare")
            .args(["--mount", "--net", "bash", "-euc", OWN])
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It prints a line when everything is ready, and nothing if it ends before that.
        let is_there = keeper.stdout.as_mut().unwrap().read(&mut [0]).unwrap() > 0;
        let (devices, server) = (Vec::new(), None);
        let place = Self {
            dir,
            devices,
            server,
            keeper,
        };
        is_there.then_some(place)
    }

    /// Replaces what a reader has in a text with what is here.
    fn here(&mut self, text: &str) -> String {
        for (index, device) in DEVICES.iter().enumerate() {
            if text.contains(device) && self.devices.len() == index {
                let file = self.dir.path().join(format!("device{index}"));
                common::run("truncate", &["-s", DEVICE_BYTES, common::text(&file)]);
                let made = common::run("losetup", &["--find", "--show", common::text(&file)]);
                self.devices.push(made.trim().to_owned());
            }
        }
        let ours = DEVICES.iter().zip(&self.devices);
        ours.fold(text.to_owned(), |text, (name, ours)| {
            text.replace(name, ours)
        })
    }

    /// Returns a command in the namespaces.
    fn command(&self, script: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let dir = self.dir.path().display();
        let mut command = Command::new("timeout");
        command
            .args([
                "--signal=KILL",
                "120",
                "nsenter",
                "--mount",
                "--net",
                "--target",
            ])
            .arg(self.keeper.id().to_string())
            .args(["bash", "-euo", "pipefail", "-c"])
            .arg(format!("cd {dir}/page\nexec 2>&1\n{script}"))
            .env("PATH", format!("{dir}/bin:{path}:/usr/sbin:/sbin"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a block to its end. Returns its output, and whether it ended as it should.
    fn run(&mut self, script: &str, ends_with: i32) -> Result<String, String> {
        let script = self.here(script);
        let out = self
            .command(&format!("exec 2>&1\n{script}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        match out.status.code() {
            Some(code) if code == ends_with => Ok(said),
            code => Err(format!("ended with {code:?}:\n{script}{said}")),
        }
    }

    /// Starts a block that runs on, and waits until it is ready. Returns its output if it ended before that.
    fn start(&mut self, script: &str) -> Result<(), String> {
        let script = self.here(script);
        self.end();
        let log = self.dir.path().join("server");
        let file = File::create(&log).unwrap();
        let mut command = self.command(&format!("exec {script}"));
        let mut server = command.stdout(file).spawn().unwrap();
        let (mut is_ready, mut has_ended) = (false, false);
        eventually(&format!("ready: {script}"), || {
            has_ended = server.try_wait().unwrap().is_some();
            is_ready = std::fs::read_to_string(&log).unwrap().contains("ready: ");
            is_ready || has_ended
        });
        self.server = Some(server);
        let said = std::fs::read_to_string(&log).unwrap();
        is_ready
            .then_some(())
            .ok_or_else(|| format!("ended:\n{script}{said}"))
    }

    /// Ends the block that runs on.
    fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SAFETY: a child of this process, not yet waited for; `timeout` passes the signal on.
            unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
            let _ = server.wait();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
        let listed = self.command("vellum list --json").output().unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        let all = listed.as_array().into_iter().flatten();
        for path in all.filter_map(|it| it.get("path")?.as_str()) {
            let is_ours = Path::new(path).starts_with(self.dir.path());
            if is_ours || self.devices.iter().any(|it| it == path) {
                let _ = self.command(&format!("vellum detach {path}")).output();
            }
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        for device in &self.devices {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
    }
}

/// Returns a command with a user at its terminal, who answers two questions. Input before a question is discarded: the user waits
/// until it is shown, and the command reads single characters.
fn typed(command: &str, words: &str) -> String {
    let command = command.trim_end();
    format!(
        "asks() {{\n\
         [ \"$(grep -ao ': ' ../shown | wc -l)\" -ge $1 ] &&\n\
         stty -a -F \"$(cat ../terminal)\" | grep -e -icanon >/dev/null\n\
         }} 2>/dev/null\n\
         rm -f ../shown ../terminal\n\
         for question in 1 2; do\n\
         for tries in $(seq 500); do ! asks $question || break; sleep 0.1; done\n\
         echo '{words}'\n\
         done | {{ cat; sleep 2; }} |\n\
         script -q -e -f -E never -c 'tty >../terminal; {command}' ../shown\n"
    )
}

/// Removes from a line what differs from machine to machine: numbers, and what depends on their number of digits.
fn without_numbers(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        match word.contains(|c: char| c.is_ascii_digit()) || word.starts_with('/') {
            true => "#",
            false => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns what the page shows and the block did not print. `...` matches anything.
fn unsaid(shown: &str, said: &str) -> Option<String> {
    let mut said = said.lines().map(without_numbers);
    let shown = shown.lines().filter(|line| line.trim() != "...");
    let mut shown = shown.map(|line| (line, without_numbers(line)));
    let (line, _) = shown.find(|(_, line)| !said.any(|said| said == *line))?;
    Some(line.to_owned())
}

/// Runs a page. Returns its errors.
fn try_page(name: &str, page: &str) -> Vec<String> {
    let Some(mut place) = Place::new() else {
        skipped(format_args!(
            "{name}: it needs namespaces of its own, and overlayfs"
        ));
        return Vec::new();
    };
    let mut wrong = Vec::new();
    let mut said = None;
    for block in blocks(page) {
        let mut fail = |what: String| wrong.push(format!("{name}:{}: {what}", block.line));
        let is_there = |program: &str| {
            let path = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"];
            path.iter()
                .any(|dir| PathBuf::from(dir).join(program).exists())
        };
        match (block.language.as_str(), &block.how) {
            ("sh" | "given", How::NotRun(why)) => {
                eprintln!("NOT RUN {name}:{}: {why}", block.line);
                let paths = why.split([' ', ',', ';']).filter(|word| word.contains('/'));
                for path in paths.filter(|path| !xtask::root().join(path).exists()) {
                    fail(format!("there is no {path}"));
                }
                said = None;
            }
            ("sh" | "given", How::Needs(program)) if !is_there(program) => {
                skipped(format_args!("{name}:{}: there is no {program}", block.line));
                said = None;
            }
            ("sh" | "given", how) => {
                let done = match how {
                    How::Typed(words) => place.run(&typed(&block.text, words), 0).map(Some),
                    How::GoesOn => place.start(&block.text).map(|()| None),
                    How::Run { ends_with } => place.run(&block.text, *ends_with).map(Some),
                    _ => place.run(&block.text, 0).map(Some),
                };
                match done {
                    Ok(text) => said = text,
                    Err(error) => {
                        fail(error);
                        break;
                    }
                }
            }
            ("text", _) => {
                let missing = said
                    .as_ref()
                    .and_then(|said| Some((unsaid(&block.text, said)?, said)));
                if let Some((line, said)) = missing {
                    fail(format!("it does not say {line:?}:\n{said}"));
                }
            }
            ("toml" | "yaml" | "ini", _) => {}
            (other, _) => fail(format!(
                "a block of {other:?}: it is sh, text, toml, yaml or ini"
            )),
        }
    }
    wrong
}

#[test]
fn each_page_does_what_it_says() {
    if !can_attach("each_page_does_what_it_says") {
        return;
    }
    let pages = xtask::guide::pages(&xtask::root()).unwrap();
    let only = std::env::var("PAGE").ok();
    let pages = pages
        .iter()
        .filter(|(name, _)| only.as_ref().is_none_or(|only| only == name));
    let wrong: Vec<_> = pages
        .flat_map(|(name, page)| try_page(name, page))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Commands within sentences name existing subcommands and options.
#[test]
fn commands_in_sentences_exist() {
    let mut wrong = Vec::new();
    for (name, page) in xtask::guide::pages(&xtask::root()).unwrap() {
        let code = page.split('`').skip(1).step_by(2);
        for text in code.filter(|code| code.starts_with("vellum ") && !code.contains('\n')) {
            if let Err(word) = is_known(text) {
                wrong.push(format!("{name}: `{text}`: there is no {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn is_known(text: &str) -> Result<(), String> {
    let mut command = vellum_cli::command_line();
    command.build();
    let mut command = &command;
    for word in text.split_whitespace().skip(1) {
        let option = word
            .strip_prefix("--")
            .map(|it| it.split('=').next().unwrap_or(it));
        match (option, command.find_subcommand(word)) {
            (Some(option), _) => {
                let mut all = command.get_arguments();
                let is_there = all.any(|it| it.get_long() == Some(option));
                is_there.then_some(()).ok_or_else(|| word.to_owned())?;
            }
            (None, Some(inner)) => command = inner,
            (None, None) if command.get_name() == "vellum" => return Err(word.to_owned()),
            (None, None) => {}
        }
    }
    Ok(())
}

#[test]
fn errors_in_a_page_are_found() {
    assert!(is_known("vellum stats disk.vellum --all").is_ok());
    assert!(is_known("vellum stat disk.vellum").is_err());
    assert!(is_known("vellum stats --every").is_err());
    let page = "<!-- ends with: 3 -->\n```sh\na\nb\n```\n\n<!-- given\nc\n-->\n```text\nd\n```\n";
    let found: Vec<_> = blocks(page)
        .into_iter()
        .map(|it| (it.line, it.text, it.how))
        .collect();
    let run = |ends_with| How::Run { ends_with };
    let wanted = [
        (2, "a\nb\n", run(3)),
        (7, "c\n", run(0)),
        (10, "d\n", run(0)),
    ];
    assert_eq!(
        found,
        wanted.map(|(line, text, how)| (line, text.to_owned(), how))
    );
    assert_eq!(unsaid("size 7\n...\nc", "size 8\nb\nc\n"), None);
    assert_eq!(unsaid("size 7\nd", "size 8\nb\nc\n"), Some("d".to_owned()));
}
