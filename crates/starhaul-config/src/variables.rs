//! Variables of the environment that stand for keys, as containers are configured: a prefix of the program, and the name of a key at
//! the top, or of a table and its key.

use std::{ffi::OsString, path::PathBuf};

use crate::{Definition, Document, Error, Key, document::INCLUDE, nearest};

/// How Kubernetes tells containers of a service that is called as the program, such as `starhaul-gateway`.
const OF_SERVICES: [&str; 2] = ["SERVICE_", "PORT"];
/// The same of one whose name goes on, such as `starhaul-gateway-metrics`.
const ENDS_OF_SERVICES: [&str; 3] = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"];

impl Document<'_> {
    /// Puts the variables whose names begin with `prefix` in place of what files say, and tells the log. An empty one counts as
    /// unset, and what Kubernetes tells of a service of that name is passed over.
    ///
    /// # Errors
    /// One that stands for no key names the nearest; a value that is no UTF-8.
    pub fn set_variables(
        &mut self,
        prefix: &str,
        top: &'static Definition,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), Error> {
        let ours = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let is_ours = |name: &str| {
            let key = name.strip_prefix(prefix);
            key.is_some_and(|key| !OF_SERVICES.iter().any(|service| key.starts_with(service)))
        };
        let ours = ours.filter(|(name, value)| is_ours(name) && !value.is_empty());
        let mut ours: Vec<(String, OsString)> = ours.collect();
        ours.sort();
        for (name, value) in ours {
            let key = name.strip_prefix(prefix).unwrap_or_default();
            let key = key_of(key, top);
            if key.is_err() && tells_of_service(&name) {
                tracing::info!(
                    variable = name,
                    "no key is called so: passed over, as what Kubernetes tells of a service"
                );
                continue;
            }
            let wrong = |problem: String| Error {
                file: PathBuf::from(&name),
                line: None,
                problem,
            };
            let key = key.map_err(wrong)?;
            let value = value
                .into_string()
                .map_err(|_| wrong("its value is not UTF-8".to_owned()))?;
            tracing::info!(variable = name, key, "the environment sets a key");
            self.set(&name, &key, &value);
        }
        Ok(())
    }
}

/// Whether a variable is named as Kubernetes names those of services: `…_SERVICE_HOST`, `…_SERVICE_PORT_HTTP`, `…_PORT_80_TCP_ADDR`.
fn tells_of_service(name: &str) -> bool {
    let is_of_port = |rest: &str| {
        let number = rest.split('_').next().unwrap_or_default();
        rest.contains('_') && number.parse::<u16>().is_ok()
    };
    ENDS_OF_SERVICES.iter().any(|end| name.ends_with(end))
        || name.contains("_SERVICE_PORT_")
        || name.split("_PORT_").skip(1).any(is_of_port)
}

/// Each key that a variable may stand for: the name without prefix, and the key with dots. These are the keys at the top but
/// `include`, for files are read before variables, and those of tables of which there is one at most. Tables of which there are more
/// are values of their key as a whole.
fn known(top: &'static Definition) -> Vec<(String, String)> {
    let mut known = Vec::new();
    for place in top.tables() {
        let is_reached = place.path.is_empty() || (place.is_one && !place.path.contains('.'));
        for key in place.definition.keys().filter(|_| is_reached) {
            match place.path.as_str() {
                "" if key.name == INCLUDE => {}
                "" => known.push((variable("", key), key.name.to_owned())),
                table => known.push((variable(table, key), format!("{table}.{}", key.name))),
            }
        }
    }
    known
}

/// The name of a variable, without prefix.
fn variable(table: &str, key: &Key) -> String {
    let name = match table {
        "" => key.name.to_owned(),
        table => format!("{table}_{}", key.name),
    };
    name.to_ascii_uppercase()
}

fn key_of(name: &str, top: &'static Definition) -> Result<String, String> {
    let mut known = known(top);
    if let Some(found) = known.iter().position(|(variable, _)| variable == name) {
        return Ok(known.swap_remove(found).1);
    }
    let known: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    Err(format!(
        "no key is called {name:?}; {}",
        nearest(name, &known)
    ))
}

/// The variable, without prefix, of a key of the table at this path; `None` if none stands for it.
pub(crate) fn variable_of(top: &'static Definition, path: &str, key: &Key) -> Option<String> {
    let wanted = variable(path, key);
    let mut known = known(top).into_iter().map(|(name, _)| name);
    known.find(|name| *name == wanted && !path.contains('.'))
}

