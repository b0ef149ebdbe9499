//! The keys that say how datagrams are delivered, and the priority of a rule.

use std::time::Duration;

use starhaul_config::{Error, Table, choice};
use starhaul_session::Mode;

use super::{Delivery, values::positive_rate};

/// The keys of a delivery.
pub(super) const DELIVERY: &[&str] = &[
    "deadline",
    "mode",
    "max_coding_rate",
    "ordered",
    "bandwidth",
];
/// The modes that a datagram rule may ask for.
pub(super) const MODES: &[(&str, Mode)] = &[
    (Mode::FecRetransmit.name(), Mode::FecRetransmit),
    (Mode::Fec.name(), Mode::Fec),
    (Mode::Retransmit.name(), Mode::Retransmit),
    (Mode::None.name(), Mode::None),
    (Mode::Duplicate.name(), Mode::Duplicate),
];
/// Priority of a rule that names none.
const DEFAULT_PRIORITY: u8 = 4;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Reads a delivery with a deadline; without `default_deadline` the key is required.
pub(super) fn read_delivery(
    table: &Table<'_>,
    default_deadline: Option<Duration>,
    ordered: bool,
) -> Result<Delivery, Error> {
    let is_reliable = |text: &str| Ok::<_, String>(text == "reliable");
    if table.text("mode", is_reliable)? == Some(true) {
        return Err(table.key_problem(
            "mode",
            "reliable is what [[tcp]] and [[socks5]] connections use; datagrams have a deadline",
        ));
    }
    read_delivery_with(table, default_deadline, ordered)
}

/// The same where another mode is read elsewhere.
pub(super) fn read_delivery_with(
    table: &Table<'_>,
    default_deadline: Option<Duration>,
    ordered: bool,
) -> Result<Delivery, Error> {
    let deadline = table.duration("deadline", MILLISECOND..=SECOND * 3600)?;
    let deadline = deadline.or(default_deadline);
    let deadline = deadline.ok_or_else(|| table.missing("deadline"))?;
    let mode = table.text("mode", |text| choice(text, MODES))?;
    Ok(Delivery {
        deadline,
        mode: mode.unwrap_or_default(),
        max_coding_rate: table.number("max_coding_rate", 0.0..=1.0)?.unwrap_or(1.0),
        ordered: table.flag("ordered")?.unwrap_or(ordered),
        bandwidth: table.text("bandwidth", positive_rate)?,
    })
}

/// The key `priority`.
pub(super) fn read_priority(table: &Table<'_>) -> Result<u8, Error> {
    let priority = table.integer("priority", 0..=255)?;
    Ok(priority.map_or(DEFAULT_PRIORITY, |priority| {
        u8::try_from(priority).unwrap_or(u8::MAX)
    }))
}
