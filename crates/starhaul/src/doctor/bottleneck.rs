//! What limits a session right now.

use starhaul_gateway::status::{Path, Session, Status};

use super::{Cause, Finding, process::Watched};

/// Part of what a path can carry at which it counts as full.
const FULL: f64 = 0.85;
/// Part of the congestion window in flight at which the controller holds data back.
const WINDOW_FULL: f64 = 0.9;
/// A session that sends less is idle.
const IDLE_BIT_PER_S: u64 = 100_000;
/// The controller that sends at a rate that it is told, and measures nothing.
const TOLD: &str = "dedicated";

pub(super) fn find(
    first: &Status,
    last: &Status,
    peer: Option<&str>,
    process: &Watched,
) -> Vec<Finding> {
    let sessions = last.sessions.iter();
    let meant = sessions.filter(|session| peer.is_none_or(|peer| peer == session.peer));
    meant
        .map(|session| {
            let mut before = first.sessions.iter();
            let before = before
                .find(|other| other.peer == session.peer && other.opened_by == session.opened_by);
            of_session(session, before, process).with(&session.peer)
        })
        .collect()
}

/// The paths that are up, in the order in which they are asked what holds them back.
struct Paths<'s>(Vec<&'s Path>);

impl Paths<'_> {
    fn names(&self, is: impl Fn(&Path) -> bool) -> Vec<&str> {
        let paths = self.0.iter().filter(|path| is(path));
        paths.map(|path| path.name.as_str()).collect()
    }

    fn all(&self, is: impl Fn(&Path) -> bool) -> bool {
        !self.0.is_empty() && self.0.iter().all(|path| is(path))
    }

    fn capacity(&self) -> u64 {
        self.0.iter().map(|path| can_carry(path)).sum()
    }
}

fn can_carry(path: &Path) -> u64 {
    let figures = path.figures.as_ref();
    figures.map_or(0, |figures| figures.rate_bit_per_s)
}

fn sends_at(path: &Path, rate: u64) -> bool {
    let sent = path.traffic.sent_bit_per_s.unwrap_or_default();
    mega(sent) >= FULL * mega(rate)
}

fn at_its_limit(path: &Path) -> bool {
    path.limit_bit_per_s
        .is_some_and(|limit| sends_at(path, limit))
}

fn at_its_told_rate(path: &Path) -> bool {
    path.controller == TOLD && sends_at(path, can_carry(path))
}

/// Of a path that was not measured yet nothing is known.
fn is_full(path: &Path) -> bool {
    can_carry(path) > 0 && sends_at(path, can_carry(path))
}

fn has_full_window(path: &Path) -> bool {
    mega(path.bytes_in_flight) >= WINDOW_FULL * mega(path.cwnd_bytes)
}

fn of_session(session: &Session, before: Option<&Session>, process: &Watched) -> Finding {
    let subject = format!("bottleneck toward {}", session.peer);
    let sent = session.traffic.sent_bit_per_s.unwrap_or_default();
    let megabits = |bits: u64| format!("{:.1} Mbit/s", mega(bits));
    if sent < IDLE_BIT_PER_S {
        return Finding::good(
            Cause::Application,
            subject,
            "the session is idle: the applications send nothing",
        );
    }
    let up = session.paths.iter().filter(|path| path.state == "up");
    let paths = Paths(up.collect());
    if let Some((thread, share)) = process.full_thread() {
        let found = format!(
            "the processor: thread {thread} uses {:.0} % of one, at {}",
            share * 100.0,
            megabits(sent)
        );
        let advice = "use a faster processor, or fewer and larger packets";
        return Finding::note(Cause::Processor, subject, found, advice);
    }
    // A path without a limit of its own would take what the others leave.
    if paths.all(at_its_limit) {
        let found = format!(
            "the limit of {}: {} leave",
            paths.names(at_its_limit).join(", "),
            megabits(sent)
        );
        let advice =
            "starhaul path set NAME limit=RATE, or \"limit\" in the configuration, raises it";
        return Finding::note(Cause::PathLimit, subject, found, advice);
    }
    if paths.all(|path| at_its_limit(path) || at_its_told_rate(path)) {
        let found = format!(
            "the controllers: {} send at the rate that \"dedicated\" was told, {} together",
            paths.names(at_its_told_rate).join(", "),
            megabits(sent)
        );
        let advice =
            "if the links carry more, raise \"rate\", or choose a controller that measures";
        return Finding::note(Cause::Controller, subject, found, advice);
    }
    if paths.all(is_full) {
        let found = format!(
            "the paths: {} leave over {} path(s) that carry {} together",
            megabits(sent),
            paths.0.len(),
            megabits(paths.capacity())
        );
        return Finding::good(Cause::Capacity, subject, found);
    }
    let held = paths.names(has_full_window);
    if !held.is_empty() {
        let found = format!(
            "the controllers: {} of {} path(s) have a full congestion window, at {}",
            held.len(),
            paths.0.len(),
            megabits(sent)
        );
        let advice = "what they found so far is less than asked for; with link = \"leo\" or controller = \"dedicated\" they know more";
        return Finding::note(Cause::Controller, subject, found, advice);
    }
    let waits = |session: &Session| {
        session
            .streams
            .iter()
            .any(|stream| stream.peer_reads_no_more)
    };
    if waits(session) && before.is_some_and(waits) {
        let found = format!(
            "the receiver: its application reads {}, and the paths carry {} together",
            megabits(sent),
            megabits(paths.capacity())
        );
        let advice = "look at the application at the peer, or at the network behind that";
        return Finding::note(Cause::Window, subject, found, advice);
    }
    Finding::good(
        Cause::Application,
        subject,
        format!(
            "the applications: they send {}, and the paths carry {} together",
            megabits(sent),
            megabits(paths.capacity())
        ),
    )
}

