//! Logging on standard error: validates the given rules, and decides about colours.

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The crates of the suite by their names in a log.
const TARGETS: [&str; 29] = [
    "starhaul",
    "starhaul_cc",
    "starhaul_config",
    "starhaul_contents",
    "starhaul_demo",
    "starhaul_dtn",
    "starhaul_dtn_client",
    "starhaul_endpoint",
    "starhaul_fec",
    "starhaul_files",
    "starhaul_flow",
    "starhaul_gateway",
    "starhaul_lab",
    "starhaul_leotp",
    "starhaul_link",
    "starhaul_log",
    "starhaul_ltp",
    "starhaul_metrics",
    "starhaul_net",
    "starhaul_orbit",
    "starhaul_paths",
    "starhaul_plot",
    "starhaul_quic",
    "starhaul_record",
    "starhaul_replay",
    "starhaul_session",
    "starhaul_sim",
    "starhaul_transfer",
    "starhaul_units",
];

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people, coloured on a terminal
    #[default]
    Text,
    /// One JSON object in each line: timestamp, level, target, message and the fields of the message
    Json,
    /// Entries of systemd's journal, with the fields of the message as STARHAUL_NAME
    Journal,
}

/// Starts logging by these rules; the error names the option and what is wrong with it.
pub(crate) fn begin(rules: &str, format: LogFormat) -> Result<(), String> {
    let of_rules = |error: String| format!("--log {rules:?}: {error}");
    check(rules).map_err(of_rules)?;
    let filter = rules.parse::<Targets>();
    let filter = filter.map_err(|error| of_rules(error.to_string()))?;
    if format == LogFormat::Journal {
        let journal = journal()?.with_filter(filter);
        tracing_subscriber::registry().with(journal).init();
        return Ok(());
    }
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // It would panic where standard error is closed.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text | LogFormat::Journal => lines.with_ansi(is_coloured()).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    let lines = lines.with_filter(filter);
    tracing_subscriber::registry().with(lines).init();
    Ok(())
}

/// By systemd's native protocol, so that each field of a message is one of its entry.
fn journal() -> Result<tracing_journald::Layer, String> {
    let journal = tracing_journald::layer();
    let journal = journal.map_err(|error| {
        format!("--log-format journal: systemd's journal does not take entries here: {error}")
    })?;
    Ok(journal
        .with_field_prefix(Some("STARHAUL".to_owned()))
        .with_syslog_identifier("starhaul".to_owned()))
}

/// A filter takes each unknown level for a target name, and logs nothing else: a misspelt level would silence
/// everything.
fn check(rules: &str) -> Result<(), String> {
    let rules = rules.split(',').map(str::trim);
    let rules: Vec<_> = rules.filter(|rule| !rule.is_empty()).collect();
    if rules.is_empty() {
        return Err(format!("write a level: {}", LEVELS.join(", ")));
    }
    rules.into_iter().try_for_each(check_rule)
}

fn check_rule(rule: &str) -> Result<(), String> {
    let (head, level) = match rule.rsplit_once('=') {
        Some((target, level)) => (target, Some(level)),
        None => (rule, None),
    };
    if let Some(level) = level {
        if !is_level(level) {
            return Err(no_level(level));
        }
    } else if is_level(rule) {
        return Ok(());
    }
    let target = head.split(':').next().unwrap_or_default();
    let ours = target.is_empty() || TARGETS.contains(&target);
    match (ours, level) {
        (true, _) => Ok(()),
        // Targets outside the suite are not checked.
        (false, Some(_)) if !target.starts_with("starhaul") => Ok(()),
        (false, None) if !target.starts_with("starhaul") => Err(no_level(rule)),
        (false, _) => Err(match nearest(target, &TARGETS) {
            Some(near) => format!("no part is called {target:?}, did you mean {near}?"),
            None => format!(
                "no part is called {target:?}; there are {}",
                TARGETS.join(", ")
            ),
        }),
    }
}

fn is_level(text: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(text))
}

fn no_level(text: &str) -> String {
    let near = nearest(&text.to_ascii_lowercase(), &LEVELS);
    let near = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
    let all = LEVELS.join(", ");
    format!(
        "{text:?} is no level{near}; there are {all}, and rules such as info,starhaul_gateway=debug"
    )
}

fn nearest<'n>(text: &str, names: &[&'n str]) -> Option<&'n str> {
    let scored = names
        .iter()
        .map(|name| (strsim::damerau_levenshtein(text, name), *name));
    let (distance, name) = scored.min()?;
    (distance * 2 <= name.len().max(text.len())).then_some(name)
}

/// Colours are only for terminals, and can be disabled (no-color.org).
fn is_coloured() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    crate::output::redraws(&std::io::stderr()) && !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_the_suite_can_be_named() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        for entry in std::fs::read_dir(crates.unwrap()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let target = name.replace('-', "_");
            assert_eq!(check(&format!("{target}=debug")), Ok(()), "{target}");
            assert_eq!(check(&target), Ok(()), "{target}");
        }
    }
}
