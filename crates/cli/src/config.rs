//! The configuration file: TOML, with a table for each subcommand, and keys named like the flags.
//!
//! A file is turned into flags that are put before those of the command line. So the same parser checks both, and the command
//! line wins. Errors in the file name its line.

use crate::outcome::{tell, usage};
use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// A larger file is not a configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where in the file each flag was written.
#[derive(Default)]
pub struct Origins {
    file: PathBuf,
    lines: Vec<(String, usize)>,
}

impl Origins {
    /// If an error is about a flag from the file, reports its place.
    pub fn explain(&self, error: &clap::Error) {
        let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
            return;
        };
        for (key, line) in &self.lines {
            if arg.trim_start_matches("--").split([' ', '=']).next() == Some(key) {
                tell(format_args!(
                    "note: key {key:?} is set in {}, line {line}",
                    self.file.display()
                ));
            }
        }
    }
}

/// Puts the configuration file's flags into the command line, if it names a file.
pub fn expand(command: Command, mut args: Vec<OsString>) -> Result<(Vec<OsString>, Origins)> {
    let Some((file, subcommand)) = find(&command, &args) else {
        return Ok((args, Origins::default()));
    };
    let shown = file.display();
    // The reported length of a file is not trusted: a device reports none.
    let mut bytes = Vec::new();
    File::open(&file)
        .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| usage(format!("cannot read configuration file {shown}: {error}")))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(usage(format!(
            "configuration file {shown} is larger than {FILE_BYTES_MAX} bytes"
        )));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
        usage(format!("{shown}, line {line}: that is no text (UTF-8)"))
    })?;
    let wanted: Vec<String> = places(&command, &args, subcommand);
    let (flags, lines) = flags(&command, text, &file, &wanted)?;
    let subcommand = subcommand + wanted.len() - 1;
    args.splice(subcommand + 1..subcommand + 1, flags);
    Ok((args, Origins { file, lines }))
}

/// The file that `--config` names, and the position of the subcommand among the arguments.
fn find(command: &Command, args: &[OsString]) -> Option<(PathBuf, usize)> {
    let (mut file, mut subcommand, mut i) = (None, None, 1);
    while i < args.len() {
        let text = args[i].to_string_lossy();
        if text == "--" {
            break;
        } else if text == "--config" {
            i += 1;
            file = args.get(i).map(PathBuf::from);
        } else if let Some(path) = text.strip_prefix("--config=") {
            file = Some(PathBuf::from(path));
        } else if subcommand.is_none() && command.find_subcommand(&*text).is_some() {
            subcommand = Some(i);
        }
        i += 1;
    }
    Some((file?, subcommand?))
}

/// The names of the subcommand and of its nested subcommands among the following arguments: `lab`, `run`.
fn places(command: &Command, args: &[OsString], subcommand: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut within = command;
    for arg in &args[subcommand..] {
        match within.find_subcommand(&*arg.to_string_lossy()) {
            Some(found) => {
                names.push(found.get_name().to_owned());
                within = found;
            }
            None => break,
        }
    }
    names
}

type Flags = (Vec<OsString>, Vec<(String, usize)>);

/// Checks the whole file, and returns the flags of one subcommand: for `lab run`, those of the table `[lab.run]`.
pub fn flags(command: &Command, text: &str, file: &Path, wanted: &[String]) -> Result<Flags> {
    let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let at = |offset: usize| format!("{}, line {}", file.display(), line(offset));
    let table = DeTable::parse(text).map_err(|e| {
        usage(format!(
            "{}: {}",
            at(e.span().map_or(0, |s| s.start)),
            e.message()
        ))
    })?;
    let mut found = (Vec::new(), Vec::new());
    let at = |offset: usize| (at(offset), line(offset));
    walk(
        command,
        table.get_ref(),
        &mut Vec::new(),
        wanted,
        &at,
        &mut found,
    )?;
    Ok(found)
}

/// Checks the tables below the one named by `within`.
fn walk(
    command: &Command,
    table: &DeTable<'_>,
    within: &mut Vec<String>,
    wanted: &[String],
    at: &impl Fn(usize) -> (String, usize),
    found: &mut Flags,
) -> Result<()> {
    for (key, value) in table {
        let (place, line) = at(key.span().start);
        let key = key.get_ref().as_ref();
        let table = within.join(".");
        if let Some(subcommand) = command.find_subcommand(key) {
            let DeValue::Table(body) = value.get_ref() else {
                let table = if table.is_empty() { table } else { table + "." };
                return Err(usage(format!(
                    "{place}: {key:?} must be a table: write [{table}{key}]"
                )));
            };
            within.push(subcommand.get_name().to_owned());
            walk(subcommand, body, within, wanted, at, found)?;
            within.pop();
            continue;
        }
        if within.is_empty() || command.has_subcommands() {
            let known: Vec<_> = command
                .get_subcommands()
                .filter(|c| !c.is_hide_set())
                .map(Command::get_name)
                .collect();
            return Err(usage(format!(
                "{place}: no command is called {key:?}; tables are named for one of: {}",
                known.join(", ")
            )));
        }
        let Some(arg) = argument(command, key) else {
            let known: Vec<_> = command
                .get_arguments()
                .filter(|arg| !arg.is_hide_set())
                .map(key_of)
                .filter(|k| argument(command, k).is_some())
                .collect();
            return Err(usage(format!(
                "{place}: unknown key {key:?} in [{table}]; known: {}",
                known.join(", ")
            )));
        };
        let parts =
            flag(arg, value.get_ref()).map_err(|e| usage(format!("{place}: key {key:?}: {e}")))?;
        if within == wanted {
            found.0.extend(parts);
            found.1.push((key.to_owned(), line));
        }
    }
    Ok(())
}

