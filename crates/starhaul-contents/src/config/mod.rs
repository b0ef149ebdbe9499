//! The configuration of a relay.

use std::{collections::BTreeSet, fmt::Write as _, fs, net::SocketAddr, path::Path};

use starhaul_config::{Document, Keys, Table, nearest, secret_file, size};
use starhaul_leotp::NeighbourKey;

use crate::{Error, file_error, keys::neighbour_key};

const TOP: Keys = &[&["listen", "metrics", "cache", "upstream", "neighbour"]];
const NEIGHBOUR: Keys = &[&["name", "address", "key"]];

const DEFAULT_CACHE: u64 = 256 << 20;
/// A datagram of an unknown address is compared with the keys of all neighbours.
const MOST_NEIGHBOURS: usize = 256;

/// A relay: where it listens, what it keeps, and who its neighbours are.
#[derive(Debug)]
pub struct Config {
    /// Its UDP address.
    pub listen: SocketAddr,
    /// Where metrics are served over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Bytes of memory for what passes.
    pub cache_bytes: usize,
    /// The name of the neighbour that is asked for what is not kept.
    pub upstream: Option<String>,
    /// All neighbours.
    pub neighbours: Vec<Neighbour>,
}

/// A neighbour.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Its name in this file and in the log.
    pub name: String,
    /// Where it is, as host:port; without it, where its packets come from.
    pub address: Option<String>,
    /// The key that both share.
    pub key: NeighbourKey,
}

impl Config {
    /// Reads and checks a file, and the keys that it names.
    ///
    /// # Errors
    /// [`Error::Config`] names file, line, key and the nearest valid key; [`Error::File`] and [`Error::Key`].
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(file_error(file))?;
        Self::parse(&text, file)
    }

    /// The same for text; `name` stands for the file, and keys are sought beside it.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, name: &Path) -> Result<Self, Error> {
        let document = Document::new(name, text);
        let tree = document.tree()?;
        let top = document.top(&tree, TOP)?;
        let folder = name.parent().unwrap_or(Path::new(""));
        let listen = top.required("listen", |text| {
            text.parse()
                .map_err(|_| format!("{text:?} is no address: write it as 0.0.0.0:4511"))
        })?;
        let cache = top.text("cache", size::parse)?.unwrap_or(DEFAULT_CACHE);
        let tables = top.tables("neighbour", NEIGHBOUR)?;
        if !(2..=MOST_NEIGHBOURS).contains(&tables.len()) {
            let problem = format!("a relay has 2 to {MOST_NEIGHBOURS} neighbours");
            return Err(top.key_problem("neighbour", problem).into());
        }
        let mut names = BTreeSet::new();
        let mut neighbours = Vec::new();
        for table in &tables {
            let neighbour = read_neighbour(table, folder)?;
            if !names.insert(neighbour.name.clone()) {
                let problem = format!("{:?} is a neighbour already", neighbour.name);
                return Err(table.key_problem("name", problem).into());
            }
            neighbours.push(neighbour);
        }
        let upstream = top.text("upstream", |text| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            match names.contains(&text) {
                true => Ok(text.to_owned()),
                false => Err(format!(
                    "{text:?} is no neighbour; {}",
                    nearest(text, &names)
                )),
            }
        })?;
        Ok(Self {
            listen,
            metrics: top.text("metrics", starhaul_metrics::address)?,
            cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
            upstream,
            neighbours,
        })
    }

    /// What it configures, for people.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "listens at udp {}, keeps {} MB of what passes\n",
            self.listen,
            self.cache_bytes / 1_000_000
        );
        for neighbour in &self.neighbours {
            let at = neighbour
                .address
                .as_deref()
                .unwrap_or("wherever it calls from");
            let is_upstream = self.upstream.as_ref() == Some(&neighbour.name);
            let role = if is_upstream {
                ", asked for what is not kept"
            } else {
                ""
            };
            let _ = writeln!(text, "neighbour {}: {at}{role}", neighbour.name);
        }
        if let Some(address) = self.metrics {
            let _ = writeln!(text, "metrics: http://{address}/metrics");
        }
        if let Some(warning) = self.warning() {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }

    /// What is allowed and hardly meant.
    pub fn warning(&self) -> Option<String> {
        let told = "the names of all neighbours, and what passes";
        self.metrics
            .and_then(|address| starhaul_metrics::warning(address, told))
    }

    /// A commented sample.
    pub const fn sample() -> &'static str {
        include_str!("sample.toml")
    }
}

fn read_neighbour(table: &Table<'_>, folder: &Path) -> Result<Neighbour, Error> {
    let name = table.required("name", |text| match text {
        "" => Err("a name has a letter at least".to_owned()),
        name => Ok(name.to_owned()),
    })?;
    let address = table.text("address", |text| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err(format!("{text:?} is no address: write it as host:port")),
    })?;
    let key = table.required("key", |text| Ok::<_, String>(secret_file(folder, text)))?;
    Ok(Neighbour {
        name,
        address,
        key: neighbour_key(&key)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        for name in ["server.key", "requester.key"] {
            fs::write(folder.path().join(name), "0123456789abcdef\n").unwrap();
        }
        fs::write(folder.path().join("short.key"), "short\n").unwrap();
        Config::parse(text, &folder.path().join("relay.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_sample_is_valid_and_described() {
        let config = parse(Config::sample()).unwrap();
        assert_eq!(config.upstream.as_deref(), Some("server"));
        let text = config.describe();
        assert!(
            text.contains("neighbour requester: wherever it calls from"),
            "{text}"
        );
        let open = Config::sample().replace("# metrics = \"127.0.0.1", "metrics = \"0.0.0.0");
        let text = parse(&open).unwrap().describe();
        assert!(text.contains("whoever reaches 0.0.0.0:9466"), "{text}");
    }

    #[test]
    fn errors_name_the_key_and_the_nearest_valid_one() {
        let sample = Config::sample();
        for (from, to, expected) in [
            ("upstream =", "upstraem =", "upstream"),
            ("upstream = \"server\"", "upstream = \"sever\"", "server"),
            (
                "name = \"requester\"",
                "name = \"server\"",
                "is a neighbour already",
            ),
            ("key = \"requester.key\"", "key = \"none.key\"", "none.key"),
            (
                "key = \"requester.key\"",
                "key = \"short.key\"",
                "16 bytes at least",
            ),
            (
                "listen = \"0.0.0.0:4511\"",
                "listen = \"4511\"",
                "0.0.0.0:4511",
            ),
            (
                "# metrics = \"127.0.0.1:9466\"",
                "metrics = \"9466\"",
                "127.0.0.1:9465",
            ),
            ("cache = \"256MiB\"", "cache = \"256\"", "size"),
        ] {
            assert!(sample.contains(from), "{from}");
            let error = parse(&sample.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let error = parse("listen = \"0.0.0.0:1\"").unwrap_err();
        assert!(error.contains("neighbours"), "{error}");
    }
}
