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

const INNER_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const INNER_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;
/// Where the lines' names are, and how far apart.
const LEGEND: f64 = WIDTH - RIGHT + 12.0;
const LEGEND_STEP: f64 = 18.0;
/// Many points are a curve and need no dots.
const DOTS_MAX: usize = 40;

impl Plot {
    /// Renders the file.
    #[must_use]
    pub fn render(&self) -> String {
        let axes = Axes::of(self);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        self.words(&axes, &mut |x, y, anchor, text| {
            let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"");
            let _ = writeln!(out, "<text {place}>{}</text>", escape(text));
        });
        axes.grid(&mut out);
        for (i, line) in self.lines.iter().enumerate() {
            line.draw(i, &axes, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }

    /// Gives all texts: where, which side of each is there, and the text.
    fn words(&self, axes: &Axes, text: &mut dyn FnMut(f64, f64, &str, &str)) {
        text(LEFT, 22.0, "start", &self.title);
        text(LEFT + INNER_WIDTH / 2.0, HEIGHT - 10.0, "middle", &self.x);
        text(8.0, TOP - 8.0, "start", &self.y);
        for x in steps(axes.xs) {
            let value = if axes.log_x { 10f64.powf(x) } else { x };
            let below = HEIGHT - BOTTOM + 16.0;
            text(axes.at_scaled(x), below, "middle", &label(value));
        }
        for y in steps(axes.ys) {
            text(LEFT - 6.0, axes.at_y(y) + 4.0, "end", &label(y));
        }
        for (i, line) in self.lines.iter().enumerate() {
            let y = TOP + 14.0 + LEGEND_STEP * i as f64;
            text(LEGEND + 28.0, y, "start", &line.name);
        }
    }
}

/// The ranges of a plot, and where in it a point is.
struct Axes {
    log_x: bool,
    /// In logarithms if x is logarithmic.
    xs: (f64, f64),
    ys: (f64, f64),
}

impl Axes {
    fn of(plot: &Plot) -> Self {
        let all = || plot.lines.iter().flat_map(|line| &line.points);
        Self {
            log_x: plot.log_x,
            xs: range(all().map(|p| scaled(p.0, plot.log_x)), false),
            ys: range(all().map(|p| p.1), true),
        }
    }

    fn at_x(&self, x: f64) -> f64 {
        self.at_scaled(scaled(x, self.log_x))
    }

    fn at_scaled(&self, x: f64) -> f64 {
        LEFT + (x - self.xs.0) / (self.xs.1 - self.xs.0) * INNER_WIDTH
    }

    fn at_y(&self, y: f64) -> f64 {
        TOP + (self.ys.1 - y) / (self.ys.1 - self.ys.0) * INNER_HEIGHT
    }

    fn grid(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let upright = steps(self.xs).into_iter().map(|x| {
            let x = self.at_scaled(x);
            format!("M{x:.1} {TOP}V{bottom:.1}")
        });
        let level = steps(self.ys).into_iter().map(|y| {
            let y = self.at_y(y);
            format!("M{LEFT} {y:.1}H{right:.1}")
        });
        for path in upright.chain(level) {
            let _ = writeln!(out, "<path d=\"{path}\" stroke=\"#ddd\"/>");
        }
    }
}

fn scaled(x: f64, log: bool) -> f64 {
    if log { x.max(1e-9).log10() } else { x }
}

impl Line {
    /// Draws it, and its sample in the legend.
    fn draw(&self, number: usize, axes: &Axes, out: &mut String) {
        let colour = COLOURS[number % COLOURS.len()];
        let dash = if self.theory {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        let points = || {
            self.points
                .iter()
                .map(|&(x, y)| (axes.at_x(x), axes.at_y(y)))
        };
        let mut path = String::new();
        for (n, (x, y)) in points().enumerate() {
            let letter = if n == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{x:.1} {y:.1}");
        }
        let y = TOP + 10.0 + LEGEND_STEP * number as f64;
        let style = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}");
        let _ = writeln!(out, "<path d=\"{path}\" {style}/>");
        let _ = writeln!(out, "<path d=\"M{LEGEND} {y}h22\" {style}/>");
        if !self.theory && self.points.len() < DOTS_MAX {
            for (x, y) in points() {
                let place = format!("cx=\"{x:.1}\" cy=\"{y:.1}\"");
                let _ = writeln!(out, "<circle {place} r=\"3\" fill=\"{colour}\"/>");
            }
        }
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
