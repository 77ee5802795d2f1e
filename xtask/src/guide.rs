//! Checks the guide in docs/guide: its table of contents lists all pages, and each page links a glossary term at its first use.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The folder of the pages.
pub const SOURCE: &str = "docs/guide/src";

/// Technical words. If a page uses one, the glossary must explain it.
const TRADE: &[&str] = &[
    "absorbed",
    "archive",
    "block",
    "block device",
    "checksum",
    "chunk",
    "collector",
    "commit",
    "compression",
    "control socket",
    "deduplication",
    "delta",
    "discard",
    "durable",
    "edition",
    "erase unit",
    "export",
    "fingerprint",
    "flash page",
    "flash translation layer",
    "flush",
    "fold",
    "frame",
    "ftl",
    "fua",
    "garbage collection",
    "home write",
    "index of contents",
    "journal",
    "key file",
    "layout",
    "lba",
    "leaf",
    "log",
    "map",
    "map checkpoint",
    "medium",
    "metadata",
    "nbd",
    "over-provisioning",
    "pack",
    "pba",
    "pledge",
    "poisoned",
    "property",
    "quarantined",
    "recovery",
    "remap",
    "replay",
    "scout",
    "scrub",
    "segment",
    "shared page",
    "sparse file",
    "stray",
    "summary",
    "superblock",
    "sweep",
    "sync",
    "thin volume",
    "trace",
    "transaction",
    "ublk",
    "uuid",
    "vba",
    "victim",
    "volume",
    "wear",
    "write amplification",
    "write-once",
];

/// Returns the pages in the order of the table of contents: path below `SOURCE`, and text.
///
/// # Errors
/// If one cannot be read.
pub fn pages(root: &Path) -> Result<Vec<(String, String)>> {
    let source = root.join(SOURCE);
    let summary = std::fs::read_to_string(source.join("SUMMARY.md"))?;
    let named = summary.lines().filter_map(|line| {
        let (_, target) = line.split_once("](")?;
        Some(target.split_once(')')?.0.to_owned())
    });
    named
        .map(|name| {
            let text = std::fs::read_to_string(source.join(&name))
                .with_context(|| format!("{name} of the table of contents"))?;
            Ok((name, text))
        })
        .collect()
}

/// Complains about the guide.
///
/// # Errors
/// If it cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let pages = pages(root)?;
    let mut complaints = Vec::new();
    for path in crate::text::sources(root, "md")? {
        let Ok(name) = path.strip_prefix(SOURCE) else {
            continue;
        };
        let is_named = pages.iter().any(|(page, _)| Path::new(page) == name);
        if !is_named && name != Path::new("SUMMARY.md") {
            complaints.push(format!("{SOURCE}/SUMMARY.md: it has no {}", name.display()));
        }
    }
    let glossary = pages.iter().find(|(name, _)| name == "glossary.md");
    let terms = terms(glossary.map_or("", |(_, text)| text));
    for (name, text) in &pages {
        let of_page = check_page(text, &terms, name == "glossary.md");
        complaints.extend(of_page.iter().map(|it| format!("{SOURCE}/{name}:{it}")));
    }
    Ok(complaints)
}

/// The terms that a glossary explains, each with its anchor.
#[must_use]
pub fn terms(glossary: &str) -> BTreeMap<String, String> {
    let headings = glossary.lines().filter_map(|line| line.strip_prefix("## "));
    headings
        .map(|heading| {
            let term = heading.to_lowercase();
            let anchor = term.replace(' ', "-");
            (term, anchor)
        })
        .collect()
}

