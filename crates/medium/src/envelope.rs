//! The two copies of the header of an encrypted medium.

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
    /// Neither copy of its header is intact.
    #[error("{name} is encrypted, and cannot be opened: {source}")]
    Header {
        /// The medium.
        name: String,
        /// What is wrong with the first copy, or with the second if there is no first.
        source: HeaderError,
    },
    /// The medium fails.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

/// A header, and which of its copies are current.
#[derive(Clone, Debug)]
pub struct Envelope {
    header: Header,
    current: [bool; 2],
}

impl Envelope {
    /// An envelope that is not on any medium yet.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            header,
            current: [false; 2],
        }
    }

    /// Finds the newest intact header. If block 0 holds something else, what looks like the second copy may be anything, such as
    /// a block that a client wrote to a plain volume. So the second copy counts only if there is no `plain` volume.
    ///
    /// # Errors
    /// If the medium fails, or if there is a header that is damaged or of a newer program.
    pub fn find(
        medium: &dyn Medium,
        plain: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, EnvelopeError> {
        let read = |at, bytes: &mut [u8]| medium.read(at, bytes);
        Self::find_by(medium.name(), medium.blocks(), &read, plain)
    }

    /// Like [`find`](Self::find), but reads through a function instead of a medium.
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

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// True if both copies are intact and equal.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.current == [true; 2]
    }

    /// Replaces the header, durably. At every instant one copy is intact, with the old header or the new one:
    /// the copy in use is written last.
    ///
    /// # Errors
    /// If the medium fails. It then has the old header or the new one.
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

    /// Rewrites a copy that is damaged or older.
    ///
    /// # Errors
    /// If the medium fails.
    pub fn repair(&mut self, medium: &dyn Medium) -> Result<(), MediumError> {
        match self.is_whole() {
            true => Ok(()),
            false => self.replace(medium, self.header.clone()),
        }
    }
}

/// Destroys both copies, durably. Data encrypted with the key in them is lost.
///
/// # Errors
/// If the medium fails.
pub fn wipe(medium: &dyn Medium) -> Result<(), MediumError> {
    for at in COPIES.into_iter().filter(|&at| at < medium.blocks()) {
        medium.write(Pba(at), &[0; BLOCK_BYTES])?;
    }
    medium.sync()
}

/// Why a copy has no usable header.
enum Refused {
    Medium(MediumError),
    Header(HeaderError),
}

fn copy(read: &ReadAt<'_>, at: u64) -> Result<Header, Refused> {
    let mut block = [0; BLOCK_BYTES];
    read(Pba(at), &mut block).map_err(Refused::Medium)?;
    Header::parse(&block).map_err(Refused::Header)
}

/// True for a header that is intact but of a newer program. Nothing older may be used in its place.
fn is_newer(error: &HeaderError) -> bool {
    !matches!(error, HeaderError::Magic | HeaderError::Sum)
}
