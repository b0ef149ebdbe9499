//! The keys of a gateway's configuration that stand in no file of their own: of the top, of peers and sessions, of the rules for
//! local applications, and of what peers may reach.

use std::{ops::RangeInclusive, time::Duration};

use starhaul_config::{Definition, Example, Key, definition::names};
use starhaul_quic::{LEAST_PACKET_BYTES, MOST_PACKET_BYTES};
use starhaul_session::SchedulerChoice;

use super::{
    SessionLimits, accept, bundle, controllers,
    delivery::{
        BANDWIDTH, DEADLINE, DEADLINE_OF_CALLS, MAX_CODING_RATE, MODE, ORDERED, ORDERED_FRAMES,
        PRIORITY,
    },
    detection, leotp, service, transparent, tunnels,
};
use crate::{egress_policy::EgressLimits, rtp::Codec};

/// Names further files.
pub(super) const INCLUDE: &str = "include";

pub(super) const CODECS: [(&str, Codec); 4] = [
    ("none", Codec::None),
    ("audio", Codec::Audio),
    ("h264", Codec::H264),
    ("h265", Codec::H265),
];
const CODEC_NAMES: [&str; CODECS.len()] = names(&CODECS);

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// How long a client or a connection may be silent.
pub(super) const LONGEST_IDLE_TIMEOUT: Duration = Duration::from_secs(86_400);
const IDLE_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(100)..=LONGEST_IDLE_TIMEOUT;
const SESSION_BYTES: RangeInclusive<u64> = 1 << 20..=64 << 30;
const LIMITS: SessionLimits = SessionLimits::DEFAULT;
const EGRESS_LIMITS: EgressLimits = EgressLimits::DEFAULT;

