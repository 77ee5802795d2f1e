//! For fuzzing and its tests only: the body of the fuzz target.

use super::adopt::{HEADER_BYTES, init, pair};
use super::export::FuseExport;
use super::files::{FIRST, Files};
use super::turnstile::Turnstile;
use crate::testing::RamDisk;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

const BLOCKS: u64 = 16;
/// Requests of one input.
const REQUESTS_MAX: u64 = 64;
/// The largest answer: a read of the longest kind, and its header.
const ANSWER_BYTES_MAX: usize = (1 << 20) + 4096;

/// What the kernel asks of a directory with files, by the numbers of linux/fuse.h: LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE,
/// STATFS, RELEASE, FSYNC, FLUSH, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR, INTERRUPT, FALLOCATE, READDIRPLUS and LSEEK.
const USUAL: [u32; 19] = [
    1, 2, 3, 4, 14, 15, 16, 17, 18, 20, 25, 27, 28, 29, 30, 36, 43, 44, 46,
];
const SETATTR: u32 = 4;
const READ: u32 = 15;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
const DESTROY: u32 = 38;
const IOCTL: u32 = 39;
/// Bytes of the read at the end: no whole block, so the thread that may wait has to answer it.
const READ_AT_END: u64 = 100;

/// Makes sizes and times such that a kernel would send them: the library panics at others.
fn as_the_kernel(opcode: u32, body: &mut [u8]) {
    let put_rest = |body: &mut [u8], at: usize, head: usize| {
        let rest = body.len().saturating_sub(head) as u32;
        if let Some(size) = body.get_mut(at..at + 4) {
            size.copy_from_slice(&rest.to_ne_bytes());
        }
    };
    match opcode {
        WRITE => put_rest(body, 16, 40),
        IOCTL => put_rest(body, 24, 32),
        SETXATTR => {
            let name = body.iter().skip(8).take_while(|byte| **byte != 0).count();
            put_rest(body, 0, 8 + name + 1);
        }
        SETATTR if body.len() >= 68 => {
            let (seconds, _) = body[32..56].as_chunks_mut();
            for time in seconds {
                // Within 2^40 of 1970.
                *time = (i64::from_ne_bytes(*time) >> 23).to_ne_bytes();
            }
            let (nanoseconds, _) = body[56..68].as_chunks_mut();
            for time in nanoseconds {
                *time = (u32::from_ne_bytes(*time) % 1_000_000_000).to_ne_bytes();
            }
        }
        _ => {}
    }
}

