//! The calendar's clock of a host is set, forwards and back, while blocks and a download are under way.

use std::{
    collections::HashMap,
    fs,
    net::UdpSocket,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    doctor::faketime,
    gateway::{Gateway, Pair},
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

/// Each step, by the side whose clock it sets and what that clock is off from then on.
const STEPS: [(Side, &str); 5] = [
    (Side::Field, "+1h"),
    (Side::Ground, "+1h"),
    (Side::Field, "-1h"),
    (Side::Ground, "-1h"),
    (Side::Field, "+0"),
];
/// So many messages pass before the first step, and after each.
const MESSAGES: u32 = 40;
/// So much of a line of a log is the time, `2026-11-26T01:07:13`.
const TO_THE_SECOND: usize = 19;
const DEADLINE: &str = "5s";
const ENTRY: &str = "127.0.0.1:8090";
const TARGET: &str = "127.0.0.1:8091";

/// A pair of gateways whose calendar clocks follow a file each, in the folder that goes with them.
struct Clocked {
    pair: Pair,
    clocks: TempDir,
}

impl Clocked {
    fn start(network: &Network, library: &Path) -> Self {
        let clocks = tempfile::tempdir().unwrap();
        for side in [Side::Field, Side::Ground] {
            set(clocks.path(), side, "+0");
        }
        let pair = Pair::start_changed(network, |side, launch| {
            // The monotonic clock of a real host cannot be set either.
            launch.by_script(&format!(
                "export FAKETIME_TIMESTAMP_FILE={}/{} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1; \
                 LD_PRELOAD={} exec \"$@\"",
                clocks.path().display(),
                name(side),
                library.display(),
            ));
            if side == Side::Field {
                launch.configuration += &format!(
                    "[[udp]]\nname = \"messages\"\nlisten = \"{ENTRY}\"\ntarget = \"{TARGET}\"\ndeadline = \"{DEADLINE}\"\n"
                );
            }
        });
        Self { pair, clocks }
    }

    fn set(&self, side: Side, off: &str) {
        set(self.clocks.path(), side, off);
    }
}

fn set(clocks: &Path, side: Side, off: &str) {
    // In one step: the library reads it at each reading of the clock.
    let next = clocks.join("next");
    fs::write(&next, format!("{off}\n")).unwrap();
    fs::rename(next, clocks.join(name(side))).unwrap();
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Field => "field",
        Side::Ground => "ground",
    }
}

/// Numbered messages from the field to an application on the ground, which sends each back.
struct Messages {
    client: UdpSocket,
    sent: u32,
    answers: HashMap<u32, u32>,
}

impl Messages {
    fn start(network: &Network) -> Self {
        let server = network.ground.inside(|| UdpSocket::bind(TARGET)).unwrap();
        thread::spawn(move || {
            let mut message = [0; 4];
            // It ends with its namespace.
            while let Ok((length, from)) = server.recv_from(&mut message) {
                let _ = server.send_to(&message[..length], from);
            }
        });
        let bind = || UdpSocket::bind("127.0.0.1:0");
        let client = network.field.inside(bind).unwrap();
        client.connect(ENTRY).unwrap();
        let most = Duration::from_millis(10);
        client.set_read_timeout(Some(most)).unwrap();
        Self {
            client,
            sent: 0,
            answers: HashMap::new(),
        }
    }

    fn send(&mut self, messages: u32) {
        for _ in 0..messages {
            self.client.send(&self.sent.to_be_bytes()).unwrap();
            self.sent += 1;
            self.receive();
        }
    }

    /// Takes in what has come back.
    fn receive(&mut self) {
        let mut message = [0; 4];
        while let Ok(4) = self.client.recv(&mut message) {
            *self.answers.entry(u32::from_be_bytes(message)).or_default() += 1;
        }
    }

    /// Each came back exactly once.
    fn finish(mut self) -> u32 {
        let all = self.sent as usize;
        wait_for("all answers", || {
            self.receive();
            (self.answers.len() == all).then_some(())
        });
        let repeated = self.answers.iter().find(|(_, times)| **times != 1);
        assert_eq!(repeated, None, "came back more than once");
        self.sent
    }
}

/// What became of the blocks that a gateway sent for the rule.
fn outcomes(gateway: &Gateway) -> Value {
    let status = gateway.status();
    let flows = status["peers"][0]["flows"].as_array().unwrap();
    let mut of_rule = flows.iter().filter(|flow| flow["rule"] == "messages");
    of_rule.next().expect("messages went")["blocks"].clone()
}

/// A gateway whose clock was set back logs times from before its start.
fn wait_for_a_time_before_the_start(gateway: &Gateway) {
    let log = gateway.log();
    let first = log.lines().next().expect("a start is logged").to_owned();
    gateway.reload(|old| old);
    wait_for("a line of an hour ago", || {
        let log = gateway.log();
        let last = log.lines().last()?;
        (last.get(..TO_THE_SECOND)? < first.get(..TO_THE_SECOND)?).then_some(())
    });
}

#[test]
fn steps_of_the_calendars_clock_change_no_outcome_and_end_no_session() {
    let Some(library) = faketime() else { return };
    let Some(network) = Network::create(2) else {
        return;
    };
    let clocked = Clocked::start(&network, &library);
    let pair = &clocked.pair;
    pair.wait_until_up(&["link0", "link1"]);
    let began = Instant::now();
    let (mut messages, download) = (Messages::start(&network), Transfer::download(&network));
    messages.send(MESSAGES);
    for (side, off) in STEPS {
        clocked.set(side, off);
        messages.send(MESSAGES);
        download.wait_for_progress(1 << 20);
    }
    let sent = messages.finish();
    // It would be easy to keep all this where no clock is set.
    wait_for_a_time_before_the_start(&pair.ground);
    download.finish();
    for gateway in [&pair.field, &pair.ground] {
        // The sender may hear of the last ones a little later.
        let blocks = wait_for("an outcome of each", || {
            let blocks = outcomes(gateway);
            (blocks["on_time"] == sent).then_some(blocks)
        });
        assert_eq!(blocks["blocks_sent"], sent, "{blocks}");
        // A timer that a step had put off for an hour would keep what waits for it.
        wait_for("nothing is held", || {
            let session = &gateway.status()["sessions"][0];
            let held = ["held_send_bytes", "held_receive_bytes"];
            held.iter().all(|of| session[of] == 0).then_some(())
        });
        let lived = began.elapsed().as_secs_f64();
        let status = gateway.status();
        let sessions = status["sessions"].as_array().unwrap();
        let [session] = &sessions[..] else {
            panic!("not one session: {status}");
        };
        assert!(session["age_s"].as_f64() >= Some(lived), "{session}");
    }
}
