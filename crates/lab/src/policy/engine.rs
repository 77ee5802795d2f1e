//! The engine's options in the lab: those in the table of policies that the lab has, and how it stores each.

use crate::base::{Levelling, THRESHOLD};
use crate::vellum::{Placing, Tidying};
use vellum_core::engine::VictimPolicy;
use vellum_core::format::areas::Layout;
use vellum_core::seam::{Decide, DedupPolicy, WriteOnce};
use vellum_core::service::pace::Haste;
use vellum_core::tables::Persistence;
use vellum_policies::size::{Size, exact};
use vellum_policies::table::{Row, TABLE};
use vellum_policies::words::{Deltas, rule_name, rule_named, store_name, store_named};

/// Default memory of the index of contents.
const INDEX_BYTES: usize = 64 << 20;
/// How two contents are found to be equal: by their bytes, or by a fingerprint with one of these hashes. In the lab
/// they differ only in name; the time one takes is an option of the run.
const DECIDE: [&str; 5] = ["compare", "blake3", "sha256", "sha1", "md5"];

/// The engine's options; by default it saves nothing but zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// How its collector chooses.
    pub victim: VictimPolicy,
    /// True if zeros are only a map entry.
    pub zero: bool,
    /// True if equal blocks are stored once.
    pub dedup: bool,
    /// How: its index, whose memory counts only then.
    pub index: DedupPolicy,
    /// True if compressible blocks share pages.
    pub compress: bool,
    /// Whether and where blocks are stored as differences from the blocks they replace, if that is smaller.
    pub deltas: Deltas,
    /// What is done about blocks that a journal already holds.
    pub write_once: WriteOnce,
    /// True if the volume replays what a journal has committed: then the flush after home writes is free.
    pub replay: bool,
    /// True if blocks that a file system has freed are dropped.
    pub freed: bool,
    /// The services that run beside the clients.
    pub tidying: Tidying,
    /// Where blocks go, and when they are durable.
    pub placing: Placing,
    /// True if it runs above a drive with a page map, instead of directly on flash.
    pub on_drive: bool,
    /// True if it names a placement handle of that drive with each write.
    pub handles: bool,
    /// What that drive does about uneven wear.
    pub levelling: Levelling,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            victim: VictimPolicy::Greedy,
            zero: true,
            dedup: false,
            index: DedupPolicy {
                index_bytes: INDEX_BYTES,
                ..DedupPolicy::default()
            },
            compress: false,
            deltas: Deltas::Off,
            write_once: WriteOnce::Off,
            replay: false,
            freed: false,
            tidying: Tidying::default(),
            placing: Placing::default(),
            on_drive: false,
            handles: false,
            levelling: Levelling::default(),
        }
    }
}

/// How an option is read and written.
struct Access {
    name: &'static str,
    /// Its values here, if they are not those of the table.
    takes: Option<&'static str>,
    get: fn(&Engine) -> String,
    /// `None`: not a value here.
    put: fn(&mut Engine, &str) -> Option<()>,
}

const fn access(
    name: &'static str,
    get: fn(&Engine) -> String,
    put: fn(&mut Engine, &str) -> Option<()>,
) -> Access {
    Access {
        name,
        takes: None,
        get,
        put,
    }
}

impl Access {
    const fn takes(self, values: &'static str) -> Self {
        Self {
            takes: Some(values),
            ..self
        }
    }

    fn values(&self) -> String {
        let of_rows = || {
            let values: Vec<_> = rows(self.name).map(|row| row.kind.values()).collect();
            values.join(", ")
        };
        self.takes.map_or_else(of_rows, str::to_string)
    }
}

macro_rules! switch {
    ($name:literal, $($field:ident).+) => {
        access(
            $name,
            |engine| if engine.$($field).+ { "on" } else { "off" }.into(),
            |engine, text| {
                engine.$($field).+ = text == "on";
                Some(())
            },
        )
    };
}

macro_rules! word {
    ($name:literal, $($field:ident).+, $show:expr, $read:expr) => {
        access(
            $name,
            |engine| String::from($show(engine.$($field).+)),
            |engine, text| {
                engine.$($field).+ = $read(text)?;
                Some(())
            },
        )
    };
}

