//! What an operator gets wrong, and what they are told.

mod budget;
mod bundles;
mod clashes;
mod definition;
mod hop;

use std::path::Path;

use starhaul_config::trials;

use super::{keys::TOP, *};

const KEY: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

/// A configuration that is right, with `extra` at its end and `top` at its start.
fn text(top: &str, extra: &str) -> String {
    format!(
        "{top}\nlisten = \"127.0.0.1:0\"\n[identity]\nfile = \"k\"\n[[peer]]\nname = \"ground\"\npublic_key = \"{KEY}\"\n{extra}"
    )
}

fn parse(text: &str) -> Result<Config, Error> {
    Config::parse(text, Path::new("/etc/starhaul/gw.toml"))
}

/// A session with so many paths.
fn path_of_each(count: usize) -> String {
    let path = |index| format!("[[session.path]]\nname = \"p{index}\"\nremote = \"192.0.2.1:1\"\n");
    let paths: String = (0..count).map(path).collect();
    format!("[[session]]\n{paths}")
}

/// What the guide says of DNS can be copied as it is.
#[test]
fn the_recipe_for_dns_is_a_configuration() {
    let guide = include_str!("../../../../docs/gateway.md");
    let (_, dns) = guide.split_once("\n## DNS\n").unwrap();
    let (recipe, _) = dns.split_once("\n## ").unwrap();
    let (_, rules) = recipe.split_once("```toml\n").unwrap();
    let (rules, said) = rules.split_once("```").unwrap();
    let near = parse(&text("", rules)).unwrap();
    let [udp] = &near.datagram_rules[..] else {
        panic!("{:?}", near.datagram_rules)
    };
    let [tcp] = &near.connection_rules[..] else {
        panic!("{:?}", near.connection_rules)
    };
    assert_eq!((&*udp.name, &*tcp.name), ("dns", "dns-tcp"));
    assert_eq!(udp.listen, tcp.listen);
    let allow = said
        .split('`')
        .find(|code| code.starts_with("allow ="))
        .unwrap();
    let far = parse(&text("", &format!("[egress]\n{allow}"))).unwrap();
    assert_eq!(far.egress.allow.len(), 1);
}

