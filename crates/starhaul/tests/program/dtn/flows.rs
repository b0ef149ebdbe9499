//! Applications between two gateways whose flows travel as bundles, through an outage, and with programs that are killed.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::Duration,
};

use super::{Process, starhaul, wait_for_socket};
use crate::program::{PATIENCE, free, path, wait_for};

/// A lander with applications and a station with their targets: a bundle node and a gateway at each.
struct Site {
    folder: tempfile::TempDir,
    nodes: [Process; 2],
    gateways: [Option<Child>; 2],
    /// Where applications find the near gateway, by rule.
    rules: Vec<(&'static str, SocketAddr)>,
}

const NAMES: [&str; 2] = ["lander", "station"];

impl Site {
    /// `rules` are kinds of rules, names, and targets; `plan` are contacts.
    fn start(rules: &[(&str, &'static str, SocketAddr)], plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addresses = [free(), free()];
        let nodes = [0, 1].map(|side: usize| {
            let (own, other) = (side + 1, 2 - side);
            let at = folder.path().join(NAMES[side]);
            fs::create_dir_all(&at).unwrap();
            let text = format!(
                "node = \"ipn:{own}.0\"\ncontrol = \"control.sock\"\n{plan}\n[ltp]\nlisten = \"{}\"\n\
                 [[ltp.peer]]\nnode = \"ipn:{other}.0\"\naddress = \"{}\"\n",
                addresses[side],
                addresses[1 - side]
            );
            fs::write(at.join("node.toml"), text).unwrap();
            Process::start(&at)
        });
        let mut near = String::new();
        let mut known = Vec::new();
        for (kind, name, target) in rules {
            let listen = free();
            known.push((*name, listen));
            let rest = match *kind {
                "socks5" => String::new(),
                "udp" => format!("target = \"{target}\"\nordered = true\n"),
                _ => format!("target = \"{target}\"\n"),
            };
            near += &format!(
                "[[{kind}]]\nname = \"{name}\"\nlisten = \"{listen}\"\nservice = \"bundle\"\n{rest}"
            );
        }
        let far = "[egress]\nallow = [\"127.0.0.0/8:*\"]\n";
        for (side, rest) in [(0, near.as_str()), (1, far)] {
            let at = folder.path().join(NAMES[side]);
            let key = at.join("gateway.key");
            assert!(
                crate::program::run(&["keygen", "--out", path(&key)])
                    .status
                    .success()
            );
            let text = format!(
                "control = \"gateway.sock\"\n[identity]\nfile = \"gateway.key\"\n\
                 [bundle]\nsocket = \"control.sock\"\n\
                 [[bundle.peer]]\nname = \"other\"\nendpoint = \"ipn:{}.0\"\n{rest}",
                2 - side
            );
            fs::write(at.join("gateway.toml"), text).unwrap();
        }
        let mut site = Self {
            folder,
            nodes,
            gateways: [None, None],
            rules: known,
        };
        site.nodes.iter().for_each(wait_for_socket);
        site.start_gateway(0);
        site.start_gateway(1);
        site
    }

    fn at(&self, side: usize, file: &str) -> PathBuf {
        self.folder.path().join(NAMES[side]).join(file)
    }

    /// Starts a gateway, and waits until its bundle node serves it.
    fn start_gateway(&mut self, side: usize) {
        let config = self.at(side, "gateway.toml");
        let child = starhaul()
            .args(["gateway", "--config"])
            .arg(config)
            .spawn()
            .unwrap();
        self.gateways[side] = Some(child);
        wait_for("the node serves the gateway", || {
            let status = self.status(side)?;
            status["bundle"]["endpoint"].as_str().map(ToOwned::to_owned)
        });
    }

    fn kill_gateway(&mut self, side: usize) {
        if let Some(mut child) = self.gateways[side].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn status(&self, side: usize) -> Option<serde_json::Value> {
        json(
            starhaul()
                .args(["status", "--json", "--socket"])
                .arg(self.at(side, "gateway.sock")),
        )
    }

    fn node_status(&self, side: usize) -> Option<serde_json::Value> {
        let socket = self.at(side, "control.sock");
        json(
            starhaul()
                .args(["dtn", "status", "--json", "--socket"])
                .arg(socket),
        )
    }

    fn rule(&self, name: &str) -> SocketAddr {
        let found = self.rules.iter().find(|(known, _)| *known == name);
        found.unwrap().1
    }

    fn connect(&self, rule: &str) -> TcpStream {
        let tcp = TcpStream::connect(self.rule(rule)).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill_gateway(0);
        self.kill_gateway(1);
    }
}

fn json(command: &mut Command) -> Option<serde_json::Value> {
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i.wrapping_mul(40_503) >> 7).to_le_bytes()[0])
        .collect()
}

/// A server that reads all, and then says how much it was; gives what came of its only connection.
fn sink() -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = thread::spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        let mut all = Vec::new();
        tcp.read_to_end(&mut all).unwrap();
        tcp.write_all(format!("have {}", all.len()).as_bytes())
            .unwrap();
        all
    });
    (address, served)
}

/// A server that sends back what comes.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            thread::spawn(move || {
                let mut reader = tcp.try_clone().unwrap();
                let _ = std::io::copy(&mut reader, &mut tcp);
                let _ = tcp.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

