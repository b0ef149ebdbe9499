//! Bundles to and from another implementation over TCPCLv4: `dtnd` of the crate `dtn7`.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use starhaul_dtn::{Config, Node, control::Server};
use starhaul_dtn_client::control::Client;
use starhaul_needs::{Need, free, skip};

const LIFETIME: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `dtnd`, killed at the end.
struct Dtnd {
    process: Child,
    web: SocketAddr,
}

impl Drop for Dtnd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Dtnd {
    /// The node `dtn://other/` with the endpoint `in`, and a neighbour `dtn://own/` at `peer` if it is to connect.
    fn start(program: &str, folder: &Path, tcp: SocketAddr, peer: Option<SocketAddr>) -> Self {
        let web = free();
        let mut command = Command::new(program);
        command
            .args(["--nodeid", "other", "--endpoint", "in", "--disable_nd"])
            .args(["--web-port", &web.port().to_string(), "--janitor", "1s"])
            .args(["--cla", &format!("tcp:port={}:bind=127.0.0.1", tcp.port())])
            .args(["--db", "mem", "--routing", "epidemic", "--workdir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(peer) = peer {
            command.args(["--static-peer", &format!("tcp://{peer}/own")]);
        }
        let process = command.spawn().unwrap();
        let dtnd = Self { process, web };
        let limit = Instant::now() + PATIENCE;
        while TcpStream::connect(web).is_err() || TcpStream::connect(tcp).is_err() {
            assert!(Instant::now() < limit, "dtnd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        dtnd
    }

    /// The answer to a request of HTTP.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.web).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.web,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.split(|byte| *byte == b'\n').next().unwrap();
        assert!(
            head.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&answer)
        );
        answer
    }
}

/// The program, or the reason why there is none.
fn dtnd() -> Option<String> {
    let program = std::env::var("STARHAUL_DTND").unwrap_or_else(|_| "dtnd".to_owned());
    let version = Command::new(&program).arg("--version").output();
    if version.is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    skip(
        Need::Dtnd,
        format!("{program} does not run: cargo install --locked dtn7, or name it in STARHAUL_DTND"),
    );
    None
}

/// Bundles for `dtnd`, which acknowledges them with other flags than RFC 9174 §5.2.3 asks for: each is sent once, and is not kept.
async fn send_to(dtnd: &Dtnd, client: &mut Client, node: &Node) {
    let lengths = [1000, 20_000];
    for length in lengths {
        let mine: Vec<u8> = (0..length).map(|at: u32| at.to_le_bytes()[0]).collect();
        client
            .send("dtn://other/in", &mine, LIFETIME)
            .await
            .unwrap();
        let limit = Instant::now() + PATIENCE;
        loop {
            let answer = dtnd.ask("GET", "/endpoint?in", &[]);
            if answer.windows(mine.len()).any(|bytes| bytes == mine) {
                break;
            }
            assert!(Instant::now() < limit, "{length} bytes do not arrive");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let status = || node.handle().status();
    let limit = Instant::now() + PATIENCE;
    while status().storage.bundles > 0 {
        assert!(Instant::now() < limit, "what has arrived is kept");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(status().counters.sent, lengths.len() as u64);
}

/// Bundles of `dtnd` arrive whichever node connects to the other, and ours arrive there.
#[tokio::test(flavor = "multi_thread")]
async fn bundles_come_whoever_connects_and_go_there() {
    let Some(program) = dtnd() else { return };
    for they_connect in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (free(), free());
        let way = match they_connect {
            true => format!("listen = \"{own}\"\n[[tcp.peer]]\nnode = \"dtn://other/\"\n"),
            false => format!("[[tcp.peer]]\nnode = \"dtn://other/\"\naddress = \"{other}\"\n"),
        };
        let text = format!(
            "node = \"dtn://own/\"\ncontrol = \"control.sock\"\n[storage]\nkind = \"memory\"\n[tcp]\n{way}"
        );
        let name = folder.path().join("node.toml");
        let config = Config::parse(&text, &name, SystemTime::now().into()).unwrap();
        let node = Node::start(config).await.unwrap();
        let server = Server::start(node.handle()).unwrap();
        let dtnd = Dtnd::start(&program, folder.path(), other, they_connect.then_some(own));
        let socket = folder.path().join("control.sock");
        let mut client = Client::connect(Some(&socket)).await.unwrap();
        client.open(Some("in")).await.unwrap();

        // Theirs is sent first: where they connect, they do so to send.
        let theirs = b"from dtnd to this node".repeat(100);
        dtnd.ask("POST", "/send?dst=dtn://own/in&lifetime=60s", &theirs);
        assert!(client.has_bundle(PATIENCE).await.unwrap(), "{they_connect}");
        let bundle = client.next_bundle().await.unwrap();
        assert_eq!(bundle.payload, theirs);
        assert_eq!(bundle.source, "dtn://other/");
        client.acknowledge(&bundle.id).await.unwrap();

        if !they_connect {
            send_to(&dtnd, &mut client, &node).await;
        }
        drop(server);
        node.shutdown().await;
    }
}
