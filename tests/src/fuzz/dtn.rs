//! The bundle node's own formats: contact plans, configurations, and blocks of several bundles.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use starhaul_dtn::{
    Config, Error,
    blocks::{AGGREGATE, join, split},
    plan::{
        Moment, read_plan,
        route::{Bookings, Query, earliest},
    },
};

/// A node's configuration: refused with a text that names the file, or accepted and described.
pub fn dtn_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    // It may name a plan and keys beside it, where there are none; files elsewhere are not to be read here.
    if text.contains("\"/") || text.contains("..") || text.contains(['\\', '\'']) {
        return;
    }
    let now = Moment(Duration::from_secs(1_800_000_000));
    match Config::parse(text, Path::new("fuzz.nowhere/node.toml"), now) {
        Ok(config) => assert!(!config.describe(now).is_empty()),
        Err(Error::Config(error)) => assert!(
            error.to_string().contains("node.toml"),
            "names no file: {error}"
        ),
        Err(error) => assert!(
            error.is_configuration(),
            "not the configuration's fault: {error}"
        ),
    }
}

/// A plan, and the routes over it: each is made of contacts that join, and none arrives before it leaves.
pub fn dtn_plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let now = Moment(Duration::from_secs(1_800_000_000));
    let Ok(plan) = read_plan(text, Path::new("plan.toml"), now) else {
        return;
    };
    let Some(first) = plan
        .contacts()
        .first()
        .filter(|_| plan.contacts().len() < 1000)
    else {
        return;
    };
    let from = &first.from;
    let query = Query {
        from,
        now,
        bytes: 1000,
        expiry: Moment::MAX,
    };
    for (to, route) in earliest(&plan, query, &Bookings::default()) {
        assert!(route.arrival >= now);
        let mut here = from;
        for contact in route
            .contacts
            .iter()
            .filter_map(|place| plan.contacts().get(*place))
        {
            assert_eq!(*here, contact.from);
            here = &contact.to;
        }
        assert_eq!(*here, to);
    }
}

/// A block is its bundles one behind the other, or an error.
pub fn dtn_block(data: &[u8]) {
    let block = Bytes::copy_from_slice(data);
    if let Ok(bundles) = split(AGGREGATE, &block) {
        assert_eq!(join(&bundles), block);
    }
}
