//! Contact plans: when which node can transmit to which other, how fast, and over what distance (CCSDS 734.3 §3).

mod read;
pub mod route;
mod search;
#[cfg(test)]
pub(crate) mod trials;
mod ways;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use hardy_bpv7::eid::NodeId;
pub use read::read_plan;
pub(crate) use read::{CONTACTS, EPOCH, LIGHT_TIME, epoch, node, read_contacts};
use starhaul_units::Bandwidth;

/// A point in time, counted from 1970 in UTC. Contact plans are about the time that nodes agree on, not about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// The latest of all.
    pub const MAX: Self = Self(Duration::MAX);

    /// Later by `time`.
    pub const fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    /// Earlier by `time`, not before 1970.
    pub const fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }

    /// Time since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl fmt::Display for Moment {
    /// RFC 3339 with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = i128::try_from(self.0.as_nanos()).unwrap_or(i128::MAX);
        let Ok(time) = time::OffsetDateTime::from_unix_timestamp_nanos(nanoseconds) else {
            return f.write_str("never");
        };
        let (date, clock) = (time.date(), time.time());
        write!(
            f,
            "{date}T{:02}:{:02}:{:02}",
            clock.hour(),
            clock.minute(),
            clock.second()
        )?;
        match clock.millisecond() {
            0 => f.write_str("Z"),
            milliseconds => write!(f, ".{milliseconds:03}Z"),
        }
    }
}

/// A time in which one node can transmit to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The node that transmits.
    pub from: NodeId,
    /// The node that receives.
    pub to: NodeId,
    /// The earliest time of transmission.
    pub start: Moment,
    /// When it must have ended.
    pub end: Moment,
    /// How fast the link carries data.
    pub rate: Bandwidth,
    /// How long a signal takes.
    pub light_time: Duration,
}

impl Contact {
    /// Whether transmission is possible.
    pub fn is_open(&self, now: Moment) -> bool {
        (self.start..self.end).contains(&now)
    }
}

/// All contacts that a node knows, in the order of their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContactPlan {
    contacts: Vec<Contact>,
    /// The places of those from each node: a search looks at no others.
    leaving: BTreeMap<NodeId, Vec<usize>>,
}

impl ContactPlan {
    /// A plan of these contacts.
    pub fn new(mut contacts: Vec<Contact>) -> Self {
        contacts.sort_by_key(|contact| (contact.start, contact.end));
        let mut leaving: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (place, contact) in contacts.iter().enumerate() {
            match leaving.get_mut(&contact.from) {
                Some(places) => places.push(place),
                None => drop(leaving.insert(contact.from.clone(), vec![place])),
            }
        }
        Self { contacts, leaving }
    }

    /// The same plan with further contacts.
    pub fn with(self, more: Vec<Contact>) -> Self {
        Self::new(self.contacts.into_iter().chain(more).collect())
    }

    /// The contacts, in the order of their start.
    pub fn contacts(&self) -> &[Contact] {
        &self.contacts
    }

    /// The contacts from a node with their places in the plan, in the order of their start.
    pub(crate) fn leaving(&self, node: &NodeId) -> impl Iterator<Item = (usize, &Contact)> {
        let places = self.leaving.get(node).into_iter().flatten();
        places.filter_map(move |place| Some((*place, self.contacts.get(*place)?)))
    }

    /// Whether the plan says anything of these nodes; a link that no plan knows is always there.
    pub fn knows(&self, from: &NodeId, to: &NodeId) -> bool {
        self.between(from, to).next().is_some()
    }

    /// Whether what `from` transmits arrives at `to` at this moment, one light time after it left.
    pub fn is_heard(&self, from: &NodeId, to: &NodeId, now: Moment) -> bool {
        self.between(from, to).any(|contact| {
            let (start, end) = (
                contact.start.plus(contact.light_time),
                contact.end.plus(contact.light_time),
            );
            (start..end).contains(&now)
        })
    }

    /// When the next contact of a node opens, closes, or begins or ends to be heard.
    pub fn next_change(&self, node: &NodeId, after: Moment) -> Option<Moment> {
        let own = self
            .contacts
            .iter()
            .filter(|contact| contact.from == *node || contact.to == *node);
        let changes = own.flat_map(|contact| {
            let (start, end, light) = (contact.start, contact.end, contact.light_time);
            [start, end, start.plus(light), end.plus(light)]
        });
        changes.filter(|at| *at > after).min()
    }

    /// All nodes that the plan names.
    pub fn nodes(&self) -> BTreeSet<&NodeId> {
        self.contacts
            .iter()
            .flat_map(|contact| [&contact.from, &contact.to])
            .collect()
    }

    fn between<'a>(
        &'a self,
        from: &'a NodeId,
        to: &'a NodeId,
    ) -> impl Iterator<Item = &'a Contact> {
        let contacts = self.contacts.iter();
        contacts.filter(move |contact| contact.from == *from && contact.to == *to)
    }
}