/// In the order in which they are shown.
static OPTIONS: &[Access] = &[
    word!("victim", victim, VictimPolicy::name, VictimPolicy::named),
    switch!("zero", zero),
    switch!("dedup", dedup),
    word!(
        "dedup-memory",
        index.index_bytes,
        |bytes| exact(bytes as u64),
        bytes
    )
    .takes("4K to 64G"),
    word!("sample", index.sample_blocks, sample, sample_blocks),
    word!("store", index.store, store_name, store_named),
    word!("decide", index.decide, decide_name, decide_named),
    word!(
        "compress",
        compress,
        |on| if on { "zstd" } else { "off" },
        compress
    )
    .takes("on, off (how long a block is then, the trace or --sizes tells)"),
    word!("delta", deltas, Deltas::name, Deltas::named),
    word!("write-once", write_once, rule_name, rule_named),
    word!(
        "replay",
        replay,
        |on| if on { "on" } else { "off" },
        replays
    )
    .takes("on, off"),
    switch!("freed", freed),
    word!("fold", tidying.fold, haste_name, haste_named),
    word!("sweep", tidying.sweep, haste_name, haste_named),
    word!("layout", placing.layout, Layout::name, layout_named),
    word!(
        "persistence",
        placing.persistence,
        persistence_name,
        persistence_named
    ),
    switch!("merging", placing.merging),
    switch!("anticipation", placing.anticipation),
    switch!("on-drive", on_drive),
    switch!("handles", handles),
    switch!("level-dynamic", levelling.dynamic),
    word!("level-static", levelling.threshold, threshold, threshold_of)
        .takes("on, off, 1 to 100000"),
];

fn bytes(text: &str) -> Option<usize> {
    let Size(bytes) = text.parse().ok()?;
    usize::try_from(bytes).ok()
}

fn sample(blocks: u32) -> String {
    match blocks {
        0 => "off".into(),
        blocks => exact(u64::from(blocks) * 4096),
    }
}

fn sample_blocks(text: &str) -> Option<u32> {
    match text {
        "off" => Some(0),
        text => Some(bytes(text)? as u32 / 4096),
    }
}

fn decide_name(decide: Decide) -> &'static str {
    match decide {
        Decide::Compare => DECIDE[0],
        Decide::Fingerprint(hash) => DECIDE.get(usize::from(hash) + 1).unwrap_or(&DECIDE[1]),
    }
}

fn decide_named(text: &str) -> Option<Decide> {
    match DECIDE.iter().position(|name| *name == text)? {
        0 => Some(Decide::Compare),
        hash => Some(Decide::Fingerprint(hash as u8 - 1)),
    }
}

