//! Removes the files of a server's sockets when the server ends, for a server that is no longer root: the files are in root's folders.
//!
//! It is a separate process that learns at its start which files to remove, and receives nothing afterwards. An attacker who
//! controls the server can make it act early, and no more. It also does its work if the server was killed.

use crate::host;
use anyhow::{Context, Result};
use std::fs::Metadata;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vellum_frontend::owned_socket;

/// Its name on the command line.
pub const COMMAND: &str = "remove-sockets";
/// How long it may take to start, and to remove some files.
const PATIENCE: Duration = Duration::from_secs(5);
/// The message that it knows its files.
const READY: &[u8] = b"+";

/// The process, as seen by the server.
pub struct Remover {
    end: UnixStream,
    child: Child,
}

impl Remover {
    /// Starts one for these files, which exist. It blocks the signals that this process waits for, so that ending a server with
    /// all its processes does not end it.
    pub fn start(files: &[PathBuf]) -> Result<Self> {
        let (mut end, its) = UnixStream::pair()?;
        let answer = its.try_clone()?;
        let mut command = Command::new("/proc/self/exe");
        host::bare_environment(&mut command);
        let child = command
            .arg(COMMAND)
            .args(files)
            .stdin(OwnedFd::from(its))
            .stdout(OwnedFd::from(answer))
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start what removes the sockets at the end")?;
        // From here on this process has only its own end.
        drop(command);
        end.set_read_timeout(Some(PATIENCE))?;
        end.read_exact(&mut [0; READY.len()])
            .context("what removes the sockets at the end does not begin")?;
        Ok(Self { end, child })
    }
}

impl Drop for Remover {
    /// The files are gone when this returns.
    fn drop(&mut self) {
        let _ = self.end.shutdown(Shutdown::Write);
        let _ = self.end.read(&mut [0]);
        let _ = self.child.try_wait();
    }
}

/// The process itself. Runs until its server ends.
pub fn run(files: &[PathBuf]) -> Result<()> {
    let seen: Vec<(&PathBuf, Metadata)> = files
        .iter()
        .map(|file| Ok((file, file.symlink_metadata()?)))
        .collect::<std::io::Result<_>>()?;
    std::io::stdout().write_all(READY)?;
    std::io::stdout().flush()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    for (file, seen) in seen {
        // It is no failure if a file is gone, or belongs to another server by now.
        if file.symlink_metadata().is_ok() {
            let _ = owned_socket::remove(file, &seen);
        }
    }
    Ok(())
}
