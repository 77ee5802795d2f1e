//! A volume's statistics, with their descriptions from the source: the fields of `VolumeStats` and of the structs
//! in it, and the core's counters.

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::path::Path;

/// The files that define them.
const FILES: &[&str] = &[
    "crates/device/src/stats.rs",
    "crates/device/src/waits.rs",
    "crates/watch/src/journals.rs",
];
const CORE: &str = "crates/core/src/stats.rs";
/// The outermost struct.
const ALL: &str = "VolumeStats";

/// A statistic, or a group of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// Its name in `vellum stats --all`; for an element of a list, the list's name with `[]`.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// Its description, in a sentence or two.
    pub meaning: String,
}

/// A group of statistics under one name, and its description.
#[derive(Debug)]
pub struct Group {
    /// Its name, the prefix of its statistics' names; empty for statistics in no group.
    pub name: String,
    /// Its description.
    pub meaning: String,
    /// Its statistics.
    pub statistics: Vec<Statistic>,
}

/// A field: its name, its type and its description. One whose fields users see in its place has no name.
type Field = (String, String, String);

/// Reads all statistics, in the order of the source.
///
/// # Errors
/// If the source cannot be read, or has another shape.
pub fn read(root: &Path) -> Result<Vec<Group>> {
    let mut structs = BTreeMap::new();
    for path in FILES {
        let text = std::fs::read_to_string(root.join(path)).context(*path)?;
        for item in syn::parse_file(&text)?.items {
            if let syn::Item::Struct(item) = item {
                structs.insert(item.ident.to_string(), fields(&item));
            }
        }
    }
    let core = core_counters(&std::fs::read_to_string(root.join(CORE)).context(CORE)?)?;
    let all = structs
        .get(ALL)
        .with_context(|| format!("there is no {ALL}"))?;
    let mut alone = Vec::new();
    let mut groups = Vec::new();
    for (name, kind, meaning) in all {
        let mut statistics = Vec::new();
        match kind.as_str() {
            "BTreeMap" => statistics.clone_from(&core),
            kind if structs.contains_key(kind) => walk(&structs, (kind, name, ""), &mut statistics),
            kind => alone.push(statistic(name, kind, meaning)),
        }
        if !statistics.is_empty() {
            let (name, meaning) = (name.clone(), meaning.clone());
            groups.push(Group {
                name,
                meaning,
                statistics,
            });
        }
    }
    let (name, meaning) = (String::new(), "Of the whole volume.".to_owned());
    groups.insert(
        0,
        Group {
            name,
            meaning,
            statistics: alone,
        },
    );
    Ok(groups)
}

/// Collects the statistics of one struct, with its name and description, and those of the structs in it.
fn walk(
    structs: &BTreeMap<String, Vec<Field>>,
    (of, name, about): (&str, &str, &str),
    into: &mut Vec<Statistic>,
) {
    for (field, kind, meaning) in &structs[of] {
        if field.is_empty() && structs.contains_key(kind) {
            walk(structs, (kind, name, about), into);
            continue;
        }
        let name = format!("{name}.{field}");
        let meaning = match about {
            "" => meaning.clone(),
            about => format!("{}: {}", about.trim_end_matches('.'), small(meaning)),
        };
        match kind.as_str() {
            inner if structs.contains_key(inner) => walk(structs, (inner, &name, &meaning), into),
            kind => into.push(statistic(&name, kind, &meaning)),
        }
        let listed = kind
            .strip_prefix('[')
            .filter(|it| structs.contains_key(*it));
        if let Some(inner) = listed {
            walk(structs, (inner, &format!("{name}[]"), ""), into);
        }
    }
}

/// Lowers the first letter of a sentence that continues after a colon.
fn small(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.collect::<String>() + letters.as_str()
}

fn statistic(name: &str, kind: &str, meaning: &str) -> Statistic {
    Statistic {
        name: name.to_owned(),
        unit: unit(name, kind),
        meaning: meaning.to_owned(),
    }
}

/// The unit, taken from the end of the name, or else from its beginning or the type. Counts have none.
fn unit(name: &str, kind: &str) -> &'static str {
    const ENDS: [(&str, &str); 5] = [
        ("bytes", "bytes"),
        ("blocks", "blocks"),
        ("_micros", "microseconds"),
        ("_ms", "milliseconds"),
        ("_percent", "per cent"),
    ];
    let last = name.rsplit('.').next().unwrap_or(name);
    let blocks = ["asked_", "whole_", "parts_", "medium_", "blocks_"];
    match kind {
        "bool" => "yes or no",
        "String" => "words",
        list if list.starts_with('[') => "a list",
        _ if last.starts_with("part_bytes") => "bytes",
        _ if last == "micros" => "microseconds",
        _ => match ENDS.iter().find(|(end, _)| last.ends_with(end)) {
            Some((_, unit)) => unit,
            None if blocks.iter().any(|it| last.contains(it)) => "blocks",
            None => "",
        },
    }
}

