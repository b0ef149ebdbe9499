//! TCP connections of applications between two gateways, along three relays.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use starhaul_replay::Emulator;

use super::nodes::{Folder, Running, lossy};
use crate::program::{free, path};

/// A gateway for applications at `near`, three relays, and a gateway beside the targets.
struct Chain {
    near: SocketAddr,
    _programs: Vec<Running>,
    _links: Vec<Emulator>,
    _folder: Folder,
}

const KEYS: [&str; 4] = ["a.key", "b.key", "c.key", "d.key"];

impl Chain {
    fn start(target: SocketAddr) -> Self {
        let folder = Folder::new();
        let (far_at, near) = (free(), free());
        let mut programs = Vec::new();
        let gateway = |name: &str, neighbour: &str, rest: &str| {
            let file = folder.at(&format!("{name}.toml"));
            let key = folder.at(&format!("{name}.key"));
            let made = crate::program::run(&["keygen", "--out", path(&key)]);
            assert!(made.status.success());
            let text = format!(
                "control = \"off\"\n[identity]\nfile = \"{name}.key\"\n\
                 [leotp]\nsecret = \"secret\"\n{neighbour}\n{rest}"
            );
            fs::write(&file, text).unwrap();
            Running::start(&["gateway", "--config", path(&file)], "ends a chain")
        };
        let neighbour = format!(
            "listen = \"{far_at}\"\n[[leotp.neighbour]]\nname = \"relay\"\nkey = \"{}\"",
            KEYS[3]
        );
        let egress = "[egress]\nallow = [\"127.0.0.0/8:*\"]\n";
        programs.push(gateway("far", &neighbour, egress));
        let mut links = Vec::new();
        let mut toward = far_at;
        for hop in (0..3).rev() {
            let link = lossy(hop as u64 + 10, toward);
            let keys = [KEYS[hop + 1], KEYS[hop]];
            let at = link.relays()[0].address();
            let relay = folder.relay(&format!("relay{hop}"), free(), keys, at);
            toward = relay.address;
            links.push(link);
            programs.push(relay);
        }
        let link = lossy(20, toward);
        let neighbour = format!(
            "listen = \"{}\"\nupstream = \"relay\"\n\
             [[leotp.neighbour]]\nname = \"relay\"\naddress = \"{}\"\nkey = \"{}\"",
            free(),
            link.relays()[0].address(),
            KEYS[0]
        );
        let rule = format!(
            "[[tcp]]\nname = \"r\"\nlisten = \"{near}\"\nservice = \"leotp\"\ntarget = \"{target}\"\n"
        );
        programs.push(gateway("near", &neighbour, &rule));
        links.push(link);
        Self {
            near,
            _programs: programs,
            _links: links,
            _folder: folder,
        }
    }
}

/// A server that sends back what comes, and ends when that ends.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming() {
            let mut tcp = tcp.unwrap();
            tcp.set_nodelay(true).unwrap();
            thread::spawn(move || {
                let mut reader = tcp.try_clone().unwrap();
                let _ = std::io::copy(&mut reader, &mut tcp);
                let _ = tcp.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

#[test]
fn bulk_and_dialogue_cross_lossy_hops_intact() {
    let chain = Chain::start(echo());
    let connect = || {
        let tcp = TcpStream::connect(chain.near).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        tcp
    };
    // Up and down at once.
    let content: Vec<u8> = (0..3_000_000_usize)
        .map(|i| (i.wrapping_mul(40_503) >> 7).to_le_bytes()[0])
        .collect();
    let mut bulk = connect();
    let mut sender = bulk.try_clone().unwrap();
    let sent = content.clone();
    let sending = thread::spawn(move || {
        sender.write_all(&sent).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    bulk.read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert!(back == content, "{} bytes came back", back.len());
    // A dialogue: each message is answered before the next is sent.
    let mut dialogue = connect();
    let mut times = Vec::new();
    for number in 0..200_u32 {
        let message = [number.to_le_bytes(); 16].concat();
        let began = Instant::now();
        dialogue.write_all(&message).unwrap();
        let mut answer = [0; 64];
        dialogue.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..], message[..]);
        times.push(began.elapsed());
    }
    times.sort_unstable();
    // Four hops of 8 ms there and back; the figure is for people, the bound is for what hangs.
    println!(
        "a message and its answer: median {:?}, p99 {:?}, greatest {:?}",
        times[100], times[197], times[199]
    );
    assert!(times[100] < Duration::from_secs(1), "{:?}", times[100]);
}
