//! What can be read rule by rule, and clashes when the gateway starts.

use super::{parse, text};

fn tun(name: &str, keys: &str) -> String {
    format!("[[tun]]\nname = \"{name}\"\n{keys}\n")
}

#[test]
fn metrics_on_a_wildcard_take_ipv4_too() {
    let web = |address: &str| {
        let rule = "[[tcp]]\nname = \"web\"\ntarget = \"a:1\"\nlisten";
        parse(&text(
            &format!("metrics = \"{address}\""),
            &format!("{rule} = \"127.0.0.1:9464\""),
        ))
    };
    for taken in ["[::]:9464", "0.0.0.0:9464", "127.0.0.1:9464"] {
        let error = web(taken).map(|_| ()).expect_err(taken).to_string();
        assert!(
            error.contains("\"metrics\" has") && error.contains(taken),
            "{error}"
        );
    }
    for free in ["[::1]:9464", "[::]:9465", "127.0.0.2:9464"] {
        web(free).unwrap();
    }
}

#[test]
fn a_network_is_behind_one_tunnel() {
    let first = tun(
        "one",
        "addresses = [\"10.9.0.2/24\"]\nnetworks = [\"10.9.0.0/24\", \"10.8.0.0/16\"]",
    );
    let with = |keys: &str| parse(&text("", &format!("{first}{}", tun("two", keys))));
    for (keys, said) in [
        // The same addresses; the kernel's route to those of the first; one of the second that is the first's.
        ("addresses = [\"10.9.0.2/24\"]", "addresses: 10.9.0.0/24"),
        (
            "addresses = [\"10.7.0.2/24\"]\nnetworks = [\"10.9.0.0/24\"]",
            "networks: 10.9.0.0/24",
        ),
        (
            "addresses = [\"10.8.0.2/16\"]\nnetworks = [\"192.168.0.0/24\"]",
            "networks: 10.8.0.0/16",
        ),
        (
            "addresses = [\"10.8.0.2/16\"]\nadd_routes = false",
            "addresses: 10.8.0.0/16",
        ),
        (
            "addresses = [\"10.7.0.2/24\"]\nnetworks = [\"10.8.0.0/16\"]",
            "networks: 10.8.0.0/16",
        ),
    ] {
        let error = with(keys).map(|_| ()).expect_err(keys).to_string();
        let said = format!("{said} leads into the tunnel \"one\" already");
        assert!(error.contains(&said), "{keys}: {error}");
    }
    for right in [
        // The longer prefix goes first.
        "addresses = [\"10.7.0.2/24\"]\nnetworks = [\"10.8.5.0/24\", \"10.0.0.0/8\"]",
        // Routes are made otherwise.
        "addresses = [\"10.7.0.2/24\"]\nnetworks = [\"10.8.0.0/16\"]\nadd_routes = false",
        // A single address is no network.
        "addresses = [\"10.9.0.2/32\"]\nnetworks = [\"192.168.0.0/24\"]",
    ] {
        with(right).unwrap_or_else(|error| panic!("{right}: {error}"));
    }
}