/// Links the first use of each term in a text to the glossary.
#[must_use]
pub fn linked(text: &str, terms: &BTreeMap<String, String>, glossary: &str) -> String {
    let mut text = text.to_owned();
    loop {
        let uses = first_uses(&text, terms.keys().map(String::as_str));
        let links = links(&text);
        let bare = uses
            .iter()
            .find(|(_, at)| !links.iter().any(|(of, _)| holds(of, at)));
        let Some((term, at)) = bare else {
            return text;
        };
        let link = format!("[{}]({glossary}#{})", &text[at.clone()], terms[*term]);
        text.replace_range(at.clone(), &link);
    }
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Complains about a page, with the line of each complaint.
fn check_page(text: &str, terms: &BTreeMap<String, String>, is_glossary: bool) -> Vec<String> {
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let known = terms.keys().map(String::as_str);
    let uses = first_uses(text, known.chain(TRADE.iter().copied()));
    let links = links(text);
    let mut complaints = Vec::new();
    for (term, at) in uses {
        let Some(anchor) = terms.get(term) else {
            complaints.push(format!(
                "{}: {term:?} is not in the glossary",
                line(at.start)
            ));
            continue;
        };
        let target = format!("glossary.md#{anchor}");
        let leads = |(of, to): &(Range<usize>, &str)| holds(of, &at) && to.ends_with(&target);
        if !is_glossary && !links.iter().any(leads) {
            complaints.push(format!(
                "{}: the first {term:?} is no link to {target}",
                line(at.start)
            ));
        }
    }
    complaints
}

/// The range of each link's words, and its target.
fn links(text: &str) -> Vec<(Range<usize>, &str)> {
    let found = text.match_indices("](").filter_map(|(at, _)| {
        let begin = text[..at].rfind('[')? + 1;
        let target = &text[at + 2..];
        Some((begin..at, &target[..target.find(')')?]))
    });
    found.collect()
}

/// Returns the first place of each term in a page's prose. It ignores parts of longer terms and the words of links
/// that do not lead to the glossary.
fn first_uses<'t>(
    text: &str,
    terms: impl Iterator<Item = &'t str>,
) -> Vec<(&'t str, Range<usize>)> {
    let prose = prose(text);
    let mut terms: Vec<_> = terms.collect();
    terms.sort_unstable_by_key(|term| (std::cmp::Reverse(term.len()), *term));
    terms.dedup();
    let elsewhere = links(text)
        .into_iter()
        .filter(|(_, to)| !to.contains("glossary.md#"));
    let mut taken: Vec<Range<usize>> = elsewhere.map(|(words, _)| words).collect();
    let mut uses = Vec::new();
    for term in terms {
        let found: Vec<_> = prose
            .match_indices(term)
            .filter_map(|(at, _)| whole_word(&prose, at..at + term.len()))
            .filter(|at| !taken.iter().any(|longer| holds(longer, at)))
            .collect();
        uses.extend(found.first().map(|at| (term, at.clone())));
        taken.extend(found);
    }
    uses.sort_unstable_by_key(|(_, at): &(&str, Range<usize>)| at.start);
    uses
}

/// Extends a match to the whole word, including a plural ending; `None` if it is only a part of a word.
fn whole_word(text: &str, at: Range<usize>) -> Option<Range<usize>> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '=');
    if text[..at.start].ends_with(is_part) {
        return None;
    }
    let rest = &text[at.end..];
    let more = ["", "s", "es"].into_iter().find(|end| {
        rest.strip_prefix(end)
            .is_some_and(|rest| !rest.starts_with(is_part))
    })?;
    Some(at.start..at.end + more.len())
}

/// The page in lower case with its code, headings, comments and link targets blanked out. Its length stays the same.
fn prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let (mut is_fenced, mut is_comment) = (false, false);
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        is_fenced ^= fence;
        is_comment |= line.starts_with("<!--");
        match is_fenced || fence || is_comment || line.starts_with('#') {
            true => prose.extend(line.chars().flat_map(blank)),
            false => blank_code(line, &mut prose),
        }
        is_comment &= !line.contains("-->");
    }
    prose
}

/// As many blanks as the letter has bytes.
fn blank(letter: char) -> impl Iterator<Item = char> {
    let is_end = letter == '\n';
    std::iter::repeat_n(if is_end { '\n' } else { ' ' }, letter.len_utf8())
}

fn blank_code(line: &str, into: &mut String) {
    let (mut is_code, mut is_target) = (false, false);
    let mut before = ' ';
    for letter in line.chars() {
        is_target |= before == ']' && letter == '(';
        is_code ^= letter == '`';
        match is_code || is_target || !letter.is_ascii() {
            true => into.extend(blank(letter)),
            false => into.push(letter.to_ascii_lowercase()),
        }
        is_target &= letter != ')';
        before = letter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Words\n\n## Map\n\nA.\n\n## Map checkpoint\n\nB.\n";

    #[test]
    fn a_term_is_linked_where_it_is_first_used() {
        let terms = terms(GLOSSARY);
        assert_eq!(terms["map checkpoint"], "map-checkpoint");
        let complaints = |page| check_page(page, &terms, false);
        let fine = "# The map\n\n`map`\n\n```sh\nmap\n```\n[map](glossary.md#map), and the map, remapped.\n";
        assert_eq!(complaints(fine), Vec::<String>::new());
        for (page, says) in [
            ("a\nMaps here", "2: the first \"map\" is no link"),
            (
                "[a map](map.md) is\na map",
                "2: the first \"map\" is no link",
            ),
            (
                "[map checkpoint](glossary.md#map)",
                "1: the first \"map checkpoint\" is no link",
            ),
            ("the segments", "1: \"segment\" is not in the glossary"),
        ] {
            let found = complaints(page);
            assert_eq!(found.len(), 1, "{page}: {found:?}");
            assert!(found[0].starts_with(says), "{page}: {found:?}");
        }
    }

    #[test]
    fn links_are_made() {
        let terms = terms(GLOSSARY);
        assert_eq!(
            linked(
                "`map` of=map maps: a map checkpoint",
                &terms,
                "../glossary.md"
            ),
            "`map` of=map [maps](../glossary.md#map): a [map checkpoint](../glossary.md#map-checkpoint)"
        );
    }
}