pub(super) static TOP: Definition = Definition {
    introduction: "A Starhaul gateway. Check with: starhaul gateway check FILE\n\
        Durations: 800ms, 3s, 2min. Rates: 64kbit, 15mbit. Commented keys show their defaults or further possibilities.",
    keys: &[&[
        Key::texts(INCLUDE, "files")
            .such_as("[\"rules.d/*.toml\"]")
            .means("[Further files](#further-files-secrets-and-variables) beside this one, whose keys and tables are added to these; one `*` in the last part of a name."),
        Key::texts("listen", "addresses")
            .such_as("[\"0.0.0.0:4600\", \"[::]:4600\"]")
            .means("UDP addresses on which peers may open sessions and paths; a side that only opens sessions itself needs none. An IPv6 wildcard takes no IPv4: write both. Port 0 lets the kernel choose."),
        Key::text("control", "file or `\"off\"`")
            .or_none("see below")
            .such_as("\"/run/starhaul/control.sock\"")
            .means("Local socket that `starhaul status` queries; only its owner and root may."),
        Key::text("control_group", "text")
            .or_none("none")
            .such_as("\"adm\"")
            .means("Group, by its name in `/etc/group` or its number, whose members may read the status from that socket. [Changes](operate.md#who-may) stay with the owner and root."),
        Key::text("metrics", "address")
            .or_none("none")
            .such_as("\"127.0.0.1:9464\"")
            .means("TCP address of [metrics and the live page](operate.md) over HTTP, without a password. One that others reach causes a warning. Port 0 lets the kernel choose; `status` shows it."),
        Key::text("state", "file")
            .or_none("none")
            .such_as("\"/var/lib/starhaul\"")
            .means("Folder of what outlives the gateway: counts of [quotas](operate.md#quotas) and orders with [`--keep`](operate.md#change-paths-while-it-runs). It is made if it is not there; one gateway at a time. The units of the package have `/var/lib/starhaul` for it. A change needs a restart."),
        Key::whole("packet_bytes", LEAST_PACKET_BYTES as u64..=MOST_PACKET_BYTES as u64)
            .or_count(MOST_PACKET_BYTES as u64)
            .means("Greatest UDP payload of our packets. Each path begins with 1200 bytes and finds its limit by probing (IPv4 adds 28 bytes and IPv6 48; tunnels and mobile networks often leave less than 1500), also when it falls later; `status` shows the present size. Applies to packets that *we* send; both sides may differ."),
        Key::duration("keepalive", SECOND..=Duration::from_secs(60))
            .or_duration(Duration::from_secs(5))
            .means("Interval of probes on an idle path, by which its failure is detected. It determines [the cost of an idle path](gateway.md#what-an-idle-path-costs). The shorter value of both sides applies."),
        Key::words("scheduler", &SchedulerChoice::NAMES)
            .or(SchedulerChoice::Rules.name())
            .means("Who chooses the path of each packet that *we* send in a session. [Rules](deadlines.md#by-rules), or [a plan](deadlines.md#by-a-plan) that divides the blocks over the paths by their deadlines, losses and costs."),
        Key::rate("budget")
            .or_none("none")
            .such_as("\"2mbit\"")
            .means("What all paths with a `cost` may carry together of what *we* send in a session, each byte times the `cost` of its path: 2mbit is 2 Mbit/s over a path of cost 1, or 1 Mbit/s over one of cost 2. [What it does](deadlines.md#within-a-budget)."),
        Key::whole("max_streams", 16..=65_536)
            .or_count(LIMITS.max_streams as u64)
            .means("Streams that each side may have open in a session. A TCP connection is one, a UDP client one in each direction. A reliable stream may hold 64 KiB for a slow reader beyond `max_receive_bytes`, so 65536 of them may take 4 GiB. Further streams are refused. The lesser of both sides' values applies."),
        Key::size("max_send_bytes", SESSION_BYTES)
            .or_count(LIMITS.max_send_bytes as u64)
            .means("Bytes of a session that wait for sending or acknowledgement. Beyond it blocks are refused and TCP is slowed."),
        Key::size("max_receive_bytes", SESSION_BYTES)
            .or_count(LIMITS.max_receive_bytes as u64)
            .means("Bytes of a session that wait for reassembly. Beyond it the oldest incomplete block is dropped, and TCP is slowed. As much again may wait for the sockets of targets, a sixteenth of it (at least 16 MiB) for each flow; then the oldest is dropped."),
        Key::table("identity", &IDENTITY).required().means("[This gateway's key](#identity)."),
        Key::tables("peer", &PEERS)
            .or_none("at least one, unless there is `[leotp]` or `[bundle]`")
            .means("[The known gateways](#peer)."),
        Key::tables("session", &SESSION).means("[Sessions that we open](#session)."),
        Key::table("accept", &accept::ACCEPT)
            .or_none("all defaults")
            .means("[Sessions that peers open](#accept)."),
        Key::tables("udp", &UDP).means("[Rules for datagrams](#udp) of local applications."),
        Key::tables("rtp", &RTP).means("[Rules for RTP](#rtp)."),
        Key::tables("tcp", &TCP).means("[Rules for TCP connections](#tcp)."),
        Key::tables("tproxy", &TPROXY).means("[Rules for TCP connections that pass this host](#tproxy)."),
        Key::tables("socks5", &SOCKS5).means("[SOCKS5 proxies](#socks5)."),
        Key::tables("tun", &tunnels::TUN).means("[IP tunnels to peers](#tun)."),
        Key::table("leotp", &leotp::LEOTP).means("[This gateway's end of a chain of relays](#leotp)."),
        Key::table("bundle", &bundle::BUNDLE)
            .means("[The bundle node that carries flows to gateways at other nodes](#bundle)."),
        Key::table("egress", &EGRESS)
            .or_none("nothing allowed")
            .means("[What peers may reach through us](#egress)."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("listen", "[\"0.0.0.0:4600\", \"[::]:4600\"]")],
    }],
};

static IDENTITY: Definition = Definition {
    introduction: "Who we are: make the file with `starhaul keygen --out gateway.key`. Relative files are sought beside this one.",
    keys: &[&[
        Key::text("file", "file")
            .or_none("required, or `secret`")
            .such_as("\"gateway.key\"")
            .means("The secret key as `starhaul keygen --out FILE` writes it. Also as `openssl genpkey -algorithm ed25519` does: Ed25519, PKCS#8, PEM."),
        Key::text("secret", "text")
            .or_none("required, or `file`")
            .such_as("\"…\"")
            .instead_of("file")
            .means("The same text in the configuration itself."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("file", "\"gateway.key\"")],
    }],
};

static PEERS: Definition = Definition {
    introduction: "The gateways we talk to, known by their keys; no others can connect.",
    keys: &[&[
        Key::text("name", "name")
            .such_as("\"ground\"")
            .means("Unique. For rules, status and log."),
        Key::text("public_key", "text")
            .such_as("\"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"")
            .means("As `starhaul keygen` and `starhaul pubkey FILE` print it. 44 characters of base64. Unique."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"ground\""),
            ("public_key", "\"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\""),
        ],
    }],
};

