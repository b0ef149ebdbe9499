//! What a chart of named points and states needs beside lines: an axis with a name, discs, labels that keep off each other.

use super::{BOTTOM, Chart, LEFT, RIGHT, Scale, TOP, number};

/// Room for the name of the horizontal axis.
const AXIS_NAME: f64 = 10.0;
/// About, of the labels' font.
const CHARACTER: f64 = 6.3;
const LINE: f64 = 12.0;

impl Chart {
    /// An empty chart with its grid; `x_name` stands below the axis.
    pub fn named(
        size: (f64, f64),
        title: &str,
        unit: &str,
        x_name: &str,
        x: Scale,
        y: Scale,
    ) -> Self {
        let mut chart = Self::framed(size, BOTTOM + AXIS_NAME, title, unit, (x, y));
        let (bottom, right) = (chart.height - chart.bottom, chart.width - RIGHT);
        for tick in x.ticks() {
            let at = chart.at(tick, 0.0).0;
            chart.push(format_args!(
                r#"<path class="grid" d="M{at:.1} {bottom}v4"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                bottom + 15.0,
                number(tick)
            ));
        }
        chart.push(format_args!(
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{x_name}</text>"#,
            (LEFT + right) / 2.0,
            bottom + 30.0
        ));
        chart
    }

    /// A disc with an explanation, which a browser shows when the pointer is on it.
    pub fn point(&mut self, class: &str, at: (f64, f64), radius: f64, what: &str) {
        let (x, y) = self.at(at.0, at.1);
        self.push(format_args!(
            r#"<circle class="point {class}" cx="{x:.1}" cy="{y:.1}" r="{radius}"><title>{what}</title></circle>"#
        ));
        let around = radius + 1.0;
        self.taken
            .push([x - around, y - around, x + around, y + around]);
    }

    /// A name beside a point, where room is. Call it once all points are drawn.
    pub fn label(&mut self, class: &str, at: (f64, f64), text: &str) {
        let (x, y) = self.at(at.0, at.1);
        let width = CHARACTER * f64::from(u32::try_from(text.chars().count()).unwrap_or(0));
        let mut places = Vec::new();
        for distance in (0..12).map(|step| f64::from(step) * 13.0) {
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
                && bottom <= self.height - self.bottom;
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

    /// A coloured stretch in a strip above the plot.
    pub fn stretch(&mut self, class: &str, from: f64, to: f64, what: &str) {
        let (from, to) = (self.at(from, 0.0).0, self.at(to, 0.0).0);
        self.push(format_args!(
            r#"<rect class="stretch {class}" x="{from:.1}" y="{}" width="{:.2}" height="5"><title>{what}</title></rect>"#,
            TOP - 7.0,
            (to - from).max(0.1)
        ));
    }

    /// A dashed line across, with its name at the left.
    pub fn ceiling(&mut self, y: f64, name: &str) {
        self.named_rule(y, name, "start", LEFT + 4.0);
    }
}
