//! Reports of the demo, of traces and of replays: one HTML page without any network, or one picture, both in light and dark.

pub(crate) mod chart;
mod overview;
mod plots;
mod replay;
mod sheet;
mod trace;

pub use replay::ReplayPicture;
pub use trace::TraceReport;

use std::fmt::Write;

use crate::{
    baseline,
    demo::{Course, DemoResult, SystemResult, Systems},
    load::Class,
    score::ClassScore,
};

pub(crate) const CHART_STYLE: &str = include_str!("chart.css");
pub(crate) const PAGE_STYLE: &str = include_str!("page.css");

/// What a report is made of.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The figures.
    pub result: &'a DemoResult,
    /// The course of both runs.
    pub courses: &'a Systems<Course>,
    /// The command line that repeats the run.
    pub command: &'a str,
    /// What the links were, for people.
    pub links: &'a str,
}

impl Report<'_> {
    /// The whole page.
    pub fn html(&self) -> String {
        let mut body = String::new();
        self.head(&mut body);
        self.cards(&mut body);
        body.push_str("<h2>Every class, side by side</h2>");
        body.push_str("<p>On time: whole at the receiving application within the deadline. Late: whole, but after it. Lost: never whole. Latencies are of the blocks that arrived.</p>");
        self.classes(&mut body);
        body.push_str("<h2>On time, second by second</h2><p>Share of the blocks sent in each second that arrived whole within their deadline.</p>");
        figures(
            &mut body,
            Class::ALL.map(|class| plots::on_time_share(self.courses, class)),
        );
        body.push_str("<h2>Latency of every block</h2><p>From the sending to the receiving application, on a logarithmic scale. Strokes above a plot are blocks that never arrived.</p>");
        figures(
            &mut body,
            Class::ALL.map(|class| plots::latency(self.courses, class)),
        );
        body.push_str("<h2>Rate of each path</h2><p>What each link delivered towards the receiving applications, the download and all headers included, below what it could carry.</p>");
        figures(&mut body, plots::rates(self.courses));
        body.push_str("<h2>Paths and download</h2>");
        self.paths(&mut body);
        self.foot(&mut body);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>Starhaul demo, seed {}</title><style>{CHART_STYLE}{PAGE_STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
            self.result.seed
        )
    }

    fn head(&self, out: &mut String) {
        push(
            out,
            format_args!(
                "<h1>Starhaul demo</h1><p>Text, audio, video and a TCP download for {} s over two paths at once: {}. The same \
             applications over identical links, once by two Starhaul gateways and once by multipath QUIC.</p>\
             <p>{} {}</p>",
                self.result.seconds,
                escape(self.links),
                key("starhaul"),
                key("mpquic"),
            ),
        );
    }

    fn cards(&self, out: &mut String) {
        out.push_str("<div class=\"cards\">");
        for class in Class::ALL {
            let share = |system: &SystemResult| format!("{} %", percent(system.classes.of(class)));
            self.card(out, &format!("{} on time", class.name()), share);
        }
        self.card(out, "QoE", |system| format!("{:.0}", system.qoe));
        self.card(out, "download, Mbit/s", |system| {
            format!("{:.1}", system.download.mbit_per_s)
        });
        out.push_str("</div>");
    }

    fn card(&self, out: &mut String, title: &str, value: impl Fn(&SystemResult) -> String) {
        let Systems { starhaul, mpquic } = &self.result.systems;
        push(
            out,
            format_args!(
                "<div class=\"card\"><h3>{title}</h3><b>{}</b><span>mpquic {}</span></div>",
                value(starhaul),
                value(mpquic)
            ),
        );
    }

    fn classes(&self, out: &mut String) {
        out.push_str(
            "<div class=\"table\"><table><thead><tr><th>class</th><th>system</th><th>sent</th><th>on time</th><th>late</th>\
             <th>lost</th><th>on time, %</th><th>p50, ms</th><th>p95, ms</th><th>p99, ms</th></tr></thead><tbody>",
        );
        for class in Class::ALL {
            for (number, (name, system)) in self.result.systems.named().into_iter().enumerate() {
                let score = system.classes.of(class);
                let (row, label) = match number {
                    0 => (
                        " class=\"first\"",
                        format!("{}, {} ms", class.name(), class.deadline().as_millis()),
                    ),
                    _ => ("", String::new()),
                };
                push(
                    out,
                    format_args!(
                        "<tr{row}><td>{label}</td><td class=\"name {name}\">{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                     <td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        score.sent,
                        score.on_time,
                        score.late,
                        score.lost,
                        percent(score),
                        ms(score.p50_ms),
                        ms(score.p95_ms),
                        ms(score.p99_ms),
                    ),
                );
            }
        }
        out.push_str("</tbody></table></div>");
    }

    fn paths(&self, out: &mut String) {
        out.push_str(
            "<div class=\"table\"><table><thead><tr><th>system</th><th>SHA-256</th><th>download, MB</th><th>Mbit/s</th>\
             <th>LEO, MB both ways</th><th>GEO, MB both ways</th><th>QoE</th></tr></thead><tbody>",
        );
        for (name, system) in self.result.systems.named() {
            let (class, verdict) = if system.download.sha256_ok {
                ("yes", "intact")
            } else {
                ("no", "not intact")
            };
            push(
                out,
                format_args!(
                    "<tr><td class=\"name {name}\">{name}</td><td class=\"{class}\">{verdict}</td><td>{}</td><td>{:.2}</td><td>{}</td>\
                 <td>{}</td><td>{:.2}</td></tr>",
                    megabytes(system.download.bytes),
                    system.download.mbit_per_s,
                    megabytes(system.paths.leo.bytes),
                    megabytes(system.paths.geo.bytes),
                    system.qoe,
                ),
            );
        }
        out.push_str("</tbody></table></div>");
    }

    fn foot(&self, out: &mut String) {
        push(
            out,
            format_args!(
                "<footer><p>Made by <code>{}</code>, seed {}, Starhaul {}.</p><p>{}</p><p>A P frame is judged by its own deadline, \
             for both systems, also when its I frame was late. QoE is the sum of blocks on time times 3/3 for text, 2/3 for \
             audio, 1/3 for video.</p></footer>",
                escape(self.command),
                self.result.seed,
                env!("CARGO_PKG_VERSION"),
                escape(baseline::NOTE),
            ),
        );
    }
}

/// The share on time in percent; 100 only when nothing is missing.
pub(crate) fn percent(score: &ClassScore) -> String {
    let percent = score.on_time_share() * 100.0;
    if score.on_time == score.sent {
        "100".to_owned()
    } else {
        format!("{:.2}", (percent * 100.0).floor() / 100.0)
    }
}

fn figures<const N: usize>(out: &mut String, charts: [String; N]) {
    out.push_str("<div class=\"charts\">");
    for chart in charts {
        push(out, format_args!("<figure>{chart}</figure>"));
    }
    out.push_str("</div>");
}

fn key(name: &str) -> String {
    format!("<span class=\"key {name}\"><i></i>{name}</span>")
}

fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

#[expect(clippy::cast_precision_loss, reason = "a display value")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests;
