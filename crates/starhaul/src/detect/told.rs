//! The output of `starhaul detect`: lines for people, or JSON objects.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use starhaul_cc::{Reconfiguration, ReconfigurationSource};
use starhaul_net::prober::{ProbedBy, ProberEvent, ProberStatus, Stage};

use crate::output::print;

/// Prints events and the summary.
pub(super) struct Told {
    start: Instant,
    json: bool,
    found: Vec<Reconfiguration>,
}

impl Told {
    pub(super) fn new(start: Instant, json: bool) -> Self {
        Self {
            start,
            json,
            found: Vec::new(),
        }
    }

    pub(super) fn event(
        &mut self,
        event: &ProberEvent,
        status: &ProberStatus,
    ) -> anyhow::Result<()> {
        match event {
            ProberEvent::Reconfiguration(found) => {
                let by_timetable = found.source == ReconfigurationSource::Schedule;
                if !by_timetable {
                    self.found.push(*found);
                }
                let elapsed = found.at.saturating_duration_since(self.start);
                let unix = wall_clock(found.at);
                self.say(
                    || {
                        let what = match by_timetable {
                            true => "by the timetable".to_owned(),
                            false => format!("outage {:.0} ms", ms(found.outage)),
                        };
                        format!(
                            "{} UTC  +{:.3} s  reconfiguration  {what}  confidence {:.2}",
                            time_of_day(unix),
                            elapsed.as_secs_f64(),
                            found.confidence
                        )
                    },
                    || {
                        json!({
                            "event": "reconfiguration",
                            "elapsed_s": elapsed.as_secs_f64(),
                            "unix_s": unix.as_secs_f64(),
                            "outage_ms": (!by_timetable).then(|| ms(found.outage)),
                            "source": found.source.name(),
                            "confidence": found.confidence,
                        })
                    },
                )
            }
            ProberEvent::Stage(stage) => self.stage(stage, status),
            _ => Ok(()),
        }
    }

    fn stage(&self, stage: &Stage, status: &ProberStatus) -> anyhow::Result<()> {
        match stage {
            Stage::Searching => self.say(
                || "searching for the nearest stable address behind the satellite".to_owned(),
                || json!({"event": "searching"}),
            ),
            Stage::Waiting { problem } => self.say(
                || format!("cannot probe, will try again: {problem}"),
                || json!({"event": "waiting", "problem": problem}),
            ),
            Stage::Probing { target, found, by } => self.say(
                || {
                    let how = found.map_or_else(String::new, |found| {
                        let (hops, reason) = (found.hops, found.by.reason());
                        let plural = if hops == 1 { "" } else { "s" };
                        format!(", {hops} hop{plural} away ({reason})")
                    });
                    let why = match (by, &status.icmp_refused) {
                        (ProbedBy::UdpEcho, Some(refused)) => format!("; no ICMP: {refused}"),
                        _ => String::new(),
                    };
                    let stamps = match status.departures_stamped {
                        true => "stamps of both ways",
                        false => "stamps of answers only",
                    };
                    let first = match status.first {
                        true => "real-time priority",
                        false => "ordinary priority (CAP_SYS_NICE gives better)",
                    };
                    format!(
                        "probing {target}{how} by {}; {stamps}, {first}{why}",
                        by.name()
                    )
                },
                || {
                    json!({
                        "event": "probing",
                        "target": target,
                        "hops": found.map(|found| found.hops),
                        "by": method(*by),
                        "icmp_refused": status.icmp_refused,
                        "departures_stamped": status.departures_stamped,
                        "real_time_priority": status.first,
                    })
                },
            ),
        }
    }

    pub(super) fn summary(&self, status: &ProberStatus, elapsed: Duration) -> anyhow::Result<()> {
        let share = share(status.answered, status.sent);
        let median_outage = median(self.found.iter().map(|found| found.outage).collect());
        let apart = self
            .found
            .windows(2)
            .map(|pair| pair[1].at.saturating_duration_since(pair[0].at));
        let median_apart = median(apart.collect());
        self.say(
            || {
                let outage = median_outage.map_or_else(String::new, |outage| {
                    format!(", outages of {:.0} ms at the median", ms(outage))
                });
                let apart = median_apart.map_or_else(String::new, |apart| {
                    format!(", {:.1} s apart", apart.as_secs_f64())
                });
                let rtt = status
                    .rtt
                    .map_or_else(String::new, |rtt| format!(", round trip {:.1} ms", ms(rtt)));
                let refused = match status.refused {
                    0 => String::new(),
                    refused => format!(", {refused} refused by this host"),
                };
                format!(
                    "{} reconfigurations in {:.0} s{outage}{apart}; {} probes, {share}answered{refused}{rtt}",
                    status.found,
                    elapsed.as_secs_f64(),
                    status.sent,
                    share = share.map_or_else(String::new, |share| format!("{share:.1} % ")),
                )
            },
            || {
                json!({
                    "event": "summary",
                    "elapsed_s": elapsed.as_secs_f64(),
                    "reconfigurations": status.found,
                    "outage_median_ms": median_outage.map(ms),
                    "apart_median_s": median_apart.map(|apart| apart.as_secs_f64()),
                    "sent": status.sent,
                    "answered": status.answered,
                    "refused": status.refused,
                    "rtt_median_ms": status.rtt.map(ms),
                })
            },
        )
    }

    fn say(
        &self,
        line: impl FnOnce() -> String,
        object: impl FnOnce() -> Value,
    ) -> anyhow::Result<()> {
        match self.json {
            true => print(format!("{}\n", object())),
            false => print(format!("{}\n", line())),
        }
    }
}

/// The status line, which is redrawn.
pub(super) fn live(status: &ProberStatus) -> String {
    let rtt = status
        .rtt
        .map_or_else(String::new, |rtt| format!(" · {:.1} ms", ms(rtt)));
    let outage = status.outage.map_or_else(String::new, |outage| {
        format!(" · silent for {:.0} ms", ms(outage))
    });
    format!(
        "{} probes · {} answered{rtt} · {} reconfigurations{outage}",
        status.sent, status.answered, status.found
    )
}

fn method(by: ProbedBy) -> &'static str {
    match by {
        ProbedBy::PingSocket => "icmp_ping_socket",
        ProbedBy::RawSocket => "icmp_raw_socket",
        ProbedBy::UdpEcho => "udp_echo",
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The share in percent; probes in flight count as sent.
fn share(answered: u64, sent: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = answered as f64 / sent as f64 * 100.0;
    (sent > 0).then_some(share)
}

fn median(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort();
    durations.get(durations.len() / 2).copied()
}

/// Time since 1970 (UTC).
fn wall_clock(at: Instant) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    now.saturating_sub(Instant::now().saturating_duration_since(at))
}

fn time_of_day(unix: Duration) -> String {
    let seconds = unix.as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:03}",
        seconds % 60,
        unix.subsec_millis()
    )
}
