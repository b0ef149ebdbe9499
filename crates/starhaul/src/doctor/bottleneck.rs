//! What limits a session right now.

use starhaul_gateway::status::{Path, Session, Status};

use super::{Finding, host::Busy};

/// Part of what a path can carry at which it counts as full.
const FULL: f64 = 0.85;
/// Part of the congestion window in flight at which the controller holds data back.
const WINDOW_FULL: f64 = 0.9;
/// A session that sends less is idle.
const IDLE_BIT_PER_S: u64 = 100_000;

pub(super) fn find(status: &Status, peer: Option<&str>, busy: &Busy) -> Vec<Finding> {
    let sessions = status.sessions.iter();
    let meant = sessions.filter(|session| peer.is_none_or(|peer| peer == session.peer));
    meant.map(|session| of_session(session, busy)).collect()
}

fn of_session(session: &Session, busy: &Busy) -> Finding {
    let subject = format!("bottleneck toward {}", session.peer);
    let sent = session.traffic.sent_bit_per_s.unwrap_or_default();
    let megabits = |bits: u64| format!("{:.1} Mbit/s", mega(bits));
    if sent < IDLE_BIT_PER_S {
        return Finding::good(
            subject,
            "the session is idle: the applications send nothing",
        );
    }
    let up: Vec<&Path> = session
        .paths
        .iter()
        .filter(|path| path.state == "up")
        .collect();
    let can_carry = |path: &Path| {
        path.figures
            .as_ref()
            .map_or(0, |figures| figures.rate_bit_per_s)
    };
    let capacity: u64 = up.iter().map(|path| can_carry(path)).sum();
    let is_full = |path: &Path| {
        let flight = mega(path.bytes_in_flight) >= WINDOW_FULL * mega(path.cwnd_bytes);
        let rate = mega(path.traffic.sent_bit_per_s.unwrap_or_default());
        (flight, rate >= FULL * mega(can_carry(path)))
    };
    let full = up.iter().filter(|path| is_full(path).1).count();
    let held = up.iter().filter(|path| is_full(path).0).count();
    if let Some((thread, share)) = busy.full_thread() {
        return Finding::note(
            subject,
            format!(
                "the processor: thread {thread} uses {:.0} % of one, at {}",
                share * 100.0,
                megabits(sent)
            ),
            "use a faster processor, or fewer and larger packets",
        );
    }
    if !up.is_empty() && full == up.len() {
        return Finding::good(
            subject,
            format!(
                "the paths: {} leave over {} path(s) that carry {} together",
                megabits(sent),
                up.len(),
                megabits(capacity)
            ),
        );
    }
    if held > 0 {
        let found = format!(
            "the controllers: {held} of {} path(s) have a full congestion window, at {}",
            up.len(),
            megabits(sent)
        );
        let advice = "what they found so far is less than asked for; with link = \"leo\" or controller = \"dedicated\" they know more";
        return Finding::note(subject, found, advice);
    }
    Finding::good(
        subject,
        format!(
            "the applications: they send {}, and the paths carry {} together",
            megabits(sent),
            megabits(capacity)
        ),
    )
}

fn mega(number: u64) -> f64 {
    f64::from(u32::try_from(number / 1000).unwrap_or(u32::MAX)) / 1000.0
}
