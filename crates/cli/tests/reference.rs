//! The guide's reference, and the options known in Python, match the code. `UPDATE=1` rewrites them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, ok, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use vellum_options::setup::Setup;
use vellum_options::words;
use vellum_policies::kind::Kind;
use vellum_policies::table::{TABLE, Tier};
use xtask::{guide, root, statistics};

/// Below docs/guide/src, and the command that generates it.
const FOLDER: &str = "reference";
const MAKE: &str = "UPDATE=1 cargo test -p vellum-cli --test reference";

/// Compares a page with its wanted text, or writes it.
fn hold(name: &str, wanted: &str) {
    let source = root().join(guide::SOURCE);
    let glossary = std::fs::read_to_string(source.join("glossary.md")).unwrap();
    let wanted = guide::linked(wanted, &guide::terms(&glossary), "../glossary.md");
    hold_at(&source.join(FOLDER).join(name), &wanted);
}

fn hold_at(path: &Path, wanted: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, wanted).unwrap();
        return;
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "{} differs from the code: {MAKE}",
        path.display()
    );
}

/// Returns a row of a table.
fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Returns a sentence: it begins with a capital letter and ends with a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map_or(String::new(), |it| it.to_uppercase().collect());
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

#[test]
fn commands() {
    let mut page = "# Commands\n\nWhat each command says with `--help`. All of them take `--help`, \
        `--version` and `--config`, too. The commands of the [lab](../../../LAB.md) say it themselves.\n"
        .to_owned();
    let mut all = vellum_cli::command_line().term_width(100);
    all.build();
    tell_command(&all, &mut page);
    hold("commands.md", &page);
}

fn tell_command(command: &clap::Command, page: &mut String) {
    let is_first = command.get_name() == "vellum";
    let of_all = |id: &str| !is_first && ["config", "help", "version"].contains(&id);
    let own = command.clone().term_width(100).mut_args(|it| {
        let is_left_out = it.is_hide_set() || of_all(it.get_id().as_str());
        it.hide(is_left_out)
    });
    let help = { own }.render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let _ = write!(
        page,
        "\n## {name}\n\n```text\n{}\n```\n",
        lines.join("\n").trim_end()
    );
    if command.get_name() == "lab" {
        return;
    }
    let inner = command.get_subcommands();
    let shown = inner.filter(|it| it.get_name() != "help" && !it.is_hide_set());
    shown.for_each(|it| tell_command(it, page));
}

/// Returns all properties of a volume of this layout.
fn properties_of(layout: &str) -> Vec<Value> {
    let dir = dir();
    let path = dir.path().join("volume");
    ok(&["create", text(&path), "--size=64M", "--layout", layout]);
    let told: Value = serde_json::from_str(&ok(&["get", text(&path), "--all", "--json"])).unwrap();
    told.get("properties")
        .and_then(Value::as_array)
        .cloned()
        .unwrap()
}

#[test]
fn properties() {
    let mut all = properties_of("log");
    let field =
        |of: &Value, key: &str| of.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    for other in properties_of("ordered") {
        if all
            .iter()
            .all(|it| field(it, "name") != field(&other, "name"))
        {
            all.push(other);
        }
    }
    let mut page = "# Properties\n\nHow to choose them is told in [Properties](../properties.md). \
        A default is that of the layout `log`, where that has the property.\n"
        .to_owned();
    for (is_everyday, heading) in [(true, "For everyone"), (false, "Seldom needed")] {
        let _ = write!(page, "\n## {heading}\n");
        let is_one = |it: &&Value| it.get("everyday").and_then(Value::as_bool) == Some(is_everyday);
        for property in all.iter().filter(is_one) {
            let get = |key| field(property, key);
            let default = match get("default") {
                none if none.is_empty() => "none".to_owned(),
                some => format!("`{some}`"),
            };
            let _ = write!(
                page,
                "\n### `{}`\n\n{}\n\n",
                get("name"),
                sentence(&get("does"))
            );
            page += "| | |\n| --- | --- |\n";
            page += &row(&["values", &get("values")]);
            page += &row(&["default", &default]);
            page += &row(&["brings and costs", &get("brings_and_costs")]);
            page += &row(&["layouts", &get("layouts")]);
            page += &row(&["a change counts", &get("counts")]);
        }
    }
    hold("properties.md", &page);
}

