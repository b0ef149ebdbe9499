use starhaul_gateway::control::{answer, read_answer};

use super::*;

#[test]
fn the_plan_and_its_reason_are_shown_and_rules_need_no_line() {
    let scheduler = |value| serde_json::from_value::<Scheduler>(value).expect("a scheduler");
    let rules = serde_json::json!({ "name": "rules", "plans": 0 });
    assert_eq!(plan_text(&scheduler(rules)), "");
    let none = serde_json::json!({ "name": "optimizer", "plans": 0 });
    assert!(plan_text(&scheduler(none)).contains("no plan yet"));
    let budget = |spent: u64| {
        plan_text(&scheduler(serde_json::json!({ "name": "rules", "plans": 0,
            "spending": { "budget_bit_per_s": 2_000_000, "spent_bit_per_s": spent, "left": 0.1 } })))
    };
    assert!(budget(500_000).contains("budget 2.00 Mbit/s at cost 1, 500 kbit/s spent"));
    assert!(!budget(500_000).contains("keeps data off"));
    assert!(budget(1_990_000).contains("keeps data off"));
    let planned = serde_json::json!({ "name": "optimizer", "plans": 3,
        "reason": "path 0: loss 1.00 % → 5.00 %",
        "classes": [{ "priority": 1, "deadline_ms": 128, "rate_bit_per_s": 1, "quality": 0.9999,
            "ways": [{ "path": "sat", "share": 0.7, "again": "lte", "coding_rate": 0.0, "coded_share": 0.0 },
                { "path": "a-path-with-quite-a-long-name", "share": 0.3, "coding_rate": 0.4, "coded_share": 0.5 }] }] });
    let text = plan_text(&scheduler(planned));
    for part in [
        "plan 3, since path 0: loss 1.00 % → 5.00 %",
        "priority 1, 128 ms: 70 % sat, again lte; 30 %",
        "50 % coded",
        "99.99 %",
    ] {
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(joined.contains(part), "{part}: {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= WIDTH),
        "{text}"
    );
}

fn path(name: &str, model: serde_json::Value, reconfigurations: serde_json::Value) -> Path {
    let path = serde_json::json!({
        "name": name, "remote": "127.0.0.1:1", "state": "up", "controller": "leocc2",
        "controller_state": "cruise", "cwnd_bytes": 1, "bytes_in_flight": 0,
        "model": model, "reconfigurations": reconfigurations,
    });
    serde_json::from_value(path).expect("a path")
}

fn session(paths: Vec<Path>) -> Session {
    Session {
        held_send_bytes: 0,
        held_receive_bytes: 0,
        available_bit_per_s: 0,
        peer: "ground".to_owned(),
        opened_by: "us".to_owned(),
        age_s: 1.0,
        refused_streams: 0,
        scheduler: Scheduler::default(),
        traffic: Traffic::default(),
        paths,
        streams: Vec::new(),
    }
}

#[test]
fn what_controllers_know_of_reconfigurations_fits_a_narrow_terminal() {
    let model = serde_json::json!({
        "bandwidth_aggressive_bit_per_s": 157_100_000_u64,
        "bandwidth_moderate_bit_per_s": 149_000_000_u64,
        "rtt_band_ms": [41.04, 52.5],
        "acted_on_ago_s": 3.2,
    });
    let last = serde_json::json!({ "ago_s": 3.21, "outage_ms": 68.2, "source": "probe", "confidence": 0.9 });
    let told = serde_json::json!({ "count": 13, "last": last });
    let never = serde_json::json!({ "count": 0, "last": null });
    let unknown = serde_json::json!({ "bandwidth_aggressive_bit_per_s": null,
        "bandwidth_moderate_bit_per_s": null, "rtt_band_ms": null, "acted_on_ago_s": null });
    let table = controller_table(&session(vec![
        path("starlink", model, told),
        path("oneweb", unknown, never.clone()),
        path("lte", serde_json::Value::Null, never.clone()),
    ]));
    let text = table.expect("two paths have a model").to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    assert_eq!(
        lines,
        [
            " path            bBW_a        bBW_m     RTT band last reconfiguration",
            " starlink 157.1 Mbit/s 149.0 Mbit/s 41.0–52.5 ms 3.2 s ago, 68 ms, probe",
            " oneweb              –            –            – –",
        ]
    );
    let plain = session(vec![path("lte", serde_json::Value::Null, never)]);
    assert!(controller_table(&plain).is_none(), "nothing to say");
}

#[test]
fn a_prober_that_cannot_probe_says_so_under_its_path() {
    let none = serde_json::json!({ "count": 0, "last": null });
    let with = |state: &str, problem: Option<&str>| {
        let mut leo = path("leo", serde_json::Value::Null, none.clone());
        let detector = serde_json::json!({ "state": state, "target": null, "hops": null, "by": null,
            "problem": problem, "sent": 0, "answered": 0, "refused": 0, "found": 0, "rtt_ms": null,
            "real_time_priority": false });
        leo.detector = Some(serde_json::from_value(detector).expect("a detector"));
        let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
            "peers": [{ "name": "ground", "public_key": "k", "sessions": 1, "failed_attempts": 0,
                "last_error": null }], "ingress": [], "sessions": [] });
        let mut status: Status = serde_json::from_value(status).expect("a status");
        status.sessions.push(session(vec![leo]));
        tables(&status, std::path::Path::new("control.sock"), 10)
    };
    let why = "no permission for ICMP";
    let line = "\n leo: reconfigurations are not watched: no permission for ICMP\n";
    for state in ["waiting", "searching"] {
        let text = with(state, Some(why));
        assert!(text.contains(line), "{text}");
    }
    for (state, problem) in [("searching", None), ("probing", Some(why))] {
        let text = with(state, problem);
        assert!(!text.contains("not watched"), "{text}");
    }
}

