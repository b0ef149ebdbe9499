//! What the figures of a session's paths hint at, as text for people.

use starhaul_gateway::status::{Path, Session};

use super::cells::{cut, wrapped};

/// Longer names are cut.
const NAME: usize = 12;

/// Paths that seem to share a bottleneck, and losses that modems tell of; empty where there is nothing to say.
pub(super) fn lines(session: &Session) -> String {
    let paths = session.paths.iter();
    paths.map(|path| shared(path) + &told(path)).collect()
}

/// Of each pair the first says it.
fn shared(path: &Path) -> String {
    let others = path.shares_bottleneck_with.iter();
    let others = others.filter(|other| **other > path.name);
    let others: Vec<_> = others.map(|other| cut(other, NAME)).collect();
    if others.is_empty() {
        return String::new();
    }
    wrapped(&format!(
        "{} seems to share its bottleneck with {}",
        cut(&path.name, NAME),
        others.join(", ")
    ))
}

fn told(path: &Path) -> String {
    let figures = path.figures.as_ref();
    let told = figures.and_then(|figures| figures.told_loss);
    told.map_or_else(String::new, |share| {
        wrapped(&format!(
            "{}: by its bit errors it loses {:.2} % of full packets",
            cut(&path.name, NAME),
            share * 100.0
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(paths: serde_json::Value) -> Session {
        let session = serde_json::json!({ "peer": "ground", "opened_by": "us", "age_s": 1.0, "refused_streams": 0,
            "paths": paths, "streams": [] });
        serde_json::from_value(session).expect("a session")
    }

    fn path(name: &str, more: serde_json::Value) -> serde_json::Value {
        let mut path = serde_json::json!({ "name": name, "remote": "192.0.2.1:1", "state": "up", "controller": "bbr",
            "controller_state": "", "cwnd_bytes": 1, "bytes_in_flight": 0 });
        for (key, value) in more.as_object().into_iter().flatten() {
            path[key] = value.clone();
        }
        path
    }

    #[test]
    fn each_pair_is_named_once_and_nothing_is_said_of_others() {
        let shares = |with: &[&str]| serde_json::json!({ "shares_bottleneck_with": with });
        let paths = [
            path("lte", shares(&["wifi"])),
            path("wifi", shares(&["lte"])),
        ];
        let text = lines(&session(paths.to_vec().into()));
        assert_eq!(text, " lte seems to share its bottleneck with wifi\n");
        let none = path("geo", serde_json::json!({}));
        assert_eq!(lines(&session(vec![none].into())), "");
        let rain = path(
            "geo",
            serde_json::json!({ "rate_bit_per_s": 1, "told_loss": 0.0123, "bytes_sent": 1,
            "bytes_received": 1, "datagrams_sent": 1, "datagrams_lost": 0 }),
        );
        let text = lines(&session(vec![rain].into()));
        assert_eq!(
            text,
            " geo: by its bit errors it loses 1.23 % of full packets\n"
        );
    }
}
