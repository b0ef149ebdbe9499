//! What a node's configuration may hold.

use std::ops::RangeInclusive;

use starhaul_config::{
    Definition, Example, Key,
    definition::{Preset, names},
};
use starhaul_ltp::{NumberWidth, Profile};
use starhaul_net::IoMode;

use super::one_way::WAY_NAMES;
use crate::{
    plan::{CONTACTS, EPOCH, LIGHT_TIME},
    priority::CLASS_NAMES,
};

/// Where bundles are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// On disk, with what is known of them in the log, or on another machine.
    Disk,
    /// On disk, with what is known of them in SQLite.
    Sqlite,
    Memory,
}

pub(super) const KINDS: [(&str, Kept); 3] = [
    ("disk", Kept::Disk),
    ("sqlite", Kept::Sqlite),
    ("memory", Kept::Memory),
];
const KIND_NAMES: [&str; KINDS.len()] = names(&KINDS);
const ON_DISK: &[(&str, &str)] = &[("kind", "\"disk\"")];
const PROFILE_NAMES: [&str; Profile::ALL.len()] = names(&Profile::ALL);
/// Which system calls carry segments.
pub(super) const MODES: [(&str, IoMode); IoMode::ALL.len()] = [
    (IoMode::Gso.name(), IoMode::Gso),
    (IoMode::Mmsg.name(), IoMode::Mmsg),
    (IoMode::Single.name(), IoMode::Single),
];
const MODE_NAMES: [&str; MODES.len()] = names(&MODES);
const NUMBER_NAMES: [&str; NumberWidth::ALL.len()] = names(&NumberWidth::ALL);
const ENGINES: RangeInclusive<u64> = 1..=u64::MAX;

pub(super) static TOP: Definition = Definition {
    introduction: "A bundle node. `starhaul dtn node --config FILE` runs it, `starhaul dtn check FILE` describes it.",
    keys: &[&[
        Key::texts("include", "files")
            .such_as("[\"neighbours.d/*.toml\"]")
            .means("Further files beside this one, whose keys and tables are added to these; one `*` in the last part of a name."),
        Key::text("node", "node")
            .such_as("\"ipn:1.0\"")
            .means("Its number (`ipn:1.0`) or its name (`dtn://lander/`)."),
        Key::text("control", "file")
            .or_none("`$XDG_RUNTIME_DIR/starhaul/dtn.sock`, else `/run/starhaul-dtn/dtn.sock`")
            .such_as("\"dtn.sock\"")
            .means("The socket for `send`, `receive`, `ping` and `status`."),
        Key::text("metrics", "address")
            .or_none("none")
            .such_as("\"127.0.0.1:9465\"")
            .means("[Metrics](#metrics) for Prometheus at `http://ADDRESS/metrics`, without a password."),
        Key::text("plan", "file")
            .or_none("the contacts below")
            .such_as("\"plan.toml\"")
            .instead_of("contact")
            .means("A file with `epoch` and the [contacts](#contact-plan) of all nodes."),
        EPOCH,
        Key::flag("status_reports")
            .or_flag(true)
            .means("Send the [status reports](#status-reports) that bundles ask for, as when they expire (RFC 9171, section 6.1), 200 in a second at most. Whoever sends a bundle decides where its reports go."),
        Key::table("storage", &STORAGE)
            .or_none("all defaults")
            .means("[Where bundles are kept](#storage)."),
        Key::table("ltp", &LTP).means("Neighbours over LTP (RFC 5326). `[ltp]` or `[tcp]` is required."),
        Key::table("tcp", &TCP).means("Neighbours over TCPCLv4 (RFC 9174)."),
        Key::tables("route", &ROUTE).means("Routes that hold at any time."),
        Key::tables("priority", &PRIORITY).means("Bundles that [leave before others](#priorities)."),
        CONTACTS,
        Key::table("security", &SECURITY).means("[The keys of BPSec](#keys)."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("node", "\"ipn:1.0\"")],
    }],
};

