//! Metrics and events over HTTP: the figures of the status, in a bounded number of series, whatever clients do.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use starhaul_gateway::status::{FlowStatus, Path, PathTotals, Status};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

use super::gateways::{
    ALLOW_LOOPBACK, Pair, ask, pair_with, pattern, run, tcp_echo_after_end, udp_echo, until,
};

const METRICS: &str = "metrics = \"127.0.0.1:0\"\n";
/// Snapshots are given again for 1.5 s at most, on a computer that is slow to take them.
pub(crate) const STALE: Duration = Duration::from_millis(1600);

/// A pair with a UDP rule `u` and a TCP rule `t` at the near side, both with metrics.
async fn measured_pair() -> Pair {
    let (udp, tcp) = (udp_echo().await, tcp_echo_after_end("127.0.0.1:0").await);
    let rules = format!(
        "[[udp]]\nname = \"u\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{udp}\"\ndeadline = \"20s\"\n\
         priority = 1\nmax_clients = 4\n\
         [[tcp]]\nname = \"t\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{tcp}\"\npriority = 5\n"
    );
    pair_with(
        METRICS,
        &rules,
        ALLOW_LOOPBACK,
        starhaul_gateway::Resolver::default(),
    )
    .await
}

/// Sends bytes and returns all that comes until the server closes the connection.
async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    // The server may have refused it before all was sent.
    let _ = tcp.write_all(request).await;
    let mut answer = Vec::new();
    let _ = tcp.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).await
}

pub(crate) type Series = BTreeMap<String, f64>;

/// All series with their values, by name and labels.
pub(crate) async fn scrape(address: SocketAddr) -> Series {
    let answer = get(address, "/metrics").await;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    series.collect()
}

/// The status and a scrape of the same state: nothing that is compared changed meanwhile.
async fn both(pair: &Pair) -> (Status, Series) {
    let facts = |status: &Status| {
        let sessions = status.sessions.iter();
        let paths = sessions.flat_map(|session| &session.paths);
        let of_path = |path: &Path| {
            format!(
                "{} {:?} {} {}",
                path.state, path.figures, path.cwnd_bytes, path.controller_state
            )
        };
        let peers: Vec<_> = status
            .peers
            .iter()
            .map(|peer| {
                format!(
                    "{:?} {:?}",
                    peer.paths,
                    peer.flows
                        .iter()
                        .map(|flow| &flow.totals.blocks)
                        .collect::<Vec<_>>()
                )
            })
            .collect();
        (paths.map(of_path).collect::<Vec<_>>(), peers)
    };
    let address = pair.near.metrics_address().unwrap();
    loop {
        tokio::time::sleep(STALE).await;
        let before = pair.near.report();
        let series = scrape(address).await;
        if facts(&before) == facts(&pair.near.report()) {
            return (before, series);
        }
    }
}

