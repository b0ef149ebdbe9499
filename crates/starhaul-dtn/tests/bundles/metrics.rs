//! What a node tells over HTTP: nothing that strangers could add to, whatever they send, and nothing that holds it.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    time::{Duration, SystemTime},
};

use starhaul_dtn::{Config, Node};
use starhaul_needs::free;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A text is given again for 1.5 s at most, where taking it took long.
const STALE: Duration = Duration::from_millis(1600);

async fn start(text: &str) -> (Node, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{text}\n[storage]\nkind = \"memory\"\n");
    let config = Config::parse(
        &text,
        &folder.path().join("node.toml"),
        SystemTime::now().into(),
    );
    (Node::start(config.unwrap()).await.unwrap(), folder)
}

/// All that is answered until the server closes the connection.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    // The server may have refused it before all was sent.
    let _ = tcp.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = tcp.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn scrape(address: SocketAddr) -> String {
    tokio::time::sleep(STALE).await;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = exchange(address, &request).await;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    text.to_owned()
}

fn names(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_the_configuration_does_not_name_add_no_series() {
    let listen = free();
    let (station, _folder) = start(&format!(
        "node = \"ipn:1.0\"\nmetrics = \"127.0.0.1:0\"\n[tcp]\nlisten = \"{listen}\"\naccept_unknown = true\n\
         [[tcp.peer]]\nnode = \"ipn:2.0\"\n"
    ))
    .await;
    let address = station.metrics_address().unwrap();
    let before = names(&scrape(address).await);
    let mut strangers = Vec::new();
    for number in 2..6 {
        let text = format!(
            "node = \"ipn:{number}.0\"\n[tcp]\n[[tcp.peer]]\nnode = \"ipn:1.0\"\naddress = \"{listen}\"\n"
        );
        strangers.push(start(&text).await);
    }
    let connected = || {
        let status = station.handle().status();
        status.neighbours.iter().filter(|at| at.is_open).count()
    };
    let waited = async {
        while connected() < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .expect("all connect");
    let text = scrape(address).await;
    assert_eq!(names(&text), before);
    for line in [
        "starhaul_dtn_neighbour_open{neighbour=\"ipn:2.0\",protocol=\"tcp\"} 1.0",
        "starhaul_dtn_unknown_neighbours 3.0",
    ] {
        assert!(text.contains(line), "{text}");
    }
    // The one that is named is due at any time, and away.
    let (named, _) = strangers.swap_remove(0);
    named.shutdown().await;
    let waited = async {
        while connected() > 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .expect("one goes");
    let status = station.handle().status();
    let told = status.neighbours.iter().find(|at| at.node == "ipn:2.0");
    assert!(told.is_some_and(|at| !at.is_open), "{status:#?}");
    let text = scrape(address).await;
    for line in [
        "starhaul_dtn_neighbour_open{neighbour=\"ipn:2.0\",protocol=\"tcp\"} 0.0",
        "starhaul_dtn_neighbour_due{neighbour=\"ipn:2.0\",protocol=\"tcp\"} 1.0",
    ] {
        assert!(text.contains(line), "{text}");
    }
    for (node, _folder) in strangers {
        node.shutdown().await;
    }
    station.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_wrongly_or_never_end_hold_neither_node_nor_scrapes() {
    let (node, _folder) = start(&format!(
        "node = \"ipn:1.0\"\nmetrics = \"127.0.0.1:0\"\n[tcp]\nlisten = \"{}\"\n",
        free()
    ))
    .await;
    let address = node.metrics_address().unwrap();
    let long = "y".repeat(100_000);
    for (request, answer) in [
        ("\0\0\x16\x03\x01 rubbish\r\n\r\n".to_owned(), ""),
        (
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nX: {long}\r\n\r\n"),
            "HTTP/1.1 431",
        ),
        (
            format!(
                "POST /metrics HTTP/1.1\r\nHost: {address}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"
            ),
            "HTTP/1.1 405",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
            "HTTP/1.1 404",
        ),
        (
            "GET /metrics HTTP/1.1\r\nHost: elsewhere.example.org\r\nConnection: close\r\n\r\n"
                .to_owned(),
            "HTTP/1.1 403",
        ),
    ] {
        let got = exchange(address, &request).await;
        assert!(
            got.starts_with(answer) && !got.contains("HTTP/1.1 200"),
            "{request:.100}: {got}"
        );
    }
    // More than may be connected, none of which ever ends its request.
    let mut idle = Vec::new();
    for _ in 0..40 {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost:")
            .await
            .unwrap();
        idle.push(tcp);
    }
    assert_eq!(node.handle().status().node, "ipn:1.0");
    tokio::time::timeout(Duration::from_secs(20), scrape(address))
        .await
        .expect("idle connections make room");
    let ended = tokio::time::timeout(Duration::from_secs(20), node.shutdown());
    assert!(ended.await.expect("it ends beside them"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_ends_the_start_with_its_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "node = \"ipn:1.0\"\nmetrics = \"{}\"\n[tcp]\nlisten = \"{}\"\n",
        taken.local_addr().unwrap(),
        free()
    );
    let name = folder.path().join("node.toml");
    let config = Config::parse(&text, &name, SystemTime::now().into()).unwrap();
    let error = Node::start(config).await.err().unwrap().to_string();
    assert!(
        error.starts_with("metrics: cannot listen on 127.0.0.1:"),
        "{error}"
    );
    let open = text.replace("metrics = \"127.0.0.1", "metrics = \"0.0.0.0");
    let config = Config::parse(&open, &name, SystemTime::now().into()).unwrap();
    let told = config.describe(SystemTime::now().into());
    assert!(
        told.contains("warning: metrics: whoever reaches 0.0.0.0:"),
        "{told}"
    );
}
