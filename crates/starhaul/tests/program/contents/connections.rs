//! TCP connections of applications between two gateways, along three relays.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use starhaul_needs::{Need, skip};
use starhaul_replay::Emulator;

use super::{
    http::Server,
    nodes::{Folder, Running, lossy_of},
};
use crate::program::{free, path, text};

/// A gateway for applications, at `near` as the target and at `socks5` as a proxy, three relays, and a gateway beside the targets.
struct Chain {
    near: SocketAddr,
    socks5: SocketAddr,
    _programs: Vec<Running>,
    _links: Vec<Emulator>,
    folder: Folder,
}

const KEYS: [&str; 4] = ["a.key", "b.key", "c.key", "d.key"];
/// Links of a chain.
const HOPS: u32 = 4;

impl Chain {
    /// Over links of so many ms one way.
    fn start(target: SocketAddr, delay_ms: u32) -> Self {
        let folder = Folder::new();
        let (far_at, near, socks5) = (free(), free(), free());
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
            let link = lossy_of(delay_ms, hop as u64 + 10, toward);
            let keys = [KEYS[hop + 1], KEYS[hop]];
            let at = link.relays()[0].address();
            let relay = folder.relay(&format!("relay{hop}"), free(), keys, at);
            toward = relay.address;
            links.push(link);
            programs.push(relay);
        }
        let link = lossy_of(delay_ms, 20, toward);
        let neighbour = format!(
            "listen = \"{}\"\nupstream = \"relay\"\n\
             [[leotp.neighbour]]\nname = \"relay\"\naddress = \"{}\"\nkey = \"{}\"",
            free(),
            link.relays()[0].address(),
            KEYS[0]
        );
        let rules = format!(
            "[[tcp]]\nname = \"r\"\nlisten = \"{near}\"\nservice = \"leotp\"\ntarget = \"{target}\"\n\
             [[socks5]]\nname = \"s\"\nlisten = \"{socks5}\"\nservice = \"leotp\"\n"
        );
        programs.push(gateway("near", &neighbour, &rules));
        links.push(link);
        Self {
            near,
            socks5,
            _programs: programs,
            _links: links,
            folder,
        }
    }

    fn connect(&self) -> TcpStream {
        let tcp = TcpStream::connect(self.near).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        tcp
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
    let chain = Chain::start(echo(), 4);
    // Up and down at once.
    let content: Vec<u8> = (0..3_000_000_usize)
        .map(|i| (i.wrapping_mul(40_503) >> 7).to_le_bytes()[0])
        .collect();
    let mut bulk = chain.connect();
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
    let times = dialogue(chain.connect(), 200);
    // Four hops of 8 ms there and back; the figure is for people, the bound is for what hangs.
    println!(
        "a message and its answer: median {:?}, p99 {:?}, greatest {:?}",
        times[100], times[197], times[199]
    );
    assert!(times[100] < Duration::from_secs(1), "{:?}", times[100]);
}

/// How long messages take to be answered, one after the other, in ascending order.
fn dialogue(mut tcp: TcpStream, messages: u32) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..messages {
        let message = [number.to_le_bytes(); 16].concat();
        let began = Instant::now();
        tcp.write_all(&message).unwrap();
        let mut answer = [0; 64];
        tcp.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..], message[..]);
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times
}

/// A thread of ordinary priority that sleeps again and again: a message and its answer wait for ten programs that do.
struct Sleeper {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Sleeper {
    const SLEEP: Duration = Duration::from_millis(5);

    fn start() -> Self {
        let over = Arc::<AtomicBool>::default();
        let told = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut late = Vec::new();
            while !told.load(Ordering::Relaxed) {
                let asleep = Instant::now();
                thread::sleep(Self::SLEEP);
                late.push(asleep.elapsed().saturating_sub(Self::SLEEP));
            }
            late.sort_unstable();
            late
        });
        Self { over, thread }
    }

    /// Whether it was woken in time, so that what programs take is that of the links.
    fn was_quiet(self) -> bool {
        self.over.store(true, Ordering::Relaxed);
        let late = self.thread.join().unwrap();
        let most = |share: usize| late[(late.len() * share / 100).min(late.len() - 1)];
        println!("woken late: 99 % by {:?}, all by {:?}", most(99), most(100));
        most(99) < Duration::from_micros(500) && most(100) < Duration::from_millis(5)
    }
}