static SESSION: Definition = Definition {
    introduction: "A session that we open and keep open. All its paths are used at once; any of them may be down.",
    keys: &[&[
        Key::text("peer", "name")
            .or_none("the only peer")
            .such_as("\"ground\"")
            .means("The peer to connect to."),
        Key::tables("path", &PATH)
            .required()
            .means("[Its paths](#sessionpath), 1 to 16."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("peer", "\"ground\"")],
    }],
};

static PATH: Definition = Definition {
    introduction: "",
    keys: &[
        &[
            Key::text("name", "name")
                .such_as("\"leo\"")
                .means("Unique in its session. The peer sees it too."),
            Key::text("remote", "target")
                .such_as("\"192.0.2.1:4600\"")
                .means("The peer's address. A name is resolved when the session is opened, and every 10 s until that succeeds; its first address of a suitable IP version is used."),
            Key::text("local", "address, or an IP address alone, of the same IP version as `remote`")
                .or_none("the kernel's choice")
                .such_as("\"198.51.100.7\"")
                .means("Source address. It alone does not determine the network interface."),
            Key::text("interface", "interface")
                .or_none("none")
                .such_as("\"wlan0\"")
                .means("Network interface that all packets of the path must use (`SO_BINDTODEVICE`). Kernels before 5.7 demand `CAP_NET_RAW`."),
            Key::number("cost", 0.0..=1e12)
                .or_number(0.0)
                .means("Price per byte, used by both sides. By rules only the order of the paths' prices matters. [How it is used](deadlines.md#choice-of-path)."),
            Key::rate("limit")
                .or_none("none")
                .such_as("\"20mbit\"")
                .means("Greatest rate at which we send on it, UDP payload counted. The other direction is the peer's to limit, [also while it runs](operate.md#change-paths-while-it-runs)."),
        ],
        service::KEYS,
        &[detection::LINK, controllers::CONTROLLER],
        controllers::RATES,
        &[detection::DETECT],
        detection::KEYS,
    ],
    examples: &[
        Example {
            comment: "",
            written: &[
                ("name", "\"leo\""),
                ("remote", "\"192.0.2.1:4600\""),
                ("local", "\"198.51.100.7\""),
                ("cost", "0"),
                ("link", "\"leo\""),
            ],
        },
        Example {
            comment: "A link whose rate is known.",
            written: &[
                ("name", "\"geo\""),
                ("remote", "\"203.0.113.1:4600\""),
                ("cost", "1"),
                ("controller", "\"dedicated\""),
                ("rate", "\"10mbit\""),
                ("rate_feed", "\"/run/modem/rate\""),
            ],
        },
    ],
};

const NAME: Key = Key::text("name", "name")
    .such_as("\"web\"")
    .means("Unique among all rules. The peer sees it too.");
const LISTEN: Key = Key::text("listen", "address")
    .such_as("\"127.0.0.1:5000\"")
    .means("Local address for applications.");
pub(super) const PEER: Key = Key::text("peer", "name")
    .or_none("the only peer")
    .such_as("\"ground\"")
    .means("The peer that forwards the data. There must be a `[[session]]` to it, or `listen`, where it can open one.");
const TARGET: Key = Key::text("target", "target")
    .such_as("\"localhost:22\"")
    .means("Destination at the peer's side. Its `[egress]` must allow it. The peer resolves a name when a flow or a connection begins.");
const CLIENTS: &[Key] = &[
    Key::whole("max_clients", 1..=65_536)
        .or_count(1024)
        .means("Greatest number of client addresses at once. Beyond it a new one replaces a client whose requests were answered (see `answered_timeout`), else the client with the longest silence of at least a second. Otherwise its datagrams are dropped and counted."),
    Key::duration("idle_timeout", IDLE_TIMEOUTS)
        .or_duration(Duration::from_secs(120))
        .means("A client without datagrams in either direction for this long is removed. With `service = \"bundle\"` the default is `lifetime`, up to 24 h."),
    Key::duration("answered_timeout", IDLE_TIMEOUTS)
        .or_duration(Duration::from_secs(10))
        .means("The same for a client whose few datagrams were all answered. It sent at most four and got as many or more, as a query with its answer. Raise it for servers that send more much later."),
    Key::whole("max_queued", 16..=65_536)
        .or_count(1024)
        .means("Datagrams of one client that may wait for the session. They wait until it has taken those before them; more are dropped and counted as `refused`."),
];
const SERVICE_OF_DATAGRAMS: Key = Key::words("service", &leotp::DATAGRAM_CARRIER_NAMES)
    .or("session")
    .means("What carries the datagrams. The session with the peer, or [bundles](#bundle). With `bundle`, `peer` names a `[[bundle.peer]]`, and of the keys of delivery there is only `ordered`.");
