//! Small charts as inline SVG. Colours come from the page's style sheet by class name, so that they follow light and dark.

mod labels;

use std::fmt::Write;

/// Width of a chart of the usual size, in pixels.
pub const WIDTH: f64 = 420.0;
/// Height of a chart of the usual size, in pixels.
pub const HEIGHT: f64 = 230.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 26.0;

/// Maps values to places along an axis.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// Evenly from the first to the second value.
    Linear(f64, f64),
    /// By the logarithm; both values are positive.
    Log(f64, f64),
    /// The same, with a place for 0 before the first value.
    LogAndZero(f64, f64),
}

/// From the place of 0 to that of the first value, of the axis.
const FROM_ZERO: f64 = 0.1;

/// A chart under construction. What is drawn later lies on top.
#[derive(Clone, Debug)]
pub struct Chart {
    width: f64,
    height: f64,
    /// What is below the horizontal axis.
    bottom: f64,
    x: Scale,
    y: Scale,
    body: String,
    /// Where labels and points lie already: left, top, right, bottom.
    taken: Vec<[f64; 4]>,
}

impl Scale {
    /// From 0 to a round number not below `most`, which may be 0.
    pub fn up_to(most: f64) -> Self {
        let step = nice_step(most.max(1e-9) / 5.0);
        Self::Linear(0.0, (most.max(1e-9) / step).ceil() * step)
    }

    /// Where on the axis, 0 to 1.
    pub fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear(from, to) => (value - from) / (to - from),
            Self::Log(from, to) => (value.max(from) / from).ln() / (to / from).ln(),
            Self::LogAndZero(..) if value <= 0.0 => 0.0,
            Self::LogAndZero(from, to) => {
                FROM_ZERO + (1.0 - FROM_ZERO) * Self::Log(from, to).place(value)
            }
        };
        place.clamp(0.0, 1.0)
    }

    /// Around values from `least` to `most`, from 0 unless they lie close together far above it.
    pub fn around(least: f64, most: f64) -> Self {
        if least < most / 2.0 || most <= 0.0 {
            return Self::up_to(most);
        }
        let step = nice_step((most - least).max(most / 20.0) / 3.0);
        // One step of air, so that a constant is a line in between.
        Self::Linear(
            ((least / step).ceil() - 1.0) * step,
            ((most / step).floor() + 1.0) * step,
        )
    }

    /// About five round values.
    pub fn ticks(self) -> Vec<f64> {
        self.about(5.0)
    }

    /// About so many round values.
    fn about(self, count: f64) -> Vec<f64> {
        match self {
            Self::Linear(from, to) => {
                let step = nice_step((to - from) / count);
                let first = (from / step).ceil();
                (0..32)
                    .map(|n| (first + f64::from(n)) * step)
                    .take_while(|tick| *tick <= to * (1.0 + 1e-9))
                    .collect()
            }
            Self::Log(from, to) => (-3..7)
                .map(|power| 10f64.powi(power))
                .filter(|tick| (from..=to).contains(tick))
                .collect(),
            Self::LogAndZero(from, to) => {
                let others = Self::Log(from, to).about(count);
                std::iter::once(0.0).chain(others).collect()
            }
        }
    }
}

impl Chart {
    /// An empty chart with its grid; x is in seconds.
    pub fn new(title: &str, unit: &str, x: Scale, y: Scale) -> Self {
        Self::sized((WIDTH, HEIGHT), title, unit, x, y)
    }

    /// The same in another size.
    pub fn sized(size: (f64, f64), title: &str, unit: &str, x: Scale, y: Scale) -> Self {
        let mut chart = Self::framed(size, BOTTOM, title, unit, (x, y));
        let below = chart.height - BOTTOM + 16.0;
        for tick in x.about((chart.width / 84.0).round()) {
            let at = chart.at(tick, 0.0).0;
            chart.push(format_args!(
                r#"<text class="tick" x="{at:.1}" y="{below:.1}" text-anchor="middle">{} s</text>"#,
                number(tick)
            ));
        }
        chart
    }

