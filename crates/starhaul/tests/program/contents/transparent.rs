//! A relay on a router that takes what passes to the server, and leaves nothing behind.

use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use starhaul_needs::{Need, skip};
use starhaul_replay::NetworkNamespace;

use super::nodes::Folder;
use crate::program::{path, starhaul, text};

const SERVER: &str = "10.88.2.2:4511";
/// Steps take longer on a busy computer; a wait beyond this fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A requester and a server, and the router between them.
struct Network {
    near: NetworkNamespace,
    router: NetworkNamespace,
    far: NetworkNamespace,
}

impl Network {
    /// None, with a reported reason, where the system does not allow it.
    fn create() -> Option<Self> {
        let made: Result<Vec<_>, _> = (0..3).map(|_| NetworkNamespace::create()).collect();
        let network = made.map_err(|error| error.to_string()).and_then(|made| {
            let [near, router, far] = <[_; 3]>::try_from(made).map_err(|_| "not three")?;
            let network = Self { near, router, far };
            network.connect()?;
            Ok(network)
        });
        let network = match network {
            Ok(network) => network,
            Err(reason) => {
                skip(Need::Netns, format!("with veth devices: {reason}"));
                return None;
            }
        };
        match network.try_rules() {
            Ok(()) => Some(network),
            Err(reason) => {
                skip(Need::Nftables, reason);
                None
            }
        }
    }

    /// Whether this kernel can intercept at all.
    fn try_rules(&self) -> Result<(), String> {
        for rule in [
            "nft create table inet try",
            "nft create chain inet try passing { type filter hook prerouting priority mangle; }",
            "nft add rule inet try passing udp dport 9 tproxy ip to :9 accept",
            "nft delete table inet try",
        ] {
            run(&self.router, rule)?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<(), String> {
        for (end, name, number) in [(&self.near, "near", 1), (&self.far, "far", 2)] {
            let (process, there) = (std::process::id(), end.as_fd().as_raw_fd());
            let pair = format!(
                "ip link add {name} type veth peer name wan netns /proc/{process}/fd/{there}"
            );
            run(&self.router, &pair)?;
            run(
                &self.router,
                &format!("ip address add 10.88.{number}.1/24 dev {name}"),
            )?;
            run(&self.router, &format!("ip link set {name} up"))?;
            run(end, &format!("ip address add 10.88.{number}.2/24 dev wan"))?;
            run(end, "ip link set wan up")?;
            run(end, &format!("ip route add default via 10.88.{number}.1"))?;
        }
        run(&self.router, "ip link set lo up")?;
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        let forwarded = self.router.inside(forward);
        forwarded.map_err(|error| format!("ip_forward: {error}"))
    }

    /// All rules of the router that a relay could add.
    fn rules(&self) -> String {
        [
            "nft list ruleset",
            "ip -4 rule show",
            "ip -4 route show table all",
        ]
        .map(|command| run(&self.router, command).unwrap())
        .concat()
    }
}

fn run(namespace: &NetworkNamespace, command: &str) -> Result<String, String> {
    let mut words = command.split_whitespace();
    let mut program = Command::new(words.next().unwrap_or_default());
    let output = namespace.inside(|| program.args(words).output());
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    match output.status.success() {
        true => Ok(text(&output.stdout).to_owned()),
        false => Err(format!("{command}: {}", text(&output.stderr).trim())),
    }
}

/// A program that ends with the test.
struct Started(Child);

impl Started {
    fn new(namespace: &NetworkNamespace, mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        Self(namespace.inside(|| command.spawn()).unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // SIGKILL: nothing of the program can clean up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn relay(network: &Network, folder: &Folder) -> Started {
    let file = folder.at("relay.toml");
    let config = format!(
        "listen = \"0.0.0.0:4511\"\nupstream = \"up\"\n\
         [[neighbour]]\nname = \"up\"\naddress = \"{SERVER}\"\nkey = \"a.key\"\n\
         [[neighbour]]\nname = \"down\"\nkey = \"b.key\"\n"
    );
    fs::write(&file, config).unwrap();
    let before = network.rules();
    let relay = starhaul(&["relay", "--transparent", "--config", path(&file)]);
    let relay = Started::new(&network.router, relay);
    until("the relay's rules", || network.rules() != before);
    relay
}

/// Packets that the relay took.
fn taken(network: &Network) -> u64 {
    let rules = run(&network.router, "nft list ruleset").unwrap();
    let mut words = rules
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    words.nth(1).map_or(0, |count| count.parse().unwrap())
}

fn fetched_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().flatten();
    files
        .map(|file| file.metadata().map_or(0, |data| data.len()))
        .sum()
}

/// The requester knows the server only, and both have a key for each other: where a relay stands between them, it serves; where it
/// is killed, they go on without it; and no rule outlives it.
#[test]
fn a_relay_appears_in_the_way_and_vanishes_during_a_transfer() {
    let Some(network) = Network::create() else {
        return;
    };
    let folder = Folder::new();
    // More than what comes while a relay starts on a busy computer.
    let whole = folder.write("files/whole", 200_000_000);
    let (secret, keys) = (
        folder.at("secret"),
        [folder.at("a.key"), folder.at("b.key")],
    );
    let files = folder.at("files");
    let server = [
        &[
            "serve",
            path(&files),
            "--listen",
            SERVER,
            "--secret",
            path(&secret),
        ][..],
        &["--key", path(&keys[0]), "--key", path(&keys[1])],
    ];
    let _server = Started::new(&network.far, starhaul(&server.concat()));
    let untouched = network.rules();

    let into = folder.at("into");
    fs::create_dir(&into).unwrap();
    let first = relay(&network, &folder);
    let mut fetch = folder.fetch("whole", SERVER.parse().unwrap(), "b.key", &into);
    let mut fetch = network.near.inside(|| fetch.spawn()).unwrap();
    until("a sixth through the relay", || {
        fetched_bytes(&into) > 10_000_000
    });
    assert!(taken(&network) > 100, "{}", network.rules());

    drop(first);
    until("the rules to go", || network.rules() == untouched);
    until("a third in all", || {
        fetched_bytes(&into) > 20_000_000 || fetch.try_wait().unwrap().is_some()
    });
    let second = relay(&network, &folder);
    until("the second relay to take over", || taken(&network) > 100);
    let output = fetch.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(into.join("whole")).unwrap() == whole);

    drop(second);
    until("the rules to go", || network.rules() == untouched);
}