fn fields(item: &syn::ItemStruct) -> Vec<Field> {
    let named = item.fields.iter().filter_map(|field| {
        let name = match is_flattened(&field.attrs) {
            true => String::new(),
            false => field.ident.as_ref()?.to_string(),
        };
        Some((name, innermost(&field.ty), docs(&field.attrs)))
    });
    named.collect()
}

/// True if the fields of a field are written in its place.
fn is_flattened(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let word = attribute.parse_args::<syn::Ident>();
        attribute.path().is_ident("serde") && word.is_ok_and(|word| word == "flatten")
    })
}

/// The name of a type. For an optional type, the inner one; for a list, `[` and the name of its element.
fn innermost(kind: &syn::Type) -> String {
    if let syn::Type::Array(of) = kind {
        return format!("[{}", innermost(&of.elem));
    }
    let syn::Type::Path(path) = kind else {
        return String::new();
    };
    let Some(last) = path.path.segments.last() else {
        return String::new();
    };
    match &last.arguments {
        syn::PathArguments::AngleBracketed(of) => match (of.args.first(), &last.ident) {
            (Some(syn::GenericArgument::Type(inner)), name) if name == "Option" => innermost(inner),
            (Some(syn::GenericArgument::Type(inner)), name) if name == "Vec" => {
                format!("[{}", innermost(inner))
            }
            _ => last.ident.to_string(),
        },
        _ => last.ident.to_string(),
    }
}

/// The text of documentation comments.
fn docs(attributes: &[syn::Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(it) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) = &it.value
        else {
            return None;
        };
        it.path
            .is_ident("doc")
            .then(|| text.value().trim().to_owned())
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// Reads the core's counters from the call of their macro: attributes, and names with commas.
fn core_counters(text: &str) -> Result<Vec<Statistic>> {
    let file = syn::parse_file(text)?;
    let called = file.items.into_iter().find_map(|item| match item {
        syn::Item::Macro(it) if it.mac.path.is_ident("counters") => Some(it.mac.tokens),
        _ => None,
    });
    let tokens = called.context("counters! is not called")?;
    let mut found = Vec::new();
    let mut attributes = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                let item: syn::ItemStruct = syn::parse2(attributes_of(attributes))?;
                attributes = TokenStream::new();
                found.push(statistic(
                    &format!("core.{name}"),
                    "u64",
                    &docs(&item.attrs),
                ));
            }
            TokenTree::Punct(it) if it.as_char() == ',' => {}
            other => attributes.extend([other]),
        }
    }
    Ok(found)
}

/// Attributes are parsed together with the item they belong to.
fn attributes_of(mut attributes: TokenStream) -> TokenStream {
    let nothing: Result<TokenStream, _> = "struct Nothing;".parse();
    attributes.extend(nothing.unwrap_or_default());
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counters_description_is_found() {
        let text =
            "counters! {\n /// Blocks that\n /// came.\n came_blocks,\n /// Gauge: b.\n b,\n}";
        let found = core_counters(text).unwrap();
        assert_eq!(
            found[0],
            statistic("core.came_blocks", "u64", "Blocks that came.")
        );
        assert_eq!((found[0].unit, found[1].unit), ("blocks", ""));
        assert_eq!(found[1].meaning, "Gauge: b.");
    }

    #[test]
    fn groups_have_their_statistics() {
        let groups = read(&crate::root()).unwrap();
        let all: Vec<_> = groups.iter().flat_map(|it| &it.statistics).collect();
        for (name, unit) in [
            ("write_amplification", ""),
            ("clients.read.bytes", "bytes"),
            ("medium.syncs", ""),
            ("medium.read_fold_bytes", "bytes"),
            ("flushes.waited.most_micros", "microseconds"),
            ("room.level", "words"),
            ("write_once.file_systems", "a list"),
            ("write_once.file_systems[].not_replayed", "words"),
            ("core.part_bytes_data", "bytes"),
            ("core.asked_data", "blocks"),
            ("poisoned", "yes or no"),
        ] {
            let found = all.iter().find(|it| it.name == name);
            assert_eq!(found.map(|it| it.unit), Some(unit), "{name}");
        }
        assert!(all.iter().all(|it| !it.meaning.is_empty()));
        let reads = all.iter().find(|it| it.name == "clients.read.requests");
        assert_eq!(reads.unwrap().meaning, "Reads: how many.");
    }
}