    /// Title, vertical axis and grid.
    fn framed(
        (width, height): (f64, f64),
        bottom: f64,
        title: &str,
        unit: &str,
        (x, y): (Scale, Scale),
    ) -> Self {
        let mut chart = Self {
            width,
            height,
            bottom,
            x,
            y,
            body: String::new(),
            taken: Vec::new(),
        };
        let right = width - RIGHT;
        chart.push(format_args!(r#"<text class="title" x="{LEFT}" y="15">{title}<tspan class="unit" dx="6">{unit}</tspan></text>"#));
        for tick in y.ticks() {
            let at = chart.at(0.0, tick).1;
            chart.push(format_args!(
                r#"<path class="grid" d="M{LEFT} {at:.1}H{right}"/>"#
            ));
            chart.push(format_args!(
                r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 6.0,
                at + 3.5,
                number(tick)
            ));
        }
        chart
    }

    /// A line through the points.
    pub fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        self.push(format_args!(r#"<path class="line {class}" d="{path}"/>"#));
    }

    /// The area below the points.
    pub fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return;
        };
        let (path, bottom) = (self.path(points), self.height - self.bottom);
        let (from, to) = (self.at(first.0, 0.0).0, self.at(last.0, 0.0).0);
        self.push(format_args!(
            r#"<path class="area {class}" d="{path}L{to:.1} {bottom}L{from:.1} {bottom}Z"/>"#
        ));
    }

    /// A dot at each point.
    pub fn dots(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (x, y) in points {
            let (x, y) = self.at(x, y);
            // A line of no length with round ends is a dot, in a third of the bytes of a circle.
            let _ = write!(path, "M{x:.1} {y:.1}h0");
        }
        self.push(format_args!(r#"<path class="dots {class}" d="{path}"/>"#));
    }

    /// A short stroke above the chart at each value of x.
    pub fn strokes(&mut self, class: &str, row: u8, values: impl Iterator<Item = f64>) {
        let top = TOP - 1.0 + 6.0 * f64::from(row);
        let mut path = String::new();
        for x in values {
            let _ = write!(path, "M{:.1} {top}v5", self.at(x, 0.0).0);
        }
        self.push(format_args!(
            r#"<path class="strokes {class}" d="{path}"/>"#
        ));
    }

    /// The space between two lines over the same values of x: (x, lower, upper).
    pub fn band(&mut self, class: &str, points: &[(f64, f64, f64)]) {
        let upper: Vec<_> = points.iter().map(|&(x, _, upper)| (x, upper)).collect();
        let lower: Vec<_> = points.iter().rev().map(|&(x, low, _)| (x, low)).collect();
        if points.is_empty() {
            return;
        }
        let (upper, lower) = (self.path(&upper), self.path(&lower).replacen('M', "L", 1));
        self.push(format_args!(
            r#"<path class="area {class}" d="{upper}{lower}Z"/>"#
        ));
    }

    /// A stripe from top to bottom for each span of x, at least as wide as can be seen.
    pub fn stripes(&mut self, class: &str, spans: impl Iterator<Item = (f64, f64)>) {
        let height = self.height - TOP - self.bottom;
        let mut path = String::new();
        for (from, to) in spans {
            let (from, to) = (self.at(from, 0.0).0, self.at(to, 0.0).0);
            let (width, middle) = ((to - from).max(1.6), (from + to) / 2.0);
            let left = middle - width / 2.0;
            let _ = write!(path, "M{left:.1} {TOP}v{height}h{width:.1}v-{height}Z");
        }
        self.push(format_args!(
            r#"<path class="stripes {class}" d="{path}"/>"#
        ));
    }

    /// A bar of this width, in units of x, from one value of y to another at each value of x: (x, lower, upper).
    pub fn bars(&mut self, class: &str, width: f64, bars: impl Iterator<Item = (f64, f64, f64)>) {
        let mut path = String::new();
        for (x, lower, upper) in bars {
            let (left, top) = self.at(x - width / 2.0, upper);
            let (right, bottom) = self.at(x + width / 2.0, lower);
            let width = (right - left).max(1.0);
            let _ = write!(
                path,
                "M{left:.1} {bottom:.1}V{top:.1}h{width:.1}V{bottom:.1}Z"
            );
        }
        self.push(format_args!(r#"<path class="bars {class}" d="{path}"/>"#));
    }

    /// A dashed line from top to bottom, below a pin, at each value of x.
    pub fn verticals(&mut self, class: &str, values: impl Iterator<Item = f64>) {
        let bottom = self.height - self.bottom;
        let (mut path, mut pins) = (String::new(), String::new());
        for x in values {
            let x = self.at(x, 0.0).0;
            let _ = write!(path, "M{x:.1} {TOP}V{bottom}");
            let _ = write!(pins, "M{x:.1} {TOP}l-4.5 -7h9Z");
        }
        self.push(format_args!(r#"<path class="pins {class}" d="{pins}"/>"#));
        self.push(format_args!(
            r#"<path class="verticals {class}" d="{path}"/>"#
        ));
    }

    /// A dashed line across, with its name at the right.
    pub fn rule(&mut self, y: f64, name: &str) {
        self.named_rule(y, name, "end", self.width - RIGHT - 2.0);
    }

    fn named_rule(&mut self, y: f64, name: &str, anchor: &str, name_x: f64) {
        let (at, right) = (self.at(0.0, y).1, self.width - RIGHT);
        self.push(format_args!(
            r#"<path class="rule" d="M{LEFT} {at:.1}H{right}"/>"#
        ));
        self.push(format_args!(
            r#"<text class="rule-name" x="{name_x:.1}" y="{:.1}" text-anchor="{anchor}">{name}</text>"#,
            at - 4.0
        ));
    }

    /// The chart with a description for those who do not see it.
    pub fn svg(self, description: &str) -> String {
        format!(
            r#"<svg viewBox="0 0 {} {}" role="img" aria-label="{description}">{}</svg>"#,
            self.width, self.height, self.body
        )
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (number, &(x, y)) in points.iter().enumerate() {
            let (x, y) = self.at(x, y);
            let _ = write!(path, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
        }
        path
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (
            LEFT + self.x.place(x) * (self.width - LEFT - RIGHT),
            self.height - self.bottom - self.y.place(y) * (self.height - TOP - self.bottom),
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(element);
    }
}

/// The smallest of 1, 2, 5 × 10ⁿ that is not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * (1.0 - 1e-9))
        .unwrap_or(power)
}

/// A tick's text.
fn number(value: f64) -> String {
    if value >= 1_000.0 {
        format!("{}k", value / 1_000.0)
    } else {
        format!("{}", (value * 1e6).round() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            Scale::up_to(47.0).ticks(),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
        );
        assert_eq!(Scale::Linear(0.0, 30.0).ticks(), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(Scale::Log(5.0, 5_000.0).ticks(), [10.0, 100.0, 1_000.0]);
        assert!(Scale::up_to(0.0).ticks().len() > 1);
    }

    #[test]
    fn nothing_has_a_place_of_its_own_on_a_logarithmic_axis() {
        let scale = Scale::LogAndZero(0.01, 10.0);
        assert_eq!(scale.ticks(), [0.0, 0.01, 0.1, 1.0, 10.0]);
        let places = [0.0, 0.01, 0.1, 10.0].map(|value| scale.place(value));
        assert!(
            (places[0], places[1], places[3]) == (0.0, FROM_ZERO, 1.0),
            "{places:?}"
        );
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn values_far_above_nothing_have_an_axis_of_their_own() {
        let ends = |scale| match scale {
            Scale::Linear(from, to) => (from, to),
            _ => panic!("not linear"),
        };
        assert_eq!(ends(Scale::around(7.0, 68.0)), (0.0, 80.0));
        assert_eq!(ends(Scale::around(275.0, 297.0)), (270.0, 300.0));
        // constant, and nothing at all
        assert_eq!(ends(Scale::around(25.0, 25.0)), (24.5, 25.5));
        assert_eq!(ends(Scale::around(0.0, 0.0)).0, 0.0);
    }

    #[test]
    fn values_outside_stay_at_the_edge_and_nothing_is_undefined() {
        let mut chart = Chart::new(
            "a",
            "ms",
            Scale::Linear(0.0, 10.0),
            Scale::Log(1.0, 1_000.0),
        );
        chart.line("starhaul", &[(0.0, 0.0), (5.0, 1e9), (-1.0, 10.0)]);
        chart.area("capacity", &[]);
        let svg = chart.svg("nothing");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("M46.0 204.0L228.0 28.0L46.0 145.3"), "{svg}");
    }
}
