//! The controllers that an experiment compares, by name.

use std::time::Instant;

use starhaul_cc::{Controller, ControllerConfig, LeoCcOptions};

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
        let all = ControllerConfig::SELF_RELIANT.iter();
        all.map(|config| Self::of(config.clone())).collect()
    }

    /// LeoCC without one of its parts each.
    pub(super) fn ablations() -> Vec<Self> {
        LeoCcOptions::ABLATIONS
            .map(|(_, options)| Self::of(ControllerConfig::LeoCc(options)))
            .into()
    }

    /// The system called `name`.
    ///
    /// # Errors
    /// [`Error::Settings`] when there is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        let controller = ControllerConfig::from_name(name, None)
            .map_err(|error| Error::Settings(error.to_string()))?;
        Ok(Self::of(controller))
    }

    fn of(controller: ControllerConfig) -> Self {
        Self {
            name: controller.name().to_owned(),
            controller,
        }
    }

    /// A controller of a new flow.
    pub(super) fn build(&self, now: Instant) -> Box<dyn Controller> {
        self.controller.build(now, 1500)
    }
}
