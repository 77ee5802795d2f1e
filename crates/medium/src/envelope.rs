//! The header of an encrypted medium, in its two places.

use crate::error::MediumError;
use crate::medium::Medium;
use crate::open::MEDIUM_BLOCKS_MIN;
use vellum_core::addr::{BLOCK_BYTES, Pba};
pub use vellum_envelope::{
    COPIES, Cipher, Cost, Header, HeaderError, KEY_FILE_BYTES_MAX, Kind, SLOTS, START, Secret,
    SecretError, Slot, VolumeKey,
};

/// Reads whole blocks.
pub type ReadAt<'a> = dyn Fn(Pba, &mut [u8]) -> Result<(), MediumError> + 'a;

/// Why an encrypted medium cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Neither copy of its header is whole.
    #[error("{name} is encrypted, and cannot be opened: {source}")]
    Header {
        /// The medium.
        name: String,
        /// What is wrong with the first copy, or the second where there is no first.
        source: HeaderError,
    },
    /// It fails.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

/// A header, and which of its copies are as it is.
#[derive(Clone, Debug)]
pub struct Envelope {
    header: Header,
    current: [bool; 2],
}

impl Envelope {
    /// One that is nowhere yet.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            header,
            current: [false; 2],
        }
    }

    /// Finds the newest whole header. Where block 0 is of something else, what looks like the second copy may be anything, like a block that
    /// a client has written to a plain volume: it counts only when there is no `plain` volume.
    ///
    /// # Errors
    /// When the medium fails, or when there is a header that is damaged or of a newer program.
    pub fn find(
        medium: &dyn Medium,
        plain: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, EnvelopeError> {
        let read = |at, bytes: &mut [u8]| medium.read(at, bytes);
        Self::find_by(medium.name(), medium.blocks(), &read, plain)
    }

    /// The same of what is no medium: it is read by a function.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_by(
        name: &str,
        blocks: u64,
        read: &ReadAt<'_>,
        plain: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, EnvelopeError> {
        if blocks < START + MEDIUM_BLOCKS_MIN {
            return Ok(None);
        }
        let [first, second] = COPIES.map(|at| copy(read, at));
        let refused = |source| EnvelopeError::Header {
            name: name.to_owned(),
            source,
        };
        let (header, current) = match (first, second) {
            (Ok(first), Ok(second)) => {
                let same = first == second;
                match first.generation() < second.generation() {
                    false => (first, [true, same]),
                    true => (second, [same, true]),
                }
            }
            (Ok(first), Err(_)) => (first, [true, false]),
            (Err(Refused::Medium(error)), Err(_)) => return Err(error.into()),
            (Err(Refused::Header(HeaderError::Magic)), Err(_)) => return Ok(None),
            (Err(Refused::Header(error)), Err(_)) => return Err(refused(error)),
            (Err(Refused::Header(error)), Ok(_)) if is_newer(&error) => return Err(refused(error)),
            (Err(_), Ok(_)) if plain() => return Ok(None),
            (Err(_), Ok(second)) => (second, [false, true]),
        };
        Ok(Some(Self { header, current }))
    }

    /// What it says.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether both copies are whole and the same.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.current == [true; 2]
    }

    /// Replaces the header, durably. At each instant one copy is whole, the old one or the new one: the place of the one that
    /// counts is written last.
    ///
    /// # Errors
    /// When the medium fails; then it says the old or the new.
    pub fn replace(&mut self, medium: &dyn Medium, header: Header) -> Result<(), MediumError> {
        let order = match self.current {
            [false, _] => [0, 1],
            [true, _] => [1, 0],
        };
        let bytes = header.bytes();
        for copy in order {
            medium.write(Pba(COPIES[copy]), &bytes)?;
            medium.sync()?;
            self.current[copy] = false;
        }
        *self = Self {
            header,
            current: [true; 2],
        };
        Ok(())
    }

    /// Writes the copy that is damaged or older anew.
    ///
    /// # Errors
    /// When the medium fails.
    pub fn repair(&mut self, medium: &dyn Medium) -> Result<(), MediumError> {
        match self.is_whole() {
            true => Ok(()),
            false => self.replace(medium, self.header.clone()),
        }
    }
}

/// Destroys both copies, durably: what was encrypted with the key in them is lost.
///
/// # Errors
/// When the medium fails.
pub fn wipe(medium: &dyn Medium) -> Result<(), MediumError> {
    for at in COPIES.into_iter().filter(|&at| at < medium.blocks()) {
        medium.write(Pba(at), &[0; BLOCK_BYTES])?;
    }
    medium.sync()
}

/// Why a place has no header.
enum Refused {
    Medium(MediumError),
    Header(HeaderError),
}

fn copy(read: &ReadAt<'_>, at: u64) -> Result<Header, Refused> {
    let mut block = [0; BLOCK_BYTES];
    read(Pba(at), &mut block).map_err(Refused::Medium)?;
    Header::parse(&block).map_err(Refused::Header)
}

/// Whole, and not for this program: nothing older is to be used in its place.
fn is_newer(error: &HeaderError) -> bool {
    !matches!(error, HeaderError::Magic | HeaderError::Sum)
}
