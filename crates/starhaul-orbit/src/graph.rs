//! Shortest paths (Dijkstra 1959) over the links of one instant.

use std::{cmp::Ordering, collections::BinaryHeap};

/// Nodes `0..n` and links in both directions with their lengths.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Where the links of each node begin in `links`; one more than there are nodes.
    starts: Vec<usize>,
    links: Vec<(u32, f64)>,
}

impl Graph {
    /// A graph of these links: two nodes and a length that is not negative. Links of nodes that do not exist are left out.
    pub fn new(nodes: usize, links: &[(u32, u32, f64)]) -> Self {
        let known = |node: u32| (node as usize) < nodes;
        let links = || {
            let known = links.iter().filter(|(a, b, _)| known(*a) && known(*b));
            known.flat_map(|(a, b, length)| [(*a, *b, *length), (*b, *a, *length)])
        };
        let mut starts = vec![0; nodes + 1];
        for (from, ..) in links() {
            starts[from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut sorted = vec![(0, 0.0); starts[nodes]];
        for (from, to, length) in links() {
            let place = &mut next[from as usize];
            sorted[*place] = (to, length);
            *place += 1;
        }
        Self {
            starts,
            links: sorted,
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn links_of(&self, node: u32) -> &[(u32, f64)] {
        let node = node as usize;
        &self.links[self.starts[node]..self.starts[node + 1]]
    }
}

/// The shortest paths from one node.
#[derive(Clone, Debug)]
pub struct Tree {
    source: u32,
    /// Distance from the source, and the node before.
    reached: Vec<(f64, u32)>,
}

impl Tree {
    /// Searches from `source` until all `targets` are reached. Paths go through nodes that `passes` allows, and end at any.
    pub fn new(graph: &Graph, source: u32, targets: &[u32], passes: impl Fn(u32) -> bool) -> Self {
        let nodes = graph.nodes();
        let mut tree = Self {
            source,
            reached: vec![(f64::INFINITY, source); nodes],
        };
        let mut wanted = vec![false; nodes];
        let mut left = 0;
        for target in targets {
            if let Some(wanted) = wanted.get_mut(*target as usize) {
                left += usize::from(!*wanted);
                *wanted = true;
            }
        }
        if source as usize >= nodes {
            return tree;
        }
        tree.reached[source as usize].0 = 0.0;
        let mut heap = BinaryHeap::from([Near(0.0, source)]);
        while let Some(Near(distance, node)) = heap.pop() {
            // An entry that a shorter way has overtaken.
            if distance > tree.reached[node as usize].0 {
                continue;
            }
            left -= usize::from(std::mem::take(&mut wanted[node as usize]));
            if left == 0 {
                break;
            }
            if node != source && !passes(node) {
                continue;
            }
            for &(next, length) in graph.links_of(node) {
                let further = distance + length;
                let known = &mut tree.reached[next as usize];
                if further < known.0 {
                    *known = (further, node);
                    heap.push(Near(further, next));
                }
            }
        }
        tree
    }

    /// The distance of a target from the source; `None` without a path.
    pub fn distance(&self, target: u32) -> Option<f64> {
        let (distance, _) = *self.reached.get(target as usize)?;
        distance.is_finite().then_some(distance)
    }

    /// The nodes from the source to a target; `None` without a path.
    pub fn nodes_to(&self, target: u32) -> Option<Vec<u32>> {
        self.distance(target)?;
        let mut nodes = vec![target];
        let mut node = target;
        while node != self.source {
            node = self.reached[node as usize].1;
            nodes.push(node);
        }
        nodes.reverse();
        Some(nodes)
    }
}

/// A node at a distance; the nearest is the greatest, as the heap wants it.
#[derive(Clone, Copy, Debug)]
struct Near(f64, u32);

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Near {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The shortest simple path through passing nodes, by trying all.
    fn brute_force(links: &[(u32, u32, f64)], passes: &[bool], source: u32, target: u32) -> f64 {
        fn extend(
            links: &[(u32, u32, f64)],
            passes: &[bool],
            path: &mut Vec<u32>,
            target: u32,
        ) -> f64 {
            let here = path[path.len() - 1];
            if here == target {
                return 0.0;
            }
            if path.len() > 1 && !passes[here as usize] {
                return f64::INFINITY;
            }
            let mut best = f64::INFINITY;
            for &(a, b, length) in links {
                for (from, to) in [(a, b), (b, a)] {
                    if from == here && !path.contains(&to) {
                        path.push(to);
                        best = best.min(length + extend(links, passes, path, target));
                        path.pop();
                    }
                }
            }
            best
        }
        extend(links, passes, &mut vec![source], target)
    }

    proptest! {
        #[test]
        fn no_path_is_shorter(
            links in prop::collection::vec((0_u32..7, 0_u32..7, 0.0_f64..10.0), 0..12),
            passes in prop::collection::vec(any::<bool>(), 7),
        ) {
            let graph = Graph::new(7, &links);
            let tree = Tree::new(&graph, 0, &[1, 2, 3, 4, 5, 6], |node| passes[node as usize]);
            for target in 1..7 {
                let expected = brute_force(&links, &passes, 0, target);
                let Some(distance) = tree.distance(target) else {
                    prop_assert!(expected.is_infinite());
                    continue;
                };
                prop_assert!((distance - expected).abs() < 1e-9);
                // The nodes are a path of that length.
                let nodes = tree.nodes_to(target).unwrap();
                let length = nodes.windows(2).map(|pair| {
                    let here = links.iter().filter(|(a, b, _)| {
                        (*a, *b) == (pair[0], pair[1]) || (*b, *a) == (pair[0], pair[1])
                    });
                    here.map(|link| link.2).fold(f64::INFINITY, f64::min)
                });
                prop_assert!((length.sum::<f64>() - distance).abs() < 1e-9);
            }
        }

        #[test]
        fn the_search_may_end_at_its_target(
            links in prop::collection::vec((0_u32..20, 0_u32..20, 0.0_f64..10.0), 0..60),
            target in 1_u32..20,
        ) {
            let graph = Graph::new(20, &links);
            let all: Vec<u32> = (0..20).collect();
            let (short, whole) = (
                Tree::new(&graph, 0, &[target], |_| true),
                Tree::new(&graph, 0, &all, |_| true),
            );
            prop_assert_eq!(short.nodes_to(target), whole.nodes_to(target));
        }
    }
}
