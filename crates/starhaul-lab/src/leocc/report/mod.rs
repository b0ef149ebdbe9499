//! The experiment's report: one HTML page without any network, in light and dark, and its plots as files.

mod course;
mod scatter;
mod sensitivity;
mod tables;

use std::fmt::Write as _;

use super::{
    plural,
    results::{Results, Row},
    rivals::Beside,
    summary::{Summary, beaten, losses, ratio},
};
use crate::{
    kit::statistics::distinct,
    report::{CHART_STYLE, PAGE_STYLE, escape},
};

const STYLE: &str = include_str!("style.css");
/// How the names of LeoCC and its variants begin.
const OURS: &str = "leocc";
/// Whose figures stand first, where they are there: what a gateway's LEO paths run.
const OURS_FIRST: &str = "leocc2";

impl Results {
    /// The whole page.
    pub fn html(&self) -> String {
        let mut body = String::new();
        self.head(&mut body);
        self.cards(&mut body);
        self.scatter(&mut body);
        self.beside_others(&mut body);
        self.series(&mut body);
        self.studies(&mut body);
        self.foot(&mut body);
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>Starhaul lab: leocc, seed {}</title><style>{CHART_STYLE}{PAGE_STYLE}{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n",
            self.seed
        )
    }

    /// Each plot as a picture of its own, with the name of its file.
    pub(super) fn pictures(&self) -> Vec<(String, String)> {
        let scatter = scatter::plots(self)
            .into_iter()
            .map(|plot| (plot.file, plot.svg));
        let series = self.courses.iter().map(|course| {
            (
                format!("series-{}.svg", course.system),
                course::rate(course),
            )
        });
        scatter
            .chain(series)
            .map(|(file, svg)| (file, picture(&svg)))
            .collect()
    }

    fn head(&self, out: &mut String) {
        let how = match self.real {
            None => "packet by packet in virtual time".to_owned(),
            Some(real) => format!(
                "in real time: ours over our own stack, those of the kernel over TCP; medians of {} runs",
                real.runs
            ),
        };
        push(
            out,
            format_args!(
                "<h1>Congestion control over low-orbit links</h1><p>Every 15 s a low-orbit network moves its users to another \
                 satellite: some tens of milliseconds of silence, then another capacity and another delay. {}, {how}.</p>",
                self.who()
            ),
        );
        out.push_str("<p>");
        for (class, name) in [
            ("leocc", "LeoCC"),
            ("bbr", "BBR"),
            ("loss", "by loss"),
            ("delay", "by delay"),
            ("learn", "by online learning"),
        ] {
            push(
                out,
                format_args!("<span class=\"key {class}\"><i></i>{name}</span>"),
            );
        }
        out.push_str("</p><nav>");
        for (there, place, name) in [
            (!self.rows.is_empty(), "scatter", "Throughput and delay"),
            (!self.beside().is_empty(), "beside", "Beside others"),
            (!self.courses.is_empty(), "series", "Over time"),
            (self.has_studies(), "studies", "Studies"),
            (true, "how", "How it was measured"),
        ] {
            if there {
                push(out, format_args!("<a href=\"#{place}\">{name}</a>"));
            }
        }
        out.push_str("</nav>");
        let said = self.beside_kernel().into_iter().chain(self.late_runs());
        for sentence in self.skipped.iter().cloned().chain(said) {
            push(out, format_args!("<p>{}</p>", escape(&sentence)));
        }
    }

    /// Who ran over what.
    fn who(&self) -> String {
        let count = self.trace_names().len();
        let traces = plural(count, "trace");
        let same = if count == 1 { "trace" } else { &traces };
        match self.system_names().as_slice() {
            [] => format!("The detector of that over {traces}"),
            [name] => format!("{} with a saturating flow over {traces}", escape(name)),
            names => format!(
                "{} controllers, each with a saturating flow over the same {same}",
                names.len()
            ),
        }
    }

