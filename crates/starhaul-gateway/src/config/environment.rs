//! Variables of the environment that stand for keys, as containers are configured: `STARHAUL_GATEWAY_` and the name of a key at
//! the top, or of a table and its key.

use std::{ffi::OsString, path::PathBuf};

use starhaul_config::{Definition, Document, Error, definition::Kind, nearest};

use super::keys::{INCLUDE, TOP};

const PREFIX: &str = "STARHAUL_GATEWAY_";
/// How Kubernetes tells containers of a service that is called `starhaul-gateway`.
const OF_SERVICES: [&str; 2] = ["SERVICE_", "PORT"];

/// Puts the variables in place of what files say. An empty one counts as unset.
pub(super) fn apply(
    document: &mut Document<'_>,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(), Error> {
    let ours = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let is_ours = |name: &str| {
        let key = name.strip_prefix(PREFIX);
        key.is_some_and(|key| !OF_SERVICES.iter().any(|service| key.starts_with(service)))
    };
    let ours = ours.filter(|(name, value)| is_ours(name) && !value.is_empty());
    let mut ours: Vec<(String, OsString)> = ours.collect();
    ours.sort();
    for (name, value) in ours {
        let wrong = |problem: String| Error {
            file: PathBuf::from(&name),
            line: None,
            problem,
        };
        let key = name.strip_prefix(PREFIX).unwrap_or_default();
        let key = key_of(&key.to_ascii_lowercase()).map_err(wrong)?;
        let value = value
            .into_string()
            .map_err(|_| wrong("its value is not UTF-8".to_owned()))?;
        tracing::info!(variable = name, key, "the environment sets a key");
        document.set(&name, &key, &value);
    }
    Ok(())
}

/// The key that a variable stands for, with dots: one at the top, or one of a table of which there is one at most. Tables of which
/// there are more are values of their key as a whole.
fn key_of(name: &str) -> Result<String, String> {
    let names = |table: &Definition| table.keys().map(|key| key.name);
    let top = names(&TOP).filter(|key| *key != INCLUDE);
    let top = top.map(|key| (key.to_owned(), key.to_owned()));
    let tables = TOP.keys().filter_map(|key| match key.kind {
        Kind::Table(table) => Some((key.name, table)),
        _ => None,
    });
    let below = tables.flat_map(|(table, keys)| {
        names(keys).map(move |key| (format!("{table}_{key}"), format!("{table}.{key}")))
    });
    let mut known: Vec<(String, String)> = top.chain(below).collect();
    if let Some(found) = known.iter().position(|(variable, _)| variable == name) {
        return Ok(known.swap_remove(found).1);
    }
    let known: Vec<String> = known
        .iter()
        .map(|(name, _)| name.to_ascii_uppercase())
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let name = name.to_ascii_uppercase();
    Err(format!(
        "no key is called {name:?}; {}",
        nearest(&name, &known)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_stands_for_a_key_or_is_told_the_nearest() {
        for (name, key) in [
            ("metrics", "metrics"),
            ("identity_file", "identity.file"),
            ("accept_max_sessions", "accept.max_sessions"),
            ("egress_allow", "egress.allow"),
            ("peer", "peer"),
        ] {
            assert_eq!(key_of(name).as_deref(), Ok(key));
        }
        let error = key_of("metric").unwrap_err();
        assert!(error.contains("did you mean \"METRICS\"?"), "{error}");
        assert!(
            key_of("include").is_err(),
            "files are read before variables"
        );
    }

    #[test]
    fn what_kubernetes_tells_of_a_service_is_no_key() {
        let set = |name: &str| {
            let mut document = Document::new(std::path::Path::new("x.toml"), "");
            let variable = (OsString::from(name), OsString::from("10.0.0.1"));
            apply(&mut document, std::iter::once(variable)).map_err(|error| error.to_string())
        };
        for name in ["SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_4600_UDP_ADDR"] {
            assert_eq!(set(&format!("{PREFIX}{name}")), Ok(()), "{name}");
        }
        let error = set("STARHAUL_GATEWAY_METRIC").unwrap_err();
        assert!(error.contains("METRICS"), "{error}");
        // None of them hides a key.
        let mut keys = TOP.keys().map(|key| key.name);
        let is_hidden = |key: &str| {
            let key = key.to_ascii_uppercase();
            OF_SERVICES.iter().any(|service| key.starts_with(service))
        };
        assert!(!keys.any(is_hidden));
    }
}
