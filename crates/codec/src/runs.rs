//! Runs of bytes in zeros: our own encoding for blocks that are mostly zeros, such as the difference between two
//! versions of a metadata block, or jbd2's descriptor and commit blocks. Two zeros end a run, because they would cost
//! more in it than a token costs.
//!
//! ```text
//! runs   = *run                 ; what follows the last run is zeros
//! run    = token [more] [more] bytes
//! token  = gap << 4 | length    ; gap: zeros before the run, length: its bytes less one; 15: 15 + more
//! more   = LEB128, at most two bytes; first the gap's, then the length's
//! ```

use crate::block::Block;
use vellum_core::addr::BLOCK_BYTES;

/// The token value that means 15 plus what `more` says.
const MORE: usize = 15;
/// The largest number that fits in two bytes of LEB128.
const MORE_MAX: usize = (1 << 14) - 1;

const WORD: usize = size_of::<u64>();
const _: () = assert!(BLOCK_BYTES.is_multiple_of(WORD) && BLOCK_BYTES <= MORE_MAX);

/// Writes the block as runs and returns their length; `None` if they do not fit.
pub fn encode(block: &Block, out: &mut [u8]) -> Option<usize> {
    let (mut used, mut at) = (0, 0);
    loop {
        let start = after_zeros(block, at);
        if start == BLOCK_BYTES {
            return Some(used);
        }
        // If a run does not fit, its end need not be found.
        let room = out.len() - used;
        let end = run_end(block, start, room)?;
        let run = &block[start..end];
        let (gap, length) = (start - at, run.len() - 1);
        let mut head = [0; 5];
        let mut heads = 1;
        head[0] = (gap.min(MORE) << 4 | length.min(MORE)) as u8;
        for number in [gap, length] {
            if let Some(more) = number.checked_sub(MORE) {
                heads += put_more(&mut head[heads..], more);
            }
        }
        let next = used + heads + run.len();
        let place = out.get_mut(used..next)?;
        place[..heads].copy_from_slice(&head[..heads]);
        place[heads..].copy_from_slice(run);
        (used, at) = (next, end);
    }
}

/// XORs the runs onto `out`, which holds a base or zeros.
pub(crate) fn apply(bytes: &[u8], out: &mut Block) -> Result<(), RunsError> {
    let (mut used, mut at) = (0, 0);
    while let Some(&token) = bytes.get(used) {
        let start = used;
        used += 1;
        let mut number = |nibble: u8| -> Result<usize, RunsError> {
            let nibble = usize::from(nibble);
            if nibble < MORE {
                return Ok(nibble);
            }
            let (more, taken) = take_more(&bytes[used..]).ok_or(RunsError::Number { at: used })?;
            used += taken;
            Ok(nibble + more)
        };
        let gap = number(token >> 4)?;
        let length = number(token & 0xf)? + 1;
        // Both are below 2^15, so no sum overflows.
        let place = out
            .get_mut(at + gap..at + gap + length)
            .ok_or(RunsError::PastTheBlock { at: start })?;
        let run = bytes
            .get(used..used + length)
            .ok_or(RunsError::Truncated { at: start })?;
        for (byte, run) in place.iter_mut().zip(run) {
            *byte ^= run;
        }
        used += length;
        at += gap + length;
    }
    Ok(())
}

/// What is wrong with runs, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// A number is cut off, or longer than two bytes.
    #[error("the number at byte {at} is cut off or too long")]
    Number {
        /// Its position in the encoded bytes.
        at: usize,
    },
    /// A run goes past the block.
    #[error("the run at byte {at} ends after the block")]
    PastTheBlock {
        /// Its position in the encoded bytes.
        at: usize,
    },
    /// There are fewer bytes than the run has.
    #[error("the run at byte {at} is cut off")]
    Truncated {
        /// Its position in the encoded bytes.
        at: usize,
    },
}

fn word(block: &Block, at: usize) -> Option<u64> {
    let bytes = block.get(at..at + WORD)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Returns the first byte at or after `at` that is not zero, or the end of the block.
fn after_zeros(block: &Block, mut at: usize) -> usize {
    while let Some(word) = word(block, at) {
        if word != 0 {
            return at + word.trailing_zeros() as usize / 8;
        }
        at += WORD;
    }
    while at < BLOCK_BYTES && block[at] == 0 {
        at += 1;
    }
    at
}

/// Returns the end of the run that starts at `start`; `None` if the run is longer than `room`.
fn run_end(block: &Block, start: usize, room: usize) -> Option<usize> {
    let mut at = start;
    while let Some(word) = word(block, at) {
        if at - start > room {
            return None;
        }
        let zeros = zero_bytes(word);
        // A zero followed by a zero.
        let ends = zeros & (zeros >> 8);
        if ends != 0 {
            return Some(at + ends.trailing_zeros() as usize / 8);
        }
        at += WORD;
        if zeros >> 63 != 0 && block.get(at).is_none_or(|&next| next == 0) {
            return Some(at - 1);
        }
    }
    while at < BLOCK_BYTES {
        // At the end of the block one zero is enough to end a run: the end costs nothing there.
        if block[at] == 0 && block.get(at + 1).is_none_or(|&next| next == 0) {
            return Some(at);
        }
        at += 1;
    }
    Some(at)
}

/// The top bit of each byte that is zero.
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::from_le_bytes([0x7f; WORD]);
    !(((word & LOW) + LOW) | word | LOW)
}

fn put_more(out: &mut [u8], number: usize) -> usize {
    let low = (number & 0x7f) as u8;
    if number < 0x80 {
        out[0] = low;
        return 1;
    }
    out[0] = low | 0x80;
    out[1] = (number >> 7) as u8;
    2
}

fn take_more(bytes: &[u8]) -> Option<(usize, usize)> {
    let low = usize::from(*bytes.first()?);
    if low < 0x80 {
        return Some((low, 1));
    }
    let high = usize::from(*bytes.get(1)?);
    (high < 0x80).then_some((low & 0x7f | high << 7, 2))
}
