//! The report as one picture, for a document that cannot hold a page.

use std::fmt::Write as _;

use super::{
    CHART_STYLE, Report,
    chart::{HEIGHT, WIDTH},
    escape, percent, plots,
};
use crate::{demo::SystemResult, load::Class};

const COLUMNS: usize = 3;
const GAP: f64 = 14.0;
const HEAD: f64 = 84.0;

impl Report<'_> {
    /// Latency of each class, on-time share of the video and rate of each path in one SVG.
    pub fn svg(&self) -> String {
        let [text, audio, video] = Class::ALL.map(|class| plots::latency(self.courses, class));
        let [leo, geo] = plots::rates(self.courses);
        let charts = [
            text,
            audio,
            video,
            plots::on_time_share(self.courses, Class::Video),
            leo,
            geo,
        ];
        let width = GAP + 3.0 * (WIDTH + GAP);
        let height = HEAD + 2.0 * (HEIGHT + GAP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\">\n\
             <style>{CHART_STYLE}</style>\n<rect class=\"sheet\" width=\"{width}\" height=\"{height}\"/>"
        );
        self.svg_head(&mut svg);
        let (mut x, mut y) = (GAP, HEAD);
        for (number, chart) in charts.iter().enumerate() {
            if number == COLUMNS {
                (x, y) = (GAP, y + HEIGHT + GAP);
            }
            // Writing to a string cannot fail.
            let _ = write!(
                svg,
                "<rect class=\"panel\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>\n\
                 <svg x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" {}",
                chart.trim_start_matches("<svg ")
            );
            x += WIDTH + GAP;
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn svg_head(&self, svg: &mut String) {
        let _ = write!(
            svg,
            "<text class=\"caption\" x=\"{GAP}\" y=\"26\">{}</text>",
            escape(&self.caption())
        );
        for ((name, system), y) in self.result.systems.named().into_iter().zip([50.0, 70.0]) {
            let _ = write!(
                svg,
                "<rect class=\"swatch {name}\" x=\"{GAP}\" y=\"{}\" width=\"14\" height=\"4\" rx=\"2\"/>\
                 <text class=\"caption\" x=\"{}\" y=\"{y}\">{name}: {}</text>",
                y - 7.0,
                GAP + 22.0,
                summary(system),
            );
        }
    }

    fn caption(&self) -> String {
        format!(
            "{}, {} s, seed {}",
            self.links, self.result.seconds, self.result.seed
        )
    }
}

fn summary(system: &SystemResult) -> String {
    let shares =
        Class::ALL.map(|class| format!("{} {} %", class.name(), percent(system.classes.of(class))));
    format!(
        "{} on time, download {:.1} Mbit/s",
        shares.join(", "),
        system.download.mbit_per_s
    )
}