static STORAGE: Definition = Definition {
    introduction: "Where bundles are kept, and how many.",
    keys: &[&[
        Key::words("kind", &KIND_NAMES)
            .or("disk")
            .means("Where bundles are kept; no restart finds memory again. `disk`: a log, with a file for each bundle above 1 MiB; or [PostgreSQL](#postgresql) for metadata, and a file per bundle. [`sqlite`](#sqlite): SQLite for metadata, and a file per bundle."),
        Key::text("folder", "file")
            .or("bundles")
            .with(ON_DISK)
            .means("Folder of the bundles, beside the configuration, or without this key in the `StateDirectory=` of a service of systemd; one node per folder."),
        Key::text("database", "file")
            .or_none("none")
            .such_as("\"database.url\"")
            .only_in("with PostgreSQL built in")
            .means("A file whose first line is `postgres://USER:PASSWORD@HOST/DATABASE`: [PostgreSQL](#postgresql) for metadata, and files, in place of the log."),
        Key::text("s3", "s3://BUCKET/PREFIX")
            .or_none("none")
            .such_as("\"s3://bundles/lander\"")
            .only_in("with S3 built in")
            .means("The bucket, and the beginning of all names in it, where [S3](#s3) keeps the data of bundles, in place of files; with `database`."),
        Key::text("s3_region", "region")
            .or_none("what `AWS_REGION` says")
            .such_as("\"eu-central-1\"")
            .only_in("with S3 built in")
            .means("The region of the bucket."),
        Key::text("s3_endpoint", "URL")
            .or_none("that of Amazon")
            .such_as("\"http://127.0.0.1:9000\"")
            .only_in("with S3 built in")
            .means("A server other than Amazon's; the bucket is part of the path there, not of the name."),
        Key::flag("sync")
            .or_flag(true)
            .with(ON_DISK)
            .means("A bundle is on the medium before its sender hears that it was taken."),
        Key::size("max_bytes", 1 << 10..=1 << 50)
            .or_by(
                "kind",
                &[
                    ("\"memory\"", Preset::Count(1 << 30)),
                    ("\"disk\"", Preset::Count(10 << 30)),
                ],
            )
            .such_as("\"10GiB\"")
            .means("Greatest sum of the bundles. All their blocks count, and about 1 KiB and 128 bytes for each block for what is known of them. More is refused: over LTP the neighbour keeps it and tries again, over TCP it waits, `dtn send` waits."),
        Key::whole("max_bundles", 1..=100_000_000)
            .or_count(1_000_000)
            .means("Greatest number of bundles, as with `max_bytes`."),
        Key::size("max_bundle_bytes", 1 << 10..=4 << 30)
            .or_count(64 << 20)
            .means("Greatest payload of one bundle."),
    ]],
    examples: &[Example {
        comment: "",
        written: ON_DISK,
    }],
};

static LTP: Definition = Definition {
    introduction: "Neighbours over LTP (RFC 5326).",
    keys: &[&[
        Key::whole("engine", ENGINES)
            .or_none("the number of the node")
            .such_as("1")
            .means("Number of our engine."),
        Key::text("listen", "address")
            .or("[::]:1113")
            .means("UDP address where segments are received; `[::]` takes IPv4, too."),
        Key::words("numbers", &NUMBER_NAMES)
            .or(NUMBER_NAMES[0])
            .means("Bits of the numbers of sessions that our engine begins. Other engines may know no more than 32."),
        Key::words("mode", &MODE_NAMES)
            .or(MODE_NAMES[0])
            .means("System calls that carry segments to the kernel. `gso`: one buffer that it cuts into datagrams. `mmsg`: many datagrams per call. `single`: one, for a driver that does not get on with the others."),
        Key::tables("peer", &LTP_PEER)
            .required()
            .means("The neighbours."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("listen", "\"[::]:1113\"")],
    }],
};

