//! The experiment's report: one HTML page without any network, in light and dark, and its plots as files.

mod heat;
mod scatter;
mod sensitivity;
mod time_series;

use maud::{Markup, PreEscaped, html};
use starhaul_flow::Metrics;
use starhaul_plot::{card, keys, made_by, page, picture};

use super::{
    goals::{OF_ORACLE, THROUGHPUT},
    plural,
    results::{Results, Row, TimeSeries},
    rivals::QUEUE_GOAL,
    standing,
    summary::{Summary, beaten, losses, ratio},
    tables,
};
use crate::kit::{self, FAMILIES};

/// How the names of LeoCC and its variants begin.
const OURS: &str = "leocc";
/// Whose figures stand first, where they are there: what a gateway's LEO paths run.
const OURS_FIRST: &str = "leocc2";
/// Each rival and its name on a card.
type Rivals<'a> = &'a [(&'a str, &'a str)];

impl Results {
    /// The whole page.
    pub fn html(&self) -> String {
        let body = html! {
            (self.head())
            (self.cards())
            @if !self.rows.is_empty() { (self.scatter()) }
            @if !self.beside().is_empty() { (self.beside_others()) }
            @if let Some(first) = self.series.first() { (self.series(first)) }
            @if self.has_studies() { (self.studies()) }
            @if self.standings().next().is_some() { (self.beside_oracle()) }
            (self.foot())
        };
        let title = format!("Starhaul lab: leocc, seed {}", self.seed);
        page(&title, kit::STYLE, &body)
    }

    /// Each plot as a picture of its own, with the name of its file.
    pub(super) fn pictures(&self) -> Vec<(String, String)> {
        let scatter = scatter::plots(self).into_iter();
        let series = self.series.iter().map(|series| {
            let file = format!("series-{}.svg", series.system);
            (file, time_series::rate(series))
        });
        let plots = scatter.map(|plot| (plot.file, plot.svg)).chain(series);
        plots
            .map(|(file, svg)| (file, picture(&svg, kit::STYLE)))
            .collect()
    }

    fn head(&self) -> Markup {
        let places = [
            (!self.rows.is_empty(), "scatter", "Throughput and delay"),
            (!self.beside().is_empty(), "beside", "Beside others"),
            (!self.series.is_empty(), "series", "Over time"),
            (self.has_studies(), "studies", "Studies"),
            (self.standings().next().is_some(), "oracle", "On any path"),
            (true, "how", "How it was measured"),
        ];
        let said = self.beside_kernel().into_iter().chain(self.late_runs());
        html! {
            h1 { "Congestion control over low-orbit links" }
            p {
                "Every 15 s a low-orbit network moves its users to another satellite: some tens of milliseconds of silence, then \
                 another capacity and another delay. " (self.who()) ", "
                @match self.real {
                    None => { "packet by packet in virtual time." }
                    Some(real) => {
                        "in real time: ours over our own stack, those of the kernel over TCP; medians of " (real.runs) " runs."
                    }
                }
            }
            p { (keys(FAMILIES)) }
            nav {
                @for (there, place, name) in places {
                    @if there { a href={ "#" (place) } { (name) } }
                }
            }
            @for sentence in self.skipped.iter().cloned().chain(said) {
                p { (sentence) }
            }
        }
    }

    /// The controllers and traces of the runs, for the page's introduction.
    fn who(&self) -> String {
        let count = self.trace_names().len();
        let traces = plural(count, "trace");
        let same = if count == 1 { "trace" } else { &traces };
        match self.system_names().as_slice() {
            [] => format!("The detector of that over {traces}"),
            [name] => format!("{name} with a saturating flow over {traces}"),
            names => format!(
                "{} controllers, each with a saturating flow over the same {same}",
                names.len()
            ),
        }
    }