/// What is wrong with the names of variables themselves: two keys with one, or one that the program would not read.
pub(crate) fn unsound(top: &'static Definition) -> Vec<String> {
    let known = known(top);
    let names = known.iter().map(|(name, _)| name);
    let twice = names.filter(|name| known.iter().filter(|(other, _)| other == *name).count() > 1);
    let twice = twice.map(|name| format!("two keys have the variable {name}"));
    let hidden = known.iter().filter(|(name, _)| {
        let mut services = OF_SERVICES.iter();
        services.any(|service| name.starts_with(service))
    });
    let hidden = hidden.map(|(_, key)| format!("{key}: its variable is taken for a service"));
    twice.chain(hidden).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    static TOP: Definition = Definition {
        introduction: "",
        keys: &[&[
            Key::texts("include", "files"),
            Key::text("metrics", "address"),
            Key::tables("peer", &PEER),
            Key::table("egress", &EGRESS),
        ]],
        examples: &[],
    };
    static PORTS: Definition = Definition {
        introduction: "",
        keys: &[&[Key::text("main_port", "text")]],
        examples: &[],
    };
    static PEER: Definition = Definition {
        introduction: "",
        keys: &[&[Key::text("name", "text")]],
        examples: &[],
    };
    static EGRESS: Definition = Definition {
        introduction: "",
        keys: &[&[Key::texts("allow", "rules"), Key::tables("net", &PEER)]],
        examples: &[],
    };

    #[test]
    fn a_variable_stands_for_a_key_or_is_told_the_nearest() {
        for (name, key) in [
            ("METRICS", "metrics"),
            ("EGRESS_ALLOW", "egress.allow"),
            ("EGRESS_NET", "egress.net"),
            ("PEER", "peer"),
        ] {
            assert_eq!(key_of(name, &TOP).as_deref(), Ok(key));
        }
        let error = key_of("METRIC", &TOP).unwrap_err();
        assert!(error.contains("did you mean \"METRICS\"?"), "{error}");
        for none in ["INCLUDE", "PEER_NAME", "EGRESS_NET_NAME", "metrics"] {
            key_of(none, &TOP).unwrap_err();
        }
    }

    #[test]
    fn what_kubernetes_tells_of_a_service_is_no_key() {
        let set = |name: &str| {
            let mut document = Document::new(Path::new("x.toml"), "");
            let variable = (
                OsString::from(format!("STARHAUL_X_{name}")),
                OsString::from("10.0.0.1"),
            );
            let set = document.set_variables("STARHAUL_X_", &TOP, std::iter::once(variable));
            set.map_err(|error| error.to_string())
        };
        for name in [
            "SERVICE_HOST",
            "SERVICE_PORT",
            "PORT",
            "PORT_4600_UDP_ADDR",
            "METRICS_SERVICE_HOST",
            "METRICS_SERVICE_PORT",
            "METRICS_SERVICE_PORT_HTTP_METRICS",
            "METRICS_PORT",
            "METRICS_PORT_9464_TCP",
            "METRICS_PORT_9464_TCP_ADDR",
            "METRICS_PORT_9464_TCP_PROTO",
        ] {
            assert_eq!(set(name), Ok(()), "{name}");
        }
        for name in [
            "METRIC",
            "METRICS_PORTS",
            "METRICS_PORT_X_TCP",
            "METRICS_HOST",
        ] {
            let error = set(name).unwrap_err();
            let said = format!("STARHAUL_X_{name}: no key is called");
            assert!(error.starts_with(&said), "{error}");
        }
        // A key goes before.
        let mut document = Document::new(Path::new("x.toml"), "");
        let variable = ("STARHAUL_X_MAIN_PORT".into(), "7".into());
        document
            .set_variables("STARHAUL_X_", &PORTS, std::iter::once(variable))
            .unwrap();
        assert!(document.tree().unwrap().get_ref().contains_key("main_port"));
    }

    #[test]
    fn names_that_collide_are_found() {
        static WRONG: Definition = Definition {
            introduction: "",
            keys: &[&[
                Key::text("egress_allow", "text"),
                Key::text("port", "text"),
                Key::table("egress", &EGRESS),
            ]],
            examples: &[],
        };
        let found = unsound(&WRONG);
        assert!(found.contains(&"two keys have the variable EGRESS_ALLOW".to_owned()));
        assert!(
            found.iter().any(|wrong| wrong.starts_with("port: ")),
            "{found:?}"
        );
        assert_eq!(unsound(&TOP), Vec::<String>::new());
    }
}
