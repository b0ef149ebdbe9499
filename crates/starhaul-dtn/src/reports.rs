//! Status reports (RFC 9171 §6.1): which of them the node makes, how many, and what applications hear of them.

use std::time::{Duration, Instant};

use hardy_bpa::services::StatusNotify;
use hardy_bpv7::{
    bpsec::no_keys,
    bundle::{Id, ParsedBundle},
    eid::{Eid, Service},
    status_report::ReasonCode,
};
use starhaul_dtn_client::control::{Report, ReportedStatus};

/// Reports that may be made at once after a while without any.
const BURST: u32 = 2000;
/// Reports in a second, and the time that each of them takes of it.
pub(crate) const PER_SECOND: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(1000 / PER_SECOND as u64);
/// What a report begins with that says only that a bundle was deleted: a record of type 1 (RFC 9171 §6.1), and that the bundle was neither
/// received nor forwarded nor delivered (§6.1.1), as the agent writes it.
const DELETED: [u8; 10] = [0x82, 1, 0x84, 0x84, 0x81, 0xf4, 0x81, 0xf4, 0x81, 0xf4];
/// A report of a node with a name of usual length is shorter.
const LONGEST: usize = 512;
/// The payload block (RFC 9171 §4.1).
const PAYLOAD: u64 = 1;
/// Endpoints without a name of their own have numbers from here on, up to twice as much; nodes with names call them by this and a random number.
pub(crate) const ANONYMOUS: (u32, &str) = (1 << 30, "app-");

/// How many reports the node may make: whoever sends a bundle decides where reports of it go, and may send any number of bundles.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Until when those that were made have used it up.
    used_until: Option<Instant>,
}

impl Allowance {
    /// Takes the place of one report, if there is any.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let used = self.used_until.map_or(now, |until| until.max(now));
        let may = used.duration_since(now) < INTERVAL * BURST;
        if may {
            self.used_until = Some(used + INTERVAL);
        }
        may
    }
}

/// Whether these bytes are a report of this node (`is_own` tells of its endpoints) that a bundle was deleted, without a reason. The agent makes one of
/// each bundle that it has delivered or sent on, if that asks for reports of deletions: no bundle has ended by that (RFC 9171 §5.10).
pub(crate) fn says_nothing(data: &[u8], is_own: impl Fn(&Eid) -> bool) -> bool {
    // All bundles that are stored come here: most are longer, or have no such bytes.
    let is_short = data.len() <= LONGEST;
    if !is_short || !data.windows(DELETED.len()).any(|part| part == DELETED) {
        return false;
    }
    let Ok(parsed) = ParsedBundle::parse(data, no_keys) else {
        return false;
    };
    let bundle = parsed.bundle;
    if !bundle.flags.is_admin_record || !is_own(&bundle.id.source) {
        return false;
    }
    let block = bundle.blocks.get(&PAYLOAD);
    let record = block.and_then(|block| block.payload(data));
    let rest = record.and_then(|record| record.strip_prefix(&DELETED));
    // Deleted, perhaps with the time of that, and the reason.
    match rest {
        Some([0x81, 0xf5, reason, ..]) => *reason == 0,
        Some([0x82, 0xf5, 0x1b, rest @ ..]) => rest.get(8) == Some(&0),
        _ => false,
    }
}

/// Whether an endpoint is one without a name of its own: no other application will ever be there.
pub(crate) fn is_anonymous(endpoint: &Eid) -> bool {
    let (least, name) = ANONYMOUS;
    match endpoint.service() {
        Some(Service::Ipn(number)) => (least..2 * least).contains(&number),
        Some(Service::Dtn(service)) => service.starts_with(name),
        None => false,
    }
}

/// What an application hears of a report by the node `from`.
pub(crate) fn told(id: &Id, from: &Eid, kind: StatusNotify, reason: ReasonCode) -> Report {
    // The application sent the whole.
    let whole = Id {
        fragment_info: None,
        ..id.clone()
    };
    let node = from.to_node_id();
    Report {
        id: whole.to_key(),
        node: node.map_or_else(|_| from.to_string(), |node| node.to_string()),
        fate: match kind {
            StatusNotify::Received => ReportedStatus::Received,
            StatusNotify::Forwarded => ReportedStatus::Forwarded,
            StatusNotify::Delivered => ReportedStatus::Delivered,
            StatusNotify::Deleted => ReportedStatus::Deleted,
        },
        reason: words(reason),
    }
}

