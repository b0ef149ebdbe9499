//! Who is measured, by name: controllers of ours in virtual time, whatever sends in real time, and what carries blocks in real time,
//! each a file of its own.

pub(crate) mod blocks;
pub(crate) mod kernel;
pub(crate) mod own;

use std::{sync::Arc, time::Instant};

use starhaul_cc::{Controller, ControllerConfig, LeoCcOptions};

use crate::{Error, realtime::Sender};

/// Finds a sender of a kind by its name; `None` if the name is of another kind.
type Find = fn(&str) -> Option<Result<Arc<dyn Sender>, Error>>;

/// The name of the oracle.
pub(crate) const ORACLE: &str = "oracle";

/// Every kind of sender in real time. A rival is a file and a line here.
const SENDERS: &[Find] = &[kernel::named, own::named];

/// A congestion controller and its sender.
#[derive(Clone, Debug)]
pub struct System {
    /// Its name in tables.
    pub name: String,
    controller: ControllerConfig,
}

/// The class of colour of a controller: what it takes for congestion.
pub(crate) fn family(system: &str) -> &'static str {
    match system.trim_start_matches("kernel-") {
        system if system.starts_with("leocc") => "leocc",
        system if system.starts_with("bbr") => "bbr",
        "copa" | "vegas" => "delay",
        "vivace" => "learn",
        _ => "loss",
    }
}

impl System {
    /// Whether the controller uses reconfiguration signals.
    pub fn heeds_reconfigurations(&self) -> bool {
        self.controller.heeds_reconfigurations()
    }

    /// Every controller that finds its rate by itself.
    pub fn all() -> Vec<Self> {
        let all = ControllerConfig::SELF_RELIANT.iter();
        all.map(|config| Self::of(config.clone())).collect()
    }

    /// LeoCC without one of its parts each.
    pub(crate) fn ablations() -> Vec<Self> {
        LeoCcOptions::ABLATIONS
            .map(|(_, options)| Self::of(ControllerConfig::LeoCc(options)))
            .into()
    }

    /// A sender that knows beforehand when the link can carry a packet: the ceiling of all others, over one link.
    pub(crate) fn oracle() -> Self {
        Self {
            name: ORACLE.to_owned(),
            // Losses are all that it is told, and it does not slow down by them.
            controller: ControllerConfig::NewReno,
        }
    }

    /// Whether it is [`System::oracle`].
    pub(crate) fn is_oracle(&self) -> bool {
        self.name == ORACLE
    }

    /// The system called `name`.
    ///
    /// # Errors
    /// [`Error::Settings`] when there is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        let known = || Self::all().into_iter().chain(Self::ablations());
        if let Some(system) = known().find(|system| system.name == name) {
            return Ok(system);
        }
        if name.starts_with("kernel-") {
            return Err(Error::Settings(format!(
                "{name} runs in real time alone: add --real, or leave it out"
            )));
        }
        Err(Error::Settings(unknown(name)))
    }

    fn of(controller: ControllerConfig) -> Self {
        Self {
            name: controller.name().to_owned(),
            controller,
        }
    }

    /// A controller of a new flow.
    pub(crate) fn build(&self, now: Instant) -> Box<dyn Controller> {
        self.controller.build(now, 1500)
    }
}

/// The sender in real time that is called `name`: a controller of ours, or `kernel-cubic`.
///
/// # Errors
/// [`Error::Settings`] when there is none.
pub(crate) fn sender(name: &str) -> Result<Arc<dyn Sender>, Error> {
    let found = SENDERS.iter().find_map(|find| find(name));
    found.unwrap_or_else(|| {
        let unknown = unknown(name);
        Err(Error::Settings(format!(
            "{unknown}; kernel-NAME for those of TCP"
        )))
    })
}

/// That there is no system of this name, and which was meant.
pub(crate) fn unknown(name: &str) -> String {
    let known = System::all().into_iter().chain(System::ablations());
    let names: Vec<String> = known.map(|system| system.name).collect();
    let distance = |known: &&String| strsim::damerau_levenshtein(name, known);
    let near = (name.chars().count() / 2).max(1);
    let nearest = names.iter().min_by_key(distance);
    let meant = nearest.filter(|known| distance(known) <= near);
    let meant = meant.map_or_else(String::new, |known| format!(" Did you mean {known}?"));
    format!(
        "no congestion controller is called {name:?}.{meant} There are {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_the_right_one() {
        let said = |name: &str| System::named(name).unwrap_err().to_string();
        let close = said("lecoc2");
        assert!(close.contains("Did you mean leocc2?"), "{close}");
        let ablation = said("leocc2-no-bnad");
        assert!(ablation.contains("mean leocc2-no-band?"), "{ablation}");
        let far = said("tahoe-and-more");
        assert!(!far.contains("mean") && far.contains("newreno, "), "{far}");
        let kernel = said("kernel-cubic");
        assert!(kernel.contains("--real"), "{kernel}");
        assert!(said("dedicated").contains("no congestion controller"));
        for system in System::all().into_iter().chain(System::ablations()) {
            assert_eq!(System::named(&system.name).unwrap().name, system.name);
        }
    }

    #[test]
    fn senders_are_found_by_the_names_that_tables_show() {
        for name in ["cubic", "leocc2", "kernel-bbr"] {
            assert_eq!(sender(name).unwrap().name(), name);
        }
        for (name, said) in [
            ("reno", "newreno"),
            ("kernel-", "kernel-cubic"),
            ("kernel-a;b", "kernel-cubic"),
        ] {
            let error = sender(name).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_controller_that_the_kernel_has_not_is_named() {
        let kernel = sender("kernel-nosuch").unwrap();
        let said = kernel.missing().unwrap();
        assert!(said.contains("kernel-nosuch"), "{said}");
        assert_eq!(sender("bbr").unwrap().missing(), None);
    }
}
