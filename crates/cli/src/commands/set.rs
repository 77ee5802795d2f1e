//! `vellum set`: changes properties of a volume, served or not, permanently.

use crate::keys::Key;
use crate::opened;
use crate::outcome::{tell, usage};
use crate::properties::{self, Change, Research, TABLE, Tier};
use crate::{control, whose};
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum_device::{ChangeError, change_at_rest};

const EXAMPLES: &str = "Examples:
  vellum set disk.vellum compress=zstd:3
  vellum set disk.vellum label=photos freed=on
  vellum set disk.vellum compress=default";

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = table())]
pub struct Args {
    /// The volume. It may be served meanwhile: then a change counts at once, unless this command says otherwise.
    volume: PathBuf,
    /// What to change. If one of several cannot be changed, none is. NAME=default takes back what was chosen.
    #[arg(required_unless_present = "research", value_name = "NAME=VALUE")]
    changes: Vec<Change>,
    /// A mechanism that is there to be studied. It counts for as long as the server runs, and is not kept.
    #[arg(
        long,
        value_name = "NAME=VALUE",
        hide_short_help = true,
        conflicts_with = "changes"
    )]
    research: Vec<Research>,
    #[command(flatten)]
    key: Key,
}

/// The table of properties, for a terminal.
fn table() -> String {
    let mut text = format!("{EXAMPLES}\n\nProperties:\n");
    for tier in [Tier::Everyday, Tier::Seldom] {
        for property in TABLE.iter().filter(|p| p.tier == tier) {
            let _ = writeln!(text, "\n  {}={}", property.name, property.kind.values());
            let _ = writeln!(text, "      {}", property.doc);
            if tier == Tier::Everyday {
                let _ = writeln!(text, "      Brings and costs: {}", property.cost);
            }
            if property.has != properties::Has::All {
                let _ = writeln!(text, "      Layouts: {}", property.has.names());
            }
        }
        if tier == Tier::Everyday {
            text += "\nSeldom needed:\n";
        }
    }
    text
}

/// How often to retry a volume that another process has just locked: for five seconds.
const LOOKS: u32 = 100;
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Changes the properties.
pub fn run(args: &Args) -> Result<()> {
    if !args.research.is_empty() {
        return study(args);
    }
    // A server may start or end between the search for it and the lock on the file.
    for _ in 0..LOOKS {
        if let Some((socket, volume)) = whose::find_server(&args.volume)? {
            let texts: Vec<_> = args.changes.iter().map(Change::text).collect();
            let request =
                json!({"command": "properties", "volume": volume.to_string_lossy(), "set": texts});
            let answer = control::request(&socket, &request)?;
            tell_what_waits(&answer["volume"], &args.changes);
            return Ok(());
        }
        match at_rest(&args.volume, &args.changes, &args.key) {
            Err(error) if is_locked(&error) => {
                std::thread::sleep(LOOKS_EVERY);
            }
            done => return done,
        }
    }
    at_rest(&args.volume, &args.changes, &args.key)
}

/// Changes what is in effect on a served volume, but not what is stored in it.
fn study(args: &Args) -> Result<()> {
    let Some((socket, volume)) = whose::find_server(&args.volume)? else {
        return Err(usage(format!(
            "{}: it is not being served, and --research is for as long as a server runs",
            args.volume.display()
        )));
    };
    let changes = args.research.iter().flat_map(|research| &research.0);
    let texts: Vec<_> = changes.map(Change::text).collect();
    let request =
        json!({"command": "properties", "volume": volume.to_string_lossy(), "research": texts});
    control::request(&socket, &request).map(drop)
}

/// Reports which changes do not take effect yet.
fn tell_what_waits(told: &Value, changes: &[Change]) {
    let all = told.get("properties").and_then(Value::as_array);
    for property in all.into_iter().flatten() {
        let field = |key: &str| property.get(key).and_then(Value::as_str);
        let value = |key: &str| field(key).map(|text| if text.is_empty() { "empty" } else { text });
        let Some(name) = field("name").filter(|name| changes.iter().any(|c| c.name() == *name))
        else {
            continue;
        };
        if field("source") == Some("this run") {
            let value = value("value").unwrap_or_default();
            tell(format_args!(
                "{name}: stored in the volume; the server keeps using {value}, because an option of it \
                says so"
            ));
        } else if let Some(now) = value("until_restart") {
            tell(format_args!(
                "{name}: stored in the volume, and used from the next attach or serve on; until then \
                it is {now}"
            ));
        }
    }
}

fn is_locked(error: &anyhow::Error) -> bool {
    let medium = error.downcast_ref::<vellum_medium::OpenError>();
    matches!(medium, Some(vellum_medium::OpenError::Locked(_)))
}

fn at_rest(path: &Path, changes: &[Change], key: &Key) -> Result<()> {
    let medium = opened::open(path, false, key)?;
    let changed = change_at_rest(&medium, |superblock| {
        properties::changed(superblock, superblock.properties(), changes)
    });
    match changed {
        Ok(_) => Ok(()),
        Err(ChangeError::Refused(error)) => Err(error),
        Err(ChangeError::Recovery(error)) => {
            Err(anyhow::Error::from(error).context(path.display().to_string()))
        }
        Err(ChangeError::Medium(error)) => Err(error.into()),
    }
}
