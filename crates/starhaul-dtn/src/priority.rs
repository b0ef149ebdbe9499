//! Which bundles leave before others that wait for the same neighbour.
//!
//! Bundles of each class wait in a queue of their own. Urgent ones are looked for first, and have a window of their own, so that they wait for
//! no other bundle; those that are on their way already are few where the rate of the link is known (`egress`). The others go on beside them in
//! their own window, so that they do not starve.

use hardy_bpv7::eid::Eid;
use hardy_eid_patterns::EidPattern;
use starhaul_config::definition::names;

/// How soon a bundle is to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Before others.
    Urgent,
    /// After those that are urgent.
    #[default]
    Normal,
}

/// The classes as the configuration spells them.
pub(crate) const CLASSES: [(&str, Class); 2] =
    [("urgent", Class::Urgent), ("normal", Class::Normal)];
pub(crate) const CLASS_NAMES: [&str; CLASSES.len()] = names(&CLASSES);

/// The agent's label of urgent bundles, and its queue for them.
const LABEL: u32 = 1;
pub(crate) const URGENT: u32 = 0;

/// The rules by which bundles have their classes.
#[derive(Debug, Default)]
pub(crate) struct Priorities(Vec<(EidPattern, Class)>);

impl Priorities {
    /// The first of these that holds for a destination decides.
    pub(crate) fn new(rules: Vec<(EidPattern, Class)>) -> Self {
        Self(rules)
    }

    /// The class of bundles for an endpoint.
    pub(crate) fn class(&self, destination: &Eid) -> Class {
        let mut rules = self.0.iter();
        let rule = rules.find(|(pattern, _)| pattern.matches(destination));
        rule.map_or(Class::Normal, |(_, class)| *class)
    }

    /// The classes that there may be, the most urgent first.
    pub(crate) fn classes(&self) -> &'static [Class] {
        match self.are_any() {
            true => &[Class::Urgent, Class::Normal],
            false => &[Class::Normal],
        }
    }

    /// Whether any bundle may be urgent.
    pub(crate) fn are_any(&self) -> bool {
        self.0.iter().any(|(_, class)| *class == Class::Urgent)
    }

    /// The label that the agent has of bundles for an endpoint.
    pub(crate) fn label(&self, destination: &Eid) -> Option<u32> {
        (self.class(destination) == Class::Urgent).then_some(LABEL)
    }

    /// How many queues the agent has beside the usual one, for each neighbour.
    pub(crate) fn queues(&self) -> u32 {
        u32::from(self.are_any())
    }

    /// The agent's queue for bundles with this label; `None` is the usual one.
    pub(crate) fn queue(&self, label: Option<u32>) -> Option<u32> {
        (self.are_any() && label == Some(LABEL)).then_some(URGENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_holds_decides() {
        let rules = [
            ("ipn:2.7", Class::Normal),
            ("ipn:2.*", Class::Urgent),
            ("dtn://station/alarm", Class::Urgent),
        ];
        let rules = rules.map(|(pattern, class)| (pattern.parse::<EidPattern>().unwrap(), class));
        let priorities = Priorities::new(rules.to_vec());
        for (to, class) in [
            ("ipn:2.5", Class::Urgent),
            ("ipn:2.7", Class::Normal),
            ("ipn:3.5", Class::Normal),
            ("dtn://station/alarm", Class::Urgent),
            ("dtn://station/files", Class::Normal),
        ] {
            let to: Eid = to.parse().unwrap();
            assert_eq!(priorities.class(&to), class, "{to}");
            let queue = priorities.queue(priorities.label(&to));
            assert_eq!(queue == Some(URGENT), class == Class::Urgent, "{to}");
        }
        // A label of former rules means nothing where there are none.
        let none = Priorities::default();
        assert_eq!((none.queues(), none.queue(Some(LABEL))), (0, None));
    }
}
