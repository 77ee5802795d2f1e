//! Rings that carry only ublk's commands and polls.
//!
//! A server's filter of system calls does not see what a ring does: through any other ring, code that has taken over the server could
//! open files.

use io_uring::register::Restriction;
use io_uring::{Builder, IoUring, cqueue, opcode, squeue};
use std::io;
use std::time::Duration;

/// The pause when the kernel is short of memory.
const SHORTAGE: Duration = Duration::from_millis(1);

/// A ring with entries for commands.
pub type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// Makes a ring, for the thread that calls this.
pub fn ring(how: &mut Builder<squeue::Entry128, cqueue::Entry>, entries: u32) -> io::Result<Ring> {
    let ring = how.setup_r_disabled().build(entries)?;
    let allowed = [opcode::UringCmd80::CODE, opcode::PollAdd::CODE];
    ring.submitter()
        .register_restrictions(&mut allowed.map(Restriction::sqe_op))?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Handles a failed submission. Returns when it may be retried; what the kernel did not take is still in the ring.
///
/// # Errors
/// The same error, if it is not a transient one.
pub fn pause(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::EINTR) => Ok(()),
        // The kernel has no memory for a request now, or wants completions taken first. That is no reason to end a
        // device with a file system on it.
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
            std::thread::sleep(SHORTAGE);
            Ok(())
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::types;

    #[test]
    fn a_ring_polls_and_opens_nothing() {
        let mut how = IoUring::builder();
        let made = ring(how.setup_single_issuer().setup_defer_taskrun(), 4);
        let Ok(mut ring) = made else {
            eprintln!("SKIPPED: this kernel has no such rings");
            return;
        };
        let mut answer = |entry: squeue::Entry| {
            // SAFETY: the paths live for ever, and no other entry has an address.
            unsafe { ring.submission().push(&entry.into()) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            ring.completion().next().unwrap().result()
        };
        let here = types::Fd(libc::AT_FDCWD);
        for refused in [
            opcode::OpenAt::new(here, c"/etc/passwd".as_ptr()).build(),
            opcode::UnlinkAt::new(here, c"/no/such/file".as_ptr()).build(),
            opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
            opcode::Nop::new().build(),
        ] {
            assert_eq!(answer(refused), -libc::EACCES);
        }
        let (_other, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = types::Fd(std::os::fd::AsRawFd::as_raw_fd(&socket));
        let polled = opcode::PollAdd::new(socket, libc::POLLOUT as u32).build();
        assert_eq!(answer(polled), i32::from(libc::POLLOUT));
        // It is no device, and takes no commands; the ring lets them through.
        assert_eq!(
            answer(opcode::UringCmd16::new(socket, 0).build()),
            -libc::EOPNOTSUPP
        );
    }

    #[test]
    fn a_shortage_passes_and_a_broken_ring_does_not() {
        for errno in [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM] {
            let passed = pause(io::Error::from_raw_os_error(errno));
            assert!(passed.is_ok(), "{passed:?}");
        }
        for errno in [libc::EBADF, libc::EFAULT, libc::EINVAL, libc::ENXIO] {
            let ended = pause(io::Error::from_raw_os_error(errno));
            assert_eq!(ended.unwrap_err().raw_os_error(), Some(errno));
        }
    }
}
