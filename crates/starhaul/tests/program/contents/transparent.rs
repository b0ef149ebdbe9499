//! A relay on a router that takes what passes to the server, and leaves nothing behind.

use std::{
    fs,
    net::SocketAddr,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use starhaul_needs::{Need, skip};
use starhaul_replay::NetworkNamespace;

use super::nodes::Folder;
use crate::program::{PATIENCE, path, starhaul, text};

/// A version of IP, and the addresses of a network that has no other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// The option of `ip`.
    fn option(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    /// An address on the near side, which is 1, or on the far one.
    fn address(self, side: u8, host: u8) -> String {
        match self {
            Self::V4 => format!("10.88.{side}.{host}"),
            Self::V6 => format!("fd88:{side}::{host}"),
        }
    }

    fn server(self) -> SocketAddr {
        let address = self.address(2, 2).parse().unwrap();
        SocketAddr::new(address, 4511)
    }

    /// The address at which a relay listens.
    fn listen(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0:4511",
            Self::V6 => "[::]:4511",
        }
    }
}

/// A requester and a server, and the router between them.
struct Network {
    family: Family,
    near: NetworkNamespace,
    router: NetworkNamespace,
    far: NetworkNamespace,
}

impl Network {
    /// None, with a reported reason, where the system does not allow it.
    fn create(family: Family) -> Option<Self> {
        let made: Result<Vec<_>, _> = (0..3).map(|_| NetworkNamespace::create()).collect();
        let network = made.map_err(|error| error.to_string()).and_then(|made| {
            let [near, router, far] = <[_; 3]>::try_from(made).map_err(|_| "not three")?;
            Ok(Self {
                family,
                near,
                router,
                far,
            })
        });
        let need = match family {
            Family::V4 => Need::Netns,
            Family::V6 => Need::Ipv6,
        };
        let network = network.map_err(|reason| (Need::Netns, reason));
        let network = network.and_then(|network| {
            network.connect().map_err(|reason| (need, reason))?;
            Ok(network)
        });
        let network = match network {
            Ok(network) => network,
            Err((need, reason)) => {
                skip(need, format!("with veth devices: {reason}"));
                return None;
            }
        };
        match network.try_rules() {
            Ok(()) => {
                network.settle();
                Some(network)
            }
            Err(reason) => {
                skip(Need::Nftables, reason);
                None
            }
        }
    }

