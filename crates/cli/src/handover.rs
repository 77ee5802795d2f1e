//! How one server continues where another stops, below what is attached: the messages, and the open files sent with them.
//!
//! [`restart`](crate::restart) leads. It starts the new server, which opens and changes nothing until it receives the
//! connection to the kernel over a socket of its own. By then the new server is completely in memory, so it needs no file
//! that may be on that very volume.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The version of the protocol: which files are passed, and when.
pub const VERSION: u64 = 1;
/// The option that makes a server take over; the number of its socket follows.
pub const OPTION: &str = "--take-over=";
/// The message of a server that finds no obstacle.
pub const WILLING: &str = "willing to take over, version 1";
/// What follows in that message of a server that opens the file or device that it is handed, and not what is at its path then.
pub const AS_HANDED: &str = ", what it is handed";

/// Space for what is sent with a message, aligned like its header.
type Ancillary = [u64; 8];

fn header(part: &mut libc::iovec, ancillary: &mut Ancillary) -> libc::msghdr {
    // SAFETY: all zeros is an empty header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = ancillary.as_mut_ptr().cast();
    // The type of a length differs between C libraries, here and below.
    header.msg_controllen = size_of::<Ancillary>() as _;
    header
}

/// Sends bytes, and open files with the first of them: one or two.
pub fn send(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut ancillary = Ancillary::default();
    let mut message = header(&mut part, &mut ancillary);
    let length = size_of_val(files) as u32;
    // SAFETY: a borrowed file is its number. There is room for some after a header, and both they and the bytes live during the call.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(length) as _;
        let control = libc::CMSG_FIRSTHDR(&raw const message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(length) as _;
        let numbers = libc::CMSG_DATA(control);
        numbers.copy_from_nonoverlapping(files.as_ptr().cast(), length as usize);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        sent if sent as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives what fits, and the open files that came with it.
pub fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut ancillary = Ancillary::default();
    let mut message = header(&mut part, &mut ancillary);
    // SAFETY: both buffers live during the call, and are as long as the header says. The kernel fills in whole numbers of files
    // that are ours from then on; there is room for few.
    unsafe {
        let got = libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut files = Vec::new();
        let mut control = libc::CMSG_FIRSTHDR(&raw const message);
        while !control.is_null() {
            if ((*control).cmsg_level, (*control).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
            {
                let end = control.cast::<u8>().add((*control).cmsg_len as _);
                let numbers = libc::CMSG_DATA(control);
                let length = end.offset_from_unsigned(numbers);
                let numbers = numbers.cast::<i32>();
                for index in 0..length / size_of::<i32>() {
                    files.push(OwnedFd::from_raw_fd(numbers.add(index).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(&raw const message, control);
        }
        Ok((got as usize, files))
    }
}

/// The socket with this number, which the parent process left open for us.
pub fn inherited(number: i32) -> Result<UnixStream> {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if number <= 2 || flags < 0 {
        bail!("{OPTION}{number}: `vellum restart` alone starts such a server");
    }
    // SAFETY: it is open, and nothing else in this process uses its number.
    let socket = unsafe { UnixStream::from_raw_fd(number) };
    // SAFETY: no pointers.
    unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok(socket)
}

/// Waits for the connection to the kernel, and for the volume's open file or device. A `vellum restart` of an older version leaves it to
/// the server to find that.
pub fn handed(socket: &UnixStream) -> Result<(OwnedFd, Option<File>)> {
    let (_, files) = receive(socket, &mut [0]).context("cannot take over")?;
    let mut files = files.into_iter();
    let connection = files.next();
    let connection = connection.context("nothing was handed over: the old server continues")?;
    Ok((connection, files.next().map(File::from)))
}

/// Gives this process its usual name, whatever file its program comes from.
pub fn is_named() {
    // SAFETY: a C string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"vellum".as_ptr()) };
}

/// Keeps everything this process has mapped in memory from now on, if that is allowed: its program may be on the very volume
/// that is not served meanwhile.
pub fn is_all_here() {
    // SAFETY: no pointers.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn a_file_arrives_with_its_message() {
        let (here, there) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(&here, b"word\n", &[file.as_fd(), here.as_fd()]).unwrap();
        (&here).write_all(b"more").unwrap();
        let mut bytes = [0; 64];
        let (got, mut received) = receive(&there, &mut bytes).unwrap();
        assert_eq!((&bytes[..got], received.len()), (&b"word\n"[..], 2));
        let mut first = File::from(received.swap_remove(0));
        first.write_all(b"x").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1);
        let (got, none) = receive(&there, &mut bytes).unwrap();
        assert_eq!((&bytes[..got], none.is_empty()), (&b"more"[..], true));
        drop((here, received));
        assert_eq!((&there).read(&mut bytes).unwrap(), 0);
        assert!(handed(&there).is_err());
    }

    #[test]
    fn a_number_that_is_no_inherited_socket_is_refused() {
        assert!(inherited(1).is_err());
        assert!(inherited(-5).is_err());
        assert!(inherited(987).is_err());
    }
}
