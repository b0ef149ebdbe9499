//! What wrong signals cost: each variant as a share of the same controller's figures with the signals as they are.

use std::fmt::Write as _;

use crate::{
    experiments::leocc::{
        digest::{self, Variant},
        results::Row,
        section::AS_IT_IS,
    },
    kit::statistics::distinct,
};

const WIDTH: f64 = 1120.0;
/// Width of the variants' names, in pixels.
const NAMES: f64 = 170.0;
const TOP: f64 = 44.0;
const LINE: f64 = 21.0;
const GAP: f64 = 40.0;
const COLOURS: [&str; 6] = ["s1", "s2", "s5", "s4", "s3", "s7"];
/// The axes reach at least so far to both sides of 1.
const LEAST_REACH: f64 = 0.05;

/// Throughput and mean queueing delay of every variant at this loss, side by side; nothing where there is nothing to compare with.
pub(super) fn plot(rows: &[Row], loss: &str) -> String {
    let mut lines = digest::variants(rows);
    lines.retain(|line| line.loss == loss);
    let of = |system: &str, variant: &str| {
        let same = |line: &&Variant<'_>| line.system == system && line.variant == variant;
        lines.iter().find(same).map(|line| line.metrics)
    };
    let variants = distinct(lines.iter().map(|line| line.variant));
    let variants: Vec<&str> = variants
        .into_iter()
        .filter(|name| *name != AS_IT_IS)
        .collect();
    let mut systems = distinct(lines.iter().map(|line| line.system));
    systems.retain(|name| of(name, AS_IT_IS).is_some());
    systems.retain(|name| variants.iter().any(|variant| of(name, variant).is_some()));
    if variants.is_empty() || systems.is_empty() {
        return String::new();
    }
    let ratios = |pick: fn(&starhaul_flow::Metrics) -> f64| -> Vec<Mark> {
        let mut marks = Vec::new();
        for (row, variant) in variants.iter().enumerate() {
            for (number, system) in systems.iter().enumerate() {
                if let (Some(altered), Some(usual)) = (of(system, variant), of(system, AS_IT_IS)) {
                    let ratio = pick(&altered) / pick(&usual).max(f64::MIN_POSITIVE);
                    let what = format!("{system}, {variant}: {ratio:.3}");
                    marks.push(Mark {
                        row,
                        class: COLOURS[number % COLOURS.len()],
                        ratio,
                        what,
                    });
                }
            }
        }
        marks
    };
    let height = TOP + LINE * place(variants.len()) + 24.0;
    let mut body = String::new();
    for (row, variant) in variants.iter().enumerate() {
        let y = TOP + LINE * (place(row) + 0.5);
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            r#"<text class="tick" x="{:.0}" y="{:.1}" text-anchor="end">{variant}</text><path class="grid" d="M{NAMES} {y:.1}H{WIDTH}"/>"#,
            NAMES - 8.0,
            y + 3.5
        );
    }
    let width = (WIDTH - NAMES - GAP) / 2.0 - 10.0;
    let bottom = height - 20.0;
    let panels = [
        ("throughput", ratios(|m| m.throughput_mbps), NAMES),
        (
            "mean queueing delay",
            ratios(|m| m.queue_delay_mean_ms),
            NAMES + width + GAP,
        ),
    ];
    for (name, marks, left) in panels {
        panel(&mut body, name, &marks, (left, left + width), bottom);
    }
    let legend: String = systems
        .iter()
        .zip(COLOURS.iter().cycle())
        .map(|(system, class)| format!("<span class=\"key {class}\"><i></i>{system}</span>"))
        .collect();
    format!(
        "<figure><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"throughput and mean queueing delay with altered \
         signals\">{body}</svg><figcaption>{legend}</figcaption></figure>"
    )
}

/// A figure as a share of what it is with the signals as they are.
struct Mark {
    row: usize,
    class: &'static str,
    ratio: f64,
    what: String,
}

fn panel(body: &mut String, name: &str, marks: &[Mark], (left, right): (f64, f64), bottom: f64) {
    let ratios = || marks.iter().map(|mark| mark.ratio);
    let least = ratios().fold(1.0 - LEAST_REACH, f64::min);
    let most = ratios().fold(1.0 + LEAST_REACH, f64::max);
    let reach = (most - least) * 0.04;
    let (from, to) = (least - reach, most + reach);
    let at = |ratio: f64| left + (ratio - from) / (to - from) * (right - left);
    let _ = write!(
        body,
        r#"<text class="title" x="{left:.1}" y="15">{name}<tspan class="unit" dx="6">as a share of that with the signals as they are</tspan></text>"#
    );
    for (ratio, class) in [(least, "grid"), (1.0, "rule"), (most, "grid")] {
        let x = at(ratio);
        let _ = write!(
            body,
            r#"<path class="{class}" d="M{x:.1} {:.1}V{bottom:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{ratio:.2}</text>"#,
            TOP - 4.0,
            bottom + 14.0
        );
    }
    for mark in marks {
        let y = TOP + LINE * (place(mark.row) + 0.5);
        let _ = write!(
            body,
            r#"<circle class="point {}" cx="{:.1}" cy="{y:.1}" r="5"><title>{}</title></circle>"#,
            mark.class,
            at(mark.ratio),
            mark.what
        );
    }
}

fn place(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
