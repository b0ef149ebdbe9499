//! What a relay's configuration may hold.

use starhaul_config::{Definition, Example, Key};
use starhaul_net::leotp::{HopSignals, RULE_KEYS};

/// A datagram of an unknown address is compared with the keys of all neighbours.
pub(super) const MOST_NEIGHBOURS: usize = 256;

pub(super) static TOP: Definition = Definition {
    introduction: "A relay of LEOTP: starhaul relay --config relay.toml",
    keys: &[&[
        Key::texts("include", "files")
            .such_as("[\"neighbours.d/*.toml\"]")
            .means("Further files beside this one, whose keys and tables are added to these; one `*` in the last part of a name."),
        Key::text("listen", "address")
            .such_as("\"0.0.0.0:4511\"")
            .means("UDP address for all neighbours."),
        Key::text("metrics", "address")
            .or_none("none")
            .such_as("\"127.0.0.1:9466\"")
            .means("Metrics for Prometheus at `http://ADDRESS/metrics`, without a password."),
        Key::size("cache", 0..=1 << 50)
            .or_count(256 << 20)
            .means("Memory for what passes, so that it can be sent again, and to others."),
        Key::text("upstream", "name")
            .or_none("none")
            .such_as("\"server\"")
            .means("The neighbour that is asked for what is not kept here."),
    ], RULE_KEYS, &[
        Key::tables("neighbour", &NEIGHBOUR)
            .required()
            .means("The neighbours, 2 to 256."),
    ]],
    examples: &[Example {
        comment: "",
        written: &[
            ("listen", "\"0.0.0.0:4511\""),
            ("cache", "\"256MiB\""),
            ("upstream", "\"server\""),
        ],
    }],
};

static NEIGHBOUR: Definition = Definition {
    introduction: "Each neighbour shares a key with this relay, and with nobody else: starhaul keygen --out server.key",
    keys: &[&[
        Key::text("name", "text")
            .such_as("\"server\"")
            .means("Its name here and in the log. Unique."),
        Key::text("address", "target")
            .or_none("wherever it calls from")
            .such_as("\"192.0.2.1:4511\"")
            .means(
                "Where it is at first, as `HOST:PORT`. A name is looked up until it has an address, and again each minute: a neighbour that is not heard is sought where it says. A neighbour without it is found by what it sends.",
            ),
        Key::text("key", "file")
            .such_as("\"server.key\"")
            .means("File of the key that both share: any text of 16 bytes or more."),
    ], HopSignals::KEYS],
    examples: &[
        Example {
            comment: "",
            written: &[
                ("name", "\"server\""),
                ("address", "\"192.0.2.1:4511\""),
                ("key", "\"server.key\""),
            ],
        },
        Example {
            comment: "Without an address: it calls from wherever it is.",
            written: &[("name", "\"requester\""), ("key", "\"requester.key\"")],
        },
    ],
};