fn mega(number: u64) -> f64 {
    f64::from(u32::try_from(number / 1000).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use starhaul_gateway::status::{Blocks, Scheduler, StreamStatus, Traffic};

    use super::*;

    const MBIT: u64 = 1_000_000;

    /// A path that carries 10 Mbit/s and sends so much, with more.
    fn path(name: &str, sent_mbit: u64, more: Value) -> Path {
        let mut path = json!({
            "name": name, "remote": "192.0.2.1:1", "state": "up", "controller": "bbr", "controller_state": "",
            "cwnd_bytes": 100_000, "bytes_in_flight": 10_000,
            "traffic": { "sent_bytes": 1, "received_bytes": 1, "sent_bit_per_s": sent_mbit * MBIT,
                "received_bit_per_s": 0, "mean_sent_bit_per_s": 0, "mean_received_bit_per_s": 0 },
            "rate_bit_per_s": 10 * MBIT, "bytes_sent": 1, "bytes_received": 1, "datagrams_sent": 1, "datagrams_lost": 0,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            path[key] = value.clone();
        }
        serde_json::from_value(path).expect("a path")
    }

    fn session(paths: Vec<Path>, peer_reads_no_more: bool) -> Session {
        let sent: u64 = paths
            .iter()
            .filter_map(|path| path.traffic.sent_bit_per_s)
            .sum();
        let stream = StreamStatus {
            stream: 1,
            rule: None,
            kind: None,
            target: None,
            priority: 0,
            mode: String::new(),
            peer_reads_no_more,
            ended: false,
            traffic: Traffic::default(),
            blocks: Blocks::default(),
            bytes_sent: 1,
            bytes_received: 0,
        };
        Session {
            held_send_bytes: 0,
            held_receive_bytes: 0,
            available_bit_per_s: 0,
            peer: "ground".to_owned(),
            opened_by: "us".to_owned(),
            age_s: 1.0,
            refused_streams: 0,
            scheduler: Scheduler::default(),
            traffic: Traffic {
                sent_bit_per_s: Some(sent),
                ..Traffic::default()
            },
            paths,
            streams: vec![stream],
        }
    }

    #[test]
    fn what_holds_a_session_back_is_told_whatever_it_is() {
        let none = || json!({});
        let limited = || json!({ "limit_bit_per_s": 2 * MBIT });
        let told = || json!({ "controller": "dedicated" });
        let full = || json!({ "bytes_in_flight": 99_000 });
        let down = || json!({ "state": "down" });
        let idle = Watched::with_thread(0.2);
        let busy = Watched::with_thread(0.97);
        for (cause, paths, waits, process, said) in [
            (
                Cause::Application,
                vec![path("a", 0, none())],
                false,
                &idle,
                "idle",
            ),
            (
                Cause::Application,
                vec![path("a", 2, none()), path("b", 1, none())],
                false,
                &idle,
                "they send 3.0 Mbit/s, and the paths carry 20.0",
            ),
            (
                Cause::Processor,
                vec![path("a", 2, limited())],
                true,
                &busy,
                "thread driver uses 97 %",
            ),
            (
                Cause::PathLimit,
                vec![path("a", 2, limited()), path("b", 0, down())],
                false,
                &idle,
                "the limit of a: 2.0 Mbit/s leave",
            ),
            // The other one takes what is left.
            (
                Cause::Application,
                vec![path("a", 2, limited()), path("b", 3, none())],
                false,
                &idle,
                "they send",
            ),
            (
                Cause::Controller,
                vec![path("a", 2, limited()), path("b", 9, told())],
                false,
                &idle,
                "b send at the rate that \"dedicated\" was told",
            ),
            (
                Cause::Capacity,
                vec![path("a", 9, none()), path("b", 10, none())],
                true,
                &idle,
                "19.0 Mbit/s leave over 2 path(s) that carry 20.0",
            ),
            (
                Cause::Controller,
                vec![path("a", 3, full()), path("b", 1, none())],
                true,
                &idle,
                "1 of 2 path(s) have a full congestion window",
            ),
            (
                Cause::Window,
                vec![path("a", 3, none())],
                true,
                &idle,
                "its application reads 3.0 Mbit/s",
            ),
        ] {
            let session = session(paths, waits);
            let found = of_session(&session, Some(&session), process);
            assert_eq!(found.cause, cause, "{found:?}");
            assert!(found.found.contains(said), "{said}: {found:?}");
            assert_eq!(
                found.advice.is_none(),
                found.level == super::super::Level::Good
            );
        }
        // What was not measured yet is not full.
        let unknown = path("a", 3, json!({ "rate_bit_per_s": 0 }));
        let found = of_session(&session(vec![unknown], false), None, &idle);
        assert_eq!(found.cause, Cause::Application);
        // Who only just stopped reading may go on at once.
        let now = session(vec![path("a", 3, none())], true);
        let before = session(vec![path("a", 3, none())], false);
        let found = of_session(&now, Some(&before), &idle);
        assert_eq!(found.cause, Cause::Application);
    }
}
