//! What `--explain` prints: every value in use, and why it is that.

use starhaul_ltp::{EngineConfig, Explained, NumberWidth, PeerConfig, RepairRate};
use starhaul_net::{HostMemory, host_memory};
use starhaul_transfer::{CHUNK_BYTES, verdict_awaited};

use super::{FIRST_RANDOM, LinkOptions, MOST_PEERS, Sending};
use crate::output::print;

/// The values of a sender, whatever its file.
pub(super) fn sender(
    link: &LinkOptions,
    config: &PeerConfig,
    sending: Sending,
) -> anyhow::Result<()> {
    let engine = match link.engine {
        Some(number) => number.to_string(),
        None => format!("random, {FIRST_RANDOM} at least"),
    };
    let mut rows = vec![Explained::new(
        "engine",
        engine,
        "given, or another one each time: by it the receiver tells senders apart",
    )];
    rows.extend(of_link(link, config));
    rows.push(Explained::new(
        "block",
        format!("{CHUNK_BYTES} bytes of the file"),
        "small beside the memory of either end, large beside a report",
    ));
    if link.one_way {
        rows.push(Explained::new(
            "times sent",
            config.passes.to_string(),
            "given, or once; each block of the file at once again: what one pass lost, the others bring",
        ));
    }
    rows.push(match link.one_way {
        true => Explained::new(
            "under way",
            "two blocks".to_owned(),
            "one leaves while the next is read; what has left is forgotten",
        ),
        false => Explained::new(
            "under way",
            format!("{} bytes", sending.under_way),
            "what leaves in four light times and the margin, 64 MiB at least, a quarter at most of the memory that this host or its control group allows",
        ),
    });
    rows.push(match link.one_way {
        true => Explained::new(
            "far side's hash",
            "not awaited".to_owned(),
            "nobody tells whether the file has arrived: exit code 3",
        ),
        false => Explained::new(
            "far side's hash",
            format!(
                "awaited for {:?}, and 1 s for each 20 MB",
                verdict_awaited(sending.patience, 0)
            ),
            "as long as the far side tries, and what it needs to write the file to a slow disk",
        ),
    });
    show(config, rows)
}

/// The values of a receiver.
pub(super) fn receiver(
    link: &LinkOptions,
    config: &PeerConfig,
    engine: &EngineConfig,
) -> anyhow::Result<()> {
    let mut rows = vec![Explained::new(
        "engine",
        engine.id.to_string(),
        "given, or 2, to which senders send",
    )];
    rows.extend(of_link(link, config));
    rows.extend([
        Explained::new(
            "senders at a time",
            MOST_PEERS.to_string(),
            "each with its own limits; a further one takes the place of one that is done, or was silent for some timeouts",
        ),
        Explained::new(
            "receive memory of all",
            format!("{} bytes", engine.receive_memory),
            reason_of_memory(host_memory()),
        ),
        match link.one_way {
            true => Explained::new(
                "answers",
                "none".to_owned(),
                "given: nothing is reported, and no sender is told what became of its file",
            ),
            false => Explained::new(
                "answers",
                "reports, and the SHA-256 of each file".to_owned(),
                "so that its sender repairs what is lost, and knows whether it is stored",
            ),
        },
    ]);
    show(config, rows)
}

/// What both ends have, beside what the engine tells of itself.
fn of_link(link: &LinkOptions, config: &PeerConfig) -> Vec<Explained> {
    let (repair, reason_of_repair) = match link.repair {
        Some(RepairRate::Auto) => (
            "auto, none at first".to_owned(),
            "given; for what reports show to be lost and chance may hide, so that 999 of 1000 red parts need no retransmission. None while nothing is lost, or a round trip takes less than a second",
        ),
        given => (
            given.map_or("none".to_owned(), |rate| format!("for {rate} lost")),
            "given; so many that one red part in 2000 needs more, and with one way one file. Without them what is lost is sent again",
        ),
    };
    let numbers = match NumberWidth::from(link.numbers) {
        NumberWidth::Bits32 => "32 bits",
        NumberWidth::Bits64 => "64 bits",
    };
    let key = match config.auth.is_some() {
        true => "of a file",
        false => "none",
    };
    vec![
        Explained::new(
            "session numbers",
            numbers.to_owned(),
            "given, or what CCSDS 734.1 asks for, and some engines know no more; of what this end sends",
        ),
        Explained::new(
            "system calls",
            starhaul_net::IoMode::from(link.mode).name().to_owned(),
            "given, or segmentation offload, which takes the least time",
        ),
        Explained::new(
            "lower layers",
            format!("{} bytes per segment", config.overhead),
            "IPv4 and UDP; they count in the rate",
        ),
        Explained::new(
            "one way",
            if config.is_one_way { "yes" } else { "no" }.to_owned(),
            "given; then nothing is acknowledged or sent again",
        ),
        Explained::new("repair segments", repair, reason_of_repair),
        Explained::new(
            "first answer",
            format!("the margin doubles {} times", config.blind_doublings),
            "while neither light time nor an answer tells how far the other end is: both try for six minutes",
        ),
        Explained::new(
            "longest block",
            format!("{} bytes", config.longest_block(config.receive_memory)),
            "from the other end, 1 GiB or what fits into the receive memory; one that is longer is refused when that is known",
        ),
        Explained::new(
            "key",
            key.to_owned(),
            "given; segments without its signature are dropped (RFC 5327)",
        ),
    ]
}

/// Why received blocks have the memory that they have.
fn reason_of_memory(memory: Option<HostMemory>) -> &'static str {
    match memory {
        Some(HostMemory {
            is_limited: true, ..
        }) => {
            "a quarter of what the control group of this process allows, from 64 MiB to 8 GiB: whoever sends may begin blocks without end"
        }
        Some(_) => {
            "a quarter of this host's memory, from 64 MiB to 8 GiB: whoever sends may begin blocks without end"
        }
        None => "8 GiB: this host does not tell how much memory it has",
    }
}

/// Prints these and what the engine tells of itself, each once.
fn show(config: &PeerConfig, own: Vec<Explained>) -> anyhow::Result<()> {
    let mut rows = config.explain();
    for row in own {
        if rows.iter().all(|known| known.name != row.name) {
            rows.push(row);
        }
    }
    print(lines(&rows))
}

/// A line for each value.
pub(crate) fn lines(rows: &[Explained]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let lines = rows
        .iter()
        .map(|row| format!("{:width$}  {}  ({})\n", row.name, row.value, row.reason));
    lines.collect()
}