fn key_of(arg: &Arg) -> String {
    arg.get_long()
        .map_or_else(|| arg.get_id().to_string(), str::to_owned)
}

fn argument<'c>(command: &'c Command, key: &str) -> Option<&'c Arg> {
    command
        .get_arguments()
        .find(|a| key_of(a) == key && !["config", "help", "version"].contains(&key))
}

/// Converts one key to flags.
fn flag(arg: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    if let DeValue::Array(values) = value {
        if !matches!(arg.get_action(), ArgAction::Append)
            && arg.get_num_args().is_none_or(|n| n.max_values() <= 1)
        {
            return Err("takes one value, not a list".into());
        }
        return values
            .iter()
            .map(|v| match v.get_ref() {
                DeValue::Array(_) => Err("is a list within a list".into()),
                value => flag(arg, value),
            })
            .collect::<Result<Vec<_>, _>>()
            .map(|v| v.concat());
    }
    let switch = matches!(arg.get_action(), ArgAction::SetTrue);
    let text = match value {
        DeValue::Boolean(on) if switch => {
            return Ok(if *on {
                vec![format!("--{}", key_of(arg)).into()]
            } else {
                Vec::new()
            });
        }
        _ if switch => return Err("is a switch: write true or false".into()),
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(on) => on.to_string(),
        _ => return Err("must be a string or a number".into()),
    };
    if text.starts_with('-') && arg.get_long().is_none() {
        return Err(format!("{text:?} looks like a flag"));
    }
    Ok(match arg.get_long() {
        Some(long) => vec![format!("--{long}={text}").into()],
        None => vec![text.into()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<Vec<String>, String> {
        of(text, &["create"])
    }

    fn of(text: &str, wanted: &[&str]) -> Result<Vec<String>, String> {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        let flags = flags(&crate::command_line(), text, Path::new("v.toml"), &wanted)
            .map_err(|e| e.to_string())?;
        Ok(flags
            .0
            .into_iter()
            .map(|f| f.to_string_lossy().into_owned())
            .collect())
    }

    #[test]
    fn keys_become_flags() {
        assert_eq!(
            run("[create]\nsize = \"10G\"\nforce = true\n").unwrap(),
            ["--force", "--size=10G"]
        );
        assert_eq!(
            run("[create]\nforce = false\n[serve]\nsocket = \"s\"\n").unwrap(),
            [] as [&str; 0]
        );
        assert_eq!(run("").unwrap(), [] as [&str; 0]);
    }

    #[test]
    fn a_nested_table_is_for_a_nested_subcommand() {
        let text = "[lab.run]\nworkload = \"zipf\"\nop = 12.5\npolicy = [\"base\", \"vellum\"]\n";
        assert_eq!(
            of(text, &["lab", "run"]).unwrap(),
            [
                "--op=12.5",
                "--policy=base",
                "--policy=vellum",
                "--workload=zipf"
            ]
        );
        assert_eq!(of(text, &["lab", "compare"]).unwrap(), [] as [&str; 0]);
        let args = ["vellum", "--config", "x", "lab", "validate", "--op", "7"].map(OsString::from);
        assert_eq!(
            places(&crate::command_line(), &args, 3),
            ["lab", "validate"]
        );
        for (text, want) in [
            (
                "[lab]\nop = 7\n",
                "v.toml, line 2: no command is called \"op\"",
            ),
            (
                "[lab.run]\nopp = 7\n",
                "v.toml, line 2: unknown key \"opp\" in [lab.run]",
            ),
            (
                "[lab]\nrun = 7\n",
                "v.toml, line 2: \"run\" must be a table: write [lab.run]",
            ),
        ] {
            let error = of(text, &["lab", "run"]).unwrap_err();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }

    #[test]
    fn hidden_keys_are_not_offered() {
        let error = of("[serve]\nnope = 1\n", &["serve"]).unwrap_err();
        let (_, known) = error.split_once("known: ").unwrap();
        let known: Vec<_> = known.split(", ").collect();
        assert!(known.contains(&"record"), "{error}");
        assert!(!known.contains(&"raw"), "{error}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, want) in [
            (
                "[create]\nsize = \"1G\"\nsiez = 1\n",
                "v.toml, line 3: unknown key \"siez\" in [create]",
            ),
            (
                "\n[crate]\n",
                "v.toml, line 2: no command is called \"crate\"",
            ),
            (
                "[create]\nforce = 3\n",
                "v.toml, line 2: key \"force\": is a switch",
            ),
            (
                "[create]\nsize = [1]\n",
                "v.toml, line 2: key \"size\": takes one value",
            ),
            ("[create]\nsize = \n", "v.toml, line 2: "),
            (
                "[serve]\nvolumes = [[1]]\n",
                "v.toml, line 2: key \"volumes\": is a list within a list",
            ),
            ("create = 1\n", "v.toml, line 1: \"create\" must be a table"),
            ("[serve]\nnope = 1\n", "v.toml, line 2: unknown key"),
        ] {
            let error = run(text).unwrap_err();
            assert!(error.starts_with(want), "{text:?}: {error}");
        }
    }
}
