//! A medium whose blocks are encrypted on another one.
//!
//! A write is encrypted into a copy; the writer's memory is only read. A read is decrypted in the reader's memory before it is
//! returned. Syncs and discards pass through. A block that was never written, was discarded or was zeroed reads as zeros.

use crate::bounce::{Bounce, Bounces};
use crate::error::MediumError;
use crate::io::{Done, Io, Kind, Piece, check_bytes};
use crate::lost::Lost;
use crate::medium::Medium;
use parking_lot::Mutex;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_envelope::{Cipher, START, VolumeKey};

/// Bytes that synchronous writes encrypt at once.
const PIECE_BYTES: usize = 1 << 20;

/// A volume's blocks, encrypted on `M` after its header.
#[derive(Debug)]
pub struct EncryptedMedium<M> {
    // First, so that it is dropped first: its operations use the memory below.
    inner: M,
    cipher: Cipher,
    flights: Mutex<Flights>,
    bounces: Bounces,
}

/// The original form of operations passed to the medium below. An operation's token there is its index here.
#[derive(Debug, Default)]
struct Flights {
    places: Vec<Option<Flight>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Flight {
    token: u64,
    at: Pba,
    /// For a write: the plain bytes, and the encrypted ones that replace them meanwhile.
    write: Option<(Vec<Piece>, Bounce)>,
}

impl<M: Medium> EncryptedMedium<M> {
    /// Wraps a medium that begins with a header.
    pub fn new(inner: M, key: &VolumeKey) -> Self {
        Self {
            inner,
            cipher: Cipher::new(key),
            flights: Mutex::default(),
            bounces: Bounces::default(),
        }
    }

    /// The medium below, with its header.
    pub fn below(&self) -> &M {
        &self.inner
    }

    /// Converts an operation for the medium below.
    fn below_form(&self, mut io: Box<Io>) -> Box<Io> {
        let (token, at) = (io.token, io.at);
        // An address past the end stays past the end, and is refused below.
        io.at = Pba(at.0.saturating_add(START));
        let write = match io.kind {
            Kind::Write { .. } if !io.is_empty() => {
                let mut bounce = self.bounces.take(io.len());
                self.encrypt(at, &io, &mut bounce);
                let cipher = vec![bounce.piece(io.len())];
                Some((io.replace_pieces(cipher), bounce))
            }
            _ => None,
        };
        let flight = Some(Flight { token, at, write });
        let mut flights = self.flights.lock();
        io.token = match flights.free.pop() {
            Some(place) => {
                flights.places[place] = flight;
                place as u64
            }
            None => {
                flights.places.push(flight);
                flights.places.len() as u64 - 1
            }
        };
        io
    }

    fn encrypt(&self, at: Pba, io: &Io, bounce: &mut Bounce) {
        let to = &mut bounce.bytes()[..io.len()];
        let mut done = 0;
        for piece in io.pieces() {
            // SAFETY: the code that pushed the piece promised that it is valid and is not written until the Io is given back.
            to[done..done + piece.len].copy_from_slice(unsafe { piece.bytes() });
            done += piece.len;
        }
        self.cipher.encrypt(at.0, to);
    }

    /// Undoes the conversion.
    fn restore(&self, io: &mut Io) {
        let flight = {
            let mut flights = self.flights.lock();
            let place = usize::try_from(io.token).unwrap_or(usize::MAX);
            let flight = flights.places.get_mut(place).and_then(Option::take);
            flights.free.extend(flight.is_some().then_some(place));
            flight
        };
        let Some(Flight { token, at, write }) = flight else {
            return;
        };
        (io.token, io.at) = (token, at);
        if let Some((plain, bounce)) = write {
            io.replace_pieces(plain);
            self.bounces.give(bounce);
        }
    }

    fn ended(&self, done: &mut Done) {
        self.restore(&mut done.io);
        if done.io.kind != Kind::Read || done.result.is_err() {
            return;
        }
        let mut at = done.io.at;
        for piece in done.io.pieces() {
            // SAFETY: as above; in a read, nothing else reads or writes it either.
            self.cipher.decrypt(at.0, unsafe { piece.bytes_mut() });
            at = at.plus((piece.len / BLOCK_BYTES) as u64);
        }
    }

    /// The address of a block on the medium below, for synchronous calls.
    fn below_of(&self, operation: &'static str, at: Pba, bytes: usize) -> Result<Pba, MediumError> {
        let below = Pba(at.0.saturating_add(START));
        check_bytes(at, bytes, self.blocks())
            .map(|()| below)
            .map_err(|error| MediumError::at(operation, self.name(), below, error))
    }
}

impl<M: Medium> Medium for EncryptedMedium<M> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn blocks(&self) -> u64 {
        self.inner.blocks().saturating_sub(START)
    }

    fn lengthen(&self, blocks: u64) -> Result<(), MediumError> {
        self.inner.lengthen(blocks.saturating_add(START))
    }

    fn shorten(&self, blocks: u64) -> Result<bool, MediumError> {
        self.inner.shorten(blocks.saturating_add(START))
    }

    fn wants_discard(&self) -> bool {
        self.inner.wants_discard()
    }

    fn discard_blocks_min(&self) -> u32 {
        self.inner.discard_blocks_min()
    }

    fn submit(&self, ios: &mut Vec<Box<Io>>) {
        let mut below = ios.drain(..).map(|io| self.below_form(io)).collect();
        self.inner.submit(&mut below);
    }

    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        match self.inner.do_now(self.below_form(io)) {
            Ok(mut done) => {
                self.ended(&mut done);
                Ok(done)
            }
            Err(mut io) => {
                self.restore(&mut io);
                Err(io)
            }
        }
    }

    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        let before = done.len();
        self.inner.wait(done, timeout);
        done[before..].iter_mut().for_each(|done| self.ended(done));
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        let below = self.below_of("read", at, bytes.len())?;
        self.inner.read(below, bytes)?;
        self.cipher.decrypt(at.0, bytes);
        Ok(())
    }

    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        let mut below = self.below_of("write", at, bytes.len())?;
        let mut bounce = self.bounces.take(bytes.len().min(PIECE_BYTES));
        for part in bytes.chunks(PIECE_BYTES) {
            let cipher = &mut bounce.bytes()[..part.len()];
            cipher.copy_from_slice(part);
            self.cipher.encrypt(below.0 - START, cipher);
            self.inner.write(below, cipher)?;
            below = below.plus((part.len() / BLOCK_BYTES) as u64);
        }
        self.bounces.give(bounce);
        Ok(())
    }

    /// Writes zeros, without encrypting them: that a block is empty is not secret (see the decision).
    fn write_zeros(&self, at: Pba, blocks: u64) -> Result<(), MediumError> {
        let bytes = usize::try_from(blocks)
            .ok()
            .and_then(|n| n.checked_mul(BLOCK_BYTES));
        let below = self.below_of(
            "write of zeros",
            at,
            bytes.unwrap_or(usize::MAX - BLOCK_BYTES + 1),
        )?;
        self.inner.write_zeros(below, blocks)
    }

    fn next_data(&self, at: Pba) -> Pba {
        let below = self.inner.next_data(Pba(at.0.saturating_add(START)));
        Pba(below.0.saturating_sub(START)).max(at)
    }

    fn sync(&self) -> Result<(), MediumError> {
        self.inner.sync()
    }

    fn drop_cache(&self) -> Result<(), MediumError> {
        self.inner.drop_cache()
    }

    fn lost(&self) -> Lost {
        self.inner.lost()
    }
}
