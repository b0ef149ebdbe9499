//! Paths of a session are changed while it lives and carries something.

use std::net::SocketAddr;

use starhaul_gateway::{
    Gateway,
    status::{Path, Session},
};
use starhaul_quic::Identity;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::gateways::{ALLOW_LOOPBACK, head, pattern, run, start, until};

/// A path of the near gateway's session as its table in the configuration says it.
fn path(name: &str, remote: SocketAddr, more: &str) -> String {
    format!("[[session.path]]\nname = \"{name}\"\nremote = \"{remote}\"\n{more}\n")
}

/// Two gateways whose session is changed, and a connection through it that must not notice.
struct Changing {
    near: Gateway,
    far: Gateway,
    /// Everything of the near configuration but the paths.
    near_head: String,
    client: TcpStream,
    server: TcpStream,
}

impl Changing {
    async fn start(paths: impl Fn(&[SocketAddr]) -> String) -> Self {
        let (ours, theirs) = (Identity::generate(), Identity::generate());
        let far = start(&format!(
            "listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n{}{ALLOW_LOOPBACK}",
            head(&theirs, "near", &ours)
        ))
        .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near_head = format!(
            "{}[[tcp]]\nname = \"r\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{}\"\n[[session]]\npeer = \"far\"\n",
            head(&ours, "far", &theirs),
            listener.local_addr().unwrap()
        );
        let near = start(&format!("{near_head}{}", paths(&far.listen_addresses()))).await;
        near.connected("far").await;
        let address = near.ingress_address("r").unwrap();
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        Self {
            near,
            far,
            near_head,
            client: client.unwrap(),
            server: server.unwrap().0,
        }
    }

    /// Changes the paths; the connection carries 300 kB to the far side meanwhile.
    async fn change(&mut self, paths: String) -> Vec<String> {
        let text = format!("{}{paths}", self.near_head);
        let data = pattern(300_000);
        let mut received = vec![0; data.len()];
        let config = starhaul_gateway::Config::parse(&text, std::path::Path::new("near.toml"));
        let config = config.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let (sent, read, done) = tokio::join!(
            self.client.write_all(&data),
            self.server.read_exact(&mut received),
            self.near.reload(config)
        );
        sent.unwrap();
        read.unwrap();
        assert!(received == data, "the connection carries other bytes");
        let done = done.unwrap();
        assert!(done.failed.is_empty() && done.needs_restart.is_empty());
        done.changes
    }

    /// The session as one side sees it.
    fn session(gateway: &Gateway) -> Session {
        let mut sessions = gateway.report().sessions;
        assert_eq!(sessions.len(), 1, "one session all the time");
        sessions.remove(0)
    }

    fn near_path(&self, name: &str) -> Option<Path> {
        let mut paths = Self::session(&self.near).paths.into_iter();
        paths.find(|path| path.name == name)
    }

    fn cost(path: &Path) -> Option<f64> {
        path.figures.as_ref().and_then(|figures| figures.cost)
    }

    async fn end(self) {
        tokio::join!(self.near.shutdown(), self.far.shutdown());
    }
}

#[test]
fn a_cost_is_changed_on_the_living_path_at_both_ends() {
    run(async {
        let both = |cost: &str, far: &[SocketAddr]| {
            path("a", far[0], cost) + &path("b", far[1], "cost = 1")
        };
        let mut pair = Changing::start(|far| both("cost = 1", far)).await;
        let addresses = pair.far.listen_addresses();
        until(|| {
            Changing::session(&pair.near)
                .paths
                .iter()
                .all(|path| path.state == "up")
        })
        .await;
        let sent = |pair: &Changing| {
            let path = pair.near_path("a").unwrap();
            path.figures.unwrap().bytes_sent
        };
        let before = sent(&pair);

        let done = pair.change(both("cost = 2", &addresses)).await;
        assert_eq!(done.len(), 1, "{done:?}");
        until(|| pair.near_path("a").and_then(|path| Changing::cost(&path)) == Some(2.0)).await;
        until(|| {
            let paths = Changing::session(&pair.far).paths;
            let path = paths.iter().find(|path| path.name == "a").unwrap();
            Changing::cost(path) == Some(2.0)
        })
        .await;
        assert!(sent(&pair) >= before, "the path is another one");
        pair.end().await;
    });
}

#[test]
fn paths_come_and_go_and_move_while_the_session_lives() {
    run(async {
        let mut pair = Changing::start(|far| path("a", far[0], "")).await;
        let far = pair.far.listen_addresses();
        let names_up = |gateway: &Gateway| {
            let paths = Changing::session(gateway).paths.into_iter();
            let up = paths.filter(|path| path.state != "down");
            up.map(|path| path.name).collect::<Vec<_>>()
        };
        // One more.
        pair.change(path("a", far[0], "") + &path("b", far[1], ""))
            .await;
        until(|| names_up(&pair.near) == ["a", "b"] && names_up(&pair.far) == ["a", "b"]).await;
        // Another controller in its place, and nothing else.
        pair.change(path("a", far[0], "controller = \"cubic\"") + &path("b", far[1], ""))
            .await;
        until(|| pair.near_path("a").unwrap().controller == "cubic").await;
        assert_eq!(names_up(&pair.near), ["a", "b"]);
        // The first goes; the second moves to where the first was, over an interface of its own.
        pair.change(path("b", far[0], "interface = \"lo\"")).await;
        until(|| {
            let paths = Changing::session(&pair.near).paths;
            paths.len() == 1 && paths[0].remote == far[0].to_string() && paths[0].state == "up"
        })
        .await;
        until(|| names_up(&pair.far) == ["b"]).await;
        // The only one is called otherwise.
        pair.change(path("c", far[1], "")).await;
        until(|| names_up(&pair.near) == ["c"] && names_up(&pair.far) == ["c"]).await;
        pair.change(path("c", far[1], "")).await;
        pair.end().await;
    });
}

/// A path whose new home does not answer must not take the only one that does with it.
#[test]
fn the_last_path_stays_until_the_one_in_its_place_is_up() {
    run(async {
        let mut pair = Changing::start(|far| path("a", far[0], "")).await;
        let far = pair.far.listen_addresses();
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let nowhere = silent.local_addr().unwrap();
        for _ in 0..2 {
            pair.change(path("a", nowhere, "")).await;
            until(|| {
                let paths = Changing::session(&pair.near).paths;
                let up = paths.iter().filter(|path| path.state != "down");
                up.map(|path| path.remote.clone()).eq([far[0].to_string()])
                    && paths.iter().any(|path| path.remote == nowhere.to_string())
            })
            .await;
        }
        pair.change(path("a", far[1], "")).await;
        until(|| {
            let paths = Changing::session(&pair.near).paths;
            paths.len() == 1 && paths[0].remote == far[1].to_string() && paths[0].state == "up"
        })
        .await;
        pair.end().await;
    });
}
