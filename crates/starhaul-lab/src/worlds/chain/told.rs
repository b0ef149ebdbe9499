//! When the ends of a hop hear that a path takes it, or the end of a path that it is another one: as a prober, or the operator's timetable,
//! would tell them.

use std::{collections::VecDeque, time::Duration};

use super::{Flow, Plan};

/// A hop that a path takes newly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// When the path takes the hop.
    pub(super) at: Duration,
    /// When its ends hear of it: when a probe over it has come back.
    pub(super) told: Duration,
    /// Its nodes, in the direction of the data.
    pub(super) hop: (usize, usize),
}

/// All changes of a plan's paths, in the order in which they are told.
pub(super) fn changes(plan: &Plan) -> VecDeque<Change> {
    let mut changes = Vec::new();
    for pair in plan.flows.iter().flat_map(|flow| flow.path.windows(2)) {
        let (before, (at, after)) = (&pair[0].1, &pair[1]);
        let is_new = |hop: &&[usize]| before.windows(2).all(|known| known != *hop);
        changes.extend(after.windows(2).filter(is_new).map(|hop| Change {
            at: *at,
            told: *at + plan.delay(hop, *at) * 2,
            hop: (hop[0], hop[1]),
        }));
    }
    changes.sort_by_key(|change| change.told);
    changes.into()
}

/// The same where the receivers control paths from end to end: each is told of its last hop, when a probe over the whole path has come back.
pub(super) fn changes_of_paths(plan: &Plan) -> VecDeque<Change> {
    let of_flow = |flow| {
        of_path(plan, flow).filter_map(|(at, told, path)| {
            let hop = path.last_chunk::<2>().map(|[from, to]| (*from, *to))?;
            Some(Change { at, told, hop })
        })
    };
    let mut changes: Vec<_> = plan.flows.iter().flat_map(of_flow).collect();
    changes.sort_by_key(|change| change.told);
    changes.into()
}

/// Each change of a flow's path, when a probe from end to end has come back over the new one, and the nodes of that.
pub(super) fn of_path<'a>(
    plan: &'a Plan,
    flow: &'a Flow,
) -> impl Iterator<Item = (Duration, Duration, &'a [usize])> {
    let changes = flow.path.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    changes.map(|pair| {
        let (at, path) = &pair[1];
        (*at, *at + plan.delay(path, *at) * 2, path.as_slice())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worlds::chain::Hop;

    #[test]
    fn hops_that_a_path_takes_newly_are_told_when_a_probe_has_come_back() {
        let ms = Duration::from_millis;
        let hops = [((0, 1), 5), ((1, 2), 10), ((1, 3), 30), ((3, 2), 1)];
        let hops = hops.map(|(nodes, delay)| (nodes, Hop::new(20, delay, 0.0)));
        let plan = Plan {
            hops: hops.into(),
            flows: vec![Flow {
                content: 1,
                start: Duration::ZERO,
                path: vec![
                    (ms(0), vec![0, 1, 2]),
                    (ms(1000), vec![0, 1, 3, 2]),
                    (ms(2000), vec![0, 1, 2]),
                    (ms(3000), vec![0, 1, 2]),
                ],
            }],
            bytes: None,
            time: ms(4000),
        };
        let told = changes(&plan);
        let told = told.iter().map(|it| (it.at, it.told, it.hop));
        let expected = [
            (ms(1000), ms(1002), (3, 2)),
            (ms(1000), ms(1060), (1, 3)),
            (ms(2000), ms(2020), (1, 2)),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        let told = changes_of_paths(&plan);
        let told = told.iter().map(|it| (it.at, it.told, it.hop));
        let expected = [(ms(1000), ms(1072), (3, 2)), (ms(2000), ms(2030), (1, 2))];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}