#[test]
fn a_scrape_gives_the_figures_of_the_status() {
    run(async {
        let pair = measured_pair().await;
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client
            .connect(pair.near.ingress_address("u").unwrap())
            .await
            .unwrap();
        client.send(&[1; 1000]).await.unwrap();
        client.recv(&mut [0; 2000]).await.unwrap();
        let tcp = TcpStream::connect(pair.near.ingress_address("t").unwrap()).await;
        let data = pattern(200_000);
        assert!(ask(tcp.unwrap(), &data).await == data);
        until(|| {
            let status = pair.near.report();
            let paths = &status.sessions[0].paths;
            paths.len() == 2 && paths.iter().all(|path| path.figures.is_some())
        })
        .await;

        let (status, series) = both(&pair).await;
        let value = |name: &str| {
            *series
                .get(name)
                .unwrap_or_else(|| panic!("no {name}: {series:#?}"))
        };
        let far = "peer=\"far\"";
        for path in &status.sessions[0].paths {
            let totals = &status.peers[0].paths;
            let totals: &PathTotals = totals.iter().find(|one| one.name == path.name).unwrap();
            let labels = format!("{far},path=\"{}\",opened_by=\"us\"", path.name);
            let of = |name: &str| value(&format!("starhaul_path_{name}{{{labels}}}"));
            let figures = path.figures.as_ref().unwrap();
            assert_eq!(of("sent_bytes_total"), totals.bytes_sent as f64);
            assert_eq!(of("received_bytes_total"), totals.bytes_received as f64);
            assert_eq!(
                totals.bytes_sent, path.traffic.sent_bytes,
                "one session had it"
            );
            assert_eq!(of("sent_datagrams_total"), figures.datagrams_sent as f64);
            assert_eq!(of("lost_datagrams_total"), totals.datagrams_lost as f64);
            // Some may have been taken back.
            assert!(totals.datagrams_lost >= figures.datagrams_lost);
            assert_eq!(of("rtt_seconds"), figures.rtt_ms.unwrap() / 1e3);
            assert_eq!(
                of("one_way_delay_seconds"),
                figures.one_way_delay_ms.unwrap() / 1e3
            );
            assert_eq!(of("loss_ratio"), figures.loss.unwrap());
            assert_eq!(
                of("bandwidth_bits_per_second"),
                figures.rate_bit_per_s as f64
            );
            assert_eq!(of("window_bytes"), path.cwnd_bytes as f64);
            assert_eq!(of("cost"), figures.cost.unwrap());
            for state in ["up", "suspect", "down"] {
                let is = value(&format!(
                    "starhaul_path_state{{{labels},state=\"{state}\"}}"
                ));
                assert_eq!(is == 1.0, path.state == state, "{path:?}");
            }
            let controller = format!(
                "controller=\"{}\",phase=\"{}\"",
                path.controller, path.controller_state
            );
            assert_eq!(
                value(&format!(
                    "starhaul_path_controller{{{labels},{controller}}}"
                )),
                1.0
            );
        }
        let flows = &status.peers[0].flows;
        for (rule, priority) in [("u", 1), ("t", 5)] {
            let flow: &FlowStatus = flows
                .iter()
                .find(|flow| flow.rule.as_deref() == Some(rule))
                .unwrap();
            let labels = format!("{far},rule=\"{rule}\",rule_of=\"us\",priority=\"{priority}\"");
            let of = |name: &str| value(&format!("starhaul_rule_{name}{{{labels}}}"));
            assert_eq!(
                of("sent_bytes_total"),
                flow.totals.traffic.sent_bytes as f64
            );
            assert_eq!(of("streams_total"), flow.totals.streams_total as f64);
            let on_time = value(&format!(
                "starhaul_rule_block_outcomes_total{{{labels},outcome=\"on_time\"}}"
            ));
            assert_eq!(on_time, flow.totals.blocks.on_time as f64);
        }
        let sent = flows
            .iter()
            .map(|flow| flow.totals.traffic.sent_bytes)
            .sum::<u64>();
        assert!(sent >= 201_000, "the rules carried something: {sent}");
        assert_eq!(value("starhaul_sessions{peer=\"far\"}"), 1.0);
        assert_eq!(
            value("starhaul_ingress_clients_total{rule=\"u\",kind=\"udp\"}"),
            1.0
        );
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("starhaul_driver_cpu_seconds_total") <= value("process_cpu_seconds_total"));
        pair.end().await;
    });
}

/// Of every path the bytes of each class are told at both sides, and they are all that its streams sent over it.
#[test]
fn the_bytes_of_each_class_are_told_for_each_path() {
    run(async {
        let pair = measured_pair().await;
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let rule = pair.near.ingress_address("u").unwrap();
        client.connect(rule).await.unwrap();
        client.send(&[1; 1000]).await.unwrap();
        client.recv(&mut [0; 2000]).await.unwrap();
        let tcp = TcpStream::connect(pair.near.ingress_address("t").unwrap()).await;
        let data = pattern(200_000);
        assert!(ask(tcp.unwrap(), &data).await == data);
        // What is on its way, and what is counted each half second, comes to rest.
        let sums = |status: &Status| {
            let mut sums = BTreeMap::<_, (u64, u64)>::new();
            for path in &status.peers[0].paths {
                let of_streams: u64 = path.by_class.iter().map(|class| class.bytes_sent).sum();
                assert!(of_streams <= path.bytes_sent, "{path:?}");
                for class in &path.by_class {
                    let sum = sums.entry(class.priority).or_default();
                    sum.0 += class.bytes_sent;
                    sum.1 += class.bytes_received;
                }
            }
            sums
        };
        until(|| {
            let (near, far) = (sums(&pair.near.report()), sums(&pair.far.report()));
            let bytes = |sums: &BTreeMap<_, (u64, u64)>, class| {
                sums.get(&Some(class)).copied().unwrap_or_default()
            };
            let all = |sums: &BTreeMap<_, (u64, u64)>| {
                sums.values()
                    .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
            };
            let is_told = bytes(&near, 1).0 >= 1000
                && bytes(&near, 1).1 >= 1000
                && bytes(&near, 5).0 >= 200_000
                && bytes(&near, 5).1 >= 200_000;
            let ((out, back), (there, from_there)) = (all(&near), (all(&far).1, all(&far).0));
            is_told && (out, back) == (there, from_there)
        })
        .await;
        let (status, series) = both(&pair).await;
        let path = &status.peers[0].paths[0];
        assert!(!path.by_class.is_empty(), "{path:?}");
        for class in &path.by_class {
            let priority = class.priority.map(|priority| priority.to_string());
            let labels = format!(
                "peer=\"far\",path=\"{}\",opened_by=\"us\",priority=\"{}\"",
                path.name,
                priority.unwrap_or_default()
            );
            let of =
                |name: &str| series[&format!("starhaul_path_class_{name}_bytes_total{{{labels}}}")];
            assert_eq!(of("sent"), class.bytes_sent as f64);
            assert_eq!(of("received"), class.bytes_received as f64);
        }
        pair.end().await;
    });
}

