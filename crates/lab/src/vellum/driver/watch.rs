//! Watches file systems and passes hints to the core, as the device does.

use super::{Submitted, Vellum};
use crate::base::Io;
use crate::journal::Disk;
use crate::watching::{Watching, Written};
use vellum_core::seam::{Hint, Input, Payload, Region, WriteOnce};
use vellum_watch::Wants;

impl Submitted {
    /// The request as the watch reads it.
    pub(super) fn written(&self) -> Written<'_> {
        Written {
            first: self.lba,
            contents: &self.contents,
            bytes: &self.bytes,
        }
    }
}

impl Vellum {
    /// Passes on where journals are, for loads without bytes.
    pub fn watch(&mut self, io: &mut Io<'_>, regions: &[Region]) {
        self.feed(io, Input::Hint(Hint::Journals { regions }));
    }

    /// A file system has been made and mounted: follows what it writes from now on.
    pub fn follow(&mut self, io: &mut Io<'_>, disk: &Disk, rule: WriteOnce) {
        let wants = Wants {
            write_once: rule,
            replay: self.replay,
            deltas: self.bases.is_some(),
            dedup: self.shares,
        };
        let mut watching = Watching::new(disk, wants);
        if self.dropping.is_some() {
            watching.follow_freed(disk);
        }
        watching.guard(&mut self.gate.commits, disk);
        let findings = watching.findings();
        if self.shares {
            self.feed(io, Input::Hint(findings.critical().hint()));
        }
        self.feed(io, Input::Hint(findings.hint()));
        self.watching = Some(Box::new(watching));
    }

    /// Reads a write that is about to be handed over.
    pub(super) fn read_along(&mut self, io: &mut Io<'_>, submitted: &Submitted) {
        // `watching` is taken out meanwhile: feeding the hints to the core does not need it.
        let Some(mut watching) = self.watching.take() else {
            return;
        };
        let pairs = watching.read(&submitted.written());
        if !pairs.is_empty() {
            self.feed(io, Input::Hint(Hint::Journaled { pairs }));
        }
        self.watching = Some(watching);
    }

    /// Classifies each of its blocks.
    pub(super) fn classify(&self, submitted: &Submitted, payloads: &mut [Payload]) {
        if let Some(watching) = &self.watching {
            watching.classify(&submitted.written(), payloads);
        }
    }

    /// Passes on the hints that follow a write that has been handed over.
    pub(super) fn handed_over(&mut self, io: &mut Io<'_>) {
        if let Some(mut watching) = self.watching.take() {
            watching.handed_over(&mut |hint| self.feed(io, Input::Hint(hint)));
            self.watching = Some(watching);
        }
    }
}
