//! A map of the world with even distances along meridians, as SVG.

use std::fmt::Write as _;

use starhaul_orbit::Position;
use starhaul_plot::{LINE_WIDTH, escape};

/// Height of the map.
pub(super) const HEIGHT: f64 = LINE_WIDTH / 2.0;
/// Size of a degree.
const DEGREE: f64 = LINE_WIDTH / 360.0;
/// Coarse outlines of the continents, in degrees east and north.
const LAND: &str = include_str!("land.path");

/// What lies on the map.
#[derive(Debug, Default)]
pub(super) struct World {
    lasers: String,
    satellites: String,
    route: String,
    stations: String,
}

impl World {
    pub(super) fn laser(&mut self, from: Position, to: Position) {
        line(&mut self.lasers, degrees(from), degrees(to));
    }

    pub(super) fn satellite(&mut self, at: Position) {
        let (x, y) = place(degrees(at));
        // Writing to a string cannot fail.
        let _ = write!(self.satellites, "M{x:.1} {y:.1}h0");
    }

    pub(super) fn route(&mut self, nodes: &[Position]) {
        for pair in nodes.windows(2) {
            if let [from, to] = pair {
                line(&mut self.route, degrees(*from), degrees(*to));
            }
        }
    }

    pub(super) fn station(&mut self, name: &str, (latitude, longitude): (f64, f64)) {
        let (x, y) = place((longitude, latitude));
        // To the left of places in the east, where there is room.
        let (at, anchor) = match longitude > 120.0 {
            true => (x - 8.0, "end"),
            false => (x + 8.0, "start"),
        };
        let _ = write!(
            self.stations,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" style=\"fill:var(--mpquic)\"/>\
             <text class=\"title\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" \
             style=\"paint-order:stroke;stroke:var(--card);stroke-width:3px\">{}</text>",
            y - 8.0,
            escape(name)
        );
    }

    pub(super) fn svg(&self) -> String {
        let mut grid = String::new();
        for step in -5..=5 {
            let (x, y) = place((30.0 * f64::from(step), 15.0 * f64::from(step)));
            let _ = write!(grid, "M{x:.1} 0V{HEIGHT}M0 {y:.1}H{LINE_WIDTH}");
        }
        let (x, y) = (LINE_WIDTH / 2.0, HEIGHT / 2.0);
        let Self {
            lasers,
            satellites,
            route,
            stations,
        } = self;
        format!(
            "<svg viewBox=\"0 0 {LINE_WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"satellites and the path on a map\">\
             <path d=\"{LAND}\" transform=\"translate({x} {y}) scale({DEGREE} -{DEGREE})\" style=\"fill:var(--faint)\"/>\
             <path class=\"grid\" d=\"{grid}\" style=\"opacity:.7\"/>\
             <path id=\"lasers\" d=\"{lasers}\" style=\"fill:none;stroke:var(--capacity);stroke-width:.5;opacity:.35\"/>\
             <path id=\"satellites\" d=\"{satellites}\" style=\"fill:none;stroke:var(--soft);stroke-width:2.6;stroke-linecap:round\"/>\
             <path id=\"route\" d=\"{route}\" style=\"fill:none;stroke:var(--starhaul);stroke-width:3;stroke-linejoin:round;stroke-linecap:round\"/>\
             {stations}</svg>"
        )
    }
}

/// Longitude and latitude.
fn degrees(at: Position) -> (f64, f64) {
    let (latitude, longitude) = at.latitude_longitude();
    (longitude, latitude)
}

fn place((longitude, latitude): (f64, f64)) -> (f64, f64) {
    ((longitude + 180.0) * DEGREE, (90.0 - latitude) * DEGREE)
}

/// A straight line the shorter way around; across the edge of the map it is drawn at both sides.
fn line(out: &mut String, from: (f64, f64), to: (f64, f64)) {
    let around = 360.0 * ((to.0 - from.0) / 360.0).round();
    let mut draw = |from, to| {
        let ((x, y), (to_x, to_y)) = (place(from), place(to));
        let _ = write!(out, "M{x:.1} {y:.1}L{to_x:.1} {to_y:.1}");
    };
    draw(from, (to.0 - around, to.1));
    if around != 0.0 {
        draw((from.0 + around, from.1), to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_across_the_edge_is_drawn_at_both_sides() {
        let mut out = String::new();
        line(&mut out, (170.0, 0.0), (-170.0, 10.0));
        // 10 degrees to each side of the edge, which is at 0 and at 1120.
        assert_eq!(out, "M1088.9 280.0L1151.1 248.9M-31.1 280.0L31.1 248.9");
        out.clear();
        line(&mut out, (0.0, 0.0), (10.0, 0.0));
        assert_eq!(out, "M560.0 280.0L591.1 280.0");
    }
}
