//! Line charts as SVG, for figures that papers show as plots.

use std::fmt::Write as _;

/// One line of a chart.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart with axes that start at the least and end at the largest value; `y` starts at 0.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: String,
    pub(super) y: String,
    /// Whether `x` has a logarithmic axis.
    pub(super) log_x: bool,
    pub(super) series: Vec<Series>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;

/// Told apart in print and by most eyes.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Chart {
    #[expect(clippy::disallowed_methods, reason = "a picture")]
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let scale = |x: f64| if self.log_x { x.max(f64::MIN_POSITIVE).log10() } else { x };
        let low = points().map(|(x, _)| scale(x)).fold(f64::INFINITY, f64::min);
        let high = points().map(|(x, _)| scale(x)).fold(f64::NEG_INFINITY, f64::max);
        let top = round_up(points().map(|(_, y)| y).fold(0.0, f64::max));
        let span = if high > low { high - low } else { 1.0 };
        let place_x = |x: f64| LEFT + (scale(x) - low) / span * (WIDTH - LEFT - RIGHT);
        let place_y = |y: f64| HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
            let words = words.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
        };
        text(WIDTH / 2.0, 20.0, "middle", &self.title);
        text(WIDTH / 2.0, HEIGHT - 12.0, "middle", &self.x);
        text(LEFT - 8.0, TOP - 10.0, "end", &self.y);
        let mut marks: Vec<f64> = points().map(|(x, _)| x).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        // More marks than this run into each other.
        let every = marks.len().div_ceil(12).max(1);
        for mark in marks.iter().step_by(every) {
            text(place_x(*mark), HEIGHT - BOTTOM + 18.0, "middle", &figure(*mark));
        }
        for step in 0..=4 {
            let y = top * f64::from(step) / 4.0;
            text(LEFT - 8.0, place_y(y) + 4.0, "end", &figure(y));
        }
        for (number, series) in self.series.iter().enumerate() {
            text(WIDTH - RIGHT - 10.0, TOP + 16.0 * number as f64, "end", &format!("— {}", series.name));
        }
        for step in 0..=4 {
            let y = place_y(top * f64::from(step) / 4.0);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let line: Vec<String> =
                series.points.iter().map(|(x, y)| format!("{:.1},{:.1}", place_x(*x), place_y(*y))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                line.join(" ")
            );
            // A legend line differs from the others by its colour.
            let y = TOP + 16.0 * number as f64 - 4.0;
            let _ =
                writeln!(svg, "<circle cx=\"{}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>", WIDTH - RIGHT);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The next of 1, 2, 5, 10, 20, 50 … that is no smaller.
#[expect(clippy::disallowed_methods, reason = "a picture")]
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= value)
        .unwrap_or(10.0 * power)
}

fn figure(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([round_up(0.0), round_up(3.0), round_up(20.0), round_up(21e6)], [1.0, 5.0, 20.0, 5e7]);
        assert_eq!([figure(0.0), figure(1_500.0), figure(2e7)], ["0", "1.5k", "20M"]);
    }

    #[test]
    fn points_lie_within_the_axes() {
        let series = vec![Series { name: "a < b".to_owned(), points: vec![(1.0, 0.0), (1024.0, 10.0)] }];
        let chart = Chart { title: "t".into(), x: "x".into(), y: "y".into(), log_x: true, series };
        let svg = chart.svg();
        assert!(svg.contains("points=\"80.0,340.0 700.0,40.0\""), "{svg}");
        assert!(svg.contains("a &lt; b"));
    }
}