/// A gateway of an earlier version has no models in its status.
#[test]
fn a_path_without_the_new_fields_is_read() {
    let old = r#"{"name":"a","remote":"127.0.0.1:1","state":"down","controller":"","controller_state":"",
        "cwnd_bytes":0,"bytes_in_flight":0}"#;
    let path: Path = serde_json::from_str(old).expect("a path");
    assert_eq!(path.reconfigurations.count, 0);
    assert!(path.model.is_none() && path.segment_rtt_ms.is_none());
    assert_eq!(path.packet_bytes, 0);
}

/// A peer names the paths that it opens, and says why it ends a session.
#[test]
fn no_name_of_a_peer_controls_the_terminal() {
    let none = serde_json::json!({ "count": 0, "last": null });
    let model = serde_json::json!({ "bandwidth_aggressive_bit_per_s": null,
        "bandwidth_moderate_bit_per_s": null, "rtt_band_ms": null, "acted_on_ago_s": null });
    let mut evil = path("a\u{1b}[2J\u{9b}1mb\r\nup", model, none);
    (evil.packet_bytes, evil.state) = (1452, "down".to_owned());
    evil.last_error = Some("gone\u{7}\u{7f}".to_owned());
    let status = serde_json::json!({ "version": "0", "public_key": "k", "uptime_s": 1.0, "listen": [],
        "peers": [{ "name": "ground", "public_key": "k", "sessions": 1, "failed_attempts": 0,
            "last_error": "bye\u{1b}c" }], "ingress": [], "sessions": [] });
    let mut status: Status = serde_json::from_value(status).expect("a status");
    status.sessions.push(session(vec![evil]));
    let request = br#"{"request":"status"}"#;
    let answer = answer(request, || status.clone(), |_| Ok(()));
    let status = read_answer(&answer).expect("an answer").expect("a status");
    let text = tables(&status, std::path::Path::new("control.sock"), 10);
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{text:?}");
    assert!(text.contains("a\u{fffd}[2J"), "{text}");
}

