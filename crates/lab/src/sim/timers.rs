//! What happens without a request: at its time, and at the end of a run.

use super::{Ftl, RunError, Sim, io};
use crate::base::Io;

impl Sim {
    /// Lets a drive fold its cache and refresh what is due. Lets time pass until tables in place hold nothing back any more and
    /// all services have completed a pass. A log holds nothing back that it would have to write.
    ///
    /// # Errors
    /// When something fails meanwhile.
    pub fn settle(&mut self) -> Result<(), RunError> {
        match &mut self.ftl {
            Ftl::Vellum(vellum) => vellum.tidy(io!(self)),
            Ftl::Page(drive) => drive.fold_all(io!(self)),
            Ftl::Raw(_) => {}
        }
        if let Some(drive) = self.ftl.drive_mut() {
            drive.renew_all(io!(self));
        }
        loop {
            let Ftl::Vellum(vellum) = &self.ftl else {
                return Ok(());
            };
            if !vellum.is_in_place() && !vellum.is_tidying() {
                return Ok(());
            }
            match (self.time.next(), vellum.timeout()) {
                (None, None) => return Ok(()),
                (Some(event), due) if due.is_none_or(|due| event <= due) => {
                    if let Some(tag) = self.time.pop() {
                        self.happen(tag);
                    }
                }
                (_, Some(due)) => self.tick(due),
                (Some(_), None) => {}
            }
            self.refusal()?;
        }
    }

    /// When the engine or the drive wants to continue on its own.
    pub(super) fn timeout(&self) -> Option<u64> {
        let own = match &self.ftl {
            Ftl::Vellum(vellum) => vellum.timeout(),
            Ftl::Page(drive) => drive.timeout(),
            Ftl::Raw(_) => None,
        };
        let drive = self.ftl.drive();
        let renews = drive.and_then(|drive| drive.renews_at(self.time.now(), &self.flash));
        [own, renews].into_iter().flatten().min()
    }

    /// Runs the engine's timer, or the drive's.
    pub(super) fn tick(&mut self, due: u64) {
        self.time.pass(due);
        match &mut self.ftl {
            Ftl::Vellum(vellum) => vellum.tick(io!(self)),
            Ftl::Page(drive) => drive.tick(io!(self)),
            Ftl::Raw(_) => {}
        }
        if let Some(drive) = self.ftl.drive_mut() {
            drive.renew(io!(self));
        }
        self.collect();
    }
}
