//! The keys that say how datagrams are delivered, and the priority of a rule.

use std::{ops::RangeInclusive, time::Duration};

use starhaul_config::{Error, Key, Table, definition::names};
use starhaul_session::Mode;

use super::Delivery;

/// The names of the keys of a delivery.
pub(super) const DELIVERY: [&str; 5] = [
    DEADLINE.name,
    MODE.name,
    MAX_CODING_RATE.name,
    ORDERED.name,
    BANDWIDTH.name,
];
pub(super) const DEADLINE: Key = Key::duration("deadline", DEADLINES)
    .such_as("\"800ms\"")
    .means(
        "Time from the gateway's receipt of the datagram; later data are dropped. For replies too.",
    );
/// Of UDP through a SOCKS5 rule: a conversation bears about a second.
pub(super) const DEADLINE_OF_CALLS: Key = Key::duration("deadline", DEADLINES)
    .or_duration(Duration::from_secs(1))
    .means("Of the datagrams of UDP ASSOCIATE.");
pub(super) const PRIORITY: Key = Key::whole("priority", 0..=255)
    .or_count(DEFAULT_PRIORITY)
    .means("0 is the most important. For replies too. It orders byte streams among each other; blocks go before bytes, but bytes that wait get one datagram in about 20.");
pub(super) const MODE: Key = Key::words("mode", &MODE_NAMES)
    .or(Mode::FecRetransmit.name())
    .means("Protection of datagrams. [Which one](deadlines.md#modes). For replies too.");
pub(super) const MAX_CODING_RATE: Key = Key::number("max_coding_rate", 0.0..=1.0)
    .or_number(1.0)
    .means("Greatest number of redundancy fragments per data fragment. For replies too.");
pub(super) const ORDERED: Key = Key::flag("ordered").or_flag(false).means(ORDERED_MEANS);
/// A receiver of RTP without a buffer for reordering loses what comes after a later frame.
pub(super) const ORDERED_FRAMES: Key = Key::flag("ordered").or_flag(true).means(ORDERED_MEANS);
const ORDERED_MEANS: &str = "A datagram waits at the receiver for those sent before it. It does until these have arrived or were given up, and until its own deadline at the latest: what comes later of these is dropped. For replies too.";
pub(super) const BANDWIDTH: Key = Key::rate("bandwidth")
    .or_none("none")
    .such_as("\"2mbit\"")
    .means("Rate of the application, if known. Only the overload warning uses it.");
/// The modes that a datagram rule may ask for.
pub(super) const MODES: [(&str, Mode); 5] = [
    (Mode::FecRetransmit.name(), Mode::FecRetransmit),
    (Mode::Fec.name(), Mode::Fec),
    (Mode::Retransmit.name(), Mode::Retransmit),
    (Mode::None.name(), Mode::None),
    (Mode::Duplicate.name(), Mode::Duplicate),
];
const MODE_NAMES: [&str; MODES.len()] = names(&MODES);
/// Priority of a rule that names none.
pub(super) const DEFAULT_PRIORITY: u64 = 4;
pub(super) const DEADLINES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);

/// Reads a delivery; `lifetime` is the deadline of one that names none.
pub(super) fn read_delivery(
    table: &Table<'_>,
    lifetime: Option<Duration>,
) -> Result<Delivery, Error> {
    let is_reliable = |text: &str| Ok::<_, String>(text == "reliable");
    if table.text("mode", is_reliable)? {
        return Err(table.key_problem(
            "mode",
            "reliable is what [[tcp]] and [[socks5]] connections use; datagrams have a deadline",
        ));
    }
    read_delivery_with(table, lifetime)
}

/// The same where another mode is read elsewhere.
pub(super) fn read_delivery_with(
    table: &Table<'_>,
    lifetime: Option<Duration>,
) -> Result<Delivery, Error> {
    let deadline = table.duration_if("deadline")?.or(lifetime);
    Ok(Delivery {
        deadline: deadline.ok_or_else(|| table.missing("deadline"))?,
        mode: table.choice("mode", &MODES)?,
        max_coding_rate: table.number("max_coding_rate")?,
        ordered: table.flag("ordered")?,
        bandwidth: table.rate_if("bandwidth")?,
    })
}

/// The key `priority`.
pub(super) fn read_priority(table: &Table<'_>) -> Result<u8, Error> {
    let priority = table.whole("priority")?;
    Ok(u8::try_from(priority).unwrap_or(u8::MAX))
}
