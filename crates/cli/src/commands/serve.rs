//! `vellum serve`: serves volumes over NBD, ublk and FUSE, in the foreground.

use crate::bound::mark;
use crate::claim::{Claimed, claim_again};
use crate::confine::{Calls, Confinement, Files, Needs};
use crate::control::ControlSocket;
use crate::group::Group;
use crate::handover;
use crate::keys::Key;
use crate::outcome::{out, tell, usage};
use crate::peek;
use crate::properties::{Run, Settings};
use crate::protected;
use crate::remover::Remover;
use crate::served::{OpenOptions, Recording, Served};
use crate::server_log;
use crate::serving::Volumes;
use crate::signals::Stop;
use crate::snapshots::{self, Compared};
use crate::tls::TlsArgs;
use crate::unfinished;
use crate::user::ServiceUser;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_frontend::fuse::{FuseExport, FuseServer};
use vellum_frontend::nbd::{self, BindError, Export, Listen, Server};
use vellum_frontend::ublk::{self, UblkServer};
use vellum_medium::Medium;
use vellum_record::Sizes;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volumes, each FILE or NAME=FILE; without a name, the export is called like the file. FILE@SNAPSHOT: a snapshot of one, to be
    /// read; what is written to it stays in memory, and is forgotten at the end. FILE@CLONE: a clone, which is written.
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<String>,
    /// Listen for NBD clients on this unix socket.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for NBD clients on this TCP address; needs --tls-cert and --tls-key, or --insecure-tcp.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    tcp: Option<SocketAddr>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Mount a FUSE directory here with one file a volume.
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,
    /// Make a block device of each volume, /dev/ublkbN; needs root and Linux 6.5.
    #[arg(long)]
    ublk: bool,
    /// Listen for `stats` and the like on this unix socket, besides the volume's own in the run-time directory.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Let this group use the sockets of --socket and --control as well: its members then read and write the volumes, or
    /// stop the server.
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<Group>,
    /// Become this user of the machine when all is open, and be root no more: a name, or the numbers UID:GID. For --socket and --tcp; the
    /// other ways need root to the end. The volumes may stay root's.
    #[arg(long, value_name = "USER")]
    user: Option<ServiceUser>,
    /// Refuse writes, and change nothing on the volumes.
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    key: Key,
    #[command(flatten)]
    run: Run,
    /// Record what is asked of the volume into this new file: a trace for `vellum lab`, without a byte of the data. No request
    /// waits for it; when its disk is full, recording ends and the volume goes on.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The encoding whose sizes the trace tells: what `compress` goes by in the lab.
    #[arg(
        long,
        value_enum,
        value_name = "ENCODING",
        default_value = "lz4",
        requires = "record"
    )]
    record_sizes: SizesChoice,
    /// Take the secret of encrypted volumes from standard input, as `attach` gives it.
    #[arg(long, hide = true)]
    key_on_stdin: bool,
    /// For the server of an attached volume: write to the system's log too, with the time, and be the last to be killed when memory is
    /// short.
    #[arg(long, hide = true)]
    syslog: bool,
    /// Go on where another server stops: the socket on which that is handed over.
    #[arg(long, hide = true, value_name = "NUMBER", requires = "fuse")]
    take_over: Option<i32>,
    /// Serve plain files as they are, counted: the peer in demo and benchmarks.
    #[arg(long, hide = true)]
    raw: bool,
}

/// Where to serve.
#[derive(Clone, Default)]
pub struct Where {
    /// NBD on this unix socket.
    pub socket: Option<PathBuf>,
    /// As a file in this FUSE directory.
    pub fuse: Option<PathBuf>,
    /// As a block device of this machine.
    pub ublk: bool,
}

