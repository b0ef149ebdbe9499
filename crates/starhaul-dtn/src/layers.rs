//! Neighbours that are reached over LTP and over TCPCLv4 as well: over which of the two they answer.
//!
//! The agent spreads bundles over all ways to a neighbour that it knows of, by their sources and destinations, whatever came of those
//! before them. So a way that fails is hidden from it while the other one goes on.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    plan::{Moment, NodeId},
    silence::Silent,
};

/// A convergence layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// LTP (RFC 5326).
    Ltp,
    /// TCPCLv4 (RFC 9174).
    Tcp,
}

impl Layer {
    const ALL: [Self; 2] = [Self::Ltp, Self::Tcp];
}

/// Over which layers neighbours are there, and over which they did not answer last.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    there: BTreeSet<(NodeId, Layer)>,
    silent: BTreeMap<Layer, Silent>,
}

impl Layers {
    /// A neighbour is there over a layer.
    pub(crate) fn came(&mut self, neighbour: &NodeId, layer: Layer) {
        self.there.insert((neighbour.clone(), layer));
    }

    /// A neighbour is not there any more over a layer. Returns whether it is over the other one.
    pub(crate) fn left(&mut self, neighbour: &NodeId, layer: Layer) -> bool {
        self.there.remove(&(neighbour.clone(), layer));
        self.others(neighbour, layer).next().is_some()
    }

    /// A neighbour did not answer over a layer. Returns whether the other one goes on.
    pub(crate) fn failed(&mut self, neighbour: &NodeId, layer: Layer, now: Moment) -> bool {
        self.silent.entry(layer).or_default().failed(neighbour, now);
        let mut others = self.others(neighbour, layer);
        others.any(|other| self.until(neighbour, other, now) <= now)
    }

    /// A neighbour took a bundle over a layer. That it is heard there says nothing of what is sent.
    pub(crate) fn worked(&mut self, neighbour: &NodeId, layer: Layer, now: Moment) {
        if let Some(silent) = self.silent.get_mut(&layer) {
            silent.worked(neighbour, now);
        }
    }

    /// Whether bundles are to go to a neighbour over this layer: not if it is also there over another that is silent for less long.
    pub(crate) fn is_best(&self, neighbour: &NodeId, layer: Layer, now: Moment) -> bool {
        let own = self.until(neighbour, layer, now);
        let mut others = self.others(neighbour, layer);
        own <= now || others.all(|other| self.until(neighbour, other, now) >= own)
    }

    /// When the next of those that did not answer is tried again.
    pub(crate) fn next(&self, now: Moment) -> Option<Moment> {
        self.silent
            .values()
            .filter_map(|silent| silent.next(now))
            .min()
    }

    fn others<'a>(
        &'a self,
        neighbour: &'a NodeId,
        layer: Layer,
    ) -> impl Iterator<Item = Layer> + 'a {
        let others = Layer::ALL.into_iter().filter(move |other| *other != layer);
        others.filter(move |other| self.there.contains(&(neighbour.clone(), *other)))
    }

    fn until(&self, neighbour: &NodeId, layer: Layer, now: Moment) -> Moment {
        let silent = self.silent.get(&layer);
        silent.map_or_else(Moment::default, |silent| silent.until(neighbour, now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_neighbour_is_reached_over_the_layer_that_goes_on() {
        let node: NodeId = "ipn:2.0".parse().unwrap();
        let (mut layers, now) = (Layers::default(), Moment(Duration::from_secs(1000)));
        let best = |layers: &Layers, now| Layer::ALL.map(|layer| layers.is_best(&node, layer, now));
        layers.came(&node, Layer::Ltp);
        assert!(!layers.failed(&node, Layer::Ltp, now), "there is no other");
        assert!(layers.is_best(&node, Layer::Ltp, now));
        layers.came(&node, Layer::Tcp);
        assert_eq!(best(&layers, now), [false, true]);
        // Both fail: the one that is tried again earlier.
        let later = now.plus(Duration::from_secs(10));
        assert!(!layers.failed(&node, Layer::Tcp, later));
        assert_eq!(best(&layers, later), [true, false]);
        let next = layers.next(later).unwrap();
        assert_eq!(best(&layers, next), [true, false]);
        layers.worked(&node, Layer::Tcp, later);
        assert_eq!(best(&layers, later), [false, true]);
        assert!(layers.left(&node, Layer::Tcp));
        assert!(best(&layers, later)[0]);
        assert_eq!(best(&layers, next), [true; 2]);
    }
}