fn dialogue(tcp: &mut TcpStream, message: &[u8]) {
    tcp.write_all(message).unwrap();
    let mut answer = vec![0; message.len()];
    tcp.read_exact(&mut answer).unwrap();
    assert_eq!(answer, message);
}

/// Now, in whole seconds.
fn date() -> String {
    let date = Command::new("date")
        .args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])
        .output();
    String::from_utf8(date.unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn an_upload_and_datagrams_survive_an_outage_of_the_contact() {
    const STEPS: usize = 300;
    const STEP: Duration = Duration::from_millis(80);
    let (upload_target, uploaded) = sink();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let datagram_target = receiver.local_addr().unwrap();
    let contact = |start: &str, end: &str| {
        format!(
            "[[contact]]\nfrom = \"ipn:1.0\"\nto = \"ipn:2.0\"\nstart = \"{start}\"\nend = \"{end}\"\n\
             rate = \"100mbit\"\nlight_time = \"1ms\"\n"
        )
    };
    let plan = format!(
        "epoch = \"{}\"\n{}{}",
        date(),
        contact("+0s", "+12s"),
        // So long that also a computer that is slow to start all sees it.
        contact("+24s", "+1h")
    );
    let rules = [
        ("tcp", "upload", upload_target),
        ("udp", "messages", datagram_target),
    ];
    let site = Site::start(&rules, &plan);
    // Both send all the time.
    let sent = content(STEPS * 10_000);
    let mut upload = site.connect("upload");
    let mut sender = upload.try_clone().unwrap();
    let bytes = sent.clone();
    let uploading = thread::spawn(move || {
        for part in bytes.chunks(bytes.len() / STEPS) {
            sender.write_all(part).unwrap();
            thread::sleep(STEP);
        }
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let messages = site.rule("messages");
    let sending = thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..u32::try_from(STEPS).unwrap() {
            socket.send_to(&number.to_be_bytes(), messages).unwrap();
            thread::sleep(STEP);
        }
    });
    // What is sent in the outage waits at the near node.
    wait_for("bundles wait for the contact", || {
        let status = site.node_status(0)?;
        let is_closed = status["neighbours"][0]["is_open"] == false;
        let waiting = status["stored"][0]["bundles"].as_u64()?;
        (is_closed && waiting > 3).then_some(())
    });
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..u32::try_from(STEPS).unwrap() {
        let mut datagram = [0; 100];
        // A computer that is held up for a moment interrupts a call that has a time limit.
        let length = loop {
            match receiver.recv(&mut datagram) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        assert_eq!(
            datagram[..length],
            number.to_be_bytes(),
            "datagram {number}"
        );
    }
    uploading.join().unwrap();
    sending.join().unwrap();
    let mut answer = String::new();
    upload.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, format!("have {}", sent.len()));
    assert!(uploaded.join().unwrap() == sent, "other bytes arrived");
    // Nothing follows.
    receiver
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(
        receiver.recv(&mut [0; 100]).is_err(),
        "a datagram came twice"
    );
    for side in [0, 1] {
        wait_for("the stream is forgotten", || {
            let status = site.status(side)?;
            (status["bundle"]["streams"] == 0).then_some(())
        });
        let status = site.status(side).unwrap();
        assert_eq!(status["bundle"]["streams_total"], 1);
        assert_eq!(status["bundle"]["streams_failed"], 0);
        assert_eq!(status["bundle"]["dropped"], 0);
    }
}

#[test]
fn killed_nodes_cost_nothing_and_killed_gateways_their_connections() {
    let target = echo();
    let rules = [
        ("tcp", "echo", target),
        ("tcp", "nothing", free()),
        ("socks5", "proxy", target),
    ];
    let mut site = Site::start(&rules, "");
    let mut tcp = site.connect("echo");
    dialogue(&mut tcp, b"one");
    // A connection that the target refuses is reset.
    let refused = site.connect("nothing").read(&mut [0; 10]);
    assert!(refused.is_err(), "{refused:?}");
    // A node that is killed comes again, and the connection goes on.
    for side in [0, 1] {
        site.nodes[side].kill();
        tcp.write_all(b"two").unwrap();
        site.nodes[side].start_again();
        let mut answer = [0; 3];
        tcp.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"two");
    }
    // What was written to a far gateway that is gone is of no use to the next one.
    site.kill_gateway(1);
    tcp.write_all(b"lost").unwrap();
    site.start_gateway(1);
    let broken = tcp.read(&mut [0; 10]);
    assert!(broken.is_err(), "{broken:?}");
    let mut tcp = site.connect("echo");
    dialogue(&mut tcp, b"three");
    // The same of the near one.
    tcp.write_all(b"lost").unwrap();
    site.kill_gateway(0);
    site.start_gateway(0);
    let mut tcp = site.connect("echo");
    dialogue(&mut tcp, b"four");
    // By SOCKS5.
    let mut proxy = site.connect("proxy");
    proxy.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    proxy.read_exact(&mut method).unwrap();
    let port = target.port().to_be_bytes();
    let request = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat();
    proxy.write_all(&request).unwrap();
    let mut reply = [0; 10];
    proxy.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..2], [5, 0]);
    dialogue(&mut proxy, b"five");
}
