//! The report of the demo: one HTML page without any network, or one picture, both in light and dark.

mod plots;
mod tables;

pub(crate) use tables::{classes, paths, percent};

use maud::html;
use starhaul_plot::{Tiles, card, figures, keys, made_by, page};

use crate::{
    DemoResult, SystemResult, SystemSeries, Systems, baseline, load::Class, score::lost_means,
};

/// What a report is made of.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Figures of both systems.
    pub result: &'a DemoResult,
    /// Both runs over time.
    pub all_series: &'a Systems<SystemSeries>,
    /// The command line that repeats the run.
    pub command: &'a str,
    /// What the links were, for people.
    pub links: &'a str,
}

impl Report<'_> {
    /// The whole page.
    pub fn html(&self) -> String {
        let Systems { starhaul, mpquic } = &self.result.systems;
        let beside = |title: &str, value: &dyn Fn(&SystemResult) -> String| {
            let note = html! { span { "mpquic " (value(mpquic)) } };
            card("", title, &value(starhaul), &note)
        };
        let body = html! {
            h1 { "Starhaul demo" }
            p {
                "Text, audio, video and a TCP download for " (self.result.seconds) " s over two paths at once: " (self.links)
                ". The same applications over identical links, once by two Starhaul gateways and once by multipath QUIC."
            }
            @for warning in &self.result.warnings {
                p.warning { "warning: " (warning) }
            }
            p { (keys([("starhaul", "starhaul"), ("mpquic", "mpquic")])) }
            div.cards {
                @for class in Class::ALL {
                    (beside(&format!("{} on time", class.name()), &|system| format!("{} %", percent(system.classes.of(class).tally()))))
                }
                (beside("QoE", &|system| format!("{:.0}", system.qoe)))
                (beside("download, Mbit/s", &|system| format!("{:.1}", system.download.mbit_per_s)))
            }
            h2 { "Every class, side by side" }
            p {
                "On time: whole at the receiving application within the deadline. Late: whole, but after it. " (lost_means())
                " Latencies are of the blocks that arrived."
            }
            (tables::classes(self.result).html())
            h2 { "On time, second by second" }
            p { "Share of the blocks sent in each second that arrived whole within their deadline." }
            (figures(Class::ALL.map(|class| plots::on_time_share(self.all_series, class))))
            h2 { "Latency of every block" }
            p {
                "From the sending to the receiving application, on a logarithmic scale. Strokes above a plot are blocks that are \
                 lost."
            }
            (figures(Class::ALL.map(|class| plots::latency(self.all_series, class))))
            h2 { "Rate of each path" }
            p {
                "What each link delivered towards the receiving applications, the download and all headers included, below what it \
                 could carry."
            }
            (figures(plots::rates(self.all_series)))
            h2 { "Paths and download" }
            (tables::paths(self.result).html())
            footer {
                (made_by(self.command, Some(self.result.seed)))
                p { (baseline::note(self.result.baseline)) }
                p {
                    "A P frame is judged by its own deadline, for both systems, also when its I frame was late. QoE is the sum of \
                     blocks on time times 3/3 for text, 2/3 for audio, 1/3 for video."
                }
            }
        };
        page(
            &format!("Starhaul demo, seed {}", self.result.seed),
            "",
            &body,
        )
    }

    /// Latency of each class, on-time share of the video and rate of each path in one picture.
    pub fn svg(&self) -> String {
        let DemoResult { seed, seconds, .. } = self.result;
        let mut charts = Class::ALL
            .map(|class| plots::latency(self.all_series, class))
            .to_vec();
        charts.push(plots::on_time_share(self.all_series, Class::Video));
        charts.extend(plots::rates(self.all_series));
        let named = self.result.systems.named();
        let figures = named.map(|(name, system)| (name, summary(system)));
        let warnings = self.result.warnings.iter();
        let warnings = warnings.map(|warning| ("warning", warning.clone()));
        let legend: Vec<_> = figures.into_iter().chain(warnings).collect();
        Tiles {
            caption: &format!("{}, {seconds} s, seed {seed}", self.links),
            legend: &legend,
            columns: 3,
            charts: &charts,
        }
        .svg()
    }
}

fn summary(system: &SystemResult) -> String {
    let shares = Class::ALL.map(|class| {
        format!(
            "{} {} %",
            class.name(),
            percent(system.classes.of(class).tally())
        )
    });
    format!(
        "{} on time, download {:.1} Mbit/s",
        shares.join(", "),
        system.download.mbit_per_s
    )
}

#[cfg(test)]
mod tests;
