//! With control from end to end, what comes back with data tells of the whole path, and of nothing that waits for its rate.

use super::*;
use crate::RateRule;

/// The requester took the time from an Interest to its data for the round trip of the path: Interests that waited for a low rate made it longer, and
/// the rate, a window in that time, lower still.
#[test]
fn the_round_trip_of_a_path_has_no_wait_for_its_rate() {
    let config = NodeConfig {
        control: Scope::EndToEnd,
        rate_rule: RateRule::Published,
        ..NodeConfig::default()
    };
    let mut net = Net::new(4, &[(0, 1), (1, 2), (2, 3)], &config);
    net.node(0).serve(C, &secret(), Box::new(Endless));
    (1..4).for_each(|at| net.route(at, at - 1));
    let fetch = net.fetch(3, C);
    // The first data are back; of the 64 segments that were asked for most wait for the first rate.
    net.run(7);
    for _ in 0..20 {
        let now = net.now;
        while net.node(3).read(now, fetch).is_some() {}
        for at in 1..4 {
            let rtt = net.node(at).hops[&NeighbourId(at - 1)].rtt();
            assert_eq!(rtt, MS * 2 * at, "from node {at} to the responder");
        }
        net.run(1);
    }
    assert!(net.node(3).progress(fetch).is_some_and(|(to, _)| to > 0));
}
