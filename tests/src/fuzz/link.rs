//! Files and texts that describe a link, and the link that they describe.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use starhaul_link::{Link, LinkSpec, Loss, parse_capacity, parse_csv, parse_delay};
use starhaul_units::Bandwidth;

/// A trace in each of the formats.
pub fn link_trace(data: &[u8]) {
    if let Ok(capacity) = parse_capacity("fuzz", data) {
        assert!(
            capacity.per_period() > 0 && !capacity.period().is_zero(),
            "a trace of nothing"
        );
        let (first, end) = (capacity.time_of(0), capacity.time_of(capacity.per_period()));
        assert!(
            first <= capacity.period() && first <= end,
            "the first opportunity is at {first:?}"
        );
        assert!(capacity.until(capacity.period()) >= capacity.per_period().min(1));
    }
    if let Ok(delay) = parse_delay("fuzz", data) {
        let (least, most) = delay.range();
        let at = delay.at(delay.period() / 2);
        assert!(
            least <= at && at <= most,
            "{at:?} is not between {least:?} and {most:?}"
        );
    }
    if let Ok(trace) = parse_csv("fuzz", data) {
        carry(&LinkSpec::from_trace(trace));
    }
}

/// The text of a link, and a few packets over it.
pub fn link_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(loss) = Loss::from_str(text) {
        assert_eq!(
            Loss::from_str(&loss.to_string()),
            Ok(loss),
            "{text} as {loss}"
        );
    }
    if let Ok(bandwidth) = Bandwidth::from_str(text) {
        // As people read it, it is rounded.
        assert!(
            Bandwidth::from_str(&bandwidth.to_string()).is_ok(),
            "{text} as {bandwidth}"
        );
    }
    // Names of files stay in this folder, where none fits.
    if text.contains(['/', '\\', '.'])
        && ["bw=", "csv=", "delay="]
            .iter()
            .any(|key| text.contains(key))
    {
        return;
    }
    if let Ok(spec) = LinkSpec::from_str(text) {
        carry(&spec);
    }
}

/// What goes in comes out or is counted, and time goes on.
fn carry(spec: &LinkSpec) {
    const PACKETS: u64 = 50;
    let start = Instant::now();
    let mut now = start;
    let mut link = Link::new(spec, 1, start);
    let mut arrived = 0;
    for packet in 0..PACKETS {
        now += Duration::from_millis(packet);
        link.enqueue(now, 1500, packet);
        arrived += std::iter::from_fn(|| link.poll(now)).count();
    }
    for _ in 0..4 * PACKETS {
        let Some(next) = link.next_event() else { break };
        assert!(next >= now, "an event in the past");
        now = next;
        arrived += std::iter::from_fn(|| link.poll(now)).count();
    }
    let stats = link.stats();
    assert_eq!(stats.enqueued, PACKETS);
    assert!(
        arrived as u64 <= PACKETS + stats.duplicated,
        "{arrived} packets arrived"
    );
}
