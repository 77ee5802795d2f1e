//! Plots as SVG: lines over two axes, nothing else, and nothing external.

use std::fmt::Write;

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed, without dots: a theory, not a measurement.
    pub theory: bool,
}

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The text above it.
    pub title: String,
    /// The text below it.
    pub x: String,
    /// The text beside it.
    pub y: String,
    /// True if x is logarithmic.
    pub log_x: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 56.0;
const RIGHT: f64 = 270.0;
const BOTTOM: f64 = 48.0;
const COLOURS: [&str; 10] = [
    "#1b6ca8", "#c8553d", "#2a7f4f", "#7b4fa3", "#b58900", "#444444", "#0aa2a2", "#a3195b",
    "#e6550d", "#6b8e23",
];

impl Plot {
    /// Renders the file.
    #[must_use]
    pub fn render(&self) -> String {
        let scale_x = |x: f64| if self.log_x { x.max(1e-9).log10() } else { x };
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let xs = range(all().map(|p| scale_x(p.0)), false);
        let ys = range(all().map(|p| p.1), true);
        let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let at_x = |x: f64| LEFT + (scale_x(x) - xs.0) / (xs.1 - xs.0) * inner_width;
        let at_y = |y: f64| TOP + (ys.1 - y) / (ys.1 - ys.0) * inner_height;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
                escape(text)
            );
        };
        text(LEFT, 22.0, "start", &self.title);
        text(LEFT + inner_width / 2.0, HEIGHT - 10.0, "middle", &self.x);
        text(8.0, TOP - 8.0, "start", &self.y);
        let mut ticks = String::new();
        for x in steps(xs) {
            let value = if self.log_x { 10f64.powf(x) } else { x };
            let px = LEFT + (x - xs.0) / (xs.1 - xs.0) * inner_width;
            text(px, HEIGHT - BOTTOM + 16.0, "middle", &label(value));
            let _ = writeln!(
                ticks,
                "<path d=\"M{px:.1} {TOP}V{:.1}\" stroke=\"#ddd\"/>",
                HEIGHT - BOTTOM
            );
        }
        for y in steps(ys) {
            text(LEFT - 6.0, at_y(y) + 4.0, "end", &label(y));
            let _ = writeln!(
                ticks,
                "<path d=\"M{LEFT} {:.1}H{:.1}\" stroke=\"#ddd\"/>",
                at_y(y),
                WIDTH - RIGHT
            );
        }
        for (i, line) in self.lines.iter().enumerate() {
            let y = TOP + 14.0 + 18.0 * i as f64;
            text(WIDTH - RIGHT + 40.0, y, "start", &line.name);
        }
        out.push_str(&ticks);
        for (i, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let dash = if line.theory {
                " stroke-dasharray=\"5 4\""
            } else {
                ""
            };
            let mut path = String::new();
            for (n, &(x, y)) in line.points.iter().enumerate() {
                let letter = if n == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{letter}{:.1} {:.1}", at_x(x), at_y(y));
            }
            let y = TOP + 10.0 + 18.0 * i as f64;
            let from = WIDTH - RIGHT + 12.0;
            let style = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}");
            let _ = writeln!(out, "<path d=\"{path}\" {style}/>");
            let _ = writeln!(out, "<path d=\"M{from} {y}h22\" {style}/>");
            // Many points are a curve and need no dots.
            if !line.theory && line.points.len() < 40 {
                for &(x, y) in &line.points {
                    let (x, y) = (at_x(x), at_y(y));
                    let _ = writeln!(
                        out,
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                    );
                }
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

fn range(values: impl Iterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    let start = if from_zero {
        (0.0, f64::MIN)
    } else {
        (f64::MAX, f64::MIN)
    };
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold(start, |(low, high), value| {
            (low.min(value), high.max(value))
        });
    match low < high {
        true => (low, high + (high - low) * 0.02),
        false if low == high => (low - 0.5, low + 0.5),
        false => (0.0, 1.0),
    }
}

/// Round numbers within a range, five to ten of them.
fn steps((low, high): (f64, f64)) -> Vec<f64> {
    let raw = (high - low) / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|&s| s >= raw)
        .unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    (first..first + 20)
        .map(|i| i as f64 * step)
        .take_while(|&x| x <= high + step * 1e-9)
        .collect()
}

fn label(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 || (v > 0.0 && v < 0.01) => format!("{value:.0e}"),
        v if v >= 100.0 || value.fract().abs() < 1e-9 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> String {
        let line = Line {
            name: "a < b & c".into(),
            points,
            theory: false,
        };
        Plot {
            title: "t".into(),
            x: "x".into(),
            y: "y".into(),
            log_x: true,
            lines: vec![line],
        }
        .render()
    }

    #[test]
    fn any_points_give_valid_numbers() {
        for points in [
            vec![],
            vec![(1.0, 1.0)],
            vec![(0.0, 0.0), (0.0, 0.0)],
            vec![(1.0, 2.0), (1e9, 1e-9)],
        ] {
            let text = plot(points);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            assert!(text.contains("a &lt; b &amp; c"));
            assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
        }
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(steps((0.0, 6.0)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(steps((0.0, 1234.0)).contains(&500.0));
    }
}
