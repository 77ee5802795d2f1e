//! Options from words that no shell has split: of a sweep's axes, of Python's keywords.

use crate::wrong::OptionError;
use clap::{Args, Command, FromArgMatches};

/// An option, as its help has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its name, without dashes.
    pub name: String,
    /// Whether something follows it.
    pub takes_value: bool,
    /// What it is for.
    pub help: String,
}

/// Reads options; of those that are there twice the last one holds.
///
/// # Errors
/// With what is wrong and what is allowed, in one line.
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

/// All options, in the order of their help.
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

#[cfg(test)]
mod tests {
    use super::{list, parse};
    use crate::setup::Setup;

    fn wrong(words: &[&str]) -> String {
        let words = words.iter().map(|&word| word.to_owned());
        parse::<Setup>("vellum", words).err().unwrap().to_string()
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
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
    fn the_last_of_two_holds() {
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
