//! Which interfaces `starhaul init` takes for paths where none is given.

use std::fs;

use super::network::{Network, Side};
use crate::program::{path, starhaul, text};

#[test]
fn interfaces_without_a_route_to_the_other_side_are_no_paths() {
    let Some(network) = Network::create(3) else {
        return;
    };
    // As uplinks have it: a default route each, one of them in a table of its own. The third is as a bridge of containers.
    let gateway = |link| Network::address(Side::Ground, link);
    network.ip(
        Side::Field,
        &format!("route add default via {} dev wan0", gateway(0)),
    );
    network.ip(
        Side::Field,
        &format!("route add default via {} dev wan1 table 77", gateway(1)),
    );
    let source = Network::address(Side::Field, 1);
    network.ip(
        Side::Field,
        &format!("rule add from {source} table 77 priority 77"),
    );
    for (remote, paths, all) in [
        ("192.0.2.1:4600", &["wan0", "wan1"][..], 2),
        // Of its own network, it reaches who is there. The others ask their routers.
        (
            &format!("{}:4600", gateway(2)),
            &["wan0", "wan1", "wan2"],
            3,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = starhaul(&["init", "--directory", path(folder.path()), "--force"]);
        command.args(["--remote", remote, "--name", "ship"]);
        let output = network.run(Side::Field, &mut command).unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let written = fs::read_to_string(folder.path().join("gateway.toml")).unwrap();
        for interface in paths {
            let line = format!("interface = \"{interface}\"");
            assert!(written.contains(&line), "{written}");
        }
        assert_eq!(
            written.matches("interface = \"wan").count(),
            all,
            "{written}"
        );
    }
}