/// A reason in words (RFC 9171 §9.5, RFC 9172 §11.2); `None` if there is none.
fn words(reason: ReasonCode) -> Option<String> {
    let words = match reason {
        ReasonCode::NoAdditionalInformation => return None,
        ReasonCode::LifetimeExpired => "lifetime expired",
        ReasonCode::ForwardedOverUnidirectionalLink => "forwarded over a link without a way back",
        ReasonCode::TransmissionCanceled => "transmission cancelled",
        ReasonCode::DepletedStorage => "storage depleted",
        ReasonCode::DestinationEndpointIDUnavailable => "destination not available",
        ReasonCode::NoKnownRouteToDestinationFromHere => "no route to the destination",
        ReasonCode::NoTimelyContactWithNextNodeOnRoute => {
            "no contact in time with the next node on the route"
        }
        ReasonCode::BlockUnintelligible => "a block cannot be read",
        ReasonCode::HopLimitExceeded => "too many hops",
        ReasonCode::TrafficPared => "traffic pared",
        ReasonCode::BlockUnsupported => "a block is not supported",
        ReasonCode::MissingSecurityOperation => "not signed or encrypted as required",
        ReasonCode::UnknownSecurityOperation => "unknown security operation",
        ReasonCode::UnexpectedSecurityOperation => "unexpected security operation",
        ReasonCode::FailedSecurityOperation => "signature or encryption does not match",
        ReasonCode::ConflictingSecurityOperation => "conflicting security operations",
        ReasonCode::Unassigned(number) => return Some(format!("reason {number}")),
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use hardy_bpv7::{
        builder::Builder, bundle::Flags, creation_timestamp::CreationTimestamp, eid::NodeId,
    };

    use super::*;

    #[test]
    fn a_flood_of_bundles_that_ask_makes_a_bounded_number_of_reports() {
        let (mut allowance, begun) = (Allowance::default(), Instant::now());
        let mut made = |at: Duration| {
            let asked = std::iter::repeat_with(|| allowance.take(begun + at)).take(10_000);
            asked.filter(|may| *may).count()
        };
        assert_eq!(made(Duration::ZERO), BURST as usize);
        assert_eq!(made(Duration::from_secs(1)), PER_SECOND as usize);
        assert_eq!(made(Duration::from_secs(3)), 2 * PER_SECOND as usize);
        // What was not used is not saved up without end.
        assert_eq!(made(Duration::from_secs(1000)), BURST as usize);
    }

    #[test]
    fn a_deletion_without_a_reason_says_nothing() {
        let own: NodeId = "ipn:1.0".parse().unwrap();
        let is_own = |source: &Eid| source.to_node_id().is_ok_and(|node| node == own);
        let report = |source: &str, is_admin_record: bool, statuses: &[u8]| {
            let builder = Builder::new(source.parse().unwrap(), "ipn:2.0".parse().unwrap());
            let flags = Flags {
                is_admin_record,
                ..Flags::default()
            };
            let name: &[u8] = &[0x82, 2, 0x82, 2, 5, 0x82, 7, 1];
            let record = [&DELETED[..4], statuses, name].concat();
            let builder = builder.with_flags(flags).with_payload(record.into());
            builder.build(CreationTimestamp::now()).unwrap().1
        };
        let time: &[u8] = &[0x82, 0xf5, 0x1b, 0, 0, 0, 0xc0, 0, 0, 0, 0];
        let timed = |reason: u8| [&DELETED[4..], time, &[reason]].concat();
        let not_timed = |reason: u8| [&DELETED[4..], &[0x81, 0xf5, reason]].concat();
        for empty in [timed(0), not_timed(0)] {
            assert!(says_nothing(&report("ipn:1.0", true, &empty), is_own));
            // Another node's passes, and so does what an application sends.
            assert!(!says_nothing(&report("ipn:3.0", true, &empty), is_own));
            assert!(!says_nothing(&report("ipn:1.5", false, &empty), is_own));
        }
        let delivered = [0x81, 0xf4, 0x81, 0xf4, 0x81, 0xf5, 0x81, 0xf4, 0];
        for full in [timed(1), not_timed(1), delivered.to_vec()] {
            assert!(!says_nothing(&report("ipn:1.0", true, &full), is_own));
        }
    }

    #[test]
    fn endpoints_without_a_name_are_known() {
        for (endpoint, is_so) in [
            ("ipn:1.1073741824", true),
            ("ipn:1.2147483647", true),
            ("ipn:1.2147483648", false),
            ("ipn:1.100", false),
            ("ipn:1.0", false),
            ("dtn://lander/app-0000000000000001", true),
            ("dtn://lander/files", false),
        ] {
            let endpoint: Eid = endpoint.parse().unwrap();
            assert_eq!(is_anonymous(&endpoint), is_so, "{endpoint}");
        }
    }
}
