//! One flow over time: rate under capacity, round-trip time, the controller's state, reconfigurations.

use starhaul_plot::{Chart, Scale};

use crate::{experiments::leocc::TimeSeries, kit::statistics::distinct, systems::family};

const SIZE: (f64, f64) = (560.0, 190.0);
/// Two plots, rate and round-trip time, and a legend of the states.
pub(super) fn figure(series: &TimeSeries, slowest_rtt_ms: f64) -> String {
    let legend: String = states(series)
        .iter()
        .map(|state| {
            format!(
                "<span class=\"key {}\"><i></i>{}</span>",
                colour(state),
                state.replace('_', " ")
            )
        })
        .collect();
    format!(
        "<figure>{}{}<figcaption>{legend}</figcaption></figure>",
        rate(series),
        rtt(series, slowest_rtt_ms)
    )
}

/// The rate alone with the states above it.
pub(super) fn rate(series: &TimeSeries) -> String {
    let capacity: Vec<_> = series
        .samples
        .iter()
        .map(|s| (s.at_s, s.capacity_mbps))
        .collect();
    let most = capacity.iter().map(|(_, mbps)| *mbps).fold(0.0, f64::max);
    let end = end(series);
    let mut plot = Chart::named(
        SIZE,
        &series.system,
        "rate, Mbit/s",
        "s",
        Scale::Linear(0.0, end),
        Scale::up_to(most),
    );
    plot.stripes("outage", outages(series));
    plot.area("capacity", &capacity);
    plot.line("capacity", &capacity);
    let rate: Vec<_> = series
        .samples
        .iter()
        .map(|s| (s.at_s, s.throughput_mbps))
        .collect();
    plot.line(family(&series.system), &rate);
    let ends = series.states.iter().skip(1).map(|(at, _)| *at).chain([end]);
    for ((from, state), to) in series.states.iter().zip(ends) {
        plot.stretch(
            colour(state),
            *from,
            to,
            &format!("{state}, {from:.2} to {to:.2} s"),
        );
    }
    plot.svg(&format!(
        "rate of {} under the capacity over time",
        series.system
    ))
}

fn rtt(series: &TimeSeries, slowest_ms: f64) -> String {
    let points: Vec<_> = series
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
        Scale::Linear(0.0, end(series)),
        y,
    );
    plot.stripes("outage", outages(series));
    plot.line(family(&series.system), &points);
    plot.svg(&format!("round-trip time of {} over time", series.system))
}

fn outages(series: &TimeSeries) -> impl Iterator<Item = (f64, f64)> {
    series
        .outages
        .iter()
        .map(|outage| (outage.start.as_secs_f64(), outage.end.as_secs_f64()))
}

fn end(series: &TimeSeries) -> f64 {
    series.samples.last().map_or(1.0, |sample| sample.at_s)
}

fn states(series: &TimeSeries) -> Vec<&'static str> {
    distinct(series.states.iter().map(|(_, state)| *state))
}

/// The colour of a state is the same in every picture of a page, and no two states of one controller share one.
fn colour(state: &str) -> &'static str {
    match state {
        "cruise"
        | "probe_bw"
        | "probe_bw_cruise"
        | "congestion_avoidance"
        | "default_mode"
        | "probing"
        | "fixed_rate" => "s1",
        "startup" | "slow_start" | "starting" => "s2",
        "drain" => "s3",
        "cruise_moderate" | "probe_bw_down" | "competitive_mode" | "moving" => "s4",
        "adaptation" | "probe_rtt" => "s5",
        "cruise_competitive" | "probe_bw_refill" | "conservative_slow_start" => "s6",
        "probe_bw_up" => "s7",
        _ => "s0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_states_of_a_controller_look_alike() {
        let controllers: [&[&str]; 6] = [
            &[
                "startup",
                "drain",
                "cruise",
                "cruise_moderate",
                "cruise_competitive",
                "adaptation",
            ],
            &["startup", "drain", "probe_bw", "probe_rtt"],
            &[
                "startup",
                "drain",
                "probe_bw_down",
                "probe_bw_cruise",
                "probe_bw_refill",
                "probe_bw_up",
                "probe_rtt",
            ],
            &[
                "slow_start",
                "conservative_slow_start",
                "congestion_avoidance",
            ],
            &["slow_start", "default_mode", "competitive_mode"],
            &["starting", "probing", "moving"],
        ];
        for states in controllers {
            let colours = distinct(states.iter().map(|state| colour(state)));
            assert_eq!(colours.len(), states.len(), "{states:?}: {colours:?}");
            assert!(!colours.contains(&"s0"), "{states:?}: {colours:?}");
        }
    }
}