#[test]
fn errors_name_file_line_key_and_the_nearest_valid_key() {
    let udp =
        "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"a:1\"\ndeadline = \"1s\"\n";
    let path = "[[session]]\n[[session.path]]\nname = \"leo\"\nremote = \"192.0.2.1:1\"\n";
    for (top, extra, expected) in [
        (
            "lisen = \"x\"",
            "",
            &["gw.toml:1:", "\"lisen\"", "did you mean \"listen\"?"][..],
        ),
        (
            "zzzzzzzzzz = 1",
            "",
            &["gw.toml:1:", "possible here: include, listen, control"],
        ),
        ("x = [", "", &["gw.toml:2:"]),
        ("", "[egres]", &["gw.toml:8:", "did you mean \"egress\"?"]),
        (
            "",
            "[egress]\nalow = []",
            &["gw.toml:9: [egress]", "\"allow\""],
        ),
        (
            "",
            "[egress]\nallow = [\n\"*:*\",\n\"nonsense\"]",
            &["gw.toml:11: [egress]: allow:", "10.0.0.0/8:*"],
        ),
        (
            "control = 3",
            "",
            &["gw.toml:1: control", "a text in quotes, not a number"],
        ),
        (
            "",
            &format!("{udp}dead_line = \"1s\""),
            &["gw.toml:13: [[udp]]", "\"deadline\""],
        ),
        (
            "",
            &udp.replace("1s", "1 day"),
            &["gw.toml:12: [[udp]]: deadline", "800ms"],
        ),
        (
            "",
            &udp.replace("1s", "2h"),
            &["deadline: 2h is outside of 1ms to 3600s"],
        ),
        (
            "",
            &udp.replace("deadline = \"1s\"\n", ""),
            &["gw.toml:8: [[udp]]", "\"deadline\" is missing"],
        ),
        (
            "",
            &udp.replace("a:1", "a"),
            &["target: \"a\" is not host:port"],
        ),
        (
            "",
            &format!("{udp}priority = 256"),
            &["priority: write a whole number from 0 to 255"],
        ),
        (
            "",
            &format!("{udp}priority = -1"),
            &["priority: write a whole number from 0 to 255"],
        ),
        (
            "",
            &format!("{udp}max_coding_rate = 1.5"),
            &["max_coding_rate: write a number from 0 to 1"],
        ),
        (
            "",
            &format!("{udp}max_coding_rate = nan"),
            &["max_coding_rate: write a number from 0 to 1"],
        ),
        (
            "",
            &format!("{udp}mode = \"retransmitt\""),
            &["did you mean \"retransmit\"?"],
        ),
        ("", &format!("{udp}mode = \"reliable\""), &["[[tcp]]"]),
        (
            "",
            &format!("{udp}ordered = \"yes\""),
            &["ordered: write true or false"],
        ),
        (
            "",
            &format!("{udp}bandwidth = \"2 mb\""),
            &["bandwidth:", "10mbit"],
        ),
        (
            "",
            &format!("{udp}peer = \"grund\""),
            &[
                "peer: there is no [[peer]] \"grund\"",
                "did you mean \"ground\"?",
            ],
        ),
        (
            "",
            &format!("{udp}{udp}"),
            &["gw.toml:14: [[udp]]: name: \"u\" is the name of two rules"],
        ),
        (
            "packet_bytes = 1199",
            "",
            &["gw.toml:1: packet_bytes: write a whole number from 1200 to 1472"],
        ),
        (
            "keepalive = \"90s\"",
            "",
            &["gw.toml:1: keepalive: 90s is outside of 1s to 60s"],
        ),
        (
            "",
            &format!("{path}link = \"leo\"\ndetect_idle_interval = \"2min\""),
            &["detect_idle_interval:", "outside of 2ms to 60s"],
        ),
        (
            "",
            &udp.replace("127.0.0.1:0", "localhost:5000"),
            &["gw.toml:10: [[udp]]: listen: \"localhost:5000\" is not address:port"],
        ),
        (
            "",
            &path_of_each(17),
            &["gw.toml:57: [[session.path]]: a session has at most 16 paths"],
        ),
        ("", "[udp]\nname = \"u\"", &["write [[udp]] before each"]),
        ("", "[[session]]", &["gw.toml:8:", "no [[session.path]]"]),
        (
            "",
            &format!("{path}speed = 1"),
            &["[[session.path]]", "unknown key \"speed\""],
        ),
        (
            "",
            &format!("{path}rate = \"1mbit\""),
            &["rate: only controller = \"dedicated\""],
        ),
        (
            "",
            &format!("{path}controller = \"dedicated\""),
            &["\"rate\" is missing"],
        ),
        (
            "",
            &format!("{path}controller = \"dedicated\"\nrate = \"0mbit\""),
            &["rate of zero"],
        ),
        (
            "",
            &format!("{path}controller = \"bbrr\""),
            &["did you mean \"bbr\"?"],
        ),
        (
            "",
            &format!("{path}link = \"leoo\""),
            &["link:", "did you mean \"leo\"?"],
        ),
        (
            "",
            &format!("{path}link = \"leo\"\ndetect_target = \"pop\""),
            &["detect_target:", "neither \"auto\" nor an IP address"],
        ),
        (
            "",
            &format!("{path}link = \"leo\"\ndetect_interval = \"20ms\""),
            &["detect_interval:", "three intervals"],
        ),
        (
            "",
            &format!("{path}link = \"leo\"\ntimetable = \"onweb\""),
            &["timetable:", "oneweb", "12s every 15s"],
        ),
        (
            "",
            &format!("{path}detect_outage = \"60ms\""),
            &["detect_outage:", "add link = \"leo\""],
        ),
        (
            "",
            &format!("{path}local = \"::1\""),
            &["not of one IP version"],
        ),
        (
            "",
            &format!("{path}{}", path.replace("[[session]]\n", "")),
            &["\"leo\" is the name of two paths"],
        ),
        (
            "",
            &format!("{path}cost = -1"),
            &["cost: write a number from 0"],
        ),
        (
            "",
            "[[socks5]]\nname = \"s\"\nlisten = \"127.0.0.1:0\"\nusername = \"u\"",
            &["need each other"],
        ),
        (
            "",
            "[[peer]]\nname = \"ground\"\npublic_key = \"x\"",
            &["name of two peers"],
        ),
        (
            "",
            "[[peer]]\nname = \"moon\"\npublic_key = \"x\"",
            &["gw.toml:10: [[peer]]: public_key:"],
        ),
        (
            "",
            &format!("[[peer]]\nname = \"moon\"\npublic_key = \"{KEY}\""),
            &["peer \"ground\" has the same key"],
        ),
    ] {
        let text = text(top, extra);
        let error = match parse(&text) {
            Ok(_) => panic!("accepted:\n{text}"),
            Err(error) => error.to_string(),
        };
        for part in expected {
            assert!(
                error.contains(part),
                "{error:?} does not say {part:?} of\n{text}"
            );
        }
        assert!(error.starts_with("/etc/starhaul/gw.toml:"), "{error}");
    }
}

