//! Any datagrams to a recording server or client, a recording on a bad path, and damaged journals.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use arbitrary::{Result, Unstructured};
use starhaul_record::{
    Client, ClientConfig, Direction, Entry, Key, Light, Recording, Server, ServerConfig, Transmit,
    parse_journal,
};
use starhaul_units::Bandwidth;

use super::parts;

const FROM: ([u8; 4], u16) = ([192, 0, 2, 1], 4000);

fn pair(now: Instant, direction: Direction, light: Light) -> (Server, Client) {
    let key = Key::new(&[7; 32]);
    let mut config = ClientConfig::new(key.clone(), [2; 16]);
    config.request.direction = direction;
    config.request.seconds = 1;
    config.request.loss_ms = 100;
    config.request.max_rate = Bandwidth::from_mbit(8);
    config.light = light;
    (
        Server::new(ServerConfig::new(vec![key], [1; 32]), now),
        Client::new(config, now),
    )
}

/// Datagrams of a client without a key: there is no answer and no journal entry.
pub fn record_datagram(data: &[u8]) {
    let now = Instant::now();
    let (mut server, mut client) = pair(now, Direction::Up, Light::Udp);
    for part in parts(data) {
        server.handle_datagram(now, now, SocketAddr::from(FROM), part);
        client.handle_datagram(now, now, part);
        assert!(
            server.poll_transmit(now).is_none(),
            "an answer to a stranger"
        );
    }
    assert!(
        client.poll_entry().is_none(),
        "a stranger's word was written down"
    );
}

/// A recording whose datagrams are lost, duplicated, damaged and late: it ends, and until the client has answered from
/// its address the server sends no more bytes than it got.
pub fn record_session(data: &[u8]) {
    let mut now = Instant::now() + Duration::from_secs(1);
    let mut source = Unstructured::new(data);
    let choice = source.arbitrary::<u8>().unwrap_or(0);
    let direction = if choice & 1 == 0 {
        Direction::Up
    } else {
        Direction::Down
    };
    let light = if choice & 2 == 0 {
        Light::Udp
    } else {
        Light::Icmp
    };
    let (mut server, mut client) = pair(now, direction, light);
    let (mut received, mut sent, mut began) = (0, 0, false);
    let mut entries = Vec::new();
    for _ in 0..4000 {
        let from = SocketAddr::from(FROM);
        while let Some(transmit) = client.poll_transmit(now) {
            each(&transmit, &mut source, |datagram| {
                received += datagram.len();
                server.handle_datagram(now, now, from, datagram);
            });
        }
        while let Some((to, transmit)) = server.poll_transmit(now) {
            assert_eq!(to, from);
            began |= std::iter::from_fn(|| server.poll_event()).count() > 0;
            sent += transmit.contents.len();
            assert!(began || sent <= received, "{sent} bytes for {received}");
            each(&transmit, &mut source, |datagram| {
                client.handle_datagram(now, now, datagram)
            });
        }
        while let Some(number) = client.poll_probe(now) {
            if number % 7 != 0 {
                client.handle_probe_reply(now + Duration::from_millis(3), number);
            }
        }
        entries.extend(std::iter::from_fn(|| client.poll_entry()));
        if client.result().is_some() {
            break;
        }
        let timers = client
            .poll_timeout()
            .into_iter()
            .chain(server.poll_timeout());
        let jump = Duration::from_millis(source.arbitrary::<u8>().unwrap_or(10).into());
        now = timers
            .min()
            .unwrap_or(now)
            .max(now + Duration::from_millis(2))
            .min(now + jump.max(Duration::from_millis(2)));
    }
    let text: String = entries.iter().map(Entry::to_line).collect();
    let read = parse_journal("fuzz", text.as_bytes()).expect("what was written can be read");
    assert_eq!(read, entries);
}

/// Delivers a batch, with the fate of each datagram read from the source.
fn each(transmit: &Transmit, source: &mut Unstructured<'_>, mut deliver: impl FnMut(&[u8])) {
    for datagram in transmit.contents.chunks(transmit.segment_bytes.max(1)) {
        match source.arbitrary::<u8>().unwrap_or(0) % 16 {
            13 => {}
            14 => {
                deliver(datagram);
                deliver(datagram);
            }
            15 => {
                let damaged: Result<(u16, u8)> = source.arbitrary();
                let (place, flip) = damaged.unwrap_or((0, 1));
                let mut datagram = datagram.to_vec();
                let length = datagram.len().max(1);
                if let Some(byte) = datagram.get_mut(usize::from(place) % length) {
                    *byte ^= flip;
                }
                deliver(&datagram);
            }
            _ => deliver(datagram),
        }
    }
}

/// A journal: converted to a trace and described, or refused with a line of text.
pub fn record_journal(data: &[u8]) {
    let Ok(entries) = parse_journal("fuzz", data) else {
        return;
    };
    let lines: String = entries.iter().map(Entry::to_line).collect();
    assert_eq!(
        parse_journal("fuzz", lines.as_bytes()).as_ref(),
        Ok(&entries)
    );
    if let Ok(recording) = Recording::from_journal("fuzz", &entries) {
        let summary = recording.summary();
        assert!(
            summary.seconds > 0.0 && summary.mean_capacity_mbit > 0.0,
            "{summary:?}"
        );
        assert!((0.0..=1.0).contains(&summary.loss.share), "{summary:?}");
    }
}
