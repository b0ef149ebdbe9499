//! What is said of an emulated link.

use starhaul_link::{LinkSpec, link_seed};

/// One emulated link.
#[derive(Clone, Debug)]
pub struct ReplayLink {
    /// What the command sees as the interface's name: 1 to 15 letters, digits, `-` or `_`.
    pub name: String,
    /// From the command.
    pub up: LinkSpec,
    /// Toward it.
    pub down: LinkSpec,
    /// Of everything random in each direction: up, down ([`link_seed`]).
    pub seeds: [u64; 2],
}

impl ReplayLink {
    /// Link number `number` of a run, whose directions are the links 2 × `number` and the next one of its seed.
    pub fn new(
        name: impl Into<String>,
        up: LinkSpec,
        down: LinkSpec,
        run: u64,
        number: usize,
    ) -> Self {
        Self {
            name: name.into(),
            up,
            down,
            seeds: [0, 1].map(|way| link_seed(run, 2 * number + way)),
        }
    }
}