/// A loss costs a round trip of its hop, not of the path. One message of 400 has two losses on its way there and back.
#[test]
fn a_message_that_is_lost_on_a_hop_waits_for_that_hop_alone() {
    const DELAY_MS: u32 = 10;
    let chain = Chain::start(echo(), DELAY_MS);
    // The first message opens the connection, and hops are unknown then.
    let connections: [TcpStream; 8] = std::array::from_fn(|_| {
        let mut tcp = chain.connect();
        tcp.write_all(b"!").unwrap();
        tcp.read_exact(&mut [0]).unwrap();
        tcp
    });
    let sleeper = Sleeper::start();
    let talking = connections.map(|tcp| thread::spawn(move || dialogue(tcp, 100)));
    let mut times = talking.map(|talking| talking.join().unwrap()).concat();
    let is_quiet = sleeper.was_quiet();
    times.sort_unstable();
    let count = times.len();
    let (median, p99) = (times[count / 2], times[count - 1 - count / 100]);
    println!("{count} messages: median {median:?}, p99 {p99:?}");
    let hop = Duration::from_millis(2) * DELAY_MS;
    assert!(times[0] >= hop * HOPS, "{:?}", times[0]);
    let bound = match is_quiet {
        true => hop * (HOPS + 2),
        // It is for what hangs.
        false => Duration::from_secs(5),
    };
    assert!(p99 <= bound, "{p99:?} of {bound:?}, median {median:?}");
}

/// The program with these arguments, without the settings of the user who runs the test.
fn curl(arguments: &[&str]) -> Child {
    let mut command = Command::new("curl");
    command.args(["-q", "-sS", "--fail", "--max-time", "300"]);
    for proxy in ["http_proxy", "all_proxy", "ALL_PROXY", "no_proxy"] {
        command.env_remove(proxy);
    }
    command.args(arguments).stdin(Stdio::null());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn succeeds(curl: Child) {
    let output = curl.wait_with_output().unwrap();
    assert!(output.status.success(), "curl: {}", text(&output.stderr));
}

/// An application that knows nothing of all this, over TCP that is led to its target, and over a proxy.
#[test]
fn curl_downloads_and_uploads_intact() {
    if let Err(error) = Command::new("curl").arg("--version").output() {
        return skip(Need::Curl, error);
    }
    let content = |factor: usize| -> Vec<u8> {
        let byte = |i: usize| (i.wrapping_mul(factor) >> 7).to_le_bytes()[0];
        (0..10_000_000).map(byte).collect()
    };
    let (down, up) = (content(40_503), content(60_493));
    let server = Server::start(down.clone());
    let chain = Chain::start(server.address, 4);
    let file = |name: &str| chain.folder.at(name);
    fs::write(file("up"), &up).unwrap();
    let url = |at: SocketAddr| format!("http://{at}/content");
    // Both at once: they do not share a direction.
    let led = url(chain.near);
    let (fetched, sent) = (file("fetched"), file("up"));
    let both = [
        curl(&["-o", path(&fetched), &led]),
        curl(&["-T", path(&sent), &led]),
    ];
    both.into_iter().for_each(succeeds);
    assert!(fs::read(&fetched).unwrap() == down, "a download");
    assert!(server.take_uploads() == [&up[..]], "an upload");
    let (proxy, target) = (chain.socks5.to_string(), url(server.address));
    let fetched = file("fetched by proxy");
    let by_proxy = ["--socks5-hostname", &proxy, "-o", path(&fetched), &target];
    succeeds(curl(&by_proxy));
    assert!(fs::read(&fetched).unwrap() == down, "a download by a proxy");
}
