//! Metrics of bundle nodes and relays: the figures of their status, read by Debian's Prometheus, with the alerts of `contrib/`.

mod alerts;
mod cost;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    contents::{Folder, Running},
    gateways::is_installed,
    program::{free, path, run, starhaul, text, wait_for},
};

/// A text is given again for 1.5 s at most, where taking it took long.
const STALE: Duration = Duration::from_millis(1600);

/// A program that dies with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of an answer with code 200; `None` until a server listens there.
fn get(address: SocketAddr, place: &str) -> Option<String> {
    let mut tcp = TcpStream::connect(address).ok()?;
    write!(tcp, "GET {place} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 OK").then(|| body.to_owned())
}

/// All series with their values, by name and labels.
fn series(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').unwrap());
    series
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// Two bundle nodes over LTP, the first with metrics, and a file that the first sent.
struct Nodes {
    metrics: SocketAddr,
    socket: String,
    far_socket: String,
    processes: [Process; 2],
    _folder: tempfile::TempDir,
}

impl Nodes {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (listen, metrics) = ([free(), free()], free());
        let node = |own: usize, other: usize, more: &str| {
            let at = folder.path().join(format!("node{own}"));
            fs::create_dir_all(&at).unwrap();
            let text = format!(
                "node = \"ipn:{}.0\"\ncontrol = \"control.sock\"\n{more}[storage]\nkind = \"memory\"\n\
                 [ltp]\nlisten = \"{}\"\n[[ltp.peer]]\nnode = \"ipn:{}.0\"\naddress = \"{}\"\n\
                 segment = \"1360\"\n[tcp]\n[[tcp.peer]]\nnode = \"ipn:9.0\"\naddress = \"127.0.0.1:9\"\n",
                own + 1,
                listen[own],
                other + 1,
                listen[other],
            );
            let file = at.join("node.toml");
            fs::write(&file, text).unwrap();
            let mut command = starhaul(&["dtn", "node", "--log", "off", "--config", path(&file)]);
            Process(command.spawn().unwrap())
        };
        let processes = [
            node(0, 1, &format!("metrics = \"{metrics}\"\n")),
            node(1, 0, ""),
        ];
        let sockets = [0, 1].map(|own| folder.path().join(format!("node{own}/control.sock")));
        for socket in &sockets {
            let connect = || std::os::unix::net::UnixStream::connect(socket).ok();
            wait_for("a node", connect);
        }
        let file = folder.path().join("picture");
        fs::write(&file, vec![7; 300_000]).unwrap();
        let [socket, far_socket] = sockets.map(|socket| path(&socket).to_owned());
        let send = ["dtn", "send", path(&file), "--to", "ipn:2.0", "--no-wait"];
        let sent = run(&[&send[..], &["--socket", &socket]].concat());
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        let nodes = Self {
            metrics,
            socket,
            far_socket,
            processes,
            _folder: folder,
        };
        wait_for("the bundles to arrive", || {
            let status = nodes.status();
            let has_gone = status["counters"]["sent"].as_u64() >= Some(1);
            (has_gone && status["storage"]["bundles"] == 0).then_some(())
        });
        nodes
    }

    fn status(&self) -> Value {
        let status = run(&["dtn", "status", "--json", "--socket", &self.socket]);
        serde_json::from_slice(&status.stdout).unwrap()
    }
}