impl Args {
    /// Arguments for recording a plain file or a block device.
    pub fn recording(file: String, trace: PathBuf, sizes: SizesChoice, to: Where) -> Self {
        Self {
            volumes: vec![file],
            socket: to.socket,
            tcp: None,
            tls: TlsArgs::default(),
            fuse: to.fuse,
            ublk: to.ublk,
            control: None,
            socket_group: None,
            user: None,
            read_only: false,
            key: Key::none(),
            key_on_stdin: false,
            run: Run::default(),
            record: Some(trace),
            record_sizes: sizes,
            syslog: false,
            take_over: None,
            raw: true,
        }
    }

    /// Refuses options for one volume if there are several.
    fn check_count(&self, volumes: usize) -> Result<()> {
        let are_several = volumes > 1;
        if self.run.names_a_journal() && are_several {
            return Err(usage(
                "--journal is of one volume: with several, use `vellum set VOLUME journals=START+LENGTH`",
            ));
        }
        if self.record.is_some() && are_several {
            return Err(usage(
                "--record is of one volume: serve the others by a server of their own",
            ));
        }
        Ok(())
    }

    /// The volumes by name, if the options are consistent.
    fn named(&self) -> Result<Vec<Named>> {
        if self.socket_group.is_some() && self.socket.is_none() && self.control.is_none() {
            return Err(usage(
                "--socket-group is for the sockets of --socket and --control: name one of them",
            ));
        }
        if self.socket.is_none() && self.tcp.is_none() && self.fuse.is_none() && !self.ublk {
            return Err(usage(
                "say where to serve: --socket PATH, --tcp ADDR:PORT, --fuse DIR or --ublk",
            ));
        }
        if let Some(user) = &self.user {
            if self.ublk || self.fuse.is_some() {
                return Err(usage(
                    "--user is for --socket and --tcp: at its end a server of --fuse or --ublk undoes what \
                     only root may undo",
                ));
            }
            user.check()?;
        }
        let named: Vec<_> = self
            .volumes
            .iter()
            .map(|v| name_of(v))
            .collect::<Result<_>>()?;
        for (i, Named { name, path, .. }) in named.iter().enumerate() {
            if let Some(other) = named[..i].iter().find(|other| other.name == *name) {
                let (path, other) = (path.display(), other.path.display());
                return Err(usage(format!(
                    "{other} and {path} are both called {name:?}: give NAME=FILE"
                )));
            }
        }
        for (i, Named { name, path, .. }) in named.iter().enumerate() {
            let same = |other: &&Named| unfinished::is_one_file(&other.path, path);
            if let Some(other) = named[..i].iter().find(same) {
                let (path, other) = (path.display(), &other.name);
                return Err(usage(format!(
                    "{other} and {name} are both {path}: a volume is served once; its snapshots are found by \
                     {name}@SNAPSHOT"
                )));
            }
        }
        let names = named.iter().map(|one| one.name.as_str());
        self.tls.check(self.tcp.is_some(), names)?;
        self.check_count(named.len())?;
        Ok(named)
    }

    /// Why no other server can take over; `None` if one can.
    fn stays(&self, named: &[Named]) -> Option<&'static str> {
        let others = self.socket.is_some() || self.tcp.is_some() || self.ublk;
        match self.fuse.is_some() && !others {
            _ if self.raw => Some("a plain file is served by one server until its end"),
            _ if self.record.is_some() => Some("a recording cannot be handed over: end it first"),
            // The holder of the connection answers the kernel with root's authority, not just the volume user's.
            _ if self.socket_group.is_some() => {
                Some("a group may use its control socket, and would be given its connection")
            }
            _ if named.iter().any(|one| one.snapshot.is_some()) => Some(
                "writes to the snapshot exist only in the server's memory: detach the snapshot first",
            ),
            true => None,
            false => Some(
                "it does not serve through FUSE alone, and its other connections cannot be \
                 handed over",
            ),
        }
    }

    /// The group whose members may use the sockets.
    fn group(&self) -> Option<u32> {
        self.socket_group.as_ref().map(|group| group.0)
    }
}

