use std::path::Path;

use super::*;
use crate::Config;

fn orders() -> PathOrders {
    let key = starhaul_quic::Identity::generate().public_key();
    PathOrders::new("far", key, Arc::default(), Arc::default())
}

fn rule(paths: &[(&str, &str)]) -> SessionRule {
    let key = starhaul_quic::Identity::generate().public_key();
    let mut text = format!(
        "state = \"s\"\nidentity.file = \"k\"\n[[peer]]\nname = \"far\"\npublic_key = \"{key}\"\n[[session]]\n"
    );
    for (name, more) in paths {
        text += &format!("[[session.path]]\nname = \"{name}\"\nremote = \"192.0.2.1:1\"\n{more}\n");
    }
    let config = Config::parse(&text, Path::new("test.toml"));
    config
        .unwrap_or_else(|error| panic!("{error}"))
        .sessions
        .remove(0)
}

fn change(path: &str) -> PathChange {
    PathChange {
        path: path.to_owned(),
        ..PathChange::default()
    }
}

fn down(path: &str, down: bool) -> PathChange {
    PathChange {
        down: Some(down),
        ..change(path)
    }
}

#[test]
fn orders_hold_over_reloads_and_the_last_path_stays_in_service() {
    let orders = orders();
    let rules = orders.follow(rule(&[("a", ""), ("b", "cost = 3")]));
    let names = || {
        rules
            .borrow()
            .paths
            .iter()
            .map(|path| path.name.clone())
            .collect::<Vec<_>>()
    };
    orders.order(&down("a", true)).unwrap();
    assert_eq!(names(), ["b"]);
    assert!(
        orders
            .order(&down("b", true))
            .unwrap_err()
            .contains("last one")
    );
    orders.configure(Some(rule(&[("a", ""), ("b", ""), ("c", "")])));
    assert_eq!(names(), ["b", "c"]);
    assert_eq!(orders.path_names(), ["b", "c"]);
    // Only the path that is down is left: better that one than none.
    orders.configure(Some(rule(&[("a", "")])));
    assert_eq!(names(), ["a"]);
    assert_eq!(orders.standings()[0].1.out, None);
    orders.order(&down("a", false)).unwrap();
    assert!(orders.snapshot().is_empty());
}

#[test]
fn values_replace_the_configured_ones_until_they_are_given_back() {
    let orders = orders();
    let rules = orders.follow(rule(&[("a", "cost = 3\nlimit = \"5mbit\"")]));
    let set = |cost: Option<&str>, limit: Option<&str>| {
        orders.order(&PathChange {
            cost: cost.map(str::to_owned),
            limit: limit.map(str::to_owned),
            ..change("a")
        })
    };
    let now = || (rules.borrow().paths[0].cost, orders.rate_limit("a"));
    let mbit = |rate| Some(Bandwidth::from_mbit(rate));
    assert_eq!(now(), (3.0, mbit(5)));
    set(Some("0"), Some("2mbit")).unwrap();
    assert_eq!(now(), (0.0, mbit(2)));
    set(None, Some("none")).unwrap();
    assert_eq!(now(), (0.0, None));
    for (cost, limit) in [
        ("-1", "none"),
        ("NaN", "none"),
        ("1", "0mbit"),
        ("1", "fast"),
    ] {
        set(Some(cost), Some(limit)).unwrap_err();
        assert_eq!(now(), (0.0, None), "{cost} {limit}");
    }
    set(Some("configured"), Some("configured")).unwrap();
    assert_eq!(now(), (3.0, mbit(5)));
}

#[test]
fn of_a_path_that_the_peer_opened_only_the_limit_can_be_set() {
    let orders = orders();
    assert!(
        orders
            .order(&down("a", true))
            .unwrap_err()
            .contains("there")
    );
    let limit = PathChange {
        limit: Some("1mbit".to_owned()),
        ..change("a")
    };
    orders.order(&limit).unwrap();
    assert_eq!(orders.rate_limit("a"), Some(Bandwidth::from_mbit(1)));
}

#[test]
fn a_quota_makes_its_path_dear_then_ends_it_even_if_it_is_the_last() {
    let orders = orders();
    let quota = "monthly = \"10MB\"\nat_80 = \"costly\"\ncost = 2";
    let rules = orders.follow(rule(&[("a", quota), ("b", "")]));
    let now = || {
        let rule = rules.borrow();
        let paths = rule.paths.iter();
        paths
            .map(|path| (path.name.clone(), path.cost))
            .collect::<Vec<_>>()
    };
    let is = |paths: &[(&str, f64)]| {
        let paths = paths.iter().map(|(name, cost)| ((*name).to_owned(), *cost));
        assert_eq!(now(), paths.collect::<Vec<_>>());
    };
    let use_up = |used: &str| {
        orders.order(&PathChange {
            used: Some(used.to_owned()),
            ..change("a")
        })
    };
    is(&[("a", 2.0), ("b", 0.0)]);
    let why = use_up("9007199254740993B").unwrap_err();
    assert!(why.contains("outside of"), "{why}");
    // A refused order has no part that holds.
    let refused = PathChange {
        used: Some("10MB".to_owned()),
        ..down("a", false)
    };
    assert!(orders.order(&refused).unwrap_err().contains("used up"));
    is(&[("a", 2.0), ("b", 0.0)]);
    use_up("7999999B").unwrap();
    is(&[("a", 2.0), ("b", 0.0)]);
    use_up("8MB").unwrap();
    is(&[("a", MAX_COST), ("b", 0.0)]);
    // What an operator ordered before stays behind the quota, and comes back with the month.
    orders.order(&down("b", true)).unwrap();
    use_up("10MB").unwrap();
    is(&[]);
    assert_eq!(orders.closed_names(), ["a"]);
    let why = orders.order(&down("a", false)).unwrap_err();
    assert!(why.contains("used up") && why.contains("monthly"), "{why}");
    orders.order(&down("b", false)).unwrap();
    let why = orders.order(&down("b", true)).unwrap_err();
    assert!(why.contains("last one"), "{why}");
    orders
        .order(&PathChange {
            monthly: Some("none".to_owned()),
            ..change("a")
        })
        .unwrap();
    is(&[("a", 2.0), ("b", 0.0)]);
    // Without a folder of state a quota would forget its count, and nothing is kept.
    for refused in [
        PathChange {
            monthly: Some("20MB".to_owned()),
            ..change("b")
        },
        PathChange {
            used: Some("1MB".to_owned()),
            ..change("b")
        },
        PathChange {
            keep: true,
            ..down("b", true)
        },
    ] {
        orders.order(&refused).unwrap_err();
    }
}
