//! The budget of sessions.

use super::*;

#[test]
fn a_budget_is_a_rate_and_one_that_bounds_nothing_or_all_is_warned_of() {
    let path = |cost: f64| {
        format!(
            "[[session]]\n[[session.path]]\nname = \"lte\"\nremote = \"192.0.2.1:1\"\ncost = {cost}\n"
        )
    };
    let config = parse(&text("budget = \"2mbit\"", &path(2.0))).unwrap();
    assert_eq!(config.budget, Some(Bandwidth::from_mbit(2)));
    assert!(config.describe().contains("together at most 2.0 Mbit/s"));
    assert_eq!(parse(&text("", &path(2.0))).unwrap().budget, None);
    for wrong in ["\"0mbit\"", "\"-1mbit\"", "2", "-2", "\"much\""] {
        let error = parse(&text(&format!("budget = {wrong}"), &path(2.0))).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("gw.toml:1") && said.contains("budget"),
            "{said}"
        );
    }
    let warned = |budget: &str, extra: &str, listens: bool| {
        let text = text(&format!("budget = \"{budget}\""), extra);
        let text = match listens {
            true => text,
            false => text.replace("listen = \"127.0.0.1:0\"\n", ""),
        };
        let warnings = parse(&text).unwrap().warnings();
        warnings.into_iter().find(|line| line.contains("budget"))
    };
    assert_eq!(warned("2mbit", &path(2.0), false), None);
    let said = warned("2mbit", &path(0.0), false).unwrap();
    assert!(
        said.contains("no path has a price") && said.contains("cost"),
        "{said}"
    );
    // Peers may open paths with a price.
    assert_eq!(warned("2mbit", &path(0.0), true), None);
    let said = warned("2mbit", &path(1_000.0), true).unwrap();
    assert!(
        said.contains("\"lte\"") && said.contains("Mbit/s or more"),
        "{said}"
    );
    assert_eq!(warned("2mbit", &path(1e12), true), None);
}
