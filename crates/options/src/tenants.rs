//! Traces that share a drive.

use crate::wrong::OptionError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_lab::queues::plan::Assigned;
use vellum_lab::replay::TraceFile;
use vellum_lab::tenants::{self, Tenant, Tenants};

/// Arguments.
#[derive(clap::Args)]
pub struct TenantArgs {
    /// A trace that shares the drive with others, and what it is called in the results; give it several times. Each has a part
    /// of the volume for itself. All begin at once, each at its own trace's times, or each with --depth requests at a time.
    #[arg(long, value_name = "NAME=TRACE", value_parser = named)]
    #[arg(conflicts_with_all = ["trace", "workload", "journal_at", "think"])]
    tenant: Vec<Named>,
    /// The submission queue of a tenant or of a job of --fio, and that queue's class: urgent, high, medium (the default) or low. On a
    /// drive whose file has [queues]. Tenants without one take turns.
    #[arg(long, value_name = "NAME=QUEUE[:CLASS],...", value_delimiter = ',')]
    queue: Vec<Assigned>,
}

/// A trace and its name.
#[derive(Clone)]
struct Named {
    name: String,
    path: PathBuf,
}

fn named(text: &str) -> Result<Named, String> {
    let wrong = || format!("{text:?} is not NAME=TRACE, like mail=mail.csv");
    let (name, path) = text.split_once('=').ok_or_else(wrong)?;
    tenants::check_name(name).map_err(|error| error.to_string())?;
    match path.is_empty() {
        true => Err(wrong()),
        false => Ok(Named {
            name: name.into(),
            path: path.into(),
        }),
    }
}

impl TenantArgs {
    /// The submission queues that are named.
    pub(crate) fn queues(&self) -> &[Assigned] {
        &self.queue
    }

    /// Each tenant's name and its trace's file.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&str, &Path)> {
        let each = self.tenant.iter();
        each.map(|named| (named.name.as_str(), named.path.as_path()))
    }
}

/// Makes the tenants from the traces that were read, in the same order; `None` if there are none.
///
/// # Errors
/// If they contradict each other.
pub fn tenants<'a>(
    read: impl IntoIterator<Item = (&'a str, Arc<TraceFile>)>,
) -> Result<Option<Arc<Tenants>>, OptionError> {
    let each = read.into_iter().map(|(name, trace)| Tenant {
        name: name.into(),
        trace,
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() {
        return Ok(None);
    }
    let tenants = Tenants::new(each).map_err(|error| OptionError::new(error.to_string()))?;
    Ok(Some(Arc::new(tenants)))
}
