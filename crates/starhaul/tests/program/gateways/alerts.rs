//! Debian's Prometheus reads a gateway's metrics and raises the alerts of `contrib/` when a path is cut.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use starhaul_needs::{Need, skip};

use super::{
    PATIENCE,
    gateway::{METRICS, Pair},
    network::Network,
    transfer::Transfer,
    wait_for,
};

const SERVER: &str = "127.0.0.1:9090";

pub(crate) fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus/alerts.yml")
}

pub(crate) fn is_installed() -> bool {
    let both = ["prometheus", "promtool"];
    let found = both.iter().all(|program| {
        let asked = Command::new(program).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    });
    if !found {
        skip(
            Need::Prometheus,
            "it is not installed (Debian's prometheus)",
        );
    }
    found
}

#[test]
fn promtool_accepts_the_rules() {
    if !is_installed() {
        return;
    }
    let checked = Command::new("promtool")
        .args(["check", "rules"])
        .arg(rules())
        .output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// A Prometheus in the field's namespace, which ends with the test.
struct Prometheus<'n> {
    process: Child,
    network: &'n Network,
}

impl<'n> Prometheus<'n> {
    /// Starts one that scrapes the field's gateway each second. Alerts wait for a second where the rules say more.
    fn start(network: &'n Network, directory: &Path) -> Self {
        let text = fs::read_to_string(rules()).unwrap();
        let hasty = text
            .lines()
            .map(|line| match line.trim_start().starts_with("for: ") {
                true => "        for: 1s\n".to_owned(),
                false => format!("{line}\n"),
            });
        fs::write(directory.join("alerts.yml"), hasty.collect::<String>()).unwrap();
        let configuration = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [alerts.yml]\n\
             scrape_configs:\n  - job_name: starhaul\n    static_configs: [{{ targets: [\"{METRICS}\"] }}]\n"
        );
        let file = directory.join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let log = fs::File::create(directory.join("prometheus.log")).unwrap();
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address={SERVER}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let process = network.field.inside(|| command.spawn()).unwrap();
        Self { process, network }
    }

    /// Asks its interface; `None` until it answers.
    fn ask(&self, path: &str) -> Option<Value> {
        let answer = get(self.network, SERVER, path).ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        serde_json::from_str(body).ok()
    }

    /// Names and paths of the alerts that fire.
    fn firing(&self) -> Vec<(String, String)> {
        let answer = self.ask("/api/v1/alerts").unwrap_or_default();
        let alerts = answer["data"]["alerts"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let label = |alert: &Value, name: &str| {
            alert["labels"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        firing
            .map(|alert| (label(alert, "alertname"), label(alert, "path")))
            .collect()
    }
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An answer with its head, from a server in the field's namespace.
pub(super) fn get(network: &Network, server: &str, path: &str) -> io::Result<String> {
    let mut tcp = network.field.inside(|| TcpStream::connect(server))?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    // The older version is answered in one part.
    write!(tcp, "GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n")?;
    let mut answer = String::new();
    tcp.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn an_alert_fires_when_a_path_is_cut_and_ends_when_it_is_mended() {
    if !is_installed() {
        return;
    }
    let Some(network) = Network::create(2) else {
        return;
    };
    let pair = Pair::start(&network);
    pair.wait_until_up(&["link0", "link1"]);
    let prometheus = Prometheus::start(&network, pair.directory());
    let download = Transfer::download(&network);
    wait_for("a scrape", || {
        let answer = prometheus.ask("/api/v1/query?query=starhaul_sessions")?;
        (answer["data"]["result"][0]["value"][1] == "1").then_some(())
    });
    download.wait_for_progress(1 << 20);
    let no_path = |name: &str| ("StarhaulPathDown".to_owned(), name.to_owned());
    // A computer with much to do may miss an answer of a path that is up, for a moment.
    wait_for("no alert", || {
        (!prometheus.firing().contains(&no_path("link0"))).then_some(())
    });

    network.cut(0);
    wait_for("the alert of this path alone", || {
        let firing = prometheus.firing();
        let is_alone = !firing.contains(&no_path("link1"));
        (is_alone && firing.contains(&no_path("link0"))).then_some(())
    });
    network.mend(0);
    wait_for("the end of the alert", || {
        (!prometheus.firing().contains(&no_path("link0"))).then_some(())
    });
    download.finish();

    drop(pair.ground);
    wait_for("the loss of the peer", || {
        let firing = prometheus.firing();
        firing
            .iter()
            .any(|(name, _)| name == "StarhaulPeerAway")
            .then_some(())
    });
}