/// Returns what a server of a volume reports.
fn told_by_a_server<T>(layout: &str, ask: impl FnOnce(&str) -> T) -> T {
    let dir = dir();
    let (path, socket) = (dir.path().join("volume"), dir.path().join("socket"));
    ok(&["create", text(&path), "--size=64M", "--layout", layout]);
    let _server = Server::start(dir.path(), &[text(&path), "--socket", text(&socket)]);
    ask(text(&path))
}

/// Collects the names of all numbers and words below a value.
fn names(value: &Value, name: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let dot = if name.is_empty() { "" } else { "." };
            names(value, &format!("{name}{dot}{key}"), into);
        }),
        Value::Array(_) => {}
        _ => {
            into.insert(name.to_owned());
        }
    }
}

#[test]
fn statistics_of_a_volume() {
    let groups = statistics::read(&root()).unwrap();
    let mut page =
        "# Statistics\n\n`vellum stats VOLUME --all` shows them, a line each. `--json` has them \
        in `stats`, and the lists. They count from the start of the server. What begins with \
        *Now* is as it is at the moment. A block is 4096 bytes, and a page is a flash page. \
        What has no unit is counted by the piece.\n"
            .to_owned();
    for group in &groups {
        let heading = if group.name.is_empty() {
            "all"
        } else {
            &group.name
        };
        let _ = write!(page, "\n## {heading}\n\n{}\n\n", group.meaning);
        page += "| name | unit | meaning |\n| --- | --- | --- |\n";
        for it in &group.statistics {
            let meaning = it
                .meaning
                .strip_prefix("Gauge: ")
                .map(|now| format!("Now: {now}"));
            let meaning = meaning.as_ref().unwrap_or(&it.meaning);
            page += &row(&[&format!("`{}`", it.name), it.unit, meaning]);
        }
    }
    hold("statistics.md", &page);

    // It lists exactly what a server reports.
    let told = told_by_a_server("log", |path| ok(&["stats", path, "--json"]));
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut live = BTreeSet::new();
    names(told.pointer("/0/stats").unwrap(), "", &mut live);
    let known = groups.iter().flat_map(|it| &it.statistics);
    let known = known.filter(|it| it.unit != "a list" && !it.name.contains("[]"));
    let known: BTreeSet<_> = known.map(|it| it.name.clone()).collect();
    let other: Vec<_> = known.symmetric_difference(&live).collect();
    assert!(other.is_empty(), "only in one of the two: {other:?}");
}

#[test]
fn metrics() {
    let told = told_by_a_server("log", |_| ok(&["metrics"]));
    let mut page = "# Metrics\n\nWhat `vellum metrics` tells. Each has the labels `uuid` and `volume`, the \
        path. A *counter* grows as long as the server runs. A *gauge* is as it is now. A *histogram* \
        counts by size. What is of a drive has the label `drive` instead. \
        Units are the ends of names: `_bytes`, `_seconds`.\n\n\
        | name | kind | labels | meaning |\n| --- | --- | --- | --- |\n"
        .to_owned();
    let lines = |of: &'static str| {
        let found = told
            .lines()
            .filter_map(move |line| line.strip_prefix(of)?.split_once(' '));
        found.collect::<Vec<_>>()
    };
    let kinds: BTreeMap<_, _> = lines("# TYPE ").into_iter().collect();
    for (name, meaning) in lines("# HELP ") {
        let samples = told
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix("{uuid="));
        let labels: BTreeSet<_> = samples
            .filter_map(|it| it.split('}').next()?.rsplit(',').next())
            .collect();
        let own: Vec<_> = labels
            .iter()
            .filter(|it| !it.starts_with("volume="))
            .map(|it| format!("`{it}`"))
            .collect();
        page += &row(&[
            &format!("`{name}`"),
            kinds[name],
            &own.join(" "),
            &sentence(meaning),
        ]);
    }
    hold("metrics.md", &page);
}