/// All values of greatest length, and a thousand streams.
#[test]
fn the_worst_status_fits_eighty_columns_and_few_lines() {
    let name = "n".repeat(64);
    let many = u64::MAX / 4000;
    let traffic = serde_json::json!({ "sent_bytes": many, "received_bytes": many,
        "sent_bit_per_s": many, "received_bit_per_s": many,
        "mean_sent_bit_per_s": many, "mean_received_bit_per_s": many });
    let blocks = serde_json::json!({ "blocks_sent": many, "blocks_received": many,
        "on_time": many, "late": many, "cancelled": many, "failed": many,
        "expired": { "capacity": many, "loss": many, "unreachable": many },
        "recovered": { "redundancy": many, "retransmission": many } });
    let flow = |side: &str| {
        serde_json::json!({ "rule": name, "rule_of": side, "priority": 255, "streams": many,
            "streams_total": many, "traffic": traffic, "blocks": blocks })
    };
    let path = |state: &str| {
        serde_json::json!({ "name": name, "remote": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            "state": state, "controller": "leocc2", "controller_state": "competition probing",
            "cwnd_bytes": 1, "bytes_in_flight": 0, "traffic": traffic,
            "last_error": "words that say at length ".repeat(8),
            "cost": 1_234.567_891, "rtt_ms": 99_999.9, "min_rtt_ms": 1.0, "one_way_delay_ms": 1.0,
            "rate_bit_per_s": many, "loss": 1.0, "loss_window_max": 1.0, "loss_burst_length": 1.0,
            "bytes_sent": many, "bytes_received": many, "datagrams_sent": many, "datagrams_lost": many })
    };
    let stream = |number: u32| {
        let mut stream = serde_json::json!({ "stream": number, "rule": name, "kind": "associate",
            "target": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "mode": "fec+retransmit",
            "traffic": traffic, "bytes_sent": many, "bytes_received": many });
        let more = blocks.as_object().expect("an object").clone();
        stream.as_object_mut().expect("an object").extend(more);
        stream
    };
    let streams: Vec<_> = (0..1000).map(|number| stream(u32::MAX - number)).collect();
    let status = serde_json::json!({ "version": "0", "uptime_s": 1e9,
        "public_key": "XPmmbvZGPxeT1WOPneDI/i4gDpryrSOfIgfiVFSmxEI=",
        "listen": ["[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535"],
        "peers": [{ "name": name, "public_key": "k", "sessions": 1, "failed_attempts": many,
            "last_error": "words ".repeat(40), "traffic": traffic,
            "service": [{ "path": name, "out": "uncounted",
                "quota": { "monthly_bytes": many, "used_bytes": many, "share": 1e9, "level": "above",
                    "month": "2026-11-01", "ends_in_s": 2_678_400, "at_80": "warn", "at_100": "down",
                    "problem": "words that say at length ".repeat(8) },
                "hours": { "hours": "mon-fri 08:00-17:59 UTC, ".repeat(8), "open": false, "changes_in_s": 600_000 } }],
            "flows": [flow("us"), flow("peer")] }],
        "tunnels": [{ "rule": name, "device": "d".repeat(15), "peer": name, "packets_in": many, "bytes_in": many,
            "packets_out": many, "bytes_out": many, "marked": many, "traffic": traffic,
            "dropped": { "no_session": many, "queue": 0, "refused": 0, "forbidden": 0, "malformed": 0 } }],
        "leotp": { "listen": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "streams": many,
            "streams_total": many, "bytes_sent": many, "packets_received": many, "packets_lost": many,
            "packets_repaired": many,
            "neighbours": [{ "name": name, "has_been_heard": false }] },
        "bundle": { "endpoint": "dtn://".to_owned() + &name, "peers": ["b"], "streams": many, "streams_total": many,
            "streams_failed": many, "flows": many, "bundles_sent": many, "bytes_sent": many, "bundles_received": many,
            "bytes_received": many, "unreadable": many, "former_life": many, "repeated": many, "limited": many,
            "dropped": many, "node_is_full": true },
        "ingress": [{ "rule": name, "kind": "socks5", "peer": name, "clients": many,
            "listen": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
            "clients_total": many, "datagrams_in": many, "datagrams_out": many,
            "dropped": { "no_session": many, "too_many_clients": many, "refused": many },
            "failed_connections": many, "traffic": traffic }],
        "classes": [flow("us"), flow("us")],
        "limits": [{ "name": "bytes that wait in a session", "rule": name, "count": many,
            "limit": many, "key": "[accept] max_sessions, or max_sessions_per_peer," },
            { "name": "never", "count": 0, "limit": 1, "key": "k" }],
        "sessions": [{ "peer": name, "opened_by": "peer", "age_s": 1e9, "refused_streams": many,
            "traffic": traffic, "paths": [path("suspect"), path("down")], "streams": streams }] });
    let status: Status = serde_json::from_value(status).expect("a status");
    let socket = format!("/run/{}/control.sock", "deep/".repeat(20));
    let text = tables(&status, std::path::Path::new(&socket), 10);
    for line in text.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}\n{text}");
    }
    assert!(text.lines().count() < 120, "{text}");
    for told in [
        "LEOTP at",
        "Bundles as",
        "tunnel",
        "is not counted reliably",
    ] {
        assert!(text.contains(told), "nothing of {told}: {text}");
    }
    assert!(text.contains("max_sessions_per_peer, raises it"), "{text}");
    assert!(
        !text.contains("never"),
        "a limit that was not reached: {text}"
    );
    assert!(
        text.contains("and 990 more streams; --streams 1000 shows all"),
        "{text}"
    );
}
