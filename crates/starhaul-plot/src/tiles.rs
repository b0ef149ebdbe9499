//! Several charts as one picture, for a document that cannot hold a page.

use std::fmt::Write as _;

use crate::{CHART_STYLE, HEIGHT, WIDTH, escape};

const GAP: f64 = 14.0;
/// Of the caption, and of each line of the legend below it.
const CAPTION: f64 = 44.0;
const LINE: f64 = 20.0;

/// Charts of the usual size in rows, below a caption and what was found of each system; all text is as people read it.
#[derive(Clone, Debug)]
pub struct Tiles<'a> {
    /// Caption: what was measured.
    pub caption: &'a str,
    /// Class of colour, name and figures of each system.
    pub legend: &'a [(&'a str, String)],
    /// Charts beside each other.
    pub columns: u32,
    /// The charts as SVG, from [`crate::Chart::svg`].
    pub charts: &'a [String],
}

impl Tiles<'_> {
    /// The picture, light or dark as its viewer is.
    pub fn svg(&self) -> String {
        let head = (0..self.legend.len()).fold(CAPTION, |head, _| head + LINE);
        let columns = self.columns.max(1) as usize;
        let rows = (0..self.charts.len().div_ceil(columns)).fold(0.0, |rows, _| rows + 1.0);
        let width = GAP + f64::from(self.columns.max(1)) * (WIDTH + GAP);
        let height = head + rows * (HEIGHT + GAP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\">\n\
             <style>{CHART_STYLE}</style>\n<rect class=\"sheet\" width=\"{width}\" height=\"{height}\"/>"
        );
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<text class=\"caption\" x=\"{GAP}\" y=\"26\">{}</text>",
            escape(self.caption)
        );
        let mut y = 50.0;
        for (name, figures) in self.legend {
            let _ = write!(
                svg,
                "<rect class=\"swatch {name}\" x=\"{GAP}\" y=\"{}\" width=\"14\" height=\"4\" rx=\"2\"/>\
                 <text class=\"caption\" x=\"{}\" y=\"{y}\">{name}: {}</text>",
                y - 7.0,
                GAP + 22.0,
                escape(figures),
            );
            y += LINE;
        }
        let mut y = head;
        for row in self.charts.chunks(columns) {
            let mut x = GAP;
            for chart in row {
                let _ = write!(
                    svg,
                    "<rect class=\"panel\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>\n\
                     <svg x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" {}",
                    chart.trim_start_matches("<svg ")
                );
                x += WIDTH + GAP;
            }
            y += HEIGHT + GAP;
        }
        svg.push_str("</svg>\n");
        svg
    }
}
