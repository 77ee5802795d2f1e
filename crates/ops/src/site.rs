//! The page for people: its files, and the answer to each request.

use crate::http::{Answer, Hosts, Request};
use crate::metrics;
use crate::view::View;

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const DRAW: &str = include_str!("page/draw.js");
const SCRIPT: &str = include_str!("page/page.js");
const ICON: &str = include_str!("page/icon.svg");

const OLDER: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers requests: holds what clients may see, and the host names they may use.
pub struct Site {
    hosts: Hosts,
    has_page: bool,
}

/// Where the answers come from.
pub trait Source {
    /// Returns all metrics, in the OpenMetrics format.
    ///
    /// # Errors
    /// A sentence that says why there are none.
    fn metrics(&self) -> Result<String, String>;
    /// Returns what the page shows.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    fn view(&self) -> Result<View, String>;
}

impl Site {
    /// A site with the page, or with the metrics alone.
    pub fn new(hosts: Hosts, has_page: bool) -> Self {
        Self { hosts, has_page }
    }

    /// Answers a request.
    pub fn answer(&self, request: &Request, source: &dyn Source) -> Answer {
        if !self.hosts.has(request.host()) {
            let host = request.host().unwrap_or_default();
            let why =
                format!("{host:?} is no name of this machine: ask by its address, or add --host");
            return Answer::refused(421, &why);
        }
        let failed = |why: String| Answer::refused(500, &why);
        match (request.path(), self.has_page) {
            ("/metrics", _) => {
                source
                    .metrics()
                    .map_or_else(failed, |text| match request.takes_open_metrics() {
                        true => Answer::of(OPEN_METRICS, text),
                        false => Answer::of(OLDER, metrics::older(&text)),
                    })
            }
            ("/", true) => Answer::of("text/html; charset=utf-8", HTML),
            ("/page.css", true) => Answer::of("text/css; charset=utf-8", STYLE),
            ("/page.js", true) => {
                Answer::of("text/javascript; charset=utf-8", [DRAW, SCRIPT].concat())
            }
            ("/icon.svg", true) => Answer::of("image/svg+xml", ICON),
            ("/state.json", true) => {
                source
                    .view()
                    .map_or_else(failed, |view| match serde_json::to_vec(&view) {
                        Ok(json) => Answer::of("application/json", json),
                        Err(error) => failed(error.to_string()),
                    })
            }
            (_, true) => Answer::refused(404, "see / and /metrics"),
            (_, false) => Answer::refused(404, "see /metrics; there is no page without --page"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Source for Nothing {
        fn metrics(&self) -> Result<String, String> {
            Ok("# TYPE a counter\n# EOF\n".to_owned())
        }

        fn view(&self) -> Result<View, String> {
            Err("no view".to_owned())
        }
    }

    fn asked(site: &Site, path: &str, host: &str) -> (u16, String) {
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let request = Request::parse(text.as_bytes()).unwrap().unwrap();
        let answer = site.answer(&request, &Nothing);
        let bytes = answer.bytes(true);
        (answer.status(), String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_page_is_there_only_when_it_is_wanted() {
        let without = Site::new(Hosts::default(), false);
        let with = Site::new(Hosts::default(), true);
        for path in ["/", "/page.css", "/page.js", "/icon.svg"] {
            assert_eq!(asked(&without, path, "localhost").0, 404, "{path}");
            assert_eq!(asked(&with, path, "localhost").0, 200, "{path}");
        }
        assert_eq!(asked(&with, "/state.json", "localhost").0, 500);
        assert_eq!(asked(&with, "/../../etc/passwd", "localhost").0, 404);
        let metrics = asked(&without, "/metrics", "127.0.0.1:9");
        assert!(
            metrics.1.ends_with("# TYPE a_total counter\n"),
            "{metrics:?}"
        );
    }

    #[test]
    fn no_path_is_answered_to_a_name_of_others() {
        let site = Site::new(Hosts::default(), true);
        for path in ["/", "/metrics", "/state.json", "/page.js", "/nothing"] {
            assert_eq!(asked(&site, path, "evil.example.org").0, 421, "{path}");
        }
    }

    /// The page uses no network beyond its own port.
    #[test]
    fn nothing_is_fetched_from_elsewhere() {
        let namespace = "http://www.w3.org/2000/svg";
        for file in [HTML, STYLE, DRAW, SCRIPT, ICON] {
            assert!(!file.replace(namespace, "").contains("://"));
            assert!(!file.contains("innerHTML"), "text stays text");
        }
    }
}
