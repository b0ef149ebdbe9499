//! The journal of a recording: one JSON object per line, so that a recording that is killed loses only its last line.

use std::io::BufRead;

use starhaul_units::Bandwidth;

use crate::{Direction, Error, Interval, MAX_SECONDS, PACKET_BYTES};

/// Version of the journal's format.
const FORMAT: u32 = 1;
const MAX_LINE_BYTES: usize = 16 << 10;
const MAX_LINES: usize = MAX_SECONDS as usize * 500;
/// Upper bound of a recording's clocks, in microseconds.
const LATEST_US: u64 = MAX_SECONDS as u64 * 4_000_000;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// The first line: the parameters of the recording.
    Begin(Begin),
    /// Arrivals of the heavy flow by its receiver's clock.
    Received(Interval),
    /// A packet of the light flow.
    Probe(Probe),
    /// The arrival of an ICMP echo request at the server.
    Stamp {
        /// When it was sent, by the client's clock; as in its [`Probe`].
        at_us: u64,
        /// When it arrived, by the server's clock.
        server_us: u64,
    },
    /// From here on the light flow runs alone, in place of measurements beside the heavy flow.
    Alone {
        /// Start by the client's clock.
        at_us: u64,
        /// The instant of the heavy flow that this one replaces.
        stands_for_us: u64,
    },
    /// The last line of a recording that was not interrupted.
    End {
        /// Packets of the heavy flow that were sent, if the client sent them.
        sent: Option<u64>,
    },
}

/// The parameters of a recording.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// The version of the journal.
    pub format: u32,
    /// Direction of the heavy flow.
    pub direction: Direction,
    /// The server's address as given.
    pub server: String,
    /// The wall clock at the client's time 0, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Length of the saturated phase in seconds.
    pub seconds: u32,
    /// Size of the heavy flow's IP packets in bytes.
    pub packet_bytes: u16,
    /// Rate limit of the heavy flow: the least of both sides' limits.
    pub max_rate: Bandwidth,
}

/// A packet of the light flow and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// ICMP echo if true, UDP echo otherwise.
    pub icmp: bool,
    /// When it was sent, by the client's clock.
    pub at_us: u64,
    /// Time until its answer; `None` without an answer.
    pub rtt_us: Option<u32>,
    /// Arrival at the server of a UDP echo, by the server's clock. For ICMP see [`Entry::Stamp`].
    pub server_us: Option<u64>,
}

impl Begin {
    pub(crate) const FORMAT: u32 = FORMAT;
}

impl Entry {
    /// The line, with its line break.
    pub fn to_line(&self) -> String {
        // Plain structures of numbers and texts have a JSON form.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// # Errors
    /// A text that describes the error in the line.
    fn parse(line: &[u8]) -> Result<Self, String> {
        let entry: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let impossible = |field: &str| Err(format!("the field {field} has an impossible value"));
        match &entry {
            Self::Begin(begin) if begin.format != FORMAT => Err(format!(
                "is of format {}, and this program reads format {FORMAT}",
                begin.format
            )),
            Self::Begin(begin) if !(1..=MAX_SECONDS).contains(&begin.seconds) => {
                impossible("seconds")
            }
            Self::Begin(begin) if !PACKET_BYTES.contains(&begin.packet_bytes) => {
                impossible("packet_bytes")
            }
            Self::Received(seen) => match seen.check() {
                Err(field) => impossible(field),
                Ok(()) => Ok(entry),
            },
            Self::Probe(probe) if probe.at_us > LATEST_US => impossible("at_us"),
            Self::Probe(probe) if probe.server_us.is_some_and(|at| at > LATEST_US) => {
                impossible("server_us")
            }
            Self::Stamp { at_us, server_us } if (*at_us).max(*server_us) > LATEST_US => {
                impossible("at_us")
            }
            Self::Alone {
                at_us,
                stands_for_us,
            } if (*at_us).max(*stands_for_us) > LATEST_US => impossible("at_us"),
            _ => Ok(entry),
        }
    }
}

/// Reads a journal; an incomplete last line is left out. `name` is used in errors.
///
/// # Errors
/// [`Error::Journal`] with the first damaged line.
pub fn parse_journal(name: &str, mut input: impl BufRead) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let number = entries.len() + 1;
        let error = |reason: String| Error::Journal {
            file: name.to_owned(),
            line: number,
            reason,
        };
        let read = std::io::Read::take(&mut input, MAX_LINE_BYTES as u64)
            .read_until(b'\n', &mut line)
            .map_err(|why| error(why.to_string()))?;
        if read == MAX_LINE_BYTES {
            return Err(error(format!("is longer than {MAX_LINE_BYTES} bytes")));
        }
        let Some(line) = line.strip_suffix(b"\n") else {
            return Ok(entries);
        };
        let entry = Entry::parse(line).map_err(error)?;
        let first = entries.is_empty();
        if first != matches!(entry, Entry::Begin(_)) {
            let place = if first {
                "is missing at the start"
            } else {
                "comes twice"
            };
            return Err(error(format!("the entry \"begin\" {place}")));
        }
        if entries.len() == MAX_LINES {
            return Err(error(format!("more than {MAX_LINES} lines")));
        }
        entries.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin() -> Entry {
        Entry::Begin(Begin {
            format: FORMAT,
            direction: Direction::Up,
            server: "192.0.2.1:4710".to_owned(),
            started_unix_ms: 1,
            seconds: 10,
            packet_bytes: 1500,
            max_rate: Bandwidth::from_mbit(500),
        })
    }

    #[test]
    fn a_journal_survives_being_cut_anywhere() {
        let probe = Probe {
            icmp: true,
            at_us: 5,
            rtt_us: None,
            server_us: None,
        };
        let entries = [
            begin(),
            Entry::Received(Interval {
                bins: vec![1500; 50],
                ..Interval::default()
            }),
            Entry::Probe(probe),
            Entry::Stamp {
                at_us: 5,
                server_us: 7,
            },
            Entry::Alone {
                at_us: 3,
                stands_for_us: 1,
            },
            Entry::End { sent: Some(9) },
        ];
        let text: String = entries.iter().map(Entry::to_line).collect();
        for cut in 0..=text.len() {
            let read = parse_journal("j", &text.as_bytes()[..cut]).unwrap();
            assert_eq!(read, entries[..read.len()]);
            assert_eq!(read.len(), text[..cut].matches('\n').count());
        }
    }

    /// 200 probes with a stamp each and 20 reports in a second, twice as long as asked for, with a pause between.
    #[test]
    fn the_longest_recording_can_be_read() {
        assert!(MAX_LINES as u64 > u64::from(MAX_SECONDS) * (2 * 200 + 2 * 20) + 10_000);
        let late = Interval {
            first_ms: MAX_SECONDS * 2_000 + 180_000,
            ..Interval::default()
        };
        let text = begin().to_line() + &Entry::Received(late).to_line();
        assert_eq!(parse_journal("j", text.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn damage_is_named_by_its_line() {
        let good = begin().to_line();
        for (text, said) in [
            (String::from("{}\n"), "j:1: "),
            (good.clone() + &good, "j:2: the entry \"begin\" comes twice"),
            (good.clone() + "{\"end\":{\"sent\":-1}}\n", "j:2: "),
            (
                good.clone() + "{\"end\":{\"sent\":null,\"more\":1}}\n",
                "more",
            ),
            (good.replace("\"format\":1", "\"format\":2"), "format 2"),
            (good.replace("\"seconds\":10", "\"seconds\":0"), "seconds"),
        ] {
            let error = parse_journal("j", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