    fn cards(&self) -> Markup {
        let first = self.rows.iter().any(|row| row.system == OURS_FIRST);
        let ours = if first { OURS_FIRST } else { OURS };
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.system == ours).collect();
        let Some(Summary { metrics, .. }) = Summary::of_all(&rows).into_iter().next() else {
            return Markup::default();
        };
        let card = |title: &str, value: String, note: &str| {
            card(OURS, title, &value, &html! { span { (note) } })
        };
        let ratios = |rivals: Rivals<'_>, what: &str, pick: fn(&Metrics) -> f64| {
            html! {
                @for (other, name) in rivals {
                    @if let Some(ratio) = ratio(&self.rows, ours, other, pick) {
                        (card(&format!("{what} × {name}"), format!("{ratio:.2}"), "median of runs"))
                    }
                }
            }
        };
        let (beaten, of) = beaten(&self.rows, ours);
        html! {
            div.cards {
                (card(
                    &format!("{ours} uses"),
                    format!("{:.1} %", metrics.utilisation * 100.0),
                    "of capacity, median run",
                ))
                (card(
                    "packets wait",
                    format!("{:.1} ms", metrics.queue_delay_mean_ms),
                    &format!("p95 {:.1} ms, median run", metrics.queue_delay_p95_ms),
                ))
                (ratios(
                    &[("cubic", "Cubic"), ("copa", "Copa"), ("bbr3", "BBRv3")],
                    "throughput",
                    |m| m.throughput_mbps,
                ))
                (ratios(&[("bbr", "BBRv1"), ("vivace", "Vivace")], "queueing delay", |m| m.queue_delay_mean_ms))
                (card(
                    "beaten in both",
                    format!("{beaten} of {of}"),
                    "runs where a rival has more throughput and less p95 delay",
                ))
            }
        }
    }

    fn scatter(&self) -> Markup {
        html! {
            h2 #scatter { "Throughput against delay" }
            p {
                "Each disc is a controller; the line leads from its mean queueing delay to its 95th percentile. Up is better, left is \
                 better. The dotted steps join those that no other beats in both throughput and mean delay (LeoCC, fig. 3)."
            }
            div."charts wide" {
                @for plot in scatter::plots(self) {
                    figure { (PreEscaped(plot.svg)) }
                }
            }
            @for loss in losses(&self.rows) {
                h3.sub { "Medians over all traces, loss " (loss) }
                (tables::medians(self.rows.iter().filter(|row| row.params.loss_name() == loss)).html())
            }
        }
    }

    fn beside_others(&self) -> Markup {
        html! {
            h2 #beside { "Beside each other system" }
            p {
                "Run by run over the same link. Ratios of throughput and mean queueing delay; in how many runs the latter is at most \
                 0.56, the paper's; in how many the other has more throughput and less p95 delay (" em { "beaten" } "); in how many \
                 it has no less throughput and waits less than the other on average (" em { "ahead" } ")."
            }
            @for (system, loss, table) in self.beside_tables() {
                h3.sub { (system) " beside others, loss " (loss) }
                (table.html())
            }
        }
    }

    fn beside_oracle(&self) -> Markup {
        html! {
            h2 #oracle { "On any path" }
            p {
                "Run by run over the same link: throughput and mean queueing delay per BBR's, throughput per that of an oracle, \
                 which knows beforehand when the link can carry a packet, and the queueing delay above the oracle's. Green is within \
                 the goals: " (THROUGHPUT) " of BBR's throughput, " (QUEUE_GOAL) " of its queue and of what it has above the \
                 oracle's, " (OF_ORACLE) " of the oracle's throughput."
                @if self.probed { " A prober ran over each link, also where no outage is long enough for it." }
            }
            @for (name, rows) in self.standings() {
                h3.sub { (name) }
                (standing::table(rows).html())
                @if rows.iter().any(|row| row.variant.is_some()) {
                    h3.sub { "Medians by added one-way delay and capacity" }
                    (heat::map(rows))
                }
            }
        }
    }

    fn series(&self, first: &TimeSeries) -> Markup {
        let slowest_of = |series: &'_ TimeSeries| -> f64 {
            let rtts = series.samples.iter().filter_map(|sample| sample.rtt_ms);
            rtts.fold(100.0, f64::max)
        };
        let slowest = self.series.iter().map(slowest_of).fold(100.0, f64::max);
        // Ours first.
        let is_ours = |series: &&TimeSeries| series.system.starts_with(OURS);
        let (ours, others): (Vec<_>, Vec<_>) = self.series.iter().partition(is_ours);
        html! {
            h2 #series { "Over time" }
            p {
                "Trace " (first.trace) ", loss " (first.loss) ". Grey: what the link could carry. Red: outages. The strip above shows \
                 the controller's state."
            }
            div."charts wide" {
                @for series in ours.into_iter().chain(others) {
                    (PreEscaped(time_series::figure(series, slowest)))
                }
            }
        }
    }

    fn has_studies(&self) -> bool {
        let rows = [&self.ablation, &self.queues, &self.shift, &self.sensitivity];
        rows.iter().any(|rows| !rows.is_empty())
            || !self.fairness.is_empty()
            || !self.detector.is_empty()
    }

    fn studies(&self) -> Markup {
        let unaware = tables::without_signals(&self.sensitivity);
        html! {
            h2 #studies { "Studies" }
            @for study in self.variations() {
                @let losses = losses(study.rows);
                h3.sub { (study.name) ", loss " (losses.join(", ")) }
                p { (study.what) }
                @for loss in &losses {
                    @if losses.len() > 1 { p { "Loss " (loss) } }
                    (PreEscaped(sensitivity::plot(study.rows, loss)))
                    (tables::medians(study.rows.iter().filter(|row| row.params.loss_name() == *loss)).html())
                }
            }
            @if !unaware.is_empty() {
                h3.sub { "Without any signal, trace by trace" }
                p {
                    "As shares of BBR's throughput and mean queueing delay on the same trace: what these controllers find out by \
                     themselves."
                }
                (unaware.html())
            }
            @if !self.fairness.is_empty() {
                h3.sub { "Fairness" }
                p {
                    "Flows begin 1 s apart and are measured from 6 s after the last; no random loss. Jain's index is 1 when all get \
                     the same. Medians over the traces of uplinks; the least index beside."
                }
                (tables::fairness(&self.fairness).html())
            }
            @if !self.detector.is_empty() {
                h3.sub { "Detector" }
                p {
                    "A probe each 10 ms; right within 150 ms of the outage's end. Probes in ICMP have a queue of their own on \
                     Starlink; those over UDP share the flow's."
                }
                (tables::detector(&self.detector).html())
            }
        }
    }

    fn foot(&self) -> Markup {
        html! {
            footer #how {
                (made_by(&self.command, Some(self.seed)))
                @match self.real {
                    None => { (virtual_time()) }
                    Some(_) => { (real_time()) }
                }
            }
        }
    }
}