/// The encoding whose sizes a trace tells.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum SizesChoice {
    /// LZ4.
    Lz4,
    /// zstd, level 1; a third smaller than LZ4, in three times the time.
    Zstd,
}

impl From<SizesChoice> for Sizes {
    fn from(choice: SizesChoice) -> Self {
        match choice {
            SizesChoice::Lz4 => Self::Lz4,
            SizesChoice::Zstd => Self::Zstd,
        }
    }
}

/// Serves until told to stop.
pub fn run(args: Args) -> Result<()> {
    if args.syslog {
        server_log::to_the_system();
    }
    let mut named = args.named()?;
    let confinement = Confinement::begin()?;
    // Each thread inherits this from the thread that made it.
    protected::flushes_for_others(args.syslog);
    if args.fuse.is_some() {
        protected::keeps_its_mounts();
    }
    // Before the first thread. A signal during recovery is handled after it; a second one ends the process, which recovery survives.
    let stop = Stop::on_signals(false)?;
    let mut options = OpenOptions {
        read_only: args.read_only,
        snapshot: None,
        is_clone: false,
        run: args.run.clone(),
        record: args.record.clone().map(|trace| Recording {
            trace,
            sizes: args.record_sizes.into(),
        }),
    };
    if args.key_on_stdin {
        args.key.take(std::io::stdin())?;
    }
    note_clones(&mut named, &args.key);
    let (connection, held) = taken_over(&args, &named)?.unzip();
    let (media, sockets) = claimed(&args, &named, held.flatten())?;
    let mut volumes = Volumes::new(args.stays(&named));
    for (one, medium) in named.into_iter().zip(media) {
        if stop.asked() {
            break;
        }
        options.snapshot = one.snapshot;
        options.is_clone = one.is_clone;
        let served = Served::open(one.name, &one.path, medium, &options)?;
        volumes.all.push(served);
    }
    protected::stays(args.syslog, args.user.is_some());
    let volumes = Arc::new(volumes);
    let served = match stop.asked() {
        true => Ok(None),
        false => serve(&args, &volumes, &sockets, &stop, confinement, connection),
    };
    // The front ends have ended. Whatever happened to them, the volumes are closed in order, and are ours until then.
    sockets.iter().for_each(ControlSocket::stopping);
    let stopped = stop_all(&volumes);
    // Before the medium is released, so that a new server does not find the old one's sockets.
    drop(sockets);
    let result = served.and_then(|remover| {
        drop(remover);
        stopped
    });
    // Detached FUSE sessions may still have threads. Do not wait for them.
    if result.is_ok() {
        say("stopped");
        std::process::exit(0);
    }
    result
}

/// If this server is to take over from another one: checks for every possible obstacle while the other still serves, then waits for it,
/// and for what is handed over: the connection to the kernel, and the open file of the one volume.
fn taken_over(args: &Args, named: &[Named]) -> Result<Option<(OwnedFd, Option<File>)>> {
    let Some(number) = args.take_over else {
        return Ok(None);
    };
    let socket = handover::inherited(number)?;
    handover::is_named();
    for one in named {
        let (superblock, _) = peek::superblock_of(&one.path, &args.key)?;
        unfinished::refuse(&one.path, &superblock)?;
        let settings = Settings::of(&superblock, superblock.properties(), &args.run);
        settings.check(&superblock)?;
    }
    handover::is_all_here();
    say(&format!("{}{}", handover::WILLING, handover::AS_HANDED));
    handover::handed(&socket).map(Some)
}

/// The media of volumes; `None` for a plain file.
type Media = Vec<Option<Box<dyn Medium>>>;