#[test]
fn what_cannot_work_as_a_whole_is_refused() {
    let peer = format!("[[peer]]\nname = \"ground\"\npublic_key = \"{KEY}\"\n");
    let identity = "[identity]\nfile = \"k\"\n";
    for (text, expected) in [
        (peer.clone(), "[identity] is missing"),
        (format!("{identity}{peer}"), "would have no session"),
        (
            format!("listen = \"127.0.0.1:0\"\n{identity}"),
            "no [[peer]]",
        ),
        (
            format!("listen = \"127.0.0.1:0\"\n{peer}[identity]\n"),
            "either \"file\" or \"secret\"",
        ),
        (
            format!(
                "{identity}{peer}[[peer]]\nname = \"b\"\npublic_key = \"PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\"\n[[session]]\npeer = \"b\"\n[[session.path]]\nname = \"p\"\nremote = \"a:1\"\n[[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"a:1\"\npeer = \"ground\""
            ),
            "no [[session]] to \"ground\"",
        ),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&text).to_string();
        assert!(
            error.contains(expected),
            "{error:?} does not say {expected:?}"
        );
    }
}

#[test]
fn defaults_are_the_documented_ones_and_files_lie_beside_the_configuration() {
    let config = parse(&text(
        "",
        "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"a:1\"\ndeadline = \"800ms\"",
    ))
    .unwrap();
    assert!(
        matches!(&config.identity, IdentitySource::File(file) if file == Path::new("/etc/starhaul/k"))
    );
    assert_eq!(config.control, ControlPath::Default);
    assert!(config.egress.allow.is_empty());
    let [rule] = config.datagram_rules.as_slice() else {
        panic!("{config:?}")
    };
    assert_eq!((rule.peer.as_str(), rule.priority), ("ground", 4));
    let DatagramService {
        delivery, clients, ..
    } = &rule.service;
    assert_eq!(delivery.deadline, Duration::from_millis(800));
    assert_eq!(delivery.mode, Mode::FecRetransmit);
    assert_eq!(
        (clients.max_clients, clients.idle_timeout),
        (1024, Duration::from_secs(120))
    );
}

/// A receiver without a buffer for reordering loses frames that come after a later one.
#[test]
fn rtp_is_ordered_unless_told_otherwise_and_check_says_so() {
    let rtp =
        "[[rtp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"a:1\"\ndeadline = \"1s\"\n";
    let udp = rtp.replace("rtp", "udp");
    for (rule, ordered) in [
        (rtp.to_owned(), true),
        (format!("{rtp}ordered = false"), false),
        (udp, false),
    ] {
        let said = parse(&text("", &rule)).unwrap().describe();
        assert_eq!(said.contains("in order"), ordered, "{said}");
    }
}