fn virtual_time() -> Markup {
    html! {
        ul {
            li {
                "Throughput: new data at the receiver with all headers, start-up included. Capacity: what the link could carry in that \
                 time."
            }
            li {
                "Queueing delay: from a packet's coming to the link until its last byte left, the wait for the next delivery \
                 opportunity and for the end of outages included; the link's own delay is not."
            }
            li {
                "RTT: as the sender samples it, the receiver's delay included. Lost: packets that no link delivered, of those sent."
            }
            li {
                "Packets of 1500 bytes, an acknowledgement for each second one; losses are found and timeouts made as in RFC 9002. \
                 The same trace carries acknowledgements back, without random loss."
            }
            li {
                "Reconfigurations come from a prober on the same link. Where a trace's grid of 50 ms hides its outages from probes, \
                 the truth is told at the time at which probes would have found it."
            }
        }
    }
}

fn real_time() -> Markup {
    html! {
        ul {
            li {
                "All figures are the link's own, the same for every system, counted from the start of the program on."
            }
            li {
                "Throughput: IP packets that it delivered, what was sent twice included. Queueing delay: from a packet's coming to the \
                 link until its last byte left. RTT: both links' delays together, without the hosts'. Lost: packets that the link did \
                 not deliver."
            }
            li {
                "Ours: " code { "starhaul lab flow" } ", one QUIC path and one reliable stream, IP packets of at most 1500 bytes. The \
                 kernel's: " code { "iperf3 -C" } ". The trace goes both ways; random loss and the queue under test for data only."
            }
            li {
                "Run n of every system has the same seed: the same packets are lost, counted as they leave."
            }
        }
    }
}
