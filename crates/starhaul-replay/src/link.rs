//! The description of an emulated link.

use starhaul_link::{LinkSpec, link_seed};

/// One emulated link.
#[derive(Clone, Debug)]
pub struct ReplayLink {
    /// The interface's name in the command's namespace: 1 to 15 letters, digits, `-` or `_`.
    pub name: String,
    /// The direction from the command.
    pub up: LinkSpec,
    /// The direction toward the command.
    pub down: LinkSpec,
    /// Seeds of all random choices: up, down ([`link_seed`]).
    pub seeds: [u64; 2],
}

impl ReplayLink {
    /// Creates link number `number` of a run; its directions are the links 2 × `number` and 2 × `number` + 1 of the
    /// seed.
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