/// Compression is by a model of sizes, which has only one method.
fn compress(text: &str) -> Option<bool> {
    match text {
        "zstd" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// There is no `attach` here that could decide.
fn replays(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// `on` means beside clients.
fn haste_name(haste: Option<Haste>) -> &'static str {
    match haste {
        None => "off",
        Some(Haste::Now) => "now",
        Some(_) => "on",
    }
}

fn haste_named(text: &str) -> Option<Option<Haste>> {
    let all = [None, Some(Haste::Beside), Some(Haste::Now)];
    all.into_iter().find(|haste| haste_name(*haste) == text)
}

fn layout_named(text: &str) -> Option<Layout> {
    let all = [Layout::Log, Layout::Ordered, Layout::Shadow];
    all.into_iter().find(|layout| layout.name() == text)
}

fn persistence_name(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::Weak => "weak",
        Persistence::Strong => "strong",
    }
}

fn persistence_named(text: &str) -> Option<Persistence> {
    let all = [Persistence::Weak, Persistence::Strong];
    all.into_iter()
        .find(|persistence| persistence_name(*persistence) == text)
}

fn threshold(erasures: Option<u32>) -> String {
    match erasures {
        None => "off".into(),
        Some(THRESHOLD) => "on".into(),
        Some(erasures) => erasures.to_string(),
    }
}

fn threshold_of(text: &str) -> Option<Option<u32>> {
    match text {
        "off" => Some(None),
        "on" => Some(Some(THRESHOLD)),
        erasures => Some(Some(erasures.parse().ok()?)),
    }
}

/// The rows with this name that the lab has.
fn rows(name: &str) -> impl Iterator<Item = &'static Row> + '_ {
    let of_lab = move |row: &&&Row| row.lab.is_some() && row.name == name;
    TABLE.iter().filter(of_lab).copied()
}

/// A value as it is shown, if it is valid.
fn value(name: &str, text: &str) -> Option<String> {
    rows(name).find_map(|row| row.kind.text(&row.kind.parse(text).ok()?))
}

/// All options of the lab, in order, with their values and rows.
pub(super) fn known() -> impl Iterator<Item = (&'static str, String, Vec<&'static Row>)> {
    OPTIONS
        .iter()
        .map(|option| (option.name, option.values(), rows(option.name).collect()))
}

impl Engine {
    /// The settings of deduplication; off if contents are not deduplicated.
    #[must_use]
    pub fn core_dedup(&self) -> DedupPolicy {
        DedupPolicy {
            index_bytes: if self.dedup {
                self.index.index_bytes
            } else {
                0
            },
            ..self.index
        }
    }

    /// Sets an option; `NAME` is `NAME=on`.
    pub(super) fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, text) = option.split_once('=').unwrap_or((option, "on"));
        let Some(known) = OPTIONS.iter().find(|option| option.name == name) else {
            let names: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
            return Err(format!("vellum takes {}, op", names.join(", ")));
        };
        let taken = value(name, text).and_then(|text| (known.put)(self, &text));
        taken.ok_or_else(|| format!("{name} is one of: {}", known.values()))
    }

    /// The options that differ from the default.
    pub(super) fn shown(&self) -> impl Iterator<Item = String> + '_ {
        let chosen = OPTIONS.iter().filter_map(|Access { name, get, .. }| {
            let text = get(self);
            let is_usual = rows(name).any(|row| row.lab == Some(&text));
            (!is_usual).then_some((name, text))
        });
        chosen.map(|(name, text)| match value(name, "on") {
            Some(on) if on == text => (*name).to_string(),
            _ => format!("{name}={text}"),
        })
    }

    /// Why its options contradict each other, if they do.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        if self.levelling != Levelling::default() && !self.on_drive {
            return Some(
                "the engine's own collector does not level wear: level-dynamic and level-static need \
                 on-drive",
            );
        }
        if self.handles && !(self.on_drive && self.placing.layout == Layout::Log) {
            return Some(
                "placement handles are a drive's, and the log's heads name them: handles needs \
                 on-drive, and layout=log",
            );
        }
        match self.placing.layout {
            Layout::Log => self.contradiction_of_log(),
            _ => self.contradiction_of_tables(),
        }
    }

    fn contradiction_of_log(&self) -> Option<&'static str> {
        if !self.placing.merging || !self.placing.anticipation {
            return Some("merging and anticipation are of tables: layout=ordered or layout=shadow");
        }
        if self.deltas.are_made() && !self.compress {
            return Some(
                "deltas are made of blocks that are stored in fewer bytes: they need compress",
            );
        }
        if self.replay && self.write_once == WriteOnce::Off {
            return Some("replay is of blocks that a journal holds already: it needs write-once");
        }
        (self.tidying.fold.is_some() && !self.compress)
            .then_some("only pages of blocks in fewer bytes can be folded: fold needs compress")
    }

    fn contradiction_of_tables(&self) -> Option<&'static str> {
        if self.tidying != Tidying::default() {
            return Some("tables in place have nothing to go by: fold and sweep need layout=log");
        }
        if self.replay {
            return Some("tables in place write a map entry by itself: replay needs layout=log");
        }
        if self.compress {
            return Some("tables in place hold whole blocks: compress needs layout=log");
        }
        if self.victim != VictimPolicy::Greedy {
            return Some("tables in place have no collector: victim needs layout=log");
        }
        (self.index.decide != Decide::Compare)
            .then_some("tables in place compare bytes: decide needs layout=log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_lab_is_an_option_with_the_rows_default() {
        let usual = Engine::default();
        for row in TABLE.iter().filter(|row| row.lab.is_some()) {
            let option = OPTIONS.iter().find(|option| option.name == row.name);
            let option = option.unwrap_or_else(|| panic!("{} is no option", row.name));
            assert_eq!(Some((option.get)(&usual).as_str()), row.lab, "{}", row.name);
        }
        for option in OPTIONS {
            assert!(rows(option.name).next().is_some(), "{}", option.name);
        }
        assert_eq!(usual.shown().next(), None);
    }

    #[test]
    fn each_word_of_a_row_is_accepted_and_shown_again() {
        use vellum_policies::kind::Kind;
        for row in TABLE.iter().filter(|row| row.lab.is_some()) {
            let words: &[&str] = match row.kind {
                Kind::Switch => &["on", "off"],
                Kind::Choice(words) => words,
                _ => continue,
            };
            for word in words {
                if (row.name, *word) == ("replay", "auto") {
                    continue;
                }
                let mut engine = Engine::default();
                engine.set(&format!("{}={word}", row.name)).unwrap();
                let mut again = Engine::default();
                engine
                    .shown()
                    .for_each(|option| again.set(&option).unwrap());
                assert_eq!(engine, again, "{}={word}", row.name);
            }
        }
    }
}
