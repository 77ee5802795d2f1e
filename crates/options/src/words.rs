//! Parses options from words that no shell has split: a sweep's axes, and Python's keywords.

use crate::wrong::OptionError;
use clap::{Args, Command, FromArgMatches};

/// An option, as the help describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its name, without dashes.
    pub name: String,
    /// True if it takes a value.
    pub takes_value: bool,
    /// Its help text.
    pub help: String,
}

/// Parses options. If an option is repeated, the last one applies.
///
/// # Errors
/// What is wrong and what is allowed, in one line.
pub fn parse<T: Args + FromArgMatches>(
    name: &'static str,
    words: impl IntoIterator<Item = String>,
) -> Result<T, OptionError> {
    let command = T::augment_args(Command::new(name))
        .args_override_self(true)
        .disable_help_flag(true);
    let words = [name.to_owned()].into_iter().chain(words);
    let parsed = command.try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| T::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let text = error.render().to_string();
        let lines = text.lines().take_while(|line| !line.starts_with("Usage"));
        let lines: Vec<&str> = lines.map(str::trim).filter(|l| !l.is_empty()).collect();
        OptionError::new(lines.join(" ").trim_start_matches("error: "))
    })
}

/// All options, in the order of the help.
#[must_use]
pub fn list<T: Args>() -> Vec<Told> {
    let command = T::augment_args(Command::new("vellum"));
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    let told = options.filter_map(|arg| {
        Some(Told {
            name: arg.get_long()?.into(),
            takes_value: arg.get_action().takes_values(),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        })
    });
    told.collect()
}

/// Rewrites option names in a text as Python writes them: `flush_every` for `--flush-every`.
#[must_use]
pub fn in_python(text: &str) -> String {
    let mut parts = text.split("--");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !(c.is_ascii_lowercase() || c == '-'))
            .unwrap_or(part.len());
        match end {
            0 => out += "--",
            _ => out += &part[..end].replace('-', "_"),
        }
        out += &part[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{in_python, list, parse};
    use crate::setup::Setup;

    fn wrong(words: &[&str]) -> String {
        let words = words.iter().map(|&word| word.to_owned());
        parse::<Setup>("vellum", words).err().unwrap().to_string()
    }

    #[test]
    fn an_error_is_one_line() {
        let no_drive = wrong(&["--workload=zipf", "--device=floppy"]);
        assert!(no_drive.starts_with("invalid value 'floppy'"), "{no_drive}");
        assert!(no_drive.contains("there are caftl, oftl"), "{no_drive}");
        let unknown = wrong(&["--workload=zipf", "--thta=1"]);
        assert!(
            unknown.contains("unexpected argument '--thta'"),
            "{unknown}"
        );
        assert!(!unknown.contains('\n') && !unknown.contains("Usage"));
    }

    #[test]
    fn python_names_have_no_dashes() {
        let told = "by `--flush-every=8` - or --seed -- not";
        assert_eq!(in_python(told), "by `flush_every=8` - or seed -- not");
    }

    #[test]
    fn the_last_of_two_values_applies() {
        let words = ["--workload=zipf", "--device=oftl", "--device=sd"].map(str::to_owned);
        let setup: Setup = parse("vellum", words).unwrap();
        assert_eq!(setup.drive().name, "sd");
    }

    #[test]
    fn options_are_listed_with_their_help() {
        let all = list::<Setup>();
        let fcfs = all.iter().find(|told| told.name == "fcfs").unwrap();
        assert!(!fcfs.takes_value && fcfs.help.starts_with("Serve each die"));
        assert!(all.iter().any(|told| told.name == "op" && told.takes_value));
        assert!(all.iter().all(|told| told.name != "trace"));
    }
}
