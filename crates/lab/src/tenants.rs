//! Several traces on one drive: tenants, each with a separate part of the volume.
//!
//! The parts lie one after the other, in the order of the tenants. A part is as long as what its trace touches. All
//! tenants begin at the same time, and each keeps the pace of its trace. Alternatively each has a fixed number of
//! requests open and waits for its own answers: then a tenant is a separate host, and a slow one delays the others
//! only by its load on the drive.

use crate::replay::{EXTENTS_MAX, RepeatedContents, Replay, ReplayError, TraceFile};
use crate::rng::mix;
use crate::workload::Request;
use std::iter::Peekable;
use std::sync::Arc;
use vellum_core::addr::Lba;

/// The most tenants of one drive.
pub const TENANTS_MAX: usize = 16;
/// The most characters of a tenant's name.
pub const NAME_MAX: usize = 32;

/// Why traces cannot share a drive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// There are none, or too many.
    #[error("a drive of tenants has from 1 to {TENANTS_MAX} of them, not {count}")]
    Count {
        /// How many.
        count: usize,
    },
    /// A name is not valid in a table.
    #[error(
        "{name:?} is no tenant's name: it is 1 to {NAME_MAX} letters, digits, '-', '_' and '.'"
    )]
    Name {
        /// The name, cut if it is long.
        name: String,
    },
    /// Two tenants have one name.
    #[error("two tenants are called {name}")]
    Twice {
        /// The name.
        name: String,
    },
    /// They touch too much together.
    #[error(
        "the tenants touch {gib} GiB together, and {} are simulated at most",
        EXTENTS_MAX >> 10
    )]
    Wide {
        /// GiB touched.
        gib: u64,
    },
}

/// Checks that a tenant can have this name.
///
/// # Errors
/// When it cannot.
pub fn check_name(name: &str) -> Result<(), TenantError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=NAME_MAX).contains(&name.len()) && name.chars().all(fits) {
        true => Ok(()),
        false => Err(TenantError::Name {
            name: name.chars().take(NAME_MAX + 1).collect(),
        }),
    }
}

/// A tenant.
#[derive(Clone)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub trace: Arc<TraceFile>,
}

/// All of them, in the order of their parts.
pub struct Tenants(Vec<Tenant>);

impl Tenants {
    /// Gives each tenant its part.
    ///
    /// # Errors
    /// When there are too many, two have one name, or they do not fit together.
    pub fn new(all: Vec<Tenant>) -> Result<Self, TenantError> {
        let count = all.len();
        if !(1..=TENANTS_MAX).contains(&count) {
            return Err(TenantError::Count { count });
        }
        for (at, tenant) in all.iter().enumerate() {
            check_name(&tenant.name)?;
            if all[..at].iter().any(|other| other.name == tenant.name) {
                let name = tenant.name.clone();
                return Err(TenantError::Twice { name });
            }
        }
        let tenants = Self(all);
        let gib = tenants.blocks() >> 18;
        match gib > EXTENTS_MAX as u64 >> 10 {
            true => Err(TenantError::Wide { gib }),
            false => Ok(tenants),
        }
    }

    /// The tenants.
    #[must_use]
    pub fn all(&self) -> &[Tenant] {
        &self.0
    }

    /// Their traces.
    pub fn traces(&self) -> impl Iterator<Item = &TraceFile> {
        self.0.iter().map(|tenant| &*tenant.trace)
    }

    /// Blocks of all parts.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.traces().map(TraceFile::blocks).sum()
    }

    /// The tenants, each with the first block of its part.
    pub fn parts(&self) -> impl Iterator<Item = (&Tenant, u64)> {
        let mut next = 0;
        self.0.iter().map(move |tenant| {
            let first = next;
            next += tenant.trace.blocks();
            (tenant, first)
        })
    }

    /// Describes the tenants.
    #[must_use]
    pub fn told(&self) -> String {
        let told = |t: &Tenant| format!("{}: trace ({})", t.name, t.trace.format().name());
        let each: Vec<String> = self.0.iter().map(told).collect();
        format!("tenants: {}", each.join(", "))
    }

    /// The requests of each, replayed `times` times. Contents that no trace has are different for each tenant.
    ///
    /// # Errors
    /// When a file can no longer be opened.
    pub(crate) fn replay(
        &self,
        seed: u64,
        times: u32,
        repeated: RepeatedContents,
        repetition: u32,
    ) -> Result<Vec<Asking<'_>>, ReplayError> {
        let each = self.parts().enumerate();
        each.map(|(at, (tenant, first))| {
            let seed = mix(seed ^ mix(at as u64));
            let replay = tenant.trace.replay(seed, times)?;
            Ok(Asking {
                replay: replay.writing(repeated).numbered(repetition),
                first,
                tenant: at as u8,
            })
        })
        .collect()
    }
}

/// The requests of one tenant, in its part.
pub(crate) struct Asking<'a> {
    replay: Replay<'a>,
    first: u64,
    tenant: u8,
}

impl Asking<'_> {
    /// Why it ended early, if it did.
    pub fn error(&mut self) -> Option<ReplayError> {
        self.replay.error()
    }
}

impl Iterator for Asking<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut request = self.replay.next()?;
        request.tenant = self.tenant;
        if request.blocks > 0 {
            request.lba += self.first;
        }
        for (home, copy) in request.committed.iter_mut().flat_map(|all| all.iter_mut()) {
            *home = Lba(home.0 + self.first);
            *copy = Lba(copy.0 + self.first);
        }
        Some(request)
    }
}

/// The requests of all, by time; for equal times those of the first tenant come first.
pub(crate) struct Merged<I: Iterator>(Vec<Peekable<I>>);

impl<I: Iterator<Item = Request>> Merged<I> {
    pub fn new(each: impl Iterator<Item = I>) -> Self {
        Self(each.map(Iterator::peekable).collect())
    }
}

impl<I: Iterator<Item = Request>> Iterator for Merged<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let each = self.0.iter_mut().enumerate();
        let times = each.filter_map(|(at, one)| Some((one.peek()?.at, at)));
        let (_, first) = times.min()?;
        self.0[first].next()
    }
}
