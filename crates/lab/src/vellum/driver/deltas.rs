//! Blocks as differences from what they replace (CSA-FS §3.2): how large a trace or a model says the difference is.
//!
//! There are no bytes here, so a base is the number of its content. Which bases are kept is as in the device.
//!
//! A trace has the size of a block's difference from the version before it, which may be a delta itself. The distance
//! to that delta's base is taken to be the sum of all differences since. What changed twice is counted twice, so the
//! distance is never underestimated.

use crate::content::Content;
use crate::sizes::{Sizes, told};
use std::collections::HashMap;
use vellum_core::addr::Lba;
use vellum_core::entry::PartId;
use vellum_core::seam::Packed;
use vellum_policies::words::Deltas;
use vellum_watch::{Base, bucket};

/// The size of a block that equals its base: a run of one zero.
const SAME: u16 = 2;

/// What was last written to a block, where a trace has differences.
pub(super) struct Version {
    pub content: Content,
    /// The part that it was stored as a difference from, and the size of that difference.
    pub since: Option<(u32, u16)>,
}

/// The bases of a volume.
pub(super) struct Bases {
    pub known: vellum_watch::Bases<Content>,
    /// Never iterated: the order would be random.
    pub versions: HashMap<u64, Version>,
    /// Where deltas go.
    pub deltas: Deltas,
}

impl Bases {
    pub fn new(deltas: Deltas) -> Self {
        Self {
            deltas,
            known: vellum_watch::Bases::default(),
            versions: HashMap::new(),
        }
    }

    /// A block as its difference from this base, if that is worth it. `changed`: the size of the difference from the
    /// version before, if the trace has it.
    pub fn delta(
        &self,
        (part, base): (PartId, Base<Content>),
        (lba, home): (u64, Lba),
        content: Content,
        changed: Option<u16>,
        model: Option<Sizes>,
    ) -> Option<Packed> {
        let measured = changed.and_then(|changed| {
            let before = self.versions.get(&lba)?;
            match before.since {
                _ if before.content == base.block => Some(changed),
                Some((since, bytes)) if since == part.raw() => Some(bytes.saturating_add(changed)),
                _ => None,
            }
        });
        let bytes = measured.or_else(|| Some(model?.changed_bytes(base.block, content)))?;
        let packed = Packed {
            bucket: (self.deltas == Deltas::Log).then(|| bucket(home)),
            base: Some(part),
            ..told(bytes.max(SAME))?
        };
        (packed.len.get() <= base.longest_delta()).then_some(packed)
    }
}
