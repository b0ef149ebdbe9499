//! Which parts of bundles for applications here have come, so that no byte is taken twice.
//!
//! A bundle that was cut up differently on two ways comes in parts that overlap. The agent puts together only parts that lie side by side
//! without a gap, and removes all of them where they do not. So what is here already is cut off from a part before the agent gets it.

use std::{
    collections::{
        BTreeMap, HashMap,
        hash_map::{Entry, OccupiedEntry},
    },
    ops::Range,
};

use hardy_bpv7::bundle::{FragmentInfo, Id};

/// Why a part is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPart {
    /// It would end behind its whole.
    #[error("a part of a bundle ends behind its whole")]
    Beyond,
    /// Parts that are here say something else of the length of the whole.
    #[error("a part of a bundle contradicts the others of it")]
    Contradiction,
    /// Some of it is here, and it cannot be cut off since the payload is protected.
    #[error("a part of a bundle overlaps others, and is protected")]
    Protected,
}

/// What has come of all bundles, by their names without fragments.
#[derive(Debug, Default)]
pub(super) struct Parts(HashMap<Id, Whole>);

#[derive(Debug, Default)]
struct Whole {
    /// Bytes of all of it.
    bytes: u64,
    /// Where parts begin that are here, and where they end.
    held: BTreeMap<u64, u64>,
    /// What the agent is being given.
    coming: Vec<Range<u64>>,
}

impl Whole {
    /// What of these bytes is not held.
    fn missing(&self, wanted: &Range<u64>) -> Vec<Range<u64>> {
        let (mut from, mut missing) = (wanted.start, Vec::new());
        for (begin, end) in self.held.range(..wanted.end) {
            if *begin > from {
                missing.push(from..*begin);
            }
            from = from.max(*end);
        }
        if from < wanted.end {
            missing.push(from..wanted.end);
        }
        missing
    }
}

/// The name of the whole of which a bundle is a part.
pub(super) fn whole(id: &Id) -> Id {
    Id {
        fragment_info: None,
        ..id.clone()
    }
}

/// Where a part lies in its whole; `None` if it would end behind it.
pub(super) fn range(info: &FragmentInfo, bytes: u64) -> Option<Range<u64>> {
    let end = info.offset.checked_add(bytes)?;
    (end <= info.total_adu_length).then_some(info.offset..end)
}

impl Parts {
    /// Notes a part of so many bytes.
    pub(super) fn insert(&mut self, id: &Id, bytes: u64) {
        let info = id.fragment_info.as_ref();
        let Some((info, part)) = info.and_then(|info| Some((info, range(info, bytes)?))) else {
            return;
        };
        let whole = self.0.entry(whole(id)).or_default();
        whole.bytes = info.total_adu_length;
        // Former lives may have taken some that overlap.
        let end = whole.held.entry(part.start).or_default();
        *end = part.end.max(*end);
    }

    /// Whether no part is here.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets a part.
    pub(super) fn remove(&mut self, id: &Id) {
        if let Some(info) = &id.fragment_info
            && let Entry::Occupied(mut entry) = self.0.entry(whole(id))
        {
            entry.get_mut().held.remove(&info.offset);
            remove_if_empty(entry);
        }
    }

    /// Begins to take a part; `None` while one that overlaps is being taken.
    pub(super) fn begin(
        &mut self,
        id: &Id,
        part: &Range<u64>,
        bytes: u64,
    ) -> Result<Option<Missing>, NoPart> {
        let whole = self.0.entry(whole(id)).or_insert_with(|| Whole {
            bytes,
            ..Whole::default()
        });
        if whole.bytes != bytes {
            return Err(NoPart::Contradiction);
        }
        let overlaps = |other: &Range<u64>| other.start < part.end && part.start < other.end;
        if whole.coming.iter().any(overlaps) {
            return Ok(None);
        }
        let missing = whole.missing(part);
        whole.coming.push(part.clone());
        Ok(Some(missing))
    }

    /// Ends to take a part, which is noted or not.
    pub(super) fn end(&mut self, id: &Id, part: &Range<u64>) {
        if let Entry::Occupied(mut entry) = self.0.entry(whole(id)) {
            let coming = &mut entry.get_mut().coming;
            if let Some(at) = coming.iter().position(|other| other == part) {
                coming.swap_remove(at);
            }
            remove_if_empty(entry);
        }
    }
}

/// The bytes of a part that are not here, in their order.
pub(super) type Missing = Vec<Range<u64>>;

fn remove_if_empty(entry: OccupiedEntry<'_, Id, Whole>) {
    if entry.get().held.is_empty() && entry.get().coming.is_empty() {
        entry.remove();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use hardy_bpv7::creation_timestamp::CreationTimestamp;

    use super::*;

    pub(in crate::stock) fn id(offset: u64, whole: u64) -> Id {
        Id {
            source: "ipn:1.5".parse().unwrap(),
            timestamp: CreationTimestamp::from_parts(None, 7),
            fragment_info: Some(FragmentInfo {
                offset,
                total_adu_length: whole,
            }),
        }
    }

    pub(in crate::stock) fn ends(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
        let ends = ranges.iter().map(|range| (range.start, range.end));
        ends.collect()
    }

    #[test]
    fn what_of_a_part_is_missing_is_what_no_other_has() {
        let mut parts = Parts::default();
        for (offset, bytes) in [(10, 10), (30, 5), (32, 8), (90, 20)] {
            parts.insert(&id(offset, 100), bytes);
        }
        // The last one ends behind the whole.
        let whole = parts.0.values().next().unwrap();
        for (wanted, missing) in [
            (0..100, vec![(0, 10), (20, 30), (40, 100)]),
            (12..18, vec![]),
            (15..35, vec![(20, 30)]),
            (0..10, vec![(0, 10)]),
            (38..41, vec![(40, 41)]),
        ] {
            assert_eq!(ends(&whole.missing(&wanted)), missing, "{wanted:?}");
        }
        for offset in [10, 30, 32] {
            parts.remove(&id(offset, 100));
        }
        assert!(parts.0.is_empty());
    }
}