    fn cards(&self, out: &mut String) {
        let first = self.rows.iter().any(|row| row.system == OURS_FIRST);
        let ours = if first { OURS_FIRST } else { OURS };
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.system == ours).collect();
        let Some(Summary { metrics, .. }) = Summary::of_all(&rows).into_iter().next() else {
            return;
        };
        out.push_str("<div class=\"cards\">");
        card(
            out,
            &format!("{ours} uses"),
            &format!("{:.1} %", metrics.utilisation * 100.0),
            "of capacity, median run",
        );
        card(
            out,
            "packets wait",
            &format!("{:.1} ms", metrics.queue_delay_mean_ms),
            &format!("p95 {:.1} ms, median run", metrics.queue_delay_p95_ms),
        );
        for (other, what) in [("cubic", "Cubic"), ("copa", "Copa"), ("bbr3", "BBRv3")] {
            if let Some(ratio) = ratio(&self.rows, ours, other, |m| m.throughput_mbps) {
                card(
                    out,
                    &format!("throughput × {what}"),
                    &format!("{ratio:.2}"),
                    "median of runs",
                );
            }
        }
        for (other, what) in [("bbr", "BBRv1"), ("vivace", "Vivace")] {
            if let Some(ratio) = ratio(&self.rows, ours, other, |m| m.queue_delay_mean_ms) {
                card(
                    out,
                    &format!("queueing delay × {what}"),
                    &format!("{ratio:.2}"),
                    "median of runs",
                );
            }
        }
        let (beaten, of) = beaten(&self.rows, ours);
        card(
            out,
            "beaten in both",
            &format!("{beaten} of {of}"),
            "runs where a rival has more throughput and less p95 delay",
        );
        out.push_str("</div>");
    }

    fn scatter(&self, out: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        out.push_str(
            "<h2 id=\"scatter\">Throughput against delay</h2><p>Each disc is a controller; the line leads from its mean queueing delay to \
             its 95th percentile. Up is better, left is better. The dotted steps join those that nobody beats in both throughput and mean delay (LeoCC, fig. 3).</p>\
             <div class=\"charts wide\">",
        );
        for plot in scatter::plots(self) {
            push(out, format_args!("<figure>{}</figure>", plot.svg));
        }
        out.push_str("</div>");
        for loss in losses(&self.rows) {
            let rows: Vec<&Row> = self
                .rows
                .iter()
                .filter(|row| row.params.loss_name() == loss)
                .collect();
            push(
                out,
                format_args!(
                    "<h3 class=\"sub\">Medians over all traces, loss {loss}</h3>{}",
                    tables::medians(&rows)
                ),
            );
        }
    }

    fn beside_others(&self, out: &mut String) {
        let beside = self.beside();
        if beside.is_empty() {
            return;
        }
        out.push_str(
            "<h2 id=\"beside\">Beside each other system</h2><p>Run by run over the same link. Ratios of throughput and mean queueing delay; in how \
             many runs the latter is at most 0.56, the paper's; in how many the other has more throughput and less p95 delay \
             (<em>beaten</em>); in how many it has no less throughput and waits less than the other on average (<em>ahead</em>).</p>",
        );
        for (system, loss) in distinct(beside.iter().map(|line| (&line.system, &line.loss))) {
            let same = |line: &&Beside| line.system == *system && line.loss == *loss;
            let lines: Vec<&Beside> = beside.iter().filter(same).collect();
            push(
                out,
                format_args!(
                    "<h3 class=\"sub\">{} beside others, loss {loss}</h3>{}",
                    escape(system),
                    tables::beside(&lines)
                ),
            );
        }
    }

    fn series(&self, out: &mut String) {
        let Some(first) = self.courses.first() else {
            return;
        };
        push(
            out,
            format_args!(
                "<h2 id=\"series\">Over time</h2><p>Trace {}, loss {}. Grey: what the link could carry. Red: outages. The strip above shows \
                 the controller's state.</p><div class=\"charts wide\">",
                escape(&first.trace),
                first.loss
            ),
        );
        let rtts = self
            .courses
            .iter()
            .flat_map(|course| course.samples.iter().filter_map(|sample| sample.rtt_ms));
        let slowest = rtts.fold(100.0, f64::max);
        // Ours first.
        let (ours, others): (Vec<_>, Vec<_>) = self
            .courses
            .iter()
            .partition(|course| course.system.starts_with(OURS));
        for course in ours.into_iter().chain(others) {
            out.push_str(&course::figure(course, slowest));
        }
        out.push_str("</div>");
    }

    fn has_studies(&self) -> bool {
        let rows = [&self.ablation, &self.queues, &self.shift, &self.sensitivity];
        rows.iter().any(|rows| !rows.is_empty())
            || !self.fairness.is_empty()
            || !self.detector.is_empty()
    }

    fn studies(&self, out: &mut String) {
        if !self.has_studies() {
            return;
        }
        out.push_str("<h2 id=\"studies\">Studies</h2>");
        for study in self.variations() {
            push(
                out,
                format_args!(
                    "<h3 class=\"sub\">{}, loss {}</h3><p>{}</p>",
                    study.name,
                    losses(study.rows).join(", "),
                    study.what
                ),
            );
            out.push_str(&sensitivity::plot(study.rows));
            out.push_str(&tables::variants(study.rows));
        }
        let unaware = tables::without_signals(&self.sensitivity);
        if !unaware.is_empty() {
            push(
                out,
                format_args!(
                    "<h3 class=\"sub\">Without any signal, trace by trace</h3><p>As shares of BBR's throughput and mean queueing delay on the same \
                     trace: what these controllers find out by themselves.</p>{unaware}"
                ),
            );
        }
        if !self.fairness.is_empty() {
            push(
                out,
                format_args!(
                    "<h3 class=\"sub\">Fairness</h3><p>Flows begin 1 s apart and are measured from 5 s after the last; no random loss. Jain's \
                     index is 1 when all get the same. Medians over the traces of uplinks; the least index beside.</p>{}",
                    tables::fairness(&self.fairness)
                ),
            );
        }
        if !self.detector.is_empty() {
            push(
                out,
                format_args!(
                    "<h3 class=\"sub\">Detector</h3><p>A probe each 10 ms; right within 150 ms of the outage's end. Probes in ICMP have a queue \
                     of their own on Starlink; those over UDP share the flow's.</p>{}",
                    tables::detector(&self.detector)
                ),
            );
        }
    }

    fn foot(&self, out: &mut String) {
        if self.real.is_some() {
            return self.foot_of_real_time(out);
        }
        push(
            out,
            format_args!(
                "<footer id=\"how\"><p>Made by <code>{}</code>, seed {}, Starhaul {}.</p><ul>\
                 <li>Throughput: new data at the receiver with all headers, start-up included. Capacity: what the link could carry in that time.</li>\
                 <li>Queueing delay: from a packet's coming to the link until its last byte left, the wait for the next delivery opportunity and \
                 for the end of outages included; the link's own delay is not.</li>\
                 <li>RTT: as the sender samples it, the receiver's delay included. Lost: packets that no link delivered, of those sent.</li>\
                 <li>Packets of 1500 bytes, an acknowledgement for each second one; losses are found and timeouts made as in RFC 9002. The same \
                 trace carries acknowledgements back, without random loss.</li>\
                 <li>Reconfigurations come from a prober on the same link. Where a trace's grid of 50 ms hides its outages from probes, the \
                 truth is told at the time at which probes would have found it.</li></ul></footer>",
                escape(&self.command),
                self.seed,
                env!("CARGO_PKG_VERSION"),
            ),
        );
    }

    fn foot_of_real_time(&self, out: &mut String) {
        push(
            out,
            format_args!(
                "<footer id=\"how\"><p>Made by <code>{}</code>, seed {}, Starhaul {}.</p><ul>\
                 <li>All figures are the link's own, the same for every system, counted from the start of the program on.</li>\
                 <li>Throughput: IP packets that it delivered, what was sent twice included. Queueing delay: from a packet's coming to the link \
                 until its last byte left. RTT: both links' delays together, without the hosts'. Lost: packets that the link did not \
                 deliver.</li>\
                 <li>Ours: <code>starhaul lab flow</code>, one QUIC path and one reliable stream, IP packets of at most 1500 bytes. The kernel's: \
                 <code>iperf3 -C</code>. The trace goes both ways; random loss and the queue under test for data only.</li>\
                 <li>Run n of every system has the same seed: the same packets are lost, counted as they leave.</li></ul></footer>",
                escape(&self.command),
                self.seed,
                env!("CARGO_PKG_VERSION"),
            ),
        );
    }
}

/// The colour of a controller: what it takes for congestion.
fn family(system: &str) -> &'static str {
    match system.trim_start_matches("kernel-") {
        system if system.starts_with("leocc") => "leocc",
        system if system.starts_with("bbr") => "bbr",
        "copa" | "vegas" => "delay",
        "vivace" => "learn",
        _ => "loss",
    }
}

fn card(out: &mut String, title: &str, value: &str, note: &str) {
    push(
        out,
        format_args!(
            "<div class=\"card leocc\"><h3>{title}</h3><b>{value}</b><span>{note}</span></div>"
        ),
    );
}

/// A plot with its style, as a file.
fn picture(svg: &str) -> String {
    let inner = svg.trim_start_matches("<svg ");
    let Some((attributes, rest)) = inner.split_once('>') else {
        return svg.to_owned();
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"system-ui, sans-serif\" {attributes}>\n<style>{CHART_STYLE}{STYLE}</style>\
         <rect class=\"sheet\" width=\"100%\" height=\"100%\"/>{rest}\n"
    )
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}
