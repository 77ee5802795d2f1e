//! Checks that every link in the documentation leads to an existing file, and to an existing heading in it.

use crate::text::sources;
use std::path::Path;

/// Complains about broken links between Markdown files.
///
/// # Errors
/// If they cannot be read.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    for path in sources(root, "md")? {
        let text = std::fs::read_to_string(root.join(&path))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for (number, target) in targets(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let at = if file.is_empty() {
                root.join(&path)
            } else {
                root.join(folder).join(file)
            };
            let found = if heading.is_empty() {
                at.exists()
            } else {
                std::fs::read_to_string(&at)
                    .is_ok_and(|text| headings(&text).any(|have| have == heading))
            };
            if !found {
                complaints.push(format!(
                    "{}:{number}: the link to {target} leads nowhere",
                    path.display()
                ));
            }
        }
    }
    Ok(complaints)
}

/// The targets of inline links outside of fenced code.
fn targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().flat_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let line = if fenced || fence { "" } else { line };
        line.match_indices("](").filter_map(move |(at, _)| {
            let rest = &line[at + 2..];
            Some((index + 1, &rest[..rest.find(')')?]))
        })
    })
}

/// The anchors of a file's headings, as GitHub makes them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().chars();
            kept.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| {
                    if c == ' ' {
                        '-'
                    } else {
                        c.to_ascii_lowercase()
                    }
                })
                .collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_links_and_headings() {
        let text = "see [a](b.md) and [c](#the-end)\n```\n[x](y)\n```\n";
        assert_eq!(
            targets(text).collect::<Vec<_>>(),
            [(1, "b.md"), (1, "#the-end")]
        );
        assert_eq!(
            headings("# The *end*, 1!\n").collect::<Vec<_>>(),
            ["the-end-1"]
        );
    }
}