#[test]
fn a_scrape_of_a_node_gives_the_figures_of_its_status() {
    let nodes = Nodes::start();
    let facts =
        |status: &Value| ["storage", "counters", "neighbours"].map(|key| status[key].clone());
    let (status, scrape) = wait_for("a moment without change", || {
        thread::sleep(STALE);
        let before = nodes.status();
        let scrape = get(nodes.metrics, "/metrics")?;
        let same = facts(&before) == facts(&nodes.status());
        same.then_some((before, scrape))
    });
    let values = series(&scrape);
    let value = |name: &str| {
        *values
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {scrape}"))
    };
    for (name, told) in [
        ("storage_bundles", &status["storage"]["bundles"]),
        ("storage_bytes", &status["storage"]["bytes"]),
        ("storage_max_bundles", &status["storage"]["max_bundles"]),
        ("storage_max_bytes", &status["storage"]["max_bytes"]),
        ("in_flight_bundles", &status["storage"]["in_flight"]),
        ("received_bundles_total", &status["counters"]["received"]),
        ("sent_bundles_total", &status["counters"]["sent"]),
        ("expired_bundles_total", &status["counters"]["expired"]),
        ("refused_bundles_total", &status["counters"]["refused"]),
        ("too_large_bundles_total", &status["counters"]["too_large"]),
        (
            "ltp_sent_segments_total",
            &status["counters"]["ltp_segments"],
        ),
        (
            "ltp_resent_segments_total",
            &status["counters"]["ltp_resent"],
        ),
        (
            "ltp_dropped_segments_total",
            &status["counters"]["ltp_dropped"],
        ),
        (
            "ltp_unreadable_blocks_total",
            &status["counters"]["ltp_unreadable"],
        ),
        (
            "ltp_stranger_datagrams_total",
            &status["counters"]["ltp_strangers"],
        ),
    ] {
        let told = told.as_f64().unwrap_or_else(|| panic!("{name}: {status}"));
        assert_eq!(value(&format!("starhaul_dtn_{name}")), told, "{name}");
    }
    assert!(value("starhaul_dtn_ltp_sent_segments_total") > 100.0);
    let neighbour = &status["neighbours"][0];
    assert_eq!(
        (&neighbour["node"], &neighbour["by"]),
        (&"ipn:2.0".into(), &"ltp".into())
    );
    let open = |labels: &str| value(&format!("starhaul_dtn_neighbour_open{{{labels}}}"));
    let is_open = open("neighbour=\"ipn:2.0\",protocol=\"ltp\"");
    assert_eq!(is_open == 1.0, neighbour["is_open"] == true, "{neighbour}");
    // The link to a neighbour that is not connected is closed.
    assert_eq!(open("neighbour=\"ipn:9.0\",protocol=\"tcp\""), 0.0);
    let uptime = status["uptime_s"].as_f64().unwrap();
    assert!((value("starhaul_uptime_seconds") - uptime).abs() < 20.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
}

/// A relay with metrics, over which a file was fetched.
fn relay() -> (Folder, [Running; 2], SocketAddr) {
    let folder = Folder::new();
    folder.write("files/content", 200_000);
    let server = folder.serve("files", "a.key");
    let metrics = free();
    let file = folder.at("relay.toml");
    let config = format!(
        "listen = \"{}\"\nmetrics = \"{metrics}\"\nupstream = \"up\"\n\
         [[neighbour]]\nname = \"up\"\naddress = \"{}\"\nkey = \"a.key\"\n\
         [[neighbour]]\nname = \"down\"\nkey = \"b.key\"\n",
        free(),
        server.address
    );
    fs::write(&file, config).unwrap();
    let relay = Running::start(&["relay", "--config", path(&file)], "relays");
    let mut fetch = folder.fetch("content", relay.address, "b.key", &folder.at("fetched"));
    let fetched = fetch.output().unwrap();
    assert!(fetched.status.success(), "{}", text(&fetched.stderr));
    (folder, [server, relay], metrics)
}

/// `promtool` reads the older text only, which has no units, no facts and other names of counters.
fn as_text_for_promtool(scrape: &str) -> String {
    let mut names = BTreeMap::new();
    for line in scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
    {
        let (name, kind) = line.split_once(' ').unwrap();
        let (end, kind) = match kind {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            kind => ("", kind),
        };
        names.insert(name, (format!("{name}{end}"), kind));
    }
    let lines = scrape.lines().filter_map(|line| {
        let mut words = line.splitn(4, ' ');
        let named = |name: &str| names[name].clone();
        match (words.next(), words.next()) {
            (Some("#"), Some("TYPE")) => {
                let (name, kind) = named(words.next()?);
                Some(format!("# TYPE {name} {kind}\n"))
            }
            (Some("#"), Some("HELP")) => {
                let (name, _) = named(words.next()?);
                Some(format!("# HELP {name} {}\n", words.next()?))
            }
            (Some("#"), _) => None,
            _ => Some(format!("{line}\n")),
        }
    });
    lines.collect()
}

fn check_metrics(scrape: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut promtool = promtool
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = promtool.stdin.take().unwrap();
    stdin
        .write_all(as_text_for_promtool(scrape).as_bytes())
        .unwrap();
    drop(stdin);
    let checked = promtool.wait_with_output().unwrap();
    assert!(
        checked.status.success(),
        "{}\n{scrape}",
        text(&checked.stderr)
    );
}

fn start_prometheus(folder: &Path, listen: SocketAddr, jobs: &[(&str, SocketAddr)]) -> Process {
    let mut configuration = "global: { scrape_interval: 1s }\nscrape_configs:\n".to_owned();
    for (job, address) in jobs {
        configuration += &format!(
            "  - {{ job_name: {job}, static_configs: [{{ targets: [\"{address}\"] }}] }}\n"
        );
    }
    let file = folder.join("prometheus.yml");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", path(&file)))
        .arg(format!(
            "--storage.tsdb.path={}",
            path(&folder.join("data"))
        ))
        .arg(format!("--web.listen-address={listen}"));
    let silent = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process(silent.spawn().unwrap())
}

#[test]
fn prometheus_reads_nodes_and_relays_and_promtool_has_nothing_to_say() {
    if !is_installed() {
        return;
    }
    let nodes = Nodes::start();
    let (folder, _programs, relay) = relay();
    for address in [nodes.metrics, relay] {
        check_metrics(&get(address, "/metrics").unwrap());
    }
    let server = free();
    let jobs = [("starhaul-dtn", nodes.metrics), ("starhaul-relay", relay)];
    let _prometheus = start_prometheus(folder.0.path(), server, &jobs);
    for query in [
        "up%7Bjob=%22starhaul-dtn%22%7D%20==%201",
        "up%7Bjob=%22starhaul-relay%22%7D%20==%201",
        "starhaul_dtn_sent_bundles_total%20%3E%200",
        "starhaul_dtn_neighbour_open%7Bneighbour=%22ipn:2.0%22,protocol=%22ltp%22%7D%20==%201",
        "starhaul_relay_interests_total%20%3E%200",
        "starhaul_relay_cache_bytes%20%3E%20200000",
        "starhaul_relay_neighbour_heard%7Bneighbour=%22up%22%7D%20==%201",
    ] {
        wait_for(query, || {
            let answer = get(server, &format!("/api/v1/query?query={query}"))?;
            let answer: Value = serde_json::from_str(&answer).ok()?;
            let found = answer["data"]["result"].as_array()?;
            (!found.is_empty()).then_some(())
        });
    }
}