const SERVICE: Key = Key::words("service", &leotp::CARRIER_NAMES)
    .or("session")
    .means("What carries the connections. The session with the peer, [a chain of LEOTP relays](#leotp), or [bundles](#bundle). With `leotp` there is neither `peer` nor `priority`, with `bundle` no `priority`, and `peer` names a `[[bundle.peer]]`. Either carries no datagrams.");
const CONNECTIONS: &[Key] = &[
    Key::whole("max_connections", 1..=65_536)
        .or_count(4096)
        .means("Connections at once; more wait in the kernel."),
    Key::duration("idle_timeout", IDLE_TIMEOUTS)
        .or_none("none")
        .such_as("\"12h\"")
        .means("A connection without data in either direction for this long is reset. It is on both sides. Without it only a connection with an unreachable end is: the kernel probes after 60 s of silence and gives up 60 s later."),
];

static UDP: Definition = Definition {
    introduction: "Local applications. Their targets are resolved and reached by the peer, whose [egress] must allow them.\n\
        Each UDP datagram is a block that arrives within its deadline or not at all. Replies travel back.",
    keys: &[
        &[
            NAME,
            LISTEN,
            PEER,
            TARGET,
            DEADLINE,
            PRIORITY,
            MODE,
            MAX_CODING_RATE,
            ORDERED,
            BANDWIDTH,
        ],
        &[SERVICE_OF_DATAGRAMS, bundle::LIFETIME],
        CLIENTS,
    ],
    examples: &[
        Example {
            comment: "",
            written: &[
                ("name", "\"telemetry\""),
                ("listen", "\"127.0.0.1:5000\""),
                ("peer", "\"ground\""),
                ("target", "\"127.0.0.1:6000\""),
                ("deadline", "\"800ms\""),
                ("priority", "1"),
            ],
        },
        Example {
            comment: "Datagrams that survive an outage of minutes: they travel as bundles, by the node of [bundle] below.",
            written: &[
                ("name", "\"log\""),
                ("listen", "\"127.0.0.1:5001\""),
                ("service", "\"bundle\""),
                ("peer", "\"base\""),
                ("target", "\"127.0.0.1:6001\""),
                ("lifetime", "\"2h\""),
                ("ordered", "true"),
            ],
        },
    ],
};

static RTP: Definition = Definition {
    introduction: "All RTP packets of one timestamp are a block, and an inter frame is not sent once its key frame is lost.",
    keys: &[
        &[NAME, LISTEN, PEER, TARGET, DEADLINE, PRIORITY],
        &[
            Key::words("codec", &CODEC_NAMES)
                .or("none")
                .means("Format of the payload. `h264`, `h265`: inter frames depend on their key frame. `audio`: each packet is a block."),
            Key::duration("frame_timeout", MILLISECOND..=SECOND)
                // Covers the pause between packets of a frame that its sender paces over two frame intervals.
                .or_duration(Duration::from_millis(50))
                .means("A frame without a marker bit ends after this time without packets."),
            MODE,
            MAX_CODING_RATE,
            ORDERED_FRAMES,
            BANDWIDTH,
        ],
        CLIENTS,
    ],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"camera\""),
            ("listen", "\"127.0.0.1:5004\""),
            ("peer", "\"ground\""),
            ("target", "\"media.example.org:5004\""),
            ("deadline", "\"3s\""),
            ("priority", "3"),
            ("codec", "\"h264\""),
        ],
    }],
};

static TCP: Definition = Definition {
    introduction: "A TCP port, carried reliably over all paths.",
    keys: &[
        &[
            NAME,
            LISTEN,
            PEER,
            TARGET,
            PRIORITY,
            SERVICE,
            bundle::LIFETIME,
        ],
        CONNECTIONS,
    ],
    examples: &[
        Example {
            comment: "",
            written: &[
                ("name", "\"ssh\""),
                ("listen", "\"127.0.0.1:2222\""),
                ("peer", "\"ground\""),
                ("target", "\"localhost:22\""),
                ("priority", "2"),
            ],
        },
        Example {
            comment: "A connection whose bytes travel as bundles stays open through outages of minutes.",
            written: &[
                ("name", "\"archive\""),
                ("listen", "\"127.0.0.1:8022\""),
                ("service", "\"bundle\""),
                ("peer", "\"base\""),
                ("target", "\"localhost:22\""),
                ("lifetime", "\"2h\""),
            ],
        },
    ],
};

