//! The live page in a browser: it shows the figures of `starhaul status --json`, and a cut path at once.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use starhaul_needs::Sleeper;

use super::{
    browser::Browser,
    gateway::{METRICS, Pair},
    network::Network,
    path_orders::{done, path},
    transfer::Transfer,
    wait_for,
};

/// What the page shows of each path: name, state, and the numbers behind its texts.
const PATHS: &str = "Object.fromEntries([...document.querySelectorAll('.path')].map(card => [card.dataset.path, {\
    state: card.dataset.state, bad: card.classList.contains('bad'), error: card.querySelector('.error').textContent,\
    ...Object.fromEntries([...card.querySelectorAll('dd[data-value]')].map(dd => [dd.dataset.name, +dd.dataset.value]))}]))";

/// The same from the status.
fn paths(status: &Value) -> Value {
    let totals = status["peers"][0]["paths"].as_array().unwrap();
    let paths = status["sessions"][0]["paths"].as_array().unwrap();
    let shown = totals.iter().map(|totals| {
        let path = paths
            .iter()
            .find(|path| path["name"] == totals["name"])
            .unwrap();
        let shown = json!({
            "state": path["state"],
            "bad": path["state"] != "up",
            "error": path["last_error"].as_str().unwrap_or_default(),
            "out": path["traffic"]["sent_bit_per_s"],
            "in": path["traffic"]["received_bit_per_s"],
            "capacity": path["rate_bit_per_s"],
            "RTT": path["rtt_ms"],
            "loss": path["loss"],
            "reconfigured": totals["reconfigurations"],
            "sent": totals["bytes_sent"],
            "received": totals["bytes_received"],
        });
        (totals["name"].as_str().unwrap().to_owned(), shown)
    });
    Value::Object(shown.collect())
}

/// Over which paths the page says each class went out and came in: the class, and bytes by path for both directions.
const WAYS: &str = "[...document.querySelectorAll('#ways tbody tr')].map(row => [row.cells[0].innerText,\
    ...[...row.querySelectorAll('.ways')].map(cell => Object.fromEntries([...cell.children].map(way =>\
    [way.dataset.path, +way.dataset.value])))])";

/// The same from the status.
fn ways(status: &Value) -> Value {
    let classes = status["classes"].as_array().unwrap().iter();
    let paths = status["peers"][0]["paths"].as_array().unwrap();
    let of = |class: &Value, direction: &str| -> Value {
        let bytes = paths.iter().filter_map(|path| {
            let on_path = path["by_class"].as_array().unwrap().iter();
            let class = on_path
                .clone()
                .find(|on| on["priority"] == class["priority"])?;
            let bytes = Some(&class[direction]).filter(|bytes| bytes.as_u64() != Some(0))?;
            Some((path["name"].as_str()?.to_owned(), bytes.clone()))
        });
        Value::Object(bytes.collect())
    };
    classes
        .map(|class| {
            let (sent, received) = (of(class, "bytes_sent"), of(class, "bytes_received"));
            json!([class["priority"].to_string(), sent, received])
        })
        .collect()
}

fn is_same(page: &Value, status: &Value) -> bool {
    if let (Some(page), Some(status)) = (page.as_array(), status.as_array()) {
        let mut both = page.iter().zip(status);
        return page.len() == status.len() && both.all(|(page, status)| is_same(page, status));
    }
    let (Some(page), Some(status)) = (page.as_object(), status.as_object()) else {
        return page == status
            || page
                .as_f64()
                .is_some_and(|number| Some(number) == status.as_f64());
    };
    page.len() == status.len()
        && status
            .iter()
            .all(|(key, value)| page.get(key).is_some_and(|shown| is_same(shown, value)))
}

/// A pair whose paths are up, and a browser; `None`, with a reported reason, where these cannot be.
fn start() -> Option<(Network, Pair, Browser)> {
    let network = Network::create(2)?;
    let pair = Pair::start(&network);
    let browser = Browser::start(&network, &pair.directory().join("browser"))?;
    pair.wait_until_up(&["link0", "link1"]);
    Some((network, pair, browser))
}