/// Claims all of them, before anything is written to one.
fn claimed(
    args: &Args,
    named: &[Named],
    held: Option<File>,
) -> Result<(Media, Vec<ControlSocket>)> {
    let (mut media, mut sockets) = (Vec::new(), Vec::new());
    for one in named {
        media.push(match args.raw {
            true => None,
            false => {
                let read_only = args.read_only || (one.snapshot.is_some() && !one.is_clone);
                let claim = claim_again(held.as_ref(), &one.path, read_only, &args.key);
                let Claimed { medium, socket } = claim?;
                sockets.extend(socket);
                Some(medium)
            }
        });
    }
    Ok((media, sockets))
}

fn serve(
    args: &Args,
    volumes: &Arc<Volumes>,
    sockets: &[ControlSocket],
    stop: &Stop,
    confinement: Confinement,
    connection: Option<OwnedFd>,
) -> Result<Option<Remover>> {
    let listen = |path| ControlSocket::listen(path, args.group());
    let control = args.control.as_deref().map(listen);
    let control = control.transpose()?;
    let mut servers = Vec::new();
    if let Some(path) = &args.socket {
        servers.push(nbd(&Listen::Unix(path.clone()), volumes, args)?);
        let path = in_uri(std::path::absolute(path)?.as_os_str().as_bytes());
        volumes.are_at(|v| format!("nbd+unix:///{}?socket={path}", in_uri(v.name.as_bytes())));
    }
    if let Some(addr) = args.tcp {
        let (tls, scheme) = args.tls.protection();
        let server = nbd(&Listen::Tcp { addr, tls }, volumes, args)?;
        let addr = server.address().unwrap_or(addr);
        volumes.are_at(|v| format!("{scheme}://{addr}/{}", in_uri(v.name.as_bytes())));
        servers.push(server);
    }
    if let Some(dir) = &args.fuse {
        let server = files(dir, volumes, connection)?;
        volumes.are_at(|v| server.dir().join(&v.name).display().to_string());
        for (index, volume) in volumes.all.iter().enumerate() {
            volume.is_file(server.resized(index));
        }
        let _ = volumes.fuse.set(server);
    }
    let mut ublks = Vec::new();
    if args.ublk {
        let report: ublk::Report = Arc::new(|line: &str| tell(format_args!("ublk: {line}")));
        for volume in &volumes.all {
            // A volume is locked by its one server, so a device with its mark belongs to a dead one.
            let mark = volume.uuid().as_deref().map(mark);
            let server = UblkServer::start(volume.device(), mark, &report)
                .with_context(|| volume.path.display().to_string())?;
            volume.is_at(server.path().display().to_string());
            ublks.push(server);
        }
    }
    for socket in sockets {
        socket.serve(volumes.clone(), stop.clone());
    }
    if let Some(control) = &control {
        control.serve(volumes.clone(), stop.clone());
    }
    let needs = needs(args, sockets.iter().chain(&control));
    let remover = args.user.as_ref().map(|_| Remover::start(&needs.sockets));
    let remover = remover.transpose()?;
    confinement.close(&needs, args.user.as_ref())?;
    let ready: Vec<_> = volumes.all.iter().flat_map(Served::places).collect();
    say(&format!("ready: {}", ready.join(" ")));
    stop.wait(None);
    say("stopping");
    // Control first, clients last.
    drop(control);
    drop(servers);
    for server in ublks {
        server.stop()?;
    }
    if let Some(fuse) = volumes.fuse.get() {
        fuse.unmount()?;
    }
    Ok(remover)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "it is a numeric address and a port, like 127.0.0.1:10809 or [::1]:10809".to_owned()
    })
}

