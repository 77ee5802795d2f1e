//! For fuzzing and its tests only: the body of the fuzz target.

use super::adopt::{HEADER_BYTES, init, pair};
use super::export::FuseExport;
use super::files::Files;
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
const GETATTR: u32 = 3;

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

/// Takes the next request from the bytes: its kind, its inode, the length of its body, and the body.
fn next(data: &mut &[u8], unique: u64) -> Option<Vec<u8>> {
    let (head, rest) = data.split_first_chunk::<3>()?;
    let [kind, node, length] = *head;
    let opcode = match USUAL.get(usize::from(kind)) {
        Some(usual) => *usual,
        None => u32::from(kind),
    };
    let (body, rest) = rest.split_at(usize::from(length).min(rest.len()));
    *data = rest;
    Some(message(opcode, unique, u64::from(node % 5), body))
}

/// Fuzz target `fuse_requests`: the bytes are what the kernel asks of a directory with two files. Each answer must be well formed and
/// belong to a request, and a session that has not ended answers the last request.
///
/// # Panics
/// If that is not so, or if the session panics.
#[expect(clippy::expect_used, reason = "for fuzzing only")]
pub fn fuzz_requests(mut data: &[u8]) {
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
    let mut answers = kernel.try_clone().expect("a second descriptor");
    let last = REQUESTS_MAX + 2;
    let hearing = std::thread::spawn(move || {
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        while let Ok(bytes) = answers.read(&mut answer)
            && bytes > 0
        {
            let (length, rest) = answer.split_first_chunk::<4>().expect("a length");
            assert_eq!(u32::from_ne_bytes(*length) as usize, bytes);
            let (_, rest) = rest.split_first_chunk::<4>().expect("an error");
            let (unique, _) = rest.split_first_chunk::<8>().expect("whose answer it is");
            let unique = u64::from_ne_bytes(*unique);
            assert!(unique <= last, "an answer to {unique}, which was not asked");
            if unique == last {
                return;
            }
        }
    });
    for unique in 2..last {
        let Some(request) = next(&mut data, unique) else {
            break;
        };
        // A session may end because of what it is sent.
        let _ = kernel.write_all(&request);
    }
    let _ = kernel.write_all(&message(GETATTR, last, 1, &[0; 16]));
    hearing.join().expect("answers that are well formed");
    drop(kernel);
    // It ends with an error, because the kernel has gone.
    let _ = serving.join().expect("a session without a panic");
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
                data.extend([byte() % 24, byte(), body]);
                data.extend((0..body).map(|_| byte() & byte() & byte() & byte()));
            }
            fuzz_requests(&data);
        }
    }
}
