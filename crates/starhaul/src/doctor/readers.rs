//! Applications that do not read what they were sent.

use starhaul_gateway::status::{Session, Status, StreamStatus};

use super::{Cause, Finding};

/// So much unread data waits only where an application does not read.
const UNREAD_BYTES: u64 = 32 << 10;

/// Those that read nothing between two statuses.
pub(super) fn examine(first: &Status, last: &Status, peer: Option<&str>) -> Vec<Finding> {
    let is_meant = |session: &&Session| peer.is_none_or(|peer| peer == session.peer);
    let mut findings = Vec::new();
    for session in last.sessions.iter().filter(is_meant) {
        let mut before = first.sessions.iter();
        let before = before.find(|other| {
            other.peer == session.peer
                && other.opened_by == session.opened_by
                && other.age_s <= session.age_s
        });
        findings.extend(before.and_then(|before| far_readers(session, before)));
        findings.extend(before.and_then(|before| our_readers(session, before)));
    }
    findings
}

/// Of those that stood still for a moment, one that still does is a problem; another reads in bursts.
pub(super) fn those_who_never_read(
    for_a_moment: Vec<Finding>,
    for_long: &[Finding],
) -> Vec<Finding> {
    let told = for_a_moment.into_iter().map(|finding| {
        let same = for_long.iter().find(|other| other.is_of_the_same(&finding));
        same.cloned().unwrap_or_else(|| {
            finding.only_noted(
                "later it read on: it reads in bursts, as players and limited downloads do",
            )
        })
    });
    told.collect()
}

/// Streams of the session at both times.
fn in_both<'s>(
    session: &'s Session,
    before: &'s Session,
) -> impl Iterator<Item = (&'s StreamStatus, &'s StreamStatus)> {
    let open = session.streams.iter().filter(|stream| !stream.ended);
    open.filter_map(|stream| {
        let mut earlier = before.streams.iter();
        let earlier = earlier.find(|earlier| earlier.stream == stream.stream)?;
        Some((stream, earlier))
    })
}

/// Streams that could not go on because the peer's application does not read them.
fn far_readers(session: &Session, before: &Session) -> Option<Finding> {
    let stands_still = |(now, earlier): &(&StreamStatus, &StreamStatus)| {
        now.peer_reads_no_more && earlier.peer_reads_no_more && now.bytes_sent == earlier.bytes_sent
    };
    let still: Vec<_> = in_both(session, before).filter(stands_still).collect();
    let (one, _) = still.first()?;
    Some(reader(
        session,
        one,
        still.len(),
        "the application at the peer has not read what it was sent: the window of the receiver is closed",
    ))
}

/// Streams whose data wait here for an application.
fn our_readers(session: &Session, before: &Session) -> Option<Finding> {
    if session.held_receive_bytes.min(before.held_receive_bytes) < UNREAD_BYTES {
        return None;
    }
    // What is incomplete for lack of a packet is held too, but not while nothing at all is read for so long.
    let reads =
        in_both(session, before).any(|(now, earlier)| now.bytes_received > earlier.bytes_received);
    let mut streams = in_both(session, before).filter(|(now, _)| now.bytes_received > 0);
    let (one, _) = streams.next().filter(|_| !reads)?;
    let count = 1 + streams.count();
    let why = format!(
        "an application here has not read what it was sent; {} bytes wait for it",
        session.held_receive_bytes
    );
    Some(reader(session, one, count, &why))
}

fn reader(session: &Session, one: &StreamStatus, count: usize, why: &str) -> Finding {
    let rule = one.rule.as_deref().unwrap_or("?");
    let target = one.target.as_deref();
    let target = target.map_or_else(String::new, |target| format!(" to {target}"));
    Finding::problem(
        Cause::Reader,
        format!("rule {rule}"),
        format!("{count} stream(s), one{target}, stand still: {why}"),
        "find out why that application does not read: it is neither the paths nor the gateways",
    )
    .with(&session.peer)
}

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    #[test]
    fn who_reads_in_bursts_is_no_problem_and_who_never_reads_is_one() {
        let reader = |subject: &str, peer: &str| {
            Finding::problem(Cause::Reader, subject, "stands still", "look").with(peer)
        };
        let [player, dead] = [
            reader("rule player", "ground"),
            reader("rule dead", "ground"),
        ];
        let of_other = reader("rule player", "other");
        let told = those_who_never_read(
            vec![player.clone(), dead.clone()],
            &[dead.clone(), of_other],
        );
        assert_eq!(told[1], dead);
        assert_eq!(told[0].level, Level::Note);
    }
}