/// A message of the kernel.
fn message(opcode: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    // SAFETY: these have no preconditions.
    let [uid, gid, pid] = unsafe { [libc::getuid(), libc::getgid(), libc::getpid() as u32] };
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut bytes = [length, opcode].map(u32::to_ne_bytes).concat();
    bytes.extend([unique, node].map(u64::to_ne_bytes).concat());
    bytes.extend([uid, gid, pid, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(body);
    bytes
}

/// Takes the next request from the bytes: its kind, its inode, the length of its body, and the body. Returns the kind, the
/// body and the inode.
fn next(data: &mut &[u8]) -> Option<(u32, Vec<u8>, u64)> {
    let (head, rest) = data.split_first_chunk::<3>()?;
    let [kind, node, length] = *head;
    let opcode = match USUAL.get(usize::from(kind)) {
        Some(usual) => *usual,
        None => u32::from(kind),
    };
    let (body, rest) = rest.split_at(usize::from(length).min(rest.len()));
    *data = rest;
    let mut body = body.to_vec();
    as_the_kernel(opcode, &mut body);
    Some((opcode, body, u64::from(node % 5)))
}

/// Hears answers up to that to the last request, and returns what that one says: an error's number, or 0 and data. `None` if the session
/// ends before it.
#[expect(clippy::expect_used, reason = "for fuzzing only")]
fn hear(mut answers: File, last: u64) -> Option<(i32, Vec<u8>)> {
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    while let Ok(bytes) = answers.read(&mut answer)
        && bytes > 0
    {
        let (length, rest) = answer.split_first_chunk::<4>().expect("a length");
        assert_eq!(u32::from_ne_bytes(*length) as usize, bytes);
        let (error, rest) = rest.split_first_chunk::<4>().expect("an error");
        let (unique, rest) = rest.split_first_chunk::<8>().expect("whose answer it is");
        let unique = u64::from_ne_bytes(*unique);
        assert!(unique <= last, "an answer to {unique}, which was not asked");
        if unique == last {
            let data = rest.get(..bytes - 16).expect("an answer's head");
            return Some((i32::from_ne_bytes(*error), data.to_vec()));
        }
    }
    None
}

/// Fuzz target `fuse_requests`: the bytes are what the kernel asks of a directory with two files. Each answer must be well formed and
/// belong to a request, and the last request must be answered: with data, unless it is what ends a session.
///
/// # Panics
/// If that is not so, or if the session panics.
#[expect(clippy::expect_used, reason = "for fuzzing only")]
pub fn fuzz_requests(mut data: &[u8]) {
    // SAFETY: nobody needs this signal. The fuzzer's own `main` does not ignore it, as Rust's does.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let exports = [("a", 8), ("b", 4)].map(|(name, frames)| FuseExport {
        name: name.to_owned(),
        device: Arc::new(RamDisk::new(BLOCKS, frames, frames)).into(),
    });
    let files = Files::new(exports.into(), None, Arc::new(Turnstile::default()));
    let (theirs, ours) = pair().expect("two sockets");
    let mut kernel = File::from(ours);
    kernel.write_all(&init()).expect("a first message");
    let mut config = fuser::Config::default();
    config.n_threads = Some(1);
    let files = files.expect("a thread");
    let session = fuser::Session::from_fd(files, theirs, fuser::SessionACL::Owner, config);
    let session = session.expect("a session");
    let serving = std::thread::spawn(|| session.run());
    let answers = kernel.try_clone().expect("a second descriptor");
    let last = REQUESTS_MAX + 2;
    let hearing = std::thread::spawn(move || hear(answers, last));
    let (mut unique, mut ends) = (2, false);
    while unique < last
        && let Some((opcode, body, node)) = next(&mut data)
    {
        ends = opcode == DESTROY;
        if ends {
            break;
        }
        // A session that panics hears no more.
        let _ = kernel.write_all(&message(opcode, unique, node, &body));
        unique += 1;
    }
    let _ = kernel.write_all(&match ends {
        true => message(DESTROY, last, 0, &[]),
        // The handle, the offset, the size, and more.
        false => message(
            READ,
            last,
            FIRST,
            &[0, 1, READ_AT_END, 0, 0].map(u64::to_ne_bytes).concat(),
        ),
    });
    let heard = hearing.join().expect("answers that are well formed");
    drop(kernel);
    // It ends with an error, because the kernel has gone. The library makes a panic an error too.
    let ended = serving.join().expect("a session without a panic");
    let why = ended.err().map(|why| why.to_string()).unwrap_or_default();
    assert!(!why.contains("panicked"), "{why}");
    let (error, data) = heard.expect("an answer to the last request");
    let expected = if ends { 0 } else { READ_AT_END as usize };
    assert_eq!((error, data.len()), (0, expected), "the last answer");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_every_kind_are_survived() {
        let mut random = 1u64;
        let mut byte = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        };
        for _ in 0..200 {
            let mut data = Vec::new();
            for _ in 0..20 {
                let body = byte() % 96;
                // Once in a while a kind without a number of its own in the list, among them the one that ends a session.
                let kind = if byte() < 24 {
                    byte() % 64
                } else {
                    byte() % 24
                };
                data.extend([kind, byte(), body]);
                data.extend((0..body).map(|_| byte() & byte() & byte() & byte()));
            }
            fuzz_requests(&data);
        }
    }
}
