//! Rules over bundles.

use super::*;

/// As `docs/gateway.md` has it.
#[test]
fn rtp_over_bundles_needs_no_rule_of_its_own() {
    let near = "[[udp]]\nname = \"camera\"\nlisten = \"127.0.0.1:5004\"\ntarget = \"192.0.2.20:5004\"\nservice = \"bundle\"\nlifetime = \"20s\"\n\n[bundle]\nsocket = \"/run/starhaul-dtn/dtn.sock\"\n\n[[bundle.peer]]\nname = \"station\"\nendpoint = \"ipn:2.0\"\n";
    let told = include_str!("../../../../../docs/gateway.md");
    assert!(told.contains(near), "docs/gateway.md has another one");
    let config = parse(&format!("[identity]\nfile = \"k\"\n{near}")).unwrap();
    let rule = &config.datagram_rules[0];
    let lifetime = Duration::from_secs(20);
    assert_eq!(rule.service.carrier, Carrier::Bundle(lifetime));
    assert_eq!(rule.service.clients.idle_timeout, lifetime);
}

#[test]
fn a_rule_over_bundles_needs_a_far_gateway_and_nothing_of_sessions() {
    let udp =
        "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:1\"\ntarget = \"a:1\"\nservice = \"bundle\"\n";
    let tcp = udp.replace("udp", "tcp");
    let peer = "[[bundle.peer]]\nname = \"base\"\nendpoint = \"ipn:2.0\"\n";
    let bundle = format!("[bundle]\n{peer}");
    let config = parse(&format!("[identity]\nfile = \"k\"\n{udp}{bundle}")).unwrap();
    let rule = &config.datagram_rules[0];
    let hour = Duration::from_secs(3600);
    assert_eq!(rule.service.carrier, Carrier::Bundle(hour));
    assert_eq!(
        (rule.peer.as_str(), rule.service.clients.idle_timeout),
        ("base", hour)
    );
    assert_eq!(
        config.bundle.as_ref().unwrap().peers[0].endpoint,
        "ipn:2.101"
    );
    let other = peer
        .replace("base", "other")
        .replace("ipn:2.0", "dtn://moon/");
    for (extra, expected) in [
        (
            udp.to_owned(),
            "needs a table [bundle] with a [[bundle.peer]]",
        ),
        (format!("{tcp}[bundle]\n"), "no [[bundle.peer]]"),
        (
            format!("{tcp}peer = \"bas\"\n{bundle}"),
            "did you mean \"base\"?",
        ),
        (
            format!("{tcp}{bundle}{other}"),
            "there are several [[bundle.peer]]",
        ),
        (
            format!("{tcp}priority = 1\n{bundle}"),
            "priority: this is of sessions",
        ),
        (
            format!("{udp}deadline = \"1s\"\n{bundle}"),
            "\"lifetime\" instead",
        ),
        (
            format!("{udp}mode = \"fec\"\n{bundle}"),
            "mode: this is of sessions",
        ),
        (format!("{udp}lifetime = \"1ms\"\n{bundle}"), "lifetime"),
        (udp.replace("bundle", "leotp"), "service"),
        (
            udp.replace(
                "service = \"bundle\"",
                "deadline = \"1s\"\nlifetime = \"1h\"",
            ),
            "needs service = \"bundle\"",
        ),
        (
            format!("{tcp}{bundle}{peer}"),
            "\"base\" is the name of two",
        ),
        (
            format!("{tcp}{bundle}{}", peer.replace("base", "b")),
            "ipn:2.101 is the endpoint of two",
        ),
        (
            format!("{tcp}{}", bundle.replace("ipn:2.0", "moon")),
            "is no endpoint",
        ),
        (format!("{tcp}[bundle]\nwindow = \"1kB\"\n{peer}"), "window"),
    ] {
        let error = parse(&text("", &extra)).unwrap_err().to_string();
        assert!(
            error.contains(expected),
            "{expected:?} is missing in {error}"
        );
    }
}