#[test]
fn the_page_shows_the_status_and_a_cut_path_turns_red_within_two_seconds() {
    let Some((network, pair, mut browser)) = start() else {
        return;
    };
    let download = Transfer::download(&network);
    download.wait_for_progress(1 << 20);
    let socket = pair.directory().join("field.sock");
    let told = Command::new(env!("CARGO_BIN_EXE_starhaul"))
        .args(["status", "--web", "--socket"])
        .arg(socket)
        .output();
    let address = String::from_utf8(told.unwrap().stdout).unwrap();
    assert_eq!(address, format!("http://{METRICS}/\n"));
    browser.open(address.trim());
    wait_for("two paths, both up", || {
        let shown = browser.evaluate(PATHS);
        let up = ["link0", "link1"]
            .iter()
            .all(|name| shown[name]["state"] == "up");
        up.then_some(())
    });

    let (cut, sleeper) = (Instant::now(), Sleeper::start());
    network.cut(0);
    wait_for("the cut path is red", || {
        (browser.evaluate(PATHS)["link0"]["bad"] == true).then_some(())
    });
    let took = cut.elapsed();
    println!("red after {took:?}");
    if took >= Duration::from_secs(2) {
        sleeper.fail(format!("red after {took:?}"));
    }
    let problems = "document.querySelector('#problems').innerText";
    wait_for("its problem is told", || {
        browser
            .evaluate(problems)
            .as_str()?
            .contains("link0")
            .then_some(())
    });
    // A computer with much to do may miss an answer of the other one, too, for a moment.
    wait_for("the other path is not red", || {
        let paths = browser.evaluate(PATHS);
        (paths["link0"]["bad"] == true && paths["link1"]["bad"] == false).then_some(())
    });
    network.mend(0);
    wait_for("it is mended", || {
        (browser.evaluate(PATHS)["link0"]["bad"] == false).then_some(())
    });
    download.wait_for_progress(1 << 20);
    download.finish();

    // While nothing but seldom probes passes, both see the same at some moment.
    let until = Instant::now() + super::PATIENCE;
    loop {
        let status = pair.field.status();
        let shown = json!([browser.evaluate(PATHS), browser.evaluate(WAYS)]);
        let status = json!([paths(&status), ways(&status)]);
        if is_same(&shown, &status) {
            break;
        }
        assert!(
            Instant::now() < until,
            "page {shown:#}
status {status:#}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let ways = browser.evaluate(WAYS);
    // One path alone can carry it, and which does is chance.
    let came_over = |path: &str| ways[0][2][path].as_f64().unwrap_or_default();
    let came = came_over("link0") + came_over("link1");
    assert!(came > 2e6, "{ways}");
    fits_into_a_phone(&mut browser);
    is_light_and_dark(&mut browser);
    let rows =
        "[...document.querySelectorAll('#rules tbody tr')].map(row => row.innerText).join('\\n')";
    let rows = browser.evaluate(rows);
    assert!(rows.as_str().unwrap().contains("transfer"), "{rows}");
    // Nothing listens at the target: the page says so.
    let knock = || std::net::TcpStream::connect("127.0.0.1:8080");
    wait_for("the refusal is told", || {
        drop(network.field.inside(knock));
        let shown = browser.evaluate(problems);
        shown.as_str()?.contains("nothing listens").then_some(())
    });
    // A path that an operator took away stays in sight, and is no failure.
    done(path(&pair, "field", &["down", "link0"]));
    wait_for("the card is out of service", || {
        let card = &browser.evaluate(PATHS)["link0"];
        let told = card["state"] == "out" && card["bad"] == false;
        (told && card["error"] == "ordered down").then_some(())
    });
    let logged = "document.querySelector('#summary').innerText";
    assert!(
        browser
            .evaluate(logged)
            .as_str()
            .unwrap()
            .contains("1 session")
    );
    // A side to which its peers come has no paths of its own that could be missing.
    let accepting = "(() => { const none = { configured_paths: [], service: [], sessions: 0 };\
        const peers = latest.peers.map(peer => ({ ...peer, ...none }));\
        showProblems({ ...latest, sessions: [], peers }, []);\
        return document.querySelector('#problems').innerText; })()";
    let told = browser.evaluate(accepting);
    assert!(
        told.as_str().unwrap().contains("no session is open"),
        "{told}"
    );
    drop(pair);
    wait_for("the page says that the gateway is gone", || {
        browser
            .evaluate(logged)
            .as_str()?
            .contains("no answer")
            .then_some(())
    });
    let is_grey = browser.evaluate("document.body.classList.contains('stale')");
    assert_eq!(is_grey, true);
}

/// All that was loaded is below 100 kB, and a phone shows it without scrolling sideways.
fn fits_into_a_phone(browser: &mut Browser) {
    let loaded = "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))\
        .filter(entry => entry.name.startsWith('http')).map(entry => [new URL(entry.name).origin === location.origin, entry.decodedBodySize])";
    let loaded = browser.evaluate(loaded);
    let loaded = loaded.as_array().unwrap();
    assert!(loaded.len() >= 3, "{loaded:?}");
    assert!(
        loaded.iter().all(|one| one[0] == true),
        "from elsewhere: {loaded:?}"
    );
    let bytes: f64 = loaded.iter().filter_map(|one| one[1].as_f64()).sum();
    assert!((10e3..100e3).contains(&bytes), "{bytes} bytes");
    let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", phone);
    // The browser lays the page out anew after it has answered.
    wait_for("the page is as narrow as the phone", || {
        let width = browser.evaluate("document.documentElement.scrollWidth");
        (width.as_f64() <= Some(360.0)).then_some(())
    });
    browser.call("Emulation.clearDeviceMetricsOverride", json!({}));
}

/// As the browser prefers it, text and ground change places.
fn is_light_and_dark(browser: &mut Browser) {
    let mut colours = |scheme: &str| {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": feature }));
        // The sum of red, green and blue, of the page's ground and of its text.
        let sum = |property: &str| {
            format!(
                "getComputedStyle(document.body).{property}.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0)"
            )
        };
        ["backgroundColor", "color"].map(|of| browser.evaluate(&sum(of)).as_f64().unwrap())
    };
    let [ground, text] = colours("light");
    assert!(ground > text + 300.0, "light: {ground} behind {text}");
    let [ground, text] = colours("dark");
    assert!(ground + 300.0 < text, "dark: {ground} behind {text}");
}

/// What a round leaves behind.
#[derive(Clone, Copy, Debug)]
struct Level {
    gateway_mib: f64,
    page_mib: f64,
    browser_mib: f64,
    elements: f64,
}

impl Level {
    fn now(pair: &Pair, browser: &mut Browser) -> Self {
        const MIB: f64 = 1_048_576.0;
        browser.call("HeapProfiler.collectGarbage", json!({}));
        let heap = browser.call("Runtime.getHeapUsage", json!({}));
        let elements = browser.evaluate("document.querySelectorAll('*').length");
        Self {
            gateway_mib: pair.field.resident_bytes() as f64 / MIB,
            page_mib: heap["usedSize"].as_f64().unwrap() / MIB,
            browser_mib: browser.resident_bytes() as f64 / MIB,
            elements: elements.as_f64().unwrap(),
        }
    }

    /// The greatest of each.
    fn most(levels: &[Self]) -> Self {
        let most = |of: fn(&Self) -> f64| levels.iter().map(of).fold(0.0, f64::max);
        Self {
            gateway_mib: most(|level| level.gateway_mib),
            page_mib: most(|level| level.page_mib),
            browser_mib: most(|level| level.browser_mib),
            elements: most(|level| level.elements),
        }
    }
}

/// Opens the page for rounds that begin so long after each other, each with a download and an outage; what each left behind.
fn rounds(count: usize, apart: Duration) -> Option<Vec<Level>> {
    let (network, pair, mut browser) = start()?;
    browser.open(&format!("http://{METRICS}/"));
    wait_for("two paths", || {
        (browser.evaluate(PATHS).as_object()?.len() == 2).then_some(())
    });
    let mut next = Instant::now();
    let mut round = || {
        let download = Transfer::download(&network);
        download.wait_for_progress(1 << 20);
        network.cut(0);
        pair.wait_for_state(&["link0"], "down");
        network.mend(0);
        download.finish();
        pair.wait_until_up(&["link0"]);
        next += apart;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let level = Level::now(&pair, &mut browser);
        println!("{level:.1?}");
        level
    };
    Some((0..count).map(|_| round()).collect())
}

#[test]
fn a_download_and_an_outage_leave_nothing_behind_in_the_page() {
    let Some(levels) = rounds(3, Duration::ZERO) else {
        return;
    };
    // What is wrong and what passed is told in a few lines that come and go.
    let (first, last) = (levels[0].elements, levels[2].elements);
    assert!(last < first * 1.1, "{first} elements, then {last}");
}

/// After the page's plots are full, nothing grows any more: neither the gateway, nor the page, nor all processes of the browser
/// together. `STARHAUL_PAGE_MINUTES` says for how many minutes it is open.
#[test]
#[ignore = "it takes an hour: STARHAUL_CI_LONG=1 .ci/run"]
fn the_page_is_open_for_an_hour_and_neither_it_nor_the_gateway_grows() {
    let minutes = std::env::var("STARHAUL_PAGE_MINUTES");
    let minutes = minutes.map_or(60, |minutes| minutes.parse().unwrap());
    let quarter = minutes / 4;
    // The plots hold two minutes.
    assert!(quarter >= 2, "8 minutes at least");
    let Some(levels) = rounds(minutes, Duration::from_secs(60)) else {
        return;
    };
    let (early, late) = (
        Level::most(&levels[quarter..2 * quarter]),
        Level::most(&levels[minutes - quarter..]),
    );
    println!("early {early:.1?}\nlate {late:.1?}");
    assert!(late.gateway_mib < early.gateway_mib * 1.1, "the gateway");
    assert!(late.page_mib < early.page_mib * 1.1, "the page");
    assert!(late.browser_mib < early.browser_mib * 1.1, "the browser");
    assert!(late.elements < early.elements * 1.1, "its elements");
}