#[test]
fn a_configured_path_without_a_session_is_down_and_its_bytes_stay() {
    run(async {
        let pair = measured_pair().await;
        let near = pair.near.metrics_address().unwrap();
        let labels = "peer=\"far\",path=\"path0\",opened_by=\"us\"";
        let down = format!("starhaul_path_state{{{labels},state=\"down\"}}");
        let sent = format!("starhaul_path_sent_bytes_total{{{labels}}}");
        // A session is up with its first path, which may be the other one.
        until(|| {
            let report = pair.near.report();
            let mut paths = report.sessions.iter().flat_map(|session| &session.paths);
            paths.any(|path| path.name == "path0")
        })
        .await;
        let before = scrape(near).await;
        assert_eq!(before[&down], 0.0);
        pair.far.shutdown().await;
        until(|| pair.near.report().sessions.is_empty()).await;
        tokio::time::sleep(STALE).await;
        let after = scrape(near).await;
        assert_eq!(after[&down], 1.0);
        assert!(
            after[&sent] >= before[&sent],
            "{} {}",
            after[&sent],
            before[&sent]
        );
        pair.near.shutdown().await;
    });
}

/// Alert rules and dashboard ask for nothing that no scrape has.
#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    run(async {
        let pair = measured_pair().await;
        let answer = get(pair.near.metrics_address().unwrap(), "/metrics").await;
        let node = starhaul_dtn::metrics::Figures::default().text();
        let relay = starhaul_contents::metrics::Figures::default().text();
        let lines = [&answer, &node, &relay].into_iter();
        let families = lines
            .flat_map(|text| text.lines())
            .filter_map(|line| line.strip_prefix("# TYPE "));
        let known: Vec<String> = families
            .map(|family| match family.split_once(' ').unwrap() {
                (name, "counter") => format!("{name}_total"),
                (name, "info") => format!("{name}_info"),
                (name, _) => name.to_owned(),
            })
            .collect();
        let contrib = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
        for file in ["prometheus/alerts.yml", "grafana/starhaul.json"] {
            let text = std::fs::read_to_string(contrib.join(file)).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let used =
                words.filter(|word| word.starts_with("starhaul_") || word.starts_with("process_"));
            let mut count = 0;
            for word in used {
                assert!(
                    known.iter().any(|name| name == word),
                    "{file}: {word} is none of {known:#?}"
                );
                count += 1;
            }
            assert!(count > 10, "{file}: {count}");
        }
        pair.end().await;
    });
}

#[test]
fn clients_add_no_series() {
    run(async {
        let pair = measured_pair().await;
        let (near, far) = (
            pair.near.metrics_address().unwrap(),
            pair.far.metrics_address().unwrap(),
        );
        let address = pair.near.ingress_address("u").unwrap();
        let query = async || {
            let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            client.send_to(&[1; 100], address).await.unwrap();
            client.recv(&mut [0; 200]).await.unwrap();
        };
        let connect = async || {
            let tcp = TcpStream::connect(pair.near.ingress_address("t").unwrap()).await;
            assert_eq!(ask(tcp.unwrap(), &[7; 100]).await.len(), 100);
        };
        query().await;
        connect().await;
        tokio::time::sleep(STALE).await;
        // Phases of controllers come and go.
        let names = |series: Series| {
            let names = series.into_keys();
            names
                .filter(|name| !name.contains("phase="))
                .collect::<Vec<_>>()
        };
        let before = (names(scrape(near).await), names(scrape(far).await));
        for _ in 0..20 {
            query().await;
        }
        for _ in 0..1000 {
            connect().await;
        }
        until(|| pair.near.report().ingress[1].clients_total == 1001).await;
        tokio::time::sleep(STALE).await;
        let after = (names(scrape(near).await), names(scrape(far).await));
        assert_eq!(before, after);
        pair.end().await;
    });
}

