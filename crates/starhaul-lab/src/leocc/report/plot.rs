//! Plots as inline SVG of any size. Colours come from the page's style sheet by class name, so that they follow light and dark.

use std::fmt::Write as _;

use crate::report::chart::{Scale, number};

const LEFT: f64 = 48.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 36.0;
/// About, of the labels' font.
const CHARACTER: f64 = 6.3;
const LINE: f64 = 12.0;

/// A plot under construction. What is drawn later lies on top.
#[derive(Debug)]
pub(super) struct Plot {
    width: f64,
    height: f64,
    x: Scale,
    y: Scale,
    body: String,
    /// Where labels and points lie already: left, top, right, bottom.
    taken: Vec<[f64; 4]>,
}

impl Plot {
    /// An empty plot with its grid; `x_name` stands below the axis.
    pub(super) fn new(
        size: (f64, f64),
        title: &str,
        unit: &str,
        x_name: &str,
        x: Scale,
        y: Scale,
    ) -> Self {
        let mut plot = Self {
            width: size.0,
            height: size.1,
            x,
            y,
            body: String::new(),
            taken: Vec::new(),
        };
        let (bottom, right) = (plot.height - BOTTOM, plot.width - RIGHT);
        plot.push(format_args!(
            r#"<text class="title" x="{LEFT}" y="15">{title}<tspan class="unit" dx="6">{unit}</tspan></text>"#
        ));
        for tick in y.ticks() {
            let at = plot.at(0.0, tick).1;
            plot.push(format_args!(
                r#"<path class="grid" d="M{LEFT} {at:.1}H{right}"/>"#
            ));
            plot.push(format_args!(
                r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 6.0,
                at + 3.5,
                number(tick)
            ));
        }
        for tick in x.ticks() {
            let at = plot.at(tick, 0.0).0;
            plot.push(format_args!(
                r#"<path class="grid" d="M{at:.1} {bottom}v4"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 15.0,
                number(tick)
            ));
        }
        plot.push(format_args!(
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{x_name}</text>"#,
            (LEFT + right) / 2.0,
            bottom + 30.0
        ));
        plot
    }

    /// A line through the points.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        self.push(format_args!(r#"<path class="line {class}" d="{path}"/>"#));
    }

    /// The area below the points.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            let (path, bottom) = (self.path(points), self.height - BOTTOM);
            let (from, to) = (self.at(first.0, 0.0).0, self.at(last.0, 0.0).0);
            self.push(format_args!(
                r#"<path class="area {class}" d="{path}L{to:.1} {bottom}L{from:.1} {bottom}Z"/>"#
            ));
        }
    }

    /// A disc with an explanation for whoever points at it.
    pub(super) fn point(&mut self, class: &str, at: (f64, f64), radius: f64, what: &str) {
        let (x, y) = self.at(at.0, at.1);
        self.push(format_args!(
            r#"<circle class="point {class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"><title>{what}</title></circle>"#
        ));
        let around = radius + 1.0;
        self.taken
            .push([x - around, y - around, x + around, y + around]);
    }

    /// A name beside a point, where room is. Call it once all points are drawn.
    pub(super) fn label(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = self.at(at.0, at.1);
        let width = CHARACTER * f64::from(u32::try_from(text.chars().count()).unwrap_or(0));
        let mut places = Vec::new();
        for distance in [0.0, 13.0, 26.0, 39.0, 52.0] {
            for (dx, dy) in [
                (8.0, 0.0),
                (-8.0 - width, 0.0),
                (-width / 2.0, -12.0),
                (-width / 2.0, 12.0),
            ] {
                for sign in [-1.0, 1.0] {
                    places.push((x + dx, y + dy + sign * distance));
                }
            }
        }
        let area = |(left, middle): (f64, f64)| {
            [left, middle - LINE / 2.0, left + width, middle + LINE / 2.0]
        };
        let free = |place: &&(f64, f64)| {
            let [left, top, right, bottom] = area(**place);
            let inside = left >= LEFT
                && right <= self.width - 2.0
                && top >= TOP - 8.0
                && bottom <= self.height - BOTTOM;
            let clear = |other: &[f64; 4]| {
                left >= other[2] || right <= other[0] || top >= other[3] || bottom <= other[1]
            };
            inside && self.taken.iter().all(clear)
        };
        let place = places.iter().find(free).copied().unwrap_or((x + 8.0, y));
        self.taken.push(area(place));
        if (place.1 - y).abs() > 14.0 {
            let end = if place.0 > x {
                place.0 - 1.0
            } else {
                place.0 + width + 1.0
            };
            self.push(format_args!(
                r#"<path class="lead" d="M{x:.1} {y:.1}L{end:.1} {:.1}"/>"#,
                place.1
            ));
        }
        self.push(format_args!(
            r#"<text class="label {class}" x="{:.1}" y="{:.1}">{text}</text>"#,
            place.0,
            place.1 + 3.8
        ));
    }

    /// A vertical band at each span of x.
    pub(super) fn bands(&mut self, class: &str, spans: impl Iterator<Item = (f64, f64)>) {
        let mut path = String::new();
        for (from, to) in spans {
            let (from, to) = (self.at(from, 0.0).0, self.at(to, 0.0).0);
            // Writing to a string cannot fail.
            let _ = write!(
                path,
                "M{from:.1} {TOP}h{:.1}V{}h-{:.1}Z",
                (to - from).max(1.2),
                self.height - BOTTOM,
                (to - from).max(1.2)
            );
        }
        self.push(format_args!(r#"<path class="band {class}" d="{path}"/>"#));
    }

    /// A coloured stretch in a strip above the plot.
    pub(super) fn stretch(&mut self, class: &str, from: f64, to: f64, what: &str) {
        let (from, to) = (self.at(from, 0.0).0, self.at(to, 0.0).0);
        self.push(format_args!(
            r#"<rect class="stretch {class}" x="{from:.1}" y="{}" width="{:.2}" height="5"><title>{what}</title></rect>"#,
            TOP - 7.0,
            (to - from).max(0.1)
        ));
    }

    /// A dashed line across, with its name.
    pub(super) fn rule(&mut self, y: f64, name: &str) {
        let (at, right) = (self.at(0.0, y).1, self.width - RIGHT);
        self.push(format_args!(
            r#"<path class="rule" d="M{LEFT} {at:.1}H{right}"/>"#
        ));
        self.push(format_args!(
            r#"<text class="rule-name" x="{:.1}" y="{:.1}">{name}</text>"#,
            LEFT + 4.0,
            at - 4.0
        ));
    }

    /// The plot with a description for those who do not see it.
    pub(super) fn svg(self, description: &str) -> String {
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
            self.height - BOTTOM - self.y.place(y) * (self.height - TOP - BOTTOM),
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(element);
    }
}