static LTP_PEER: Definition = Definition {
    introduction: "A neighbour over LTP.",
    keys: &[&[
        NEIGHBOUR,
        Key::whole("engine", ENGINES)
            .or_none("the number of the node")
            .such_as("2")
            .means("Number of its engine."),
        Key::text("address", "address, or a name and a port")
            .or_none("where its data come from")
            .such_as("\"127.0.0.1:1114\"")
            .means("Where it receives segments. A name is looked up until it has an address, and again each minute. Without either, it may come from elsewhere when it was silent for some timeouts, also with a `key`."),
        LIGHT_TIME,
        Key::rate("rate")
            .or_none("that of all contacts of the plan from here to it if they agree, else unknown")
            .such_as("\"155mbit\"")
            .means("How fast the link is. Where it is not known, reports limit what is under way."),
        Key::text("segment", "auto, or bytes")
            .or("auto")
            .means("Bytes of data in a segment, as `\"8860\"`, from 64 to 65400. `auto` [follows the path's MTU, losses and speed](ltp.md#segment-size)."),
        Key::words("profile", &PROFILE_NAMES)
            .or(PROFILE_NAMES[0])
            .means("[What both ends agree on](ltp.md#profiles). `ccsds-734.1`: nothing that Starhaul adds to LTP. `fixed`, which is ours: fields at fixed offsets; the neighbour must have the same."),
        Key::text("repair", "auto, or share")
            .or_none("none")
            .such_as("\"5%\"")
            .means("Share of segments that is lost: [repair segments](ltp.md#repair-segments) make up for it without a round trip. The neighbour must be a Starhaul, too. `auto` follows [what its reports show to be lost](ltp.md#repair-segments-by-measured-loss). Without it, what is lost is sent again."),
        Key::words("one_way", &WAY_NAMES)
            .or("no")
            .means("`out`: [it cannot answer](#links-without-a-way-back), and bundles count as sent when they have left; needs `address`, `rate` and `repair`. `in`: nothing is sent to it, no report either."),
        Key::text("key", "file")
            .or_none("none")
            .such_as("\"orbiter.key\"")
            .means("The same file at both ends: only its holder is heard (RFC 5327). Without it and without `address`, who speaks with this engine's number gets its bundles."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("node", "\"ipn:2.0\""),
            ("address", "\"127.0.0.1:1114\""),
            ("light_time", "\"1.28s\""),
            ("rate", "\"155mbit\""),
        ],
    }],
};

static TCP: Definition = Definition {
    introduction: "Neighbours over TCPCLv4 (RFC 9174).",
    keys: &[&[
        Key::text("listen", "address")
            .or_none("none")
            .such_as("\"[::]:4556\"")
            .means("TCP address where connections are accepted."),
        Key::flag("accept_unknown")
            .or_flag(false)
            .means("Bundles of nodes that are not named here are taken, too. Anyone may then claim to be any of them, but for a neighbour over LTP that has a key."),
        Key::tables("peer", &TCP_PEER).means("The neighbours."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("listen", "\"[::]:4556\"")],
    }],
};

static TCP_PEER: Definition = Definition {
    introduction: "A neighbour over TCPCLv4.",
    keys: &[&[
        NEIGHBOUR,
        Key::text("address", "address, or a name and a port")
            .or_none("it connects to us")
            .such_as("\"127.0.0.1:4557\"")
            .means("Where it accepts connections. A name is looked up at each attempt."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("node", "\"ipn:9.0\""), ("address", "\"127.0.0.1:4557\"")],
    }],
};

const NEIGHBOUR: Key = Key::text("node", "node")
    .such_as("\"ipn:2.0\"")
    .means("Its number or name.");

static ROUTE: Definition = Definition {
    introduction: "At any time: bundles for these endpoints go to that node.",
    keys: &[&[
        Key::text("to", "pattern of endpoints")
            .such_as("\"ipn:9.*\"")
            .means("The endpoints, as `ipn:3.*` or `dtn://station/**`."),
        Key::text("via", "node")
            .such_as("\"ipn:9.0\"")
            .means("The neighbour."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("to", "\"ipn:9.*\""), ("via", "\"ipn:9.0\"")],
    }],
};

static PRIORITY: Definition = Definition {
    introduction: "How soon bundles for these endpoints leave. The first table that names an endpoint holds.",
    keys: &[&[
        Key::text("to", "pattern of endpoints")
            .such_as("\"ipn:*.911\"")
            .means("The endpoints, as `ipn:3.*` or `dtn://station/**`."),
        Key::words("class", &CLASS_NAMES)
            .or(CLASS_NAMES[0])
            .means("`urgent`: before all others that wait for the same neighbour. `normal`: as without a table."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[("to", "\"ipn:*.911\"")],
    }],
};

static SECURITY: Definition = Definition {
    introduction: "The keys of BPSec (RFC 9172). All nodes whose applications talk to each other have the same.",
    keys: &[&[
        Key::text("sign_key", "file")
            .or_none("none")
            .such_as("\"sign.key\"")
            .means("32 to 64 bytes: bundles of this node are signed (HMAC-SHA-512)."),
        Key::text("encrypt_key", "file")
            .or_none("none")
            .such_as("\"encrypt.key\"")
            .means("16 or 32 bytes: their payload is encrypted (AES-GCM)."),
        Key::flag("require")
            .or_flag(false)
            .means("Bundles for applications here must be signed, or encrypted if there is no key to sign."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[],
    }],
};
