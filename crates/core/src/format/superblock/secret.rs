//! The key of a volume's hashes, and the signature of its structures.

use crate::addr::Seq;

/// The secret of a volume, or what a pack has in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// Half of it is the signature.
    Known([u8; 32]),
    /// A pack has no secret. The data of chunks up to `through` was whole, or was not examined.
    Withheld { through: Seq, signature: [u8; 16] },
}

impl Secret {
    pub fn of(bytes: [u8; 32], is_withheld: bool) -> Self {
        let (mut number, mut signature) = ([0; 8], [0; 16]);
        number.copy_from_slice(&bytes[..8]);
        signature.copy_from_slice(&bytes[16..]);
        // Chunk numbers are not larger than this.
        let through = Seq(u64::from_le_bytes(number) & (u64::MAX >> 1));
        match is_withheld {
            true => Self::Withheld { through, signature },
            false => Self::Known(bytes),
        }
    }

    pub fn bytes(&self) -> [u8; 32] {
        match *self {
            Self::Known(bytes) => bytes,
            Self::Withheld { through, signature } => {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&through.0.to_le_bytes());
                bytes[16..].copy_from_slice(&signature);
                bytes
            }
        }
    }
}