/// Below docs/internals, for authors of policies.
#[test]
fn policies() {
    let mut page = format!(
        "# All that may be chosen\n\nOne row each of `crates/policies/src/table.rs`, made by \
         `{MAKE}`. *In the lab* is what it is there unless it is chosen; without a word the lab \
         does not have it. For whom: properties that are *everyday* or *seldom* needed are told \
         in the [guide](../guide/src/properties.md), *research* is `--research`, told in [What \
         is there to be studied](research.md), and *lab* is of [the lab](../LAB.md) alone.\n\n| \
         name | values | default | in the lab | layouts | for whom | what it does | what it \
         brings and costs |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for one in TABLE {
        assert!(!one.cost.is_empty(), "{}: it costs something", one.name);
        let word = |text: &str| match text {
            "" => String::new(),
            text => format!("`{text}`"),
        };
        let tier = match one.tier {
            Tier::Everyday => "everyday",
            Tier::Seldom => "seldom",
            Tier::Research => "research",
            Tier::Lab => "lab",
        };
        page += &row(&[
            &word(one.name),
            &one.kind.values(),
            &word(one.default),
            &word(one.lab.unwrap_or_default()),
            one.has.names(),
            tier,
            &sentence(one.doc),
            &sentence(one.cost),
        ]);
    }
    hold_at(&root().join("docs/internals/policies.md"), &page);
}

/// What type checkers know of the lab in Python.
#[test]
fn options_in_python() {
    // These are separate parameters, or of the command alone.
    let own = ["workload", "device", "tenant", "fio"];
    let (mut about, mut types) = (String::new(), String::new());
    for told in words::list::<Setup>() {
        if own.contains(&told.name.as_str()) {
            continue;
        }
        let name = told.name.replace('-', "_");
        let help = words::in_python(&told.help);
        let help: Vec<_> = help.split_whitespace().collect();
        let _ = writeln!(about, "    {name}: {}", help.join(" "));
        let kind = if told.takes_value { "Value" } else { "bool" };
        let _ = writeln!(types, "    {name}: {kind} | None");
    }
    let page = format!(
        "\"\"\"The options of a run. Made from the lab's own: {MAKE}.\"\"\"\n\n\
        from typing import TypedDict\n\n\
        Value = str | int | float\n\n\n\
        class Options(TypedDict, total=False):\n    \
        r\"\"\"The options of a run, as `vellum lab run` has them. \
        Sizes are numbers of bytes or like \"10G\".\n\n{about}    \"\"\"\n\n{types}"
    );
    hold_at(&root().join("py/python/vellum/options.py"), &page);
}

#[test]
fn each_research_mechanism_is_documented() {
    let page = std::fs::read_to_string(root().join("docs/internals/research.md")).unwrap();
    for one in TABLE.iter().filter(|one| one.tier == Tier::Research) {
        let begin = format!("| `{}` | ", one.name);
        let told = page.lines().find(|line| line.starts_with(&begin));
        let told = told.unwrap_or_else(|| panic!("{} is not in research.md", one.name));
        if let Kind::Choice(words) = one.kind {
            for word in words {
                // `caftl-hot` is listed as `-hot`, after `caftl`.
                let tail = word.strip_prefix("caftl").filter(|tail| !tail.is_empty());
                let is_told = told.contains(&format!("`{word}`"))
                    || tail.is_some_and(|tail| told.contains(&format!("`{tail}`")));
                assert!(is_told, "{}={word} is not in research.md", one.name);
            }
        }
    }
}
