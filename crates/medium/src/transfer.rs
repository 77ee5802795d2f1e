//! The progress of an operation: how short transfers, interruptions and errors are handled, the same for every way of doing file I/O.

use crate::io::{Kind, Piece};
use std::io;
use vellum_core::addr::BLOCK_BYTES;

/// The most pieces in one system call (`IOV_MAX`).
pub(crate) const PIECES_MAX: usize = 1024;

/// The most bytes in one call: Linux's limit, rounded down to whole blocks.
pub(crate) const BYTES_MAX: usize = 0x7fff_f000;

/// How often an operation may be retried without any progress.
const STALLS_MAX: u32 = 1000;

/// What to do with an operation after a system call.
#[derive(Debug)]
pub(crate) enum Next {
    /// It is done.
    Finished,
    /// Call again for the rest.
    Again,
    /// It failed.
    Failed(io::Error),
}

/// The progress of an operation.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes transferred, in whole blocks.
    pub(crate) bytes: usize,
    stalls: u32,
}

impl Progress {
    /// Handles the `result` of a system call: a count, or an errno negated.
    pub(crate) fn after(&mut self, kind: Kind, total: usize, result: i32) -> Next {
        let Ok(count) = usize::try_from(result) else {
            return match -result {
                // ECANCELED: the thread that submitted it ended before it began.
                libc::EINTR | libc::EAGAIN | libc::ECANCELED if self.stall() => Next::Again,
                // EFAULT: it ended before the kernel could resume a read through the page cache. Our memory is always mapped.
                libc::EFAULT if kind == Kind::Read && self.stall() => Next::Again,
                libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS
                    if matches!(kind, Kind::Discard { .. }) =>
                {
                    Next::Finished // a discard is advice
                }
                errno => Next::Failed(io::Error::from_raw_os_error(errno)),
            };
        };
        if !matches!(kind, Kind::Read | Kind::Write { .. }) || self.bytes + count >= total {
            return Next::Finished;
        }
        if count == 0 {
            return Next::Failed(match kind {
                Kind::Read => io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file is shorter than it was when opened",
                ),
                _ => io::ErrorKind::WriteZero.into(),
            });
        }
        // Continue at a block boundary, because direct I/O accepts no other.
        let blocks = (self.bytes + count) / BLOCK_BYTES * BLOCK_BYTES;
        if blocks == self.bytes && !self.stall() {
            return Next::Failed(io::Error::other(
                "transfers of less than a block, again and again",
            ));
        }
        self.bytes = blocks;
        Next::Again
    }

    fn stall(&mut self) -> bool {
        self.stalls += 1;
        self.stalls <= STALLS_MAX
    }
}

/// The memory from byte `from` on, as much of it as one call takes.
pub(crate) fn window(pieces: &[Piece], mut from: usize, out: &mut Vec<Piece>) {
    out.clear();
    let mut room = BYTES_MAX;
    for piece in pieces {
        if out.len() == PIECES_MAX || room == 0 {
            return;
        }
        if from >= piece.len {
            from -= piece.len;
            continue;
        }
        let len = (piece.len - from).min(room);
        out.push(Piece {
            ptr: piece.ptr.wrapping_add(from),
            len,
        });
        room -= len;
        from = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: usize = BLOCK_BYTES;

    #[test]
    fn a_short_transfer_goes_on_at_a_block() {
        let mut p = Progress::default();
        assert!(matches!(
            p.after(Kind::Read, 3 * B, (B + 512) as i32),
            Next::Again
        ));
        assert_eq!(p.bytes, B);
        assert!(matches!(
            p.after(Kind::Read, 3 * B, (2 * B) as i32),
            Next::Finished
        ));
    }

    #[test]
    fn the_end_of_a_file_is_an_error() {
        let mut p = Progress::default();
        let Next::Failed(e) = p.after(Kind::Read, B, 0) else {
            panic!("expected an error")
        };
        assert_eq!(e.kind(), io::ErrorKind::UnexpectedEof);
        assert!(matches!(
            p.after(Kind::Write { durable: true }, B, 0),
            Next::Failed(_)
        ));
    }

    #[test]
    fn interruptions_are_retried_but_not_for_ever() {
        let mut p = Progress::default();
        for _ in 0..STALLS_MAX {
            assert!(matches!(p.after(Kind::Sync, 0, -libc::EINTR), Next::Again));
        }
        assert!(matches!(
            p.after(Kind::Sync, 0, -libc::EINTR),
            Next::Failed(_)
        ));
        let mut p = Progress::default();
        for _ in 0..STALLS_MAX {
            assert!(matches!(p.after(Kind::Read, B, 512), Next::Again));
        }
        assert!(matches!(p.after(Kind::Read, B, 512), Next::Failed(_)));
    }

    #[test]
    fn errors_are_final_but_an_unsupported_discard_is_none() {
        let mut p = Progress::default();
        assert!(matches!(
            p.after(Kind::Sync, 0, -libc::EIO),
            Next::Failed(_)
        ));
        assert!(matches!(
            p.after(Kind::Discard { blocks: 1 }, 0, -libc::EOPNOTSUPP),
            Next::Finished
        ));
        assert!(matches!(
            p.after(Kind::Sync, 0, -libc::EOPNOTSUPP),
            Next::Failed(_)
        ));
    }

    #[test]
    fn a_window_skips_what_is_done_and_is_bounded() {
        let base = B as *mut u8;
        let pieces: Vec<Piece> = (0..2000)
            .map(|i| Piece {
                ptr: base.wrapping_add(2 * i * B),
                len: B,
            })
            .collect();
        let mut out = Vec::new();
        window(&pieces, 0, &mut out);
        assert_eq!(out.len(), PIECES_MAX);
        window(&pieces, 1500 * B, &mut out);
        assert_eq!(out.len(), 500);
        assert_eq!(out[0].ptr, pieces[1500].ptr);
        window(
            &[Piece {
                ptr: base,
                len: 4 * B,
            }],
            B,
            &mut out,
        );
        assert_eq!((out[0].ptr, out[0].len), (base.wrapping_add(B), 3 * B));
        window(
            &[Piece {
                ptr: base,
                len: 1 << 32,
            }],
            0,
            &mut out,
        );
        assert_eq!(out[0].len, BYTES_MAX);
    }
}
