//! Changes as users write them: `compress=zstd`, and the flags that make them for one run.

use super::table::{self, Property, TABLE, named};
use crate::size::{self, Size};
use std::str::FromStr;
use vellum_core::format::properties::Value;
use vellum_policies::kind::Kind;
use vellum_policies::table::{Has, Tier};

/// The value that restores a property's default.
const DEFAULT: &str = "default";

/// A new value for one property.
#[derive(Clone)]
pub struct Change {
    text: String,
    name: String,
    property: Option<&'static Property>,
    /// The value; `None`: the default.
    value: Option<Value>,
}

impl Change {
    /// The property's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The property; `None` if this version does not know it.
    pub fn property(&self) -> Option<&'static Property> {
        self.property
    }

    /// The new value; `None` for the default.
    pub fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// Its text as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn new(text: &str, research: bool) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("{text:?} is not NAME=VALUE, like compress=zstd"));
        };
        // A research mechanism may share a property's name: `write-once=paper`, and `write-once=off`.
        let studied = table::of_research(name).filter(|_| research);
        let is_of_both = studied.is_some_and(|p| p.kind.parse(value).is_err());
        let property = match studied {
            Some(_) if is_of_both && named(name).is_some() => named(name),
            None => named(name),
            studied => studied,
        };
        // A property of a later version can only be reset.
        let is_let_go = !research && value == DEFAULT;
        if property.is_none() && !is_let_go {
            return Err(unknown(name));
        }
        let value = match (property, is_let_go) {
            (Some(property), false) => {
                let parsed = property.kind.parse(value);
                let also = studied.filter(|_| is_of_both).map(|p| p.kind.values());
                let also = also.map_or(String::new(), |also| format!(", {also}"));
                Some(parsed.map_err(|wrong| format!("{name}={value}: {wrong}{also}"))?)
            }
            _ => None,
        };
        Ok(Self {
            text: text.to_owned(),
            name: name.to_owned(),
            property,
            value,
        })
    }
}

fn unknown(name: &str) -> String {
    if table::of_research(name).is_some() {
        return format!(
            "{name} is there to be studied, and not kept: `vellum serve --research {name}=VALUE`"
        );
    }
    let of = |has: Has| {
        let its = |p: &&Property| p.tier != Tier::Research && p.has == has;
        let names: Vec<_> = TABLE.iter().filter(its).map(|p| p.name).collect();
        names.join(", ")
    };
    format!(
        "no property is called {name:?}: there are {}; with the layout log also {}; with {} also {}",
        of(Has::All),
        of(Has::Log),
        Has::Tables.names(),
        of(Has::Tables)
    )
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text, false)
    }
}

/// Several changes in one argument: `zero=off,dedup=on`. Free text extends to the end of the argument.
#[derive(Clone)]
pub struct Changes(pub Vec<Change>);

impl FromStr for Changes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        split(text)
            .map(|part| Change::new(part, false))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The same, including research mechanisms.
#[derive(Clone)]
pub struct Research(pub Vec<Change>);

impl FromStr for Research {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        split(text)
            .map(|part| Change::new(part, true))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Splits at commas that are followed by a name, but not in a value that may contain commas itself.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let now = rest?;
        let own = now.split_once('=').and_then(|(name, _)| named(name));
        let is_own = own.is_some_and(|p| matches!(p.kind, Kind::Text(_)));
        let mut commas = now.match_indices(',').map(|(at, _)| at);
        let is_next = |at: &usize| {
            now[at + 1..]
                .split_once('=')
                .is_some_and(|(name, _)| !name.contains(','))
        };
        let end = if is_own { None } else { commas.find(is_next) };
        rest = end.map(|at| &now[at + 1..]);
        Some(&now[..end.unwrap_or(now.len())])
    })
}

/// What is otherwise in this run.
#[derive(Clone, Default, clap::Args)]
pub struct Run {
    /// A property for this run alone, in place of what the volume has. Several have commas between them. `vellum set --help` lists them.
    #[arg(long, value_name = "NAME=VALUE")]
    with: Vec<Changes>,
    /// Memory for blocks in flight, in this run: --with buffer=SIZE.
    #[arg(long, value_name = "SIZE", value_parser = size::buffer)]
    buffer: Option<Size>,
    /// Watch a journal here in this run, besides those that are found; like 1G+128M. As --with journals=...
    #[arg(long, value_name = "START+LENGTH", value_parser = one_journal)]
    journal: Vec<String>,
    /// A mechanism that is there to be studied, or a property, for this run. Several have commas between them. docs/internals/research.md lists them.
    #[arg(long, value_name = "NAME=VALUE", hide_short_help = true)]
    research: Vec<Research>,
    /// Said by `attach --mount` to its server: the file system is mounted on the volume's own device.
    #[arg(long, hide = true)]
    mounted: bool,
}

fn one_journal(text: &str) -> Result<String, String> {
    match text.contains(',') {
        false => Kind::Journals.parse(text).map(|_| text.to_owned()),
        true => Err("it is START+LENGTH".to_owned()),
    }
}

impl Run {
    /// Notes that the file system is mounted on the volume's own device.
    pub fn mount(&mut self) {
        self.mounted = true;
    }

    /// True if the file system is mounted on the volume's own device.
    pub fn is_mounted(&self) -> bool {
        self.mounted
    }

    /// Adds a change.
    pub fn add(&mut self, change: Change) {
        self.with.push(Changes(vec![change]));
    }