static TPROXY: Definition = Definition {
    introduction: "TCP connections that pass this host, as on a router, are taken and carried to where they lead. Needs CAP_NET_ADMIN and nftables; the rules that it adds go when the gateway ends.",
    keys: &[
        &[NAME, transparent::LISTEN, PEER, PRIORITY],
        transparent::KEYS,
        &[SERVICE, bundle::LIFETIME],
        CONNECTIONS,
    ],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"lan\""),
            ("listen", "\"0.0.0.0:4700\""),
            ("peer", "\"ground\""),
            ("networks", "[\"10.20.0.0/16\"]"),
        ],
    }],
};

static SOCKS5: Definition = Definition {
    introduction: "A SOCKS5 proxy: TCP by CONNECT, UDP by UDP ASSOCIATE; names are resolved by the peer.",
    keys: &[
        &[
            NAME,
            LISTEN,
            PEER,
            PRIORITY,
            SERVICE,
            bundle::LIFETIME,
            Key::text("username", "text, 1 to 255 bytes")
                .or_none("none")
                .such_as("\"…\"")
                .means("Required of clients, with a password (RFC 1929). Both cross the local network unencrypted."),
            Key::text("password", "text, 1 to 255 bytes")
                .or_none("none")
                .such_as("\"…\"")
                .means("Belongs to `username`."),
            Key::text("password_file", "file")
                .or_none("none")
                .such_as("\"proxy.password\"")
                .instead_of("password")
                .means("[File](#further-files-secrets-and-variables) with the password in its first line, 1 to 255 bytes. Read at the start and at SIGHUP; under the packaged unit it is a credential, which systemd reads at the start alone: restart then."),
            DEADLINE_OF_CALLS,
            MODE,
            MAX_CODING_RATE,
            ORDERED,
            BANDWIDTH,
        ],
        CONNECTIONS,
    ],
    examples: &[Example {
        comment: "",
        written: &[
            ("name", "\"proxy\""),
            ("listen", "\"127.0.0.1:1080\""),
            ("peer", "\"ground\""),
            ("priority", "5"),
        ],
    }],
};

static EGRESS: Definition = Definition {
    introduction: "What peers may reach through us. Without this table: nothing.\n\
        Networks, addresses or names, and a port, a range of ports, or *. A name leads to public addresses only, unless the rule says \
        where else: nas.example.org=10.0.0.0/8:445. A network opens no names but localhost.",
    keys: &[&[
        Key::texts("allow", "rules")
            .such_as("[\"127.0.0.0/8:5000-6999\", \"*.example.org:443\"]")
            .means("Destinations that peers may reach through us."),
        Key::texts("deny", "rules")
            .such_as("[\"10.0.0.1/32:22\"]")
            .means("Exceptions from `allow`, also for names that lead there."),
        Key::texts("clients", "networks")
            .such_as("[\"10.30.0.0/16\"]")
            .means("Addresses from which peers may open TCP connections through us. For their `[[tproxy]]` with `keep_client`. Answers to them must come by this host. Needs `CAP_NET_ADMIN`, `nft` and `ip`."),
        Key::whole("max_streams", 1..=65_536)
            .or_count(EGRESS_LIMITS.max_streams as u64)
            .means("Greatest number of streams per session to our side. More are refused."),
        Key::whole("max_lookups", 1..=4096)
            .or_count(EGRESS_LIMITS.max_lookups as u64)
            .means("Greatest number of concurrent name lookups for peers. More are refused. Each uses a thread until the system's resolver returns."),
        Key::whole("max_targets", 1..=65_536)
            .or_count(EGRESS_LIMITS.max_targets as u64)
            .means("Greatest number of targets stored per UDP association. Each is for 60 s; beyond it the oldest is dropped."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            (
                "allow",
                "[\"127.0.0.0/8:5000-6999\", \"10.0.0.0/8:*\", \"[2001:db8::/32]:443\", \"*.example.org:443\"]",
            ),
            ("deny", "[\"10.0.0.1/32:22\"]"),
        ],
    }],
};
