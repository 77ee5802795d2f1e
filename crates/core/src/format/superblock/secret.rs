//! What a volume's hashes are keyed with, and its structures are signed with.

use crate::addr::Seq;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// Half of it is the signature.
    Known([u8; 32]),
    /// Of a pack. Chunks up to this one had whole data.
    Withheld { through: Seq, signature: [u8; 16] },
}

impl Secret {
    pub fn of(bytes: [u8; 32], is_withheld: bool) -> Self {
        let (mut number, mut signature) = ([0; 8], [0; 16]);
        number.copy_from_slice(&bytes[..8]);
        signature.copy_from_slice(&bytes[16..]);
        // No number of a chunk reaches further.
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