    /// Adds changes that replace earlier ones of the same properties.
    pub fn study(&mut self, changes: &[Change]) {
        let is_old = |old: &Change| changes.iter().any(|new| new.name == old.name);
        self.with
            .iter_mut()
            .for_each(|with| with.0.retain(|c| !is_old(c)));
        self.research
            .iter_mut()
            .for_each(|r| r.0.retain(|c| !is_old(c)));
        self.research.push(Research(changes.to_vec()));
    }

    /// True if a journal is set by hand, which is a place on one particular volume.
    pub fn names_a_journal(&self) -> bool {
        let named = |change: &Change| change.name == "journals" && change.value.is_some();
        self.changes().iter().any(named)
    }

    /// True if a flag of this run sets this property.
    pub fn sets(&self, name: &str) -> bool {
        self.changes().iter().any(|change| change.name == name)
    }

    /// All changes, later ones before earlier ones.
    fn changes(&self) -> Vec<Change> {
        let kept = |text: String| Change::new(&text, false).ok();
        let journals = self.journal.join(",");
        let journals = (!journals.is_empty()).then(|| format!("journals={journals}"));
        let buffer = self.buffer.map(|Size(bytes)| format!("buffer={bytes}"));
        let own = journals.into_iter().chain(buffer).filter_map(kept);
        let with = self.with.iter().rev().flat_map(|c| c.0.iter().rev());
        let research = self.research.iter().rev().flat_map(|c| c.0.iter().rev());
        own.chain(with.cloned()).chain(research.cloned()).collect()
    }

    /// This run's value for a property, if it has one.
    pub fn value_of(&self, property: &Property) -> Option<Value> {
        let is_it = |change: &Change| change.property.is_some_and(|p| std::ptr::eq(p, property));
        let mut changes = self.changes().into_iter();
        changes.find(is_it).and_then(|change| change.value)
    }

    /// The same as flags, for a server that we start.
    pub fn flags(&self) -> Vec<String> {
        let is_of_research = |change: &Change| {
            change
                .property
                .is_some_and(|property| property.tier == Tier::Research)
        };
        let flag = |change: Change| match is_of_research(&change) {
            true => format!("--research={}", change.text),
            false => format!("--with={}", change.text),
        };
        let mounted = self.mounted.then(|| "--mounted".to_owned());
        let changes = self.changes().into_iter().rev().map(flag);
        changes.chain(mounted).collect()
    }
}

/// Parses a list of changes, each as on the command line.
pub fn parsed<T: FromStr<Err = String>>(list: &serde_json::Value) -> Result<Vec<T>, String> {
    let texts = list.as_array().ok_or("it takes a list of NAME=VALUE")?;
    let parse = |text: &serde_json::Value| text.as_str().unwrap_or_default().parse();
    texts.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        split(text).collect()
    }

    #[test]
    fn a_list_of_changes_is_split() {
        assert_eq!(parts("zero=off,dedup=on"), ["zero=off", "dedup=on"]);
        assert_eq!(
            parts("journals=1G+128M,5G+64M,fold=off"),
            ["journals=1G+128M,5G+64M", "fold=off"]
        );
        assert_eq!(
            parts("fold=off,mount-options=data=journal,stripe=4"),
            ["fold=off", "mount-options=data=journal,stripe=4"]
        );
        assert_eq!(parts(""), [""]);
    }

    #[test]
    fn an_invalid_change_is_refused() {
        for (text, told) in [
            ("compress", "NAME=VALUE"),
            ("speed=high", "the layout log also compress, delta"),
            ("speed=high", "ordered, shadow also persistence"),
            ("compress=lzma", "zstd:9"),
            ("hash=md5", "--research hash=VALUE"),
            ("buffer=1", "8M to 8G"),
        ] {
            let error = text.parse::<Change>().err().unwrap_or_default();
            assert!(error.contains(told), "{text}: {error}");
        }
        let of_research = |text: &str| text.parse::<Research>().err().unwrap_or_default();
        assert!(of_research("hash=rot13").contains("sha1"));
        assert!(of_research("write-once=maybe").contains("on, off"));
        assert_eq!(of_research("hash=sha1,write-once=paper,fold=on"), "");
        assert_eq!(of_research("write-once=off,delta=on"), "");
        // A property set by a later version can be reset.
        assert!("rewind=default".parse::<Change>().is_ok());
        assert!("rewind=7d".parse::<Change>().is_err());
    }

    #[test]
    fn the_last_change_of_a_run_counts() {
        let run = Run {
            with: vec![
                "compress=lz4,buffer=16M".parse().unwrap(),
                "compress=off".parse().unwrap(),
            ],
            buffer: Some(Size(32 << 20)),
            journal: vec!["1G+128M".to_owned()],
            research: vec!["hash=md5".parse().unwrap()],
            mounted: false,
        };
        let text = |name| {
            let property = named(name).unwrap();
            run.value_of(property).and_then(|v| property.kind.text(&v))
        };
        assert_eq!(text("compress").as_deref(), Some("off"));
        assert_eq!(text("buffer").as_deref(), Some("32M"));
        assert_eq!(text("journals").as_deref(), Some("1G+128M"));
        assert_eq!(text("fold"), None);
        let flags = run.flags();
        assert!(
            flags.contains(&"--research=hash=md5".to_owned()),
            "{flags:?}"
        );
        assert_eq!(
            flags.last().map(String::as_str),
            Some("--with=journals=1G+128M")
        );
    }
}
