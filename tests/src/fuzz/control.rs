//! State machines without a wire format, by lists of operations: congestion controllers and the path monitor.

use std::time::{Duration, Instant};

use arbitrary::{Result, Unstructured};
use starhaul_cc::{
    AckedPacket, CongestionEvent, ControllerConfig, LostPacket, MAX_CWND_BYTES, PathController,
    PathSignal, RateFeed, Reconfiguration, ReconfigurationSource,
};
use starhaul_session::PathUpdate;
use starhaul_units::Bandwidth;

const MTU: u16 = 1200;
const A_DAY: Duration = Duration::from_secs(86_400);

/// Every congestion controller with the same calls, plausible or not: its window stays in bounds.
pub fn congestion_control(data: &[u8]) {
    let start = Instant::now() + Duration::from_secs(1);
    let feed = RateFeed::new(Bandwidth::from_mbit(5));
    for name in ControllerConfig::NAMES {
        let config = ControllerConfig::from_name(name, Some(feed.clone()))
            .expect("every name has a controller");
        let mut path = PathController::new(config.build(start, MTU));
        let mut source = Unstructured::new(data);
        let mut now = start;
        let mut sent = Vec::new();
        while !source.is_empty() && control(&mut source, &mut now, &mut sent, &mut path).is_ok() {
            let cwnd = path.window(MTU);
            assert!(
                cwnd > 0 && cwnd <= MAX_CWND_BYTES,
                "{name}: a window of {cwnd} bytes"
            );
            let rate = path.controller().pacing_rate();
            assert_ne!(
                rate,
                Some(Bandwidth::ZERO),
                "{name}: a pacing rate of nothing"
            );
        }
    }
}

fn control(
    source: &mut Unstructured<'_>,
    now: &mut Instant,
    sent: &mut Vec<Instant>,
    path: &mut PathController,
) -> Result<()> {
    let operation: u8 = source.arbitrary()?;
    let newest = sent.len().saturating_sub(1);
    let packet = newest.saturating_sub(usize::from(source.arbitrary::<u8>()?));
    let sent_at = sent.get(packet).copied().unwrap_or(*now);
    let (packet_number, bytes) = (packet as u64, u64::from(MTU));
    let in_flight = u64::from(source.arbitrary::<u16>()?) * 16;
    match operation % 10 {
        0..=3 => {
            path.controller_mut().on_packet_sent(
                *now,
                sent.len() as u64,
                bytes,
                in_flight,
                operation & 64 != 0,
            );
            sent.push(*now);
        }
        4..=5 => {
            path.on_ack(AckedPacket {
                now: *now,
                sent: sent_at,
                packet_number,
                bytes,
            });
            path.controller_mut().on_end_of_acks(*now, in_flight);
        }
        6 => path.controller_mut().on_packet_lost(LostPacket {
            now: *now,
            packet_number,
            bytes,
        }),
        7 if operation & 32 != 0 => {
            let event = Reconfiguration {
                at: sent_at,
                outage: Duration::from_millis(in_flight),
                source: ReconfigurationSource::Probe,
                confidence: f64::from(operation) / f64::from(u8::MAX),
            };
            path.on_signal(*now, PathSignal::Reconfiguration(event));
        }
        7 if operation & 16 != 0 => {
            path.on_signal(
                *now,
                PathSignal::TrainRate(Bandwidth::from_bytes_per_second(bytes << 10)),
            );
        }
        7 => path.controller_mut().on_congestion_event(CongestionEvent {
            now: *now,
            sent: sent_at,
            persistent: operation & 64 != 0,
            ecn: operation & 128 != 0,
            lost_bytes: bytes,
        }),
        8 if operation & 64 == 0 => path.controller_mut().on_spurious_congestion_event(*now),
        8 => path
            .controller_mut()
            .on_mtu_update(source.int_in_range(1200..=9000)?),
        _ => {
            *now += Duration::from_micros(u64::from(source.arbitrary::<u32>()? >> (operation % 32)))
        }
    }
    Ok(())
}

/// A path monitor with calls in any order: no figure leaves its range.
pub fn path_monitor(data: &[u8]) {
    let mut now = Instant::now() + Duration::from_secs(1);
    let mut source = Unstructured::new(data);
    let Ok(update) = update(&mut source) else {
        return;
    };
    let first = source.arbitrary::<u32>().unwrap_or(0);
    let mut monitor = starhaul_paths::PathMonitor::new(now, 1.0, update, first.into());
    while !source.is_empty() && observe(&mut source, &mut now, &mut monitor).is_ok() {
        let loss = monitor.loss();
        let shares = [loss.rate, loss.window_max];
        assert!(
            shares.iter().all(|share| (0.0..=1.0).contains(share)),
            "{loss:?}"
        );
        assert!(
            loss.burst_length.is_finite() && loss.burst_length >= 0.0,
            "{loss:?}"
        );
        assert!(
            monitor.predict_arrival(now, 1_000_000, 1200) >= now,
            "an arrival before now"
        );
        let overdue = monitor.overdue_after();
        assert!(
            !overdue.is_zero() && overdue <= 2 * A_DAY,
            "overdue after {overdue:?}"
        );
    }
    let itself = monitor.rtts().sharing(monitor.rtts());
    assert_ne!(itself, starhaul_paths::Sharing::Apart, "of itself");
}

fn update(source: &mut Unstructured<'_>) -> Result<PathUpdate> {
    Ok(PathUpdate {
        cwnd: source.arbitrary()?,
        bytes_in_flight: source.arbitrary()?,
        bandwidth: Bandwidth::from_bits_per_second(source.arbitrary()?),
        smoothed_rtt: Duration::from_micros(source.arbitrary()?),
        min_rtt: Duration::from_micros(source.arbitrary::<u32>()?.into()),
        max_datagram: source.arbitrary()?,
    })
}

fn observe(
    source: &mut Unstructured<'_>,
    now: &mut Instant,
    monitor: &mut starhaul_paths::PathMonitor<()>,
) -> Result<()> {
    let operation: u8 = source.arbitrary()?;
    let back: u64 = source.arbitrary::<u8>()?.into();
    let last = monitor.next_sequence().saturating_sub(back);
    let first = last.saturating_sub(u64::from(operation >> 5));
    let mut fated = Vec::new();
    match operation % 8 {
        0..=2 => drop(monitor.on_sent(*now, 1200, (), operation & 8 == 0)),
        3 => {
            let one_way = source.arbitrary::<Option<u32>>()?;
            let one_way = one_way.map(|micros| Duration::from_micros(micros.into()));
            monitor.on_acked(*now, first, last, one_way, &mut fated);
        }
        4 => drop(monitor.on_lost(*now, last)),
        5 if operation & 64 != 0 => monitor.on_queued(back),
        5 if operation & 128 != 0 => drop(monitor.release()),
        5 => monitor.find_lost(*now, &mut fated),
        6 if operation & 64 != 0 => drop(monitor.update(*now, update(source)?)),
        6 if operation & 128 != 0 => monitor.on_transport_acked(*now, first, last, &mut fated),
        6 if operation & 16 != 0 => monitor.on_heard(*now),
        6 => {
            monitor.on_timeout(*now);
        }
        _ => {
            *now += Duration::from_micros(u64::from(source.arbitrary::<u32>()? >> (operation % 32)))
        }
    }
    Ok(())
}