#[test]
fn what_is_no_request_is_refused_and_idle_connections_make_room() {
    run(async {
        let pair = measured_pair().await;
        let near = pair.near.metrics_address().unwrap();
        for (request, answer) in [
            ("\0\0\x16\x03\x01 rubbish\r\n\r\n".to_owned(), ""),
            (
                format!(
                    "GET /metrics HTTP/1.1\r\nHost: {near}\r\nX: {}\r\n\r\n",
                    "y".repeat(100_000)
                ),
                "HTTP/1.1 431",
            ),
            (
                format!(
                    "GET /metrics HTTP/1.1\r\nHost: {near}\r\n{}\r\n",
                    "X: y\r\n".repeat(100)
                ),
                "HTTP/1.1 431",
            ),
            (
                format!(
                    "POST /metrics HTTP/1.1\r\nHost: {near}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
                ),
                "HTTP/1.1 405",
            ),
            (
                format!("GET /secret HTTP/1.1\r\nHost: {near}\r\nConnection: close\r\n\r\n"),
                "HTTP/1.1 404",
            ),
            (
                "GET /metrics HTTP/1.1\r\nHost: elsewhere.example.org\r\nConnection: close\r\n\r\n"
                    .to_owned(),
                "HTTP/1.1 403",
            ),
        ] {
            let got = exchange(near, request.as_bytes()).await;
            assert!(
                got.starts_with(answer) && !got.contains("HTTP/1.1 200"),
                "{request:.100}: {got}"
            );
        }
        // More than may be connected, none of which ever finishes its request.
        let mut idle = Vec::new();
        for _ in 0..40 {
            let mut tcp = TcpStream::connect(near).await.unwrap();
            tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost:")
                .await
                .unwrap();
            idle.push(tcp);
        }
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = pair.near.ingress_address("u").unwrap();
        client.send_to(&[1; 100], address).await.unwrap();
        let mut answer = [0; 200];
        let answered = client.recv(&mut answer);
        tokio::time::timeout(Duration::from_secs(5), answered)
            .await
            .expect("data pass meanwhile")
            .unwrap();
        scrape(near).await;
        pair.end().await;
    });
}

#[test]
fn events_tell_the_status_and_pages_are_bounded() {
    run(async {
        let pair = measured_pair().await;
        let near = pair.near.metrics_address().unwrap();
        // A session is up with its first path.
        until(|| pair.near.report().sessions[0].paths.len() == 2).await;
        let request = format!("GET /events HTTP/1.1\r\nHost: {near}\r\n\r\n");
        let mut pages = Vec::new();
        for _ in 0..16 {
            let mut page = TcpStream::connect(near).await.unwrap();
            page.write_all(request.as_bytes()).await.unwrap();
            let mut got = String::new();
            while !got.contains("\n\n\r\n") {
                let mut some = [0; 4096];
                let length = page.read(&mut some).await.unwrap();
                assert!(length > 0, "{got}");
                got += &String::from_utf8_lossy(&some[..length]);
            }
            let json = got
                .split_once("data: ")
                .unwrap()
                .1
                .split_once("\n\n")
                .unwrap()
                .0;
            let status: Status = serde_json::from_str(&json.replace("\r\n", "")).unwrap();
            assert_eq!(status.public_key, pair.near.report().public_key);
            assert_eq!(status.sessions[0].paths.len(), 2);
            pages.push(page);
        }
        let refused = get(near, "/events").await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        scrape(near).await;
        pages.pop();
        // Its place is free when the next event finds it gone.
        loop {
            let mut page = TcpStream::connect(near).await.unwrap();
            page.write_all(request.as_bytes()).await.unwrap();
            let mut some = [0; 12];
            page.read_exact(&mut some).await.unwrap();
            if &some == b"HTTP/1.1 200" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        pair.end().await;
    });
}
