//! One flow over time: rate under capacity, round-trip time, the controller's state, reconfigurations.

use super::family;
use crate::{
    leocc::{Course, table::distinct},
    report::chart::{Chart, Scale},
};

const SIZE: (f64, f64) = (560.0, 190.0);
/// Colours for states, told apart by order of their appearance.
const STATE_CLASSES: usize = 8;

/// Two plots, rate and round-trip time, and a legend of the states.
pub(super) fn figure(course: &Course, slowest_rtt_ms: f64) -> String {
    let legend: String = states(course)
        .iter()
        .enumerate()
        .map(|(n, state)| {
            format!(
                "<span class=\"key s{}\"><i></i>{}</span>",
                n % STATE_CLASSES,
                state.replace('_', " ")
            )
        })
        .collect();
    format!(
        "<figure>{}{}<figcaption>{legend}</figcaption></figure>",
        rate(course),
        rtt(course, slowest_rtt_ms)
    )
}

/// The rate alone with the states above it.
pub(super) fn rate(course: &Course) -> String {
    let capacity: Vec<_> = course
        .samples
        .iter()
        .map(|s| (s.at_s, s.capacity_mbps))
        .collect();
    let most = capacity.iter().map(|(_, mbps)| *mbps).fold(0.0, f64::max);
    let end = end(course);
    let mut plot = Chart::named(
        SIZE,
        &course.system,
        "rate, Mbit/s",
        "s",
        Scale::Linear(0.0, end),
        Scale::up_to(most),
    );
    plot.stripes("outage", outages(course));
    plot.area("capacity", &capacity);
    plot.line("capacity", &capacity);
    let rate: Vec<_> = course
        .samples
        .iter()
        .map(|s| (s.at_s, s.throughput_mbps))
        .collect();
    plot.line(family(&course.system), &rate);
    let states = states(course);
    let ends = course.states.iter().skip(1).map(|(at, _)| *at).chain([end]);
    for ((from, state), to) in course.states.iter().zip(ends) {
        let class = states.iter().position(|known| known == state).unwrap_or(0) % STATE_CLASSES;
        plot.stretch(
            &format!("s{class}"),
            *from,
            to,
            &format!("{state}, {from:.2} to {to:.2} s"),
        );
    }
    plot.svg(&format!(
        "rate of {} under the capacity over time",
        course.system
    ))
}

fn rtt(course: &Course, slowest_ms: f64) -> String {
    let points: Vec<_> = course
        .samples
        .iter()
        .filter_map(|s| Some((s.at_s, s.rtt_ms?)))
        .collect();
    let y = Scale::Log(10.0, slowest_ms.max(20.0));
    let mut plot = Chart::named(
        SIZE,
        "",
        "round-trip time, ms",
        "s",
        Scale::Linear(0.0, end(course)),
        y,
    );
    plot.stripes("outage", outages(course));
    plot.line(family(&course.system), &points);
    plot.svg(&format!("round-trip time of {} over time", course.system))
}

fn outages(course: &Course) -> impl Iterator<Item = (f64, f64)> {
    course
        .outages
        .iter()
        .map(|outage| (outage.start.as_secs_f64(), outage.end.as_secs_f64()))
}

fn end(course: &Course) -> f64 {
    course.samples.last().map_or(1.0, |sample| sample.at_s)
}

fn states(course: &Course) -> Vec<&'static str> {
    distinct(course.states.iter().map(|(_, state)| *state))
}
