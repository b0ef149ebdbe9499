//! Which class a packet belongs to.

use super::packet::Headers;
use crate::config::{PacketClass, PacketMatch};

/// The index of the first class that matches; the last one matches all.
pub(super) fn class_of(classes: &[PacketClass], headers: &Headers) -> usize {
    let found = classes
        .iter()
        .position(|class| matches(&class.matches, headers));
    found.unwrap_or_else(|| classes.len().saturating_sub(1))
}

fn matches(condition: &PacketMatch, headers: &Headers) -> bool {
    let PacketMatch {
        protocols,
        ports,
        dscp,
    } = condition;
    let has_port = |wanted: u16| ports.iter().any(|range| range.contains(&wanted));
    let port_fits = || {
        let known = headers.ports;
        known.is_some_and(|(source, destination)| has_port(source) || has_port(destination))
    };
    (protocols.is_empty() || protocols.contains(&headers.protocol))
        && (ports.is_empty() || port_fits())
        && (dscp.is_empty() || dscp.contains(&headers.dscp))
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::config::Carriage;

    fn class(name: &str, matches: PacketMatch) -> PacketClass {
        PacketClass {
            name: name.to_owned(),
            matches,
            priority: 0,
            carriage: Carriage::Reliable,
        }
    }

    fn udp(from: u16, to: u16) -> Headers {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(from, to)
            .write(&mut packet, &[])
            .unwrap();
        Headers::read(&packet).unwrap()
    }

    #[test]
    fn the_first_class_wins_and_all_its_conditions_hold() {
        let voice = PacketMatch {
            protocols: vec![17],
            ports: vec![5004..=5010, 53..=53],
            dscp: Vec::new(),
        };
        let marked = PacketMatch {
            dscp: vec![46],
            ..PacketMatch::default()
        };
        let classes = [
            class("voice", voice),
            class("marked", marked),
            class("other", PacketMatch::default()),
        ];
        assert_eq!(class_of(&classes, &udp(1, 5004)), 0);
        assert_eq!(class_of(&classes, &udp(53, 40_000)), 0);
        assert_eq!(class_of(&classes, &udp(1, 5011)), 2);
        let mut other = udp(1, 5011);
        other.dscp = 46;
        assert_eq!(class_of(&classes, &other), 1);
        let mut fragment = udp(1, 5004);
        fragment.ports = None;
        assert_eq!(class_of(&classes, &fragment), 2);
    }
}
