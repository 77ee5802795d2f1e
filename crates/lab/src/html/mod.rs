//! Results as one self-contained HTML file: no network, no fonts, no library. Its script draws the plots from the
//! figures in it; without scripts the table remains.

use crate::outcome::Outcome;
use crate::verdict;
use serde::Serialize;
use std::fmt::Write;

/// The text above the figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Preface {
    /// The heading.
    pub title: String,
    /// The result in one sentence, derived from the figures.
    pub lead: Option<String>,
    /// What was run, one line each.
    pub about: Vec<String>,
    /// What a reader must know before trusting it.
    pub warnings: Vec<String>,
    /// The command that reproduces the figures.
    pub command: String,
}

const STYLE: &str = include_str!("report.css");
const PLOT: &str = include_str!("plot.js");
const SCRIPT: &str = include_str!("report.js");

/// Renders the file.
///
/// # Errors
/// When a figure cannot be written as JSON.
pub fn render(
    preface: &Preface,
    outcomes: &[Outcome],
    table: &str,
) -> Result<String, serde_json::Error> {
    let below = format!("<h2>All figures</h2>\n<pre>{}</pre>\n", escape(table));
    let preface = Preface {
        lead: verdict::sentence(outcomes),
        ..preface.clone()
    };
    drawn(&preface, &outcomes, SCRIPT, &below)
}

/// The file in which a script plots figures, and the text below the plots.
pub(crate) fn drawn(
    preface: &Preface,
    figures: &impl Serialize,
    script: &str,
    below: &str,
) -> Result<String, serde_json::Error> {
    // Nothing within the script may look like its end.
    let data = serde_json::to_string(figures)?.replace('<', "\\u003c");
    let mut body = String::from(
        "<div id=\"plots\"><noscript>The plots need JavaScript; the table does not.</noscript></div>\n",
    );
    body.push_str(below);
    let _ = writeln!(
        body,
        "<script id=\"figures\" type=\"application/json\">{data}</script>"
    );
    let _ = writeln!(body, "<script>\n{PLOT}{script}</script>");
    Ok(frame(preface, &body))
}

/// The file around its content.
fn frame(preface: &Preface, body: &str) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n",
    );
    let _ = writeln!(out, "<title>{}</title>", escape(&preface.title));
    let _ = writeln!(out, "<style>\n{STYLE}</style>");
    let _ = writeln!(out, "<h1>{}</h1>", escape(&preface.title));
    if let Some(lead) = &preface.lead {
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escape(lead));
    }
    for warning in &preface.warnings {
        let _ = writeln!(out, "<p class=\"warning\">{}</p>", escape(warning));
    }
    for line in &preface.about {
        let _ = writeln!(out, "<p>{}</p>", escape(line));
    }
    let _ = writeln!(out, "<p><code>{}</code></p>", escape(&preface.command));
    let _ = writeln!(out, "{body}</html>");
    out
}

pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::SCRIPT;
    use std::process::Command;

    #[test]
    fn the_slowest_of_all_requests_is_no_further_than_their_count() {
        let tail = SCRIPT
            .lines()
            .find(|line| line.starts_with("function tail("));
        let points = "[{ ns: 1000, share: 0.5 }, { ns: 2000, share: 1 }]";
        let asked = format!(
            "{}\nconsole.log(String(tail({points}, 1000)))",
            tail.unwrap()
        );
        let Ok(said) = Command::new("node").args(["-e", &asked]).output() else {
            println!("SKIP: no node");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&said.stdout), "1,0.5,2,0.999\n");
    }
}