/// A part of a URI. What has a meaning there, or none, is written as its number.
fn in_uri(part: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(byte);
    let written = part.iter().map(|byte| match is_plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    written.collect()
}

/// Makes a directory with one file a volume, or takes over one that another server has mounted and hands over.
fn files(dir: &Path, volumes: &Volumes, connection: Option<OwnedFd>) -> Result<FuseServer> {
    let export = |v: &Served| FuseExport {
        name: v.name.clone(),
        device: v.device(),
    };
    let exports = volumes.all.iter().map(export).collect();
    let finder = Some(snapshots::finder(volumes.growable(), &volumes.clones, true));
    Ok(match connection {
        Some(connection) => FuseServer::take_over(dir, exports, finder, &connection)?,
        None => FuseServer::mount_finding(dir, exports, finder)?,
    })
}

/// What is needed to serve, and to end in order.
fn needs<'a>(args: &'a Args, control: impl Iterator<Item = &'a ControlSocket>) -> Needs {
    let sockets = control
        .map(ControlSocket::path)
        .chain(args.socket.as_deref());
    let sockets: Vec<_> = sockets.map(Path::to_owned).collect();
    let files = Files {
        removed: sockets.clone(),
    };
    Needs {
        sockets,
        files: args.fuse.is_none().then_some(files),
        calls: Calls {
            unmounts: args.fuse.is_some(),
        },
    }
}

/// An NBD server for all volumes.
fn nbd(listen: &Listen, volumes: &Volumes, args: &Args) -> Result<Server> {
    let report: nbd::Report = Arc::new(|line: &str| tell(format_args!("nbd: {line}")));
    let mut server = Server::prepare(
        listen,
        nbd::Options {
            report,
            socket_group: args.group(),
            ..nbd::Options::default()
        },
    )
    .map_err(|error| match error {
        // Its files are what the user named.
        BindError::Tls(error) => usage(error.to_string()),
        error => error.into(),
    })?;
    server.find_by(snapshots::finder(volumes.whole(), &volumes.clones, false));
    server.compare_by(Arc::new(Compared(volumes.whole())));
    for volume in &volumes.all {
        let export = Export::new(volume.name.clone(), volume.device());
        let clients = match listen {
            Listen::Tcp { .. } => args.tls.clients(&volume.name),
            Listen::Unix(_) => None,
        };
        server.add(match clients {
            Some(clients) => export.only_for(clients),
            None => export,
        })?;
    }
    server.open()?;
    Ok(server)
}

/// Reports to the process that started us, if it still listens.
fn say(line: &str) {
    let _ = writeln!(out(), "{line}");
}

/// A volume, or a snapshot of one, that is to be served.
struct Named {
    name: String,
    path: PathBuf,
    snapshot: Option<String>,
    is_clone: bool,
}

/// Stops each of them, whatever happened to the others, and returns the first failure.
fn stop_all(volumes: &Volumes) -> Result<()> {
    let mut result = Ok(());
    for volume in &volumes.all {
        let stopped = volume
            .stop()
            .with_context(|| format!("stopping {}", volume.path.display()));
        result = result.and(stopped);
    }
    result
}

/// Finds out which of them are clones. Faults of a volume are reported when it is opened.
fn note_clones(named: &mut [Named], key: &Key) {
    for one in named {
        let name = one.snapshot.as_ref();
        one.is_clone =
            name.is_some_and(|name| snapshots::is_clone(&one.path, key, name).unwrap_or(false));
    }
}

/// Parses `NAME=FILE`, or a file that gives its own name; either with `@SNAPSHOT`.
fn name_of(volume: &str) -> Result<Named> {
    let named = volume.split_once('=');
    let named = named.filter(|(name, _)| !name.contains('/') && !Path::new(volume).exists());
    if let Some(("", _) | (_, "")) = named {
        return Err(usage(format!(
            "{volume:?} is not NAME=FILE: one of them is empty"
        )));
    }
    let given = Path::new(named.map_or(volume, |(_, file)| file));
    let (path, snapshot) = snapshots::split(given);
    let name = match (named, given.file_name()) {
        (Some((name, _)), _) => name.to_owned(),
        (None, Some(name)) => name.to_string_lossy().into_owned(),
        (None, None) => return Err(usage(format!("{volume:?} is not a file's name"))),
    };
    Ok(Named {
        name,
        path,
        snapshot,
        is_clone: false,
    })
}
