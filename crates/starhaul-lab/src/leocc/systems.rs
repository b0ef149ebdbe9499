//! The controllers that an experiment compares, by name.

use std::time::Instant;

use starhaul_cc::{Controller, ControllerConfig};

use crate::Error;

/// A controller.
#[derive(Clone, Debug)]
pub struct System {
    /// Its name in tables.
    pub name: String,
    controller: ControllerConfig,
}

impl System {
    /// Every controller that finds its rate by itself.
    pub fn all() -> Vec<Self> {
        ControllerConfig::NAMES
            .iter()
            .filter_map(|name| Self::named(name).ok())
            .collect()
    }

    /// The system called `name`.
    ///
    /// # Errors
    /// [`Error::Settings`] when there is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        let controller = ControllerConfig::from_name(name, None)
            .map_err(|error| Error::Settings(error.to_string()))?;
        Ok(Self {
            name: name.to_owned(),
            controller,
        })
    }

    /// A controller of a new flow.
    pub(super) fn build(&self, now: Instant) -> Box<dyn Controller> {
        self.controller.build(now, 1500)
    }
}