#[test]
fn bounds_are_read_and_told() {
    let top = "max_streams = 20000\nmax_send_bytes = \"256MiB\"\nmax_receive_bytes = \"1GiB\"";
    let rules = "[egress]\nallow = \"*:80\"\nmax_streams = 9\nmax_lookups = 8\nmax_targets = 7\n\
        [[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"a:1\"\nmax_connections = 6\nidle_timeout = \"1h\"\n\
        [[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"a:1\"\ndeadline = \"1s\"\n\
        max_clients = 5\nanswered_timeout = \"1s\"\nmax_queued = 40\n";
    let config = parse(&text(top, rules)).unwrap();
    let limits = config.egress.limits;
    assert_eq!(
        (limits.max_streams, limits.max_lookups, limits.max_targets),
        (9, 8, 7)
    );
    let said = config.describe();
    for expected in [
        "at most 20000 streams, 256 MiB to send, 1 GiB received",
        "at most 6 connections, reset when idle for 3600s",
        "at most 5 clients",
        "at most 9 streams, 8 lookups, 7 targets",
    ] {
        assert!(
            said.contains(expected),
            "{expected:?} is missing in\n{said}"
        );
    }
    for (top, extra, expected) in [
        ("max_streams = 15", "", "16 to 65536"),
        ("max_send_bytes = \"1kB\"", "", "outside of 1 MiB to 64 GiB"),
        ("max_send_bytes = \"64\"", "", "for example 64MiB"),
        ("", "[egress]\nmax_lookups = 0", "1 to 4096"),
    ] {
        let error = parse(&text(top, extra))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_low_orbit_chooses_controller_and_detection_and_both_can_be_chosen_otherwise() {
    let path = "[[session]]\n[[session.path]]\nname = \"leo\"\nremote = \"192.0.2.1:1\"\n";
    for (keys, controller, detected) in [
        ("", "bbr", false),
        ("link = \"leo\"", "leocc2", true),
        ("link = \"leo\"\ncontroller = \"bbr\"", "bbr", true),
        (
            "link = \"leo\"\ndetect = \"off\"\ntimetable = \"starlink\"",
            "leocc2",
            false,
        ),
        ("controller = \"leocc\"", "leocc", true),
        ("controller = \"cubic\"\ndetect = \"on\"", "cubic", true),
    ] {
        let config = parse(&text("", &format!("{path}{keys}"))).unwrap();
        let path = &config.sessions[0].paths[0];
        let ControllerRule::SelfReliant(chosen) = &path.controller else {
            panic!("{path:?}")
        };
        assert_eq!(chosen.name(), controller, "{keys}");
        assert_eq!(path.detection.is_some(), detected, "{keys}");
    }
    let keys = "detect = \"on\"\ndetect_target = \"100.64.0.1\"\ndetect_interval = \"5ms\"\n\
                detect_outage = \"60ms\"\ntimetable = \"3s every 11s\"";
    let config = parse(&text("", &format!("{path}{keys}"))).unwrap();
    let said = config.describe();
    let expected = "probing 100.64.0.1 by ICMP or UDP every 5ms (1s while idle), outages above 60ms, timetable 3s every 11s";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn what_peers_open_goes_by_the_kind_of_link_unless_a_controller_is_named() {
    let leo = Some("leocc2");
    for (keys, controller, of_leo) in [
        ("", "bbr", leo),
        ("max_sessions = 3\nmax_sessions_per_peer = 2", "bbr", leo),
        ("link = \"leo\"", "leocc2", leo),
        ("controller = \"copa\"", "copa", None),
        ("controller = \"leocc2\"\ndetect = \"off\"", "leocc2", None),
        (
            "controller = \"dedicated\"\nrate = \"5mbit\"",
            "dedicated",
            None,
        ),
    ] {
        let accept = format!("[accept]\n{keys}\n");
        let config = parse(&text("", &accept)).unwrap();
        let rule = &config.accept;
        assert_eq!(rule.controller.name(), controller, "{keys}");
        let named = rule.leo_controller.as_ref().map(|config| config.name());
        assert_eq!(named, of_leo, "{keys}");
        assert_eq!(rule.detection.is_some(), keys.contains("\"leo\""), "{keys}");
    }
    let keys = "[accept]\nlink = \"leo\"\ninterface = \"dish0\"\ndetect_target = \"100.64.0.1\"\ntimetable = \"starlink\"";
    let said = parse(&text("", keys)).unwrap().describe();
    let expected = "our direction by leocc2, low orbit over dish0, reconfigurations watched by probing 100.64.0.1";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_scheduler_is_chosen_by_name() {
    for (keys, scheduler) in [
        ("", SchedulerChoice::Rules),
        ("scheduler = \"rules\"", SchedulerChoice::Rules),
        ("scheduler = \"optimizer\"", SchedulerChoice::Optimizer),
    ] {
        let config = parse(&text(keys, "")).unwrap();
        assert_eq!(config.scheduler, scheduler, "{keys}");
        let said = format!("paths chosen by: {}", scheduler.name());
        assert!(config.describe().contains(&said), "{keys}");
    }
    let error = parse(&text("scheduler = \"optimiser\"", "")).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("scheduler") && said.contains("optimizer"),
        "{said}"
    );
}

#[test]
fn as_many_paths_and_as_large_packets_as_the_transport_takes_are_taken() {
    let config = parse(&text("packet_bytes = 1452", &path_of_each(16))).unwrap();
    assert_eq!(config.packet_bytes, 1452);
    assert_eq!(config.sessions[0].paths.len(), 16);
}

#[test]
fn files_are_included_passwords_lie_in_files_and_secrets_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    };
    let main = write("gw.toml", &text("include = \"rules.d/*.toml\"", ""));
    let socks = "[[socks5]]\nname = \"s\"\nlisten = \"127.0.0.1:1\"\nusername = \"me\"\npassword_file = \"p\"\n";
    write("rules.d/1.toml", socks);
    let load = || Config::load(&main).map_err(|error| error.to_string());
    let error = load().unwrap_err();
    let file = folder.path().join("p");
    let said = format!(
        "rules.d/1.toml:5: [[socks5]]: password_file: cannot read {}",
        file.display()
    );
    assert!(error.contains(&said), "{error}");
    write("p", "hush\r\nnot this\n");
    let config = load().unwrap();
    let rule = &config.connection_rules[0].service.targets;
    let ConnectionTargets::Socks5 {
        credentials: Some(login),
        ..
    } = rule
    else {
        panic!("{rule:?}");
    };
    assert_eq!(
        (login.username.as_str(), login.password.as_str()),
        ("me", "hush")
    );
    write("p", "\n");
    let error = load().unwrap_err();
    assert!(error.contains("write 1 to 255 bytes"), "{error}");
    write("p", "hush\n");
    write("rules.d/1.toml", &format!("{socks}password = \"hush\"\n"));
    let error = load().unwrap_err();
    assert!(
        error.contains("either \"password\" or \"password_file\""),
        "{error}"
    );
}

#[test]
fn a_rule_over_leotp_needs_a_chain_and_nothing_of_sessions() {
    let rule =
        "[[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:1\"\ntarget = \"a:1\"\nservice = \"leotp\"\n";
    let chain = "[leotp]\nlisten = \"127.0.0.1:2\"\nsecret = \"s\"\nupstream = \"u\"\n\
                 [[leotp.neighbour]]\nname = \"u\"\nkey = \"k\"\naddress = \"192.0.2.1:3\"\n";
    let config = parse(&text("", &format!("{rule}{chain}"))).unwrap();
    assert_eq!(config.connection_rules[0].service.carrier, Carrier::Leotp);
    let leotp = config.leotp.as_ref().unwrap();
    assert_eq!(leotp.neighbours[0].key, Path::new("/etc/starhaul/k"));
    assert_eq!((leotp.window, leotp.memory), (64 << 20, 256 << 20));
    assert!(
        config
            .describe()
            .contains("tcp t: 127.0.0.1:1 → a:1 over LEOTP")
    );
    let alone = format!("[identity]\nfile = \"k\"\n{rule}{chain}");
    assert!(
        parse(&alone).is_ok(),
        "neither peers nor sessions are needed"
    );
    for (extra, expected) in [
        (
            rule.to_owned(),
            "needs a table [leotp] with an \"upstream\"",
        ),
        (
            format!("{rule}{}", chain.replace("upstream = \"u\"\n", "")),
            "needs a table [leotp] with an \"upstream\"",
        ),
        (
            format!("{rule}peer = \"ground\"\n{chain}"),
            "peer: this is of sessions",
        ),
        (
            format!("{rule}priority = 1\n{chain}"),
            "priority: this is of sessions",
        ),
        (rule.replace("leotp", "letop"), "leotp"),
        (
            chain.replace("upstream = \"u\"", "upstream = \"v\""),
            "[[leotp.neighbour]] \"v\"",
        ),
        (chain.replace(":2", ":0\"\nlisen = \""), "lisen"),
        (
            chain.split("[[").next().unwrap().to_owned(),
            "no [[leotp.neighbour]]",
        ),
        (
            format!("{chain}[[leotp.neighbour]]\nname = \"w\"\nkey = \"k\"\n"),
            "key: \"u\" has the same key",
        ),
        (
            chain.replace("192.0.2.1", "[2001:db8::1]"),
            "address: [2001:db8::1]:3 has another IP version than 127.0.0.1:2",
        ),
    ] {
        let error = parse(&text("", &extra)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// What an operator uncomments has to work.
#[test]
fn the_sample_is_right_with_its_comments_opened() {
    let opened = trials::opened(&TOP);
    let config = parse(&opened).unwrap_or_else(|error| panic!("{error}\n{opened}"));
    let described = config.describe();
    for said in [
        "session to ground",
        "path geo to 203.0.113.1:4600",
        "socks5 proxy: 127.0.0.1:1080",
        "egress: deny 10.0.0.1/32:22",
        "neighbour orbiter at 192.0.2.20:4511, toward the far gateway",
        "far gateway base at ipn:2.101",
        "udp log: 127.0.0.1:5001 → 127.0.0.1:6001 by bundles to base, which live for 7200s, in order",
        "tcp archive: 127.0.0.1:8022 → localhost:22 by bundles to base, which live for 7200s",
    ] {
        assert!(
            described.contains(said),
            "{said:?} is missing in\n{described}"
        );
    }
}

#[test]
fn passwords_do_not_leak_into_logs() {
    let config = parse(&text(
        "",
        "[[socks5]]\nname = \"s\"\nlisten = \"127.0.0.1:0\"\nusername = \"me\"\npassword = \"hush\"",
    ))
    .unwrap();
    assert!(!format!("{config:?}").contains("hush"));
    assert!(config.describe().contains("with password"));
}

#[test]
fn tunnels_and_interception_are_read_or_explained() {
    let tun = "[[tun]]\nname = \"vpn\"\naddresses = [\"10.9.0.2/24\"]\n";
    let class = "[[tun.class]]\nname = \"c\"\n";
    let proxy = "[[tproxy]]\nname = \"p\"\nnetworks = [\"10.0.0.0/8\"]\n";
    let session = path_of_each(1);
    let away = "networks = [\"192.0.2.0/24\"]\n";
    for (extra, expected) in [
        (
            "[[tun]]\nname = \"vpn\"\n".to_owned(),
            &["[[tun]]", "\"addresses\" is missing"][..],
        ),
        (
            format!("{tun}adresses = 1"),
            &["did you mean \"addresses\"?"],
        ),
        (format!("{tun}mtu = 576"), &["mtu", "1280"]),
        (
            format!("{tun}networks = [\"10.0.0.1/8\"]"),
            &["networks", "10.0.0.0/8"],
        ),
        (
            format!("{tun}mode = \"reliable\"\ndeadline = \"1s\""),
            &["deadline", "no effect"],
        ),
        (
            format!("{tun}{class}"),
            &["\"protocol\", \"ports\" nor \"dscp\""],
        ),
        (
            format!("{tun}{class}protocol = \"udp\"\nports = [\"9-5\"]"),
            &["ports", "5000-5099"],
        ),
        (
            format!("{tun}{class}protocol = \"icmp\"\nports = [\"5\"]"),
            &["no ports"],
        ),
        (
            format!("{tun}{class}dscp = [\"eff\"]"),
            &["dscp", "did you mean \"ef\"?"],
        ),
        (
            format!("{tun}{class}protocol = \"udp\"\n{class}protocol = \"tcp\""),
            &["two classes"],
        ),
        (
            format!("{session}{tun}{away}"),
            &["networks", "path \"p0\" to 192.0.2.1", "interface"],
        ),
        (
            format!("{proxy}listen = \"0.0.0.0:0\""),
            &["listen", "write a port"],
        ),
        (
            format!("{proxy}listen = \"[::]:1\""),
            &["networks", "not of one IP version"],
        ),
        (
            "[[tproxy]]\nname = \"p\"\nlisten = \"0.0.0.0:1\"".to_owned(),
            &["\"networks\" is missing"],
        ),
        (
            "[egress]\nclients = [\"x\"]".to_owned(),
            &["clients", "192.168.7.0/24"],
        ),
    ] {
        let error = parse(&text("", &extra)).expect_err(&extra).to_string();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
    }
    let bound = session.replace("remote", "interface = \"eth0\"\nremote");
    let routed = format!("{session}{tun}add_routes = false\n{away}");
    for right in [format!("{bound}{tun}{away}"), routed] {
        let config = parse(&text("", &right)).unwrap();
        let classes = &config.tunnels[0].classes;
        assert_eq!(classes[0].carriage, Carriage::Reliable);
        assert!(
            matches!(&classes[1].carriage, Carriage::Deadline(delivery) if delivery.deadline == Duration::from_secs(1))
        );
        assert!(
            config
                .describe()
                .contains("tun vpn: device starhaul%d with 10.9.0.2/24")
        );
    }
}

#[test]
fn quotas_and_hours_are_read_and_what_does_not_fit_is_told() {
    let path = |keys: &str| {
        let path = "[[session]]\n[[session.path]]\nname = \"lte\"\nremote = \"192.0.2.1:1\"\n";
        text("state = \"st\"", &format!("{path}{keys}"))
    };
    let config = parse(&path(
        "monthly = \"50GB\"\nmonth_begins = 15\nat_80 = \"costly\"\nutc_offset = \"-05:30\"\nactive = [\"mon-fri 22:00-06:00\", \"sat\"]",
    ))
    .unwrap();
    assert_eq!(config.state.as_deref(), Some(Path::new("/etc/starhaul/st")));
    let described = config.describe();
    for said in [
        "at most 50 GB a month from day 15 at UTC-05:30 (at 80 % costly, at 100 % down)",
        "in service mon-fri 22:00-06:00, sat UTC-05:30",
        "state: in /etc/starhaul/st",
    ] {
        assert!(described.contains(said), "{described}");
    }
    for (keys, said) in [
        ("monthly = \"50\"", "monthly: \"50\" is not a size"),
        ("monthly = \"1kB\"", "monthly: 1kB is outside of"),
        (
            "month_begins = 3",
            "month_begins: means nothing without \"monthly\"",
        ),
        (
            "monthly = \"1GB\"\nmonth_begins = 29",
            "month_begins: write a whole number from 1 to 28",
        ),
        (
            "monthly = \"1GB\"\nat_80 = \"down\"\nat_100 = \"warn\"",
            "at_100: \"warn\" is milder than \"down\"",
        ),
        (
            "monthly = \"1GB\"\nat_80 = \"dwn\"",
            "at_80: \"dwn\" is not possible",
        ),
        ("active = []", "active: a path that is never in service"),
        (
            "active = \"mon-fri 22-06\"",
            "active: \"mon-fri 22-06\" are no hours",
        ),
        (
            "active = \"sat\"\nutc_offset = \"CET\"",
            "utc_offset: \"CET\" is no distance from UTC",
        ),
        (
            "utc_offset = \"+01:00\"",
            "utc_offset: means nothing without",
        ),
    ] {
        let error = parse(&path(keys)).unwrap_err().to_string();
        assert!(error.contains(said), "{keys}: {error}");
    }
    let without_state = path("monthly = \"1GB\"").replace("state = \"st\"", "");
    let error = parse(&without_state).unwrap_err().to_string();
    assert!(
        error.contains("\"monthly\" of the path \"lte\" needs \"state\""),
        "{error}"
    );
}
