//! The controller of a path, and its name in configurations and on command lines.

use std::{str::FromStr, time::Instant};

use crate::{
    Controller, LeoCcOptions, RateFeed, bbr::Bbr, bbr3::Bbr3, copa::Copa, cubic::Cubic,
    dedicated::Dedicated, hybla::Hybla, leocc::LeoCc, new_reno::NewReno, satcp::SaTcp,
    vegas::Vegas, vivace::Vivace,
};

/// The controller of a path, as written in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerConfig {
    /// RFC 9002 §7 NewReno.
    NewReno,
    /// RFC 9438 Cubic.
    Cubic,
    /// BBR version 1.
    Bbr,
    /// BBR version 3 (draft-ietf-ccwg-bbr-06).
    Bbr3,
    /// Vegas (1995): keeps a few packets in the queue.
    Vegas,
    /// Hybla (2004): growth independent of the RTT.
    Hybla,
    /// Copa (NSDI 2018).
    Copa,
    /// PCC Vivace (NSDI 2018).
    Vivace,
    /// SaTCP (INFOCOM 2023): Cubic that recovers quickly from losses around reconfigurations.
    SaTcp,
    /// LeoCC (SIGCOMM 2025) in the variant of the paper, of the published code, or `leocc2`.
    LeoCc(LeoCcOptions),
    /// MPDTP's dedicated link: a known rate, from configuration or a live feed.
    Dedicated(RateFeed),
}

/// A controller's name is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// No controller has this name.
    #[error(
        "no congestion controller is called {0:?}: choose one of {names}",
        names = ControllerConfig::NAMES.join(", ")
    )]
    Unknown(String),
    /// `dedicated` was named without its rate.
    #[error("the dedicated controller needs the rate of its link: give one, for example 10mbit")]
    NeedsRate,
}

impl ControllerConfig {
    /// All names, in the order of help texts.
    pub const NAMES: [&str; 13] = [
        "newreno",
        "cubic",
        "bbr",
        "bbr3",
        "copa",
        "vegas",
        "vivace",
        "hybla",
        "satcp",
        "leocc",
        "leocc-code",
        "leocc2",
        "dedicated",
    ];

    /// All controllers that need no configured rate.
    pub const SELF_RELIANT: [Self; 12] = [
        Self::NewReno,
        Self::Cubic,
        Self::Bbr,
        Self::Bbr3,
        Self::Copa,
        Self::Vegas,
        Self::Vivace,
        Self::Hybla,
        Self::SaTcp,
        Self::LeoCc(LeoCcOptions::PAPER),
        Self::LeoCc(LeoCcOptions::PUBLISHED_CODE),
        Self::LeoCc(LeoCcOptions::TARGET_QUEUE),
    ];

    /// The controller called `name`, one of [`Self::NAMES`] or of [`LeoCcOptions::ABLATIONS`]; `feed` is the link's
    /// rate, which `dedicated` needs and others ignore.
    ///
    /// # Errors
    /// [`ControllerError`] when no controller has that name, or `dedicated` lacks its rate.
    pub fn from_name(name: &str, feed: Option<RateFeed>) -> Result<Self, ControllerError> {
        if name == "dedicated" {
            return feed.map(Self::Dedicated).ok_or(ControllerError::NeedsRate);
        }
        let ablations = LeoCcOptions::ABLATIONS.map(|(_, options)| Self::LeoCc(options));
        Self::SELF_RELIANT
            .into_iter()
            .chain(ablations)
            .find(|config| config.name() == name)
            .ok_or_else(|| ControllerError::Unknown(name.to_owned()))
    }

    /// The controller's name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Bbr3 => "bbr3",
            Self::Vivace => "vivace",
            Self::SaTcp => "satcp",
            Self::Vegas => "vegas",
            Self::Hybla => "hybla",
            Self::Copa => "copa",
            Self::LeoCc(options) => options.name(),
            Self::Dedicated(_) => "dedicated",
        }
    }

    /// Whether the controller uses reconfiguration signals.
    pub fn heeds_reconfigurations(&self) -> bool {
        matches!(self, Self::LeoCc(_) | Self::SaTcp)
    }

    /// Creates the controller for packets of at most `mtu_bytes`.
    pub fn build(&self, _now: Instant, mtu_bytes: u16) -> Box<dyn Controller> {
        match self {
            Self::NewReno => Box::new(NewReno::new(mtu_bytes)),
            Self::Cubic => Box::new(Cubic::new(mtu_bytes)),
            Self::Bbr => Box::new(Bbr::new(mtu_bytes)),
            Self::Bbr3 => Box::new(Bbr3::new(mtu_bytes)),
            Self::Vivace => Box::new(Vivace::new(mtu_bytes)),
            Self::SaTcp => Box::new(SaTcp::new(mtu_bytes)),
            Self::Vegas => Box::new(Vegas::new(mtu_bytes)),
            Self::Hybla => Box::new(Hybla::new(mtu_bytes)),
            Self::Copa => Box::new(Copa::new(mtu_bytes)),
            Self::LeoCc(options) => Box::new(LeoCc::new(*options, mtu_bytes)),
            Self::Dedicated(feed) => Box::new(Dedicated::new(feed.clone(), mtu_bytes)),
        }
    }
}

impl FromStr for ControllerConfig {
    type Err = ControllerError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name, None)
    }
}

#[cfg(test)]
mod tests {
    use starhaul_units::Bandwidth;

    use super::*;

    #[test]
    fn every_name_builds_the_controller_that_carries_it() {
        let feed = RateFeed::new(Bandwidth::from_mbit(10));
        for name in ControllerConfig::NAMES {
            let config = ControllerConfig::from_name(name, Some(feed.clone())).unwrap();
            assert_eq!(config.name(), name);
            assert_eq!(config.build(Instant::now(), 1452).name(), name);
            let plain = ControllerConfig::SELF_RELIANT.contains(&config);
            assert_eq!(plain, name.parse() == Ok(config), "{name}");
        }
    }

    #[test]
    fn a_wrong_name_says_what_to_write() {
        let message = "reno".parse::<ControllerConfig>().unwrap_err().to_string();
        for name in ControllerConfig::NAMES {
            assert!(message.contains(name), "{message}");
        }
        let needs_rate = "dedicated".parse::<ControllerConfig>().unwrap_err();
        assert_eq!(needs_rate, ControllerError::NeedsRate);
    }
}
