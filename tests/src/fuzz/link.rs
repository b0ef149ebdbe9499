//! Files and texts that describe a link, and the link that they describe.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use starhaul_link::{
    Band, Format, Link, LinkSpec, Loss, Outcome, Recording, Summary, parse_capacity, parse_csv,
    parse_delay, parse_leoem, write_capacity, write_csv, write_delay,
};
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
    let _ = parse_leoem("fuzz", data);
    if let Ok(trace) = parse_csv("fuzz", data) {
        carry(&LinkSpec::from_trace(trace));
    }
}

/// A recording in its detected format, its figures, and the conversion to other formats and back.
pub fn link_convert(data: &[u8]) {
    let recording = match Format::detect("fuzz".as_ref(), data) {
        Format::Mahimahi => parse_capacity("fuzz", data)
            .and_then(|capacity| Recording::default().with_capacity(capacity)),
        Format::Delay => parse_delay("fuzz", data).map(Recording::of_delay),
        Format::Csv => parse_csv("fuzz", data).map(Recording::from),
        Format::Leoem => parse_leoem("fuzz", data),
    };
    // Long ones only take time.
    let Some(recording) = recording
        .ok()
        .filter(|r| r.period() < Duration::from_secs(20))
    else {
        return;
    };
    let summary = Summary::of(&recording);
    assert_eq!(summary.duration, recording.period());
    if let Some(comb) = summary.reconfigurations {
        assert!(
            comb.offset < comb.period && comb.found <= comb.expected,
            "{comb:?}"
        );
    }
    let mut out = Vec::new();
    if let Some(capacity) = &recording.capacity {
        write_capacity(capacity, &mut out).expect("memory takes all");
        let again = parse_capacity("fuzz", &*out).expect("what was written can be read");
        assert_eq!(
            (again.period(), again.per_period()),
            (capacity.period(), capacity.per_period())
        );
        out.clear();
        write_csv(&recording, Duration::from_millis(1), &mut out).expect("memory takes all");
        if capacity.period() > Duration::from_millis(1) {
            let again = parse_csv("fuzz", &*out).expect("what was written can be read");
            assert_eq!(again.capacity, *capacity);
        }
        out.clear();
    }
    if let Some(delay) = &recording.delay {
        write_delay(delay, &mut out).expect("memory takes all");
        if delay.range().1 > Duration::ZERO {
            let again = parse_delay("fuzz", &*out).expect("what was written can be read");
            assert!(again.period() >= delay.period(), "a delay was cut");
        }
    }
    let half = recording.period() / 2;
    if let Ok(part) = recording.cut(half..recording.period()) {
        assert!(part.period() <= recording.period() - half + Duration::from_millis(1));
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
        // The display form is rounded.
        assert!(
            Bandwidth::from_str(&bandwidth.to_string()).is_ok(),
            "{text} as {bandwidth}"
        );
    }
    // Names of files stay in this folder, where none matches.
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

fn arrivals(link: &mut Link<u64>, now: Instant) -> usize {
    let outcomes = std::iter::from_fn(|| link.poll(now));
    outcomes.filter_map(Outcome::arrived).count()
}

/// Every packet is delivered or counted, and time advances.
fn carry(spec: &LinkSpec) {
    const PACKETS: u64 = 50;
    let start = Instant::now();
    let mut now = start;
    let mut link = Link::new(spec, 1, start);
    let mut arrived = 0;
    for packet in 0..PACKETS {
        now += Duration::from_millis(packet);
        let band = if packet % 7 == 0 {
            Band::Icmp
        } else {
            Band::Data
        };
        link.enqueue_in(band, now, 1500, packet);
        arrived += arrivals(&mut link, now);
    }
    for _ in 0..4 * PACKETS {
        let Some(next) = link.next_event() else { break };
        assert!(next >= now, "an event in the past");
        now = next;
        arrived += arrivals(&mut link, now);
    }
    let stats = link.stats();
    assert_eq!(stats.enqueued, PACKETS);
    assert!(
        arrived as u64 <= PACKETS + stats.duplicated,
        "{arrived} packets arrived"
    );
}
