//! SIGHUP changes paths during a download, which must not be interrupted.

use super::{
    gateway::{PORT, Pair},
    network::{Network, Side},
    transfer::Transfer,
    wait_for,
};

/// A path over a link, under any name.
fn path(name: &str, link: u8, more: &str) -> String {
    let remote = Network::address(Side::Ground, link);
    format!(
        "[[session.path]]\nname = \"{name}\"\ninterface = \"wan{link}\"\nremote = \"{remote}:{PORT}\"\n{more}\n"
    )
}

/// Reloads the field with other paths, and waits until exactly these are up.
fn change(pair: &Pair, paths: &[(&str, u8, &str)]) {
    let text = paths
        .iter()
        .map(|(name, link, more)| path(name, *link, more))
        .collect::<String>();
    pair.field.reload(|old| {
        let before = old.find("[[session.path]]").unwrap();
        let after = old.find("[[tcp]]").unwrap();
        format!("{}{text}{}", &old[..before], &old[after..])
    });
    wait_for(&format!("the paths {paths:?}"), || {
        let status = pair.field.status();
        let there = status["sessions"][0]["paths"].as_array()?.clone();
        let is = |(name, link, _): &(&str, u8, &str)| {
            let remote = format!("{}:{PORT}", Network::address(Side::Ground, *link));
            there.iter().any(|path| {
                path["name"] == *name && path["remote"] == remote.as_str() && path["state"] == "up"
            })
        };
        (there.len() == paths.len() && paths.iter().all(is)).then_some(())
    });
}

#[test]
fn paths_are_added_changed_moved_and_removed_under_a_download() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start_with(&network, &path("a", 0, "cost = 1"), "", "");
    pair.wait_until_up(&["a"]);
    let (download, size) = (Transfer::download(&network), 1 << 20);
    download.wait_for_progress(size);
    for paths in [
        &[("a", 0, "cost = 2")][..],
        &[("a", 0, "cost = 2"), ("b", 1, "")],
        &[("a", 0, "cost = 2\ncontroller = \"cubic\""), ("b", 1, "")],
        &[("b", 1, "")],
        // The only path moves, comes back under another name, and moves again.
        &[("b", 0, "")],
        &[("c", 1, "")],
        &[("c", 0, "link = \"leo\"\ndetect = \"off\"")],
    ] {
        change(&pair, paths);
        download.wait_for_progress(size);
    }
    // The ground has no paths that no longer exist.
    wait_for("one path on the ground", || {
        let status = pair.ground.status();
        (status["sessions"][0]["paths"].as_array()?.len() == 1).then_some(())
    });
    let log = pair.field.log();
    assert_eq!(log.matches("session open").count(), 1, "{log}");
    download.finish();
}

/// The only path is changed to an unreachable address, and then to a working one.
#[test]
fn a_mistaken_path_does_not_end_a_download() {
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start_with(&network, &path("a", 0, ""), "", "");
    pair.wait_until_up(&["a"]);
    let (download, size) = (Transfer::download(&network), 1 << 20);
    download.wait_for_progress(size);
    network.cut(1);
    let wrong = path("a", 1, "");
    pair.field.reload(|old| {
        let before = old.find("[[session.path]]").unwrap();
        let after = old.find("[[tcp]]").unwrap();
        format!("{}{wrong}{}", &old[..before], &old[after..])
    });
    wait_for("both paths are shown", || {
        let status = pair.field.status();
        (status["sessions"][0]["paths"].as_array()?.len() == 2).then_some(())
    });
    download.wait_for_progress(4 * size);
    network.mend(1);
    change(&pair, &[("a", 1, "")]);
    download.wait_for_progress(size);
    download.finish();
}