    /// Whether this kernel can intercept at all.
    fn try_rules(&self) -> Result<(), String> {
        let ip = match self.family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        for rule in [
            "nft create table inet try",
            "nft create chain inet try passing { type filter hook prerouting priority mangle; }",
            &format!("nft add rule inet try passing udp dport 9 tproxy {ip} to :9 accept"),
            "nft delete table inet try",
        ] {
            run(&self.router, rule)?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<(), String> {
        let (ip, bits) = match self.family {
            Family::V4 => ("ip -4", "24"),
            // In use at once.
            Family::V6 => ("ip -6", "64 nodad"),
        };
        for (end, name, side) in [(&self.near, "near", 1), (&self.far, "far", 2)] {
            let (process, there) = (std::process::id(), end.as_fd().as_raw_fd());
            let pair = format!(
                "ip link add {name} type veth peer name wan netns /proc/{process}/fd/{there}"
            );
            run(&self.router, &pair)?;
            for (namespace, device, host) in [(&self.router, name, 1), (end, "wan", 2)] {
                if self.family == Family::V6 {
                    // The kernel's own link-local address would come after a second. Without one a router asks for no neighbour on behalf of
                    // what it forwards or sends in another one's name.
                    for command in [
                        format!("ip link set {device} addrgenmode none"),
                        format!("ip -6 address add fe80::{host}/64 dev {device} nodad"),
                    ] {
                        run(namespace, &command)?;
                    }
                }
                let address = self.family.address(side, host) + "/" + bits;
                // The options of an address follow the device.
                let (address, options) = address.split_once(' ').unwrap_or((address.as_str(), ""));
                let add = format!("{ip} address add {address} dev {device} {options}");
                run(namespace, &add)?;
                run(namespace, &format!("ip link set {device} up"))?;
            }
            let router = self.family.address(side, 1);
            run(end, &format!("{ip} route add default via {router}"))?;
        }
        run(&self.router, "ip link set lo up")?;
        let forwarding = match self.family {
            Family::V4 => "/proc/sys/net/ipv4/ip_forward",
            Family::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
        };
        let forwarded = self.router.inside(|| fs::write(forwarding, "1"));
        forwarded.map_err(|error| format!("{forwarding}: {error}"))
    }

    /// Waits until the links are up: routes over them change with that.
    fn settle(&self) {
        until("links that are up", || {
            let rules = self.rules();
            let multicast = |device: &str| rules.contains(&format!("ff00::/8 dev {device}"));
            let is_ready = self.family == Family::V4 || multicast("near") && multicast("far");
            is_ready && !rules.contains("linkdown")
        });
    }

    /// All rules of the router that a relay could add.
    fn rules(&self) -> String {
        let ip = self.family.option();
        [
            "nft list ruleset",
            &format!("ip {ip} rule show"),
            &format!("ip {ip} route show table all"),
        ]
        .map(|command| run(&self.router, command).unwrap())
        .concat()
    }

    /// Rules of others: a table, and rules and routes of two numbers, the second of which is the first that a relay would take.
    fn add_foreign(&self) {
        let (ip, to) = match self.family {
            Family::V4 => ("ip -4", "198.51.100.0/24"),
            Family::V6 => ("ip -6", "2001:db8::/32"),
        };
        let mut commands = vec![
            "nft create table inet foreign".to_owned(),
            "nft create chain inet foreign passing { type filter hook prerouting priority mangle; }"
                .to_owned(),
            "nft add rule inet foreign passing udp dport 9 accept".to_owned(),
        ];
        for number in [77, 45110] {
            commands.push(format!("{ip} rule add fwmark {number} lookup {number}"));
            commands.push(format!("{ip} route add blackhole {to} table {number}"));
        }
        for command in commands {
            run(&self.router, &command).unwrap();
        }
    }

    /// Whether all that was there before still is, whatever else there is.
    fn still_has(&self, before: &str) -> bool {
        let rules = self.rules();
        let mut kept = before.lines();
        kept.all(|line| rules.lines().any(|rule| rule == line))
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
        "listen = \"{}\"\nupstream = \"up\"\n\
         [[neighbour]]\nname = \"up\"\naddress = \"{}\"\nkey = \"a.key\"\n\
         [[neighbour]]\nname = \"down\"\nkey = \"b.key\"\n",
        network.family.listen(),
        network.family.server()
    );
    fs::write(&file, config).unwrap();
    let owners = || network.rules().matches(" iif lo lookup main").count();
    let before = owners();
    let relay = starhaul(&["relay", "--transparent", "--config", path(&file)]);
    let relay = Started::new(&network.router, relay);
    // It adds one after the other, this routing rule as the last.
    until("the relay's rules", || owners() > before);
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

/// A server of a folder's files, which has both keys.
fn serve(network: &Network, folder: &Folder) -> Started {
    let server = network.family.server().to_string();
    let [secret, files, ours, other] =
        ["secret", "files", "a.key", "b.key"].map(|it| folder.at(it));
    let serve = starhaul(&[
        "serve",
        path(&files),
        "--listen",
        &server,
        "--secret",
        path(&secret),
        "--key",
        path(&ours),
        "--key",
        path(&other),
    ]);
    Started::new(&network.far, serve)
}

/// The requester knows the server only, and both have a key for each other: where a relay stands between them, it serves; where it
/// is killed, they go on without it; and no rule outlives it, nor is one of others touched.
#[test]
fn a_relay_appears_in_the_way_and_vanishes_during_a_transfer() {
    let Some(network) = Network::create(Family::V4) else {
        return;
    };
    let folder = Folder::new();
    // More than what comes while a relay starts on a busy computer.
    let whole = folder.write("files/whole", 200_000_000);
    let _server = serve(&network, &folder);
    network.add_foreign();
    let untouched = network.rules();

    let into = folder.at("into");
    fs::create_dir(&into).unwrap();
    let first = relay(&network, &folder);
    let mut fetch = folder.fetch("whole", network.family.server(), "b.key", &into);
    let mut fetch = network.near.inside(|| fetch.spawn()).unwrap();
    until("a sixth through the relay", || {
        fetched_bytes(&into) > 10_000_000
    });
    assert!(taken(&network) > 100, "{}", network.rules());
    assert!(network.still_has(&untouched), "{}", network.rules());

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

#[test]
fn a_relay_in_the_way_of_ipv6_serves_and_leaves_nothing() {
    let Some(network) = Network::create(Family::V6) else {
        return;
    };
    let folder = Folder::new();
    let whole = folder.write("files/whole", 10_000_000);
    let _server = serve(&network, &folder);
    network.add_foreign();
    let untouched = network.rules();
    let relay = relay(&network, &folder);
    let into = folder.at("into");
    fs::create_dir(&into).unwrap();
    let mut fetch = folder.fetch("whole", network.family.server(), "b.key", &into);
    let output = network.near.inside(|| fetch.output()).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(into.join("whole")).unwrap() == whole);
    assert!(taken(&network) > 100, "{}", network.rules());
    assert!(network.still_has(&untouched), "{}", network.rules());
    drop(relay);
    until("the rules to go", || network.rules() == untouched);
}
