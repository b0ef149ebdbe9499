//! The configuration of a relay.

mod definition;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
};

use starhaul_config::{Definition, Document, Table, nearest, secret_file};
use starhaul_leotp::{NeighbourKey, RateRule};
use starhaul_net::{
    PeerAddress,
    leotp::{HopSignals, read_rule},
};

use self::definition::{MOST_NEIGHBOURS, TOP};
use crate::{Error, file_error};

/// Begins the names of variables of the environment that stand for keys.
const VARIABLES: &str = "STARHAUL_RELAY_";

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
    /// How the rates of what its neighbours send are found.
    pub rate_rule: RateRule,
    /// The nodes beside this relay.
    pub neighbours: Vec<Neighbour>,
}

/// A node beside the relay.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Its name in this file and in the log.
    pub name: String,
    /// Where it is at first; without it, where its packets come from.
    pub address: Option<PeerAddress>,
    /// The key that both share.
    pub key: NeighbourKey,
    /// How it is known when the hop to it is reconfigured.
    pub signals: HopSignals,
}

impl Config {
    /// Reads and checks a file, those that it includes, what variables `STARHAUL_RELAY_…` of the environment put in place of its
    /// keys, and the key files that it names.
    ///
    /// # Errors
    /// [`Error::Config`] names file, line, key and the nearest valid key; [`Error::File`].
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(file_error(file))?;
        let mut document = Document::new(file, &text);
        document.include()?;
        document.set_variables(VARIABLES, &TOP, std::env::vars_os())?;
        Self::read(&document, file)
    }

    /// The same for text alone, without the environment; `include` has no effect. `name` stands for the file, and keys are sought
    /// beside it.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, name: &Path) -> Result<Self, Error> {
        Self::read(&Document::new(name, text), name)
    }

    fn read(document: &Document<'_>, name: &Path) -> Result<Self, Error> {
        let tree = document.tree()?;
        let top = document.top(&tree, &TOP)?;
        let folder = name.parent().unwrap_or(Path::new(""));
        top.texts("include", |text| file_name(text).map(|_| ()))?;
        let listen = top.text("listen", |text| {
            text.parse()
                .map_err(|_| format!("{text:?} is no address: write it as 0.0.0.0:4511"))
        })?;
        let cache_bytes = top.bytes("cache")?;
        let tables = top.tables("neighbour")?;
        if !(2..=MOST_NEIGHBOURS).contains(&tables.len()) {
            let problem = format!("a relay has 2 to {MOST_NEIGHBOURS} neighbours");
            return Err(top.key_problem("neighbour", problem).into());
        }
        let (mut names, mut secrets) = (BTreeSet::new(), BTreeMap::new());
        let mut neighbours = Vec::new();
        for table in &tables {
            let (neighbour, secret) = read_neighbour(table, folder)?;
            if !names.insert(neighbour.name.clone()) {
                let problem = format!("{:?} is a neighbour already", neighbour.name);
                return Err(table.key_problem("name", problem).into());
            }
            if let Some(other) = secrets.insert(secret, neighbour.name.clone()) {
                let problem = format!(
                    "{:?} has the key of {other:?}: each neighbour needs one of its own",
                    neighbour.name
                );
                return Err(table.key_problem("key", problem).into());
            }
            neighbours.push(neighbour);
        }
        let upstream = top.text_if("upstream", |text| {
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
            metrics: top.text_if("metrics", starhaul_metrics::address)?,
            cache_bytes,
            upstream,
            rate_rule: read_rule(&top)?,
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
            let at = neighbour.address.as_ref();
            let at = at.map_or("wherever it calls from".to_owned(), ToString::to_string);
            let is_upstream = self.upstream.as_ref() == Some(&neighbour.name);
            let role = if is_upstream {
                ", asked for what is not kept"
            } else {
                ""
            };
            let _ = write!(text, "neighbour {}: {at}{role}", neighbour.name);
            if let Some(signals) = neighbour.signals.summary() {
                let _ = write!(text, ", reconfigurations by {signals}");
            }
            text.push('\n');
        }
        if self.rate_rule == RateRule::Published {
            text.push_str("rates by the published rule\n");
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

    /// What a file may hold, of which sample, reference and manual page are made.
    pub fn definition() -> &'static Definition {
        &TOP
    }

    /// A commented sample, in which every key appears.
    pub fn sample() -> String {
        starhaul_config::sample(&TOP)
    }
}

fn file_name(text: &str) -> Result<&str, &'static str> {
    match text.is_empty() {
        true => Err("write the path of a file"),
        false => Ok(text),
    }
}

/// A neighbour, and the secret of its key.
fn read_neighbour(table: &Table<'_>, folder: &Path) -> Result<(Neighbour, [u8; 32]), Error> {
    let name = table.text("name", |text| match text {
        "" => Err("a name has a letter at least".to_owned()),
        name => Ok(name.to_owned()),
    })?;
    let address = table.text_if("address", str::parse)?;
    let key = table.text("key", |text| {
        file_name(text).map(|name| secret_file(folder, name))
    })?;
    let secret = starhaul_config::shared_secret(&key);
    let secret = secret.map_err(|error| table.key_problem("key", error))?;
    let mut signals = HopSignals::read(table, folder)?;
    let loaded = signals.load_times();
    loaded.map_err(|error| table.key_problem("schedule", error))?;
    let neighbour = Neighbour {
        name,
        address,
        key: NeighbourKey::new(&secret),
        signals,
    };
    Ok((neighbour, secret))
}

#[cfg(test)]
mod tests {
    use starhaul_cc::{ProbeTarget, Timetable};
    use starhaul_config::trials;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        for name in ["server.key", "requester.key"] {
            fs::write(
                folder.path().join(name),
                format!("0123456789abcdef {name}\n"),
            )
            .unwrap();
        }
        fs::write(folder.path().join("short.key"), "short\n").unwrap();
        Config::parse(text, &folder.path().join("relay.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_sample_is_valid_and_described() {
        let config = parse(&Config::sample()).unwrap();
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
            (
                "key = \"requester.key\"",
                "key = \"none.key\"",
                "[[neighbour]]: key: ",
            ),
            (
                "key = \"requester.key\"",
                "key = \"server.key\"",
                "\"requester\" has the key of \"server\"",
            ),
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

    /// A folder with the keys that the sample names.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in trials::files(&TOP, "file") {
            fs::write(
                folder.path().join(&name),
                format!("0123456789abcdef {name}\n"),
            )
            .unwrap();
        }
        for name in trials::files(&TOP, "file with times") {
            fs::write(folder.path().join(&name), "# a hop\n1767225612\n").unwrap();
        }
        folder
    }

    fn parse_in(folder: &tempfile::TempDir, text: &str) -> Result<Config, String> {
        let name = folder.path().join("relay.toml");
        Config::parse(text, &name).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_read_and_its_mistakes_are_told() {
        assert_eq!(trials::unsound(&TOP), Vec::<String>::new());
        let folder = folder();
        for mistake in trials::mistakes(&TOP) {
            let error = parse_in(&folder, &mistake.text).expect_err(&mistake.text);
            for said in &mistake.says {
                assert!(error.contains(said), "{error}: {said} of\n{}", mistake.text);
            }
        }
        let opened = trials::opened(&TOP);
        assert!(parse_in(&folder, &opened).is_ok(), "{opened}");
        let (short, long) = trials::spelled_out(&TOP);
        let [short, long] = [short, long].map(|text| parse_in(&folder, &text).unwrap());
        assert_eq!(format!("{short:?}"), format!("{long:?}"));
    }

    #[test]
    fn a_neighbour_tells_how_its_hop_is_known_to_be_reconfigured() {
        let folder = folder();
        let with = |keys: &str| {
            let text = Config::sample().replace("key = \"server.key\"", keys);
            parse_in(&folder, &format!("{text}\n"))
        };
        let config = with("key = \"server.key\"").unwrap();
        assert_eq!(config.neighbours[0].signals, HopSignals::default());
        let keys = "key = \"server.key\"\ntimetable = \"starlink\"\nschedule = \"hop.times\"";
        let config = with(keys).unwrap();
        let signals = &config.neighbours[0].signals;
        assert_eq!(signals.timetable, Some(Timetable::STARLINK));
        let times: starhaul_cc::KnownTimes = "1767225612".parse().unwrap();
        assert_eq!(signals.times, times);
        // It is read again when it changes.
        let file = folder.path().join("hop.times");
        assert_eq!(signals.schedule.as_ref(), Some(&file));
        assert_eq!(config.neighbours[1].signals, HopSignals::default());
        let text = config.describe();
        assert!(
            text.contains(", reconfigurations by 12s every 15s, a list of 1\n"),
            "{text}"
        );
        let keys = "key = \"server.key\"\nlink = \"leo\"\ndetect_target = \"100.64.0.1\"\ntimetable = \"oneweb\"";
        let signals = with(keys).unwrap().neighbours[0].signals.clone();
        let host = ProbeTarget::Host([100, 64, 0, 1].into());
        assert_eq!(signals.probe, Some(host));
        assert_eq!(signals.timetable, Some(Timetable::ONEWEB));
        fs::write(folder.path().join("wrong.times"), "starlink\n").unwrap();
        for (keys, expected) in [
            ("timetable = \"oneweb\"", "tells no time by itself"),
            ("timetable = \"onweb\"", "is no timetable"),
            ("detect_target = \"auto\"", "nothing is probed here"),
            (
                "link = \"leo\"\ndetect_target = \"pop\"",
                "neither \"auto\" nor",
            ),
            ("schedule = \"none.times\"", "schedule: cannot read "),
            ("schedule = \"wrong.times\"", "wrong.times: line 1: "),
        ] {
            let error = with(&format!("key = \"server.key\"\n{keys}")).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_mistake_in_a_variable_is_told_as_one_in_the_file() {
        let folder = folder();
        let name = folder.path().join("relay.toml");
        let parse = |text: &str, variable: &str, value: &str| {
            let mut document = Document::new(&name, text);
            let variable = (format!("{VARIABLES}{variable}").into(), value.into());
            document.set_variables(VARIABLES, &TOP, std::iter::once(variable))?;
            Config::read(&document, &name)
        };
        let known = trials::in_variables(&TOP, parse).unwrap();
        assert_eq!(known, 6);
        let config = parse(&Config::sample(), "CACHE", "1MiB").unwrap();
        assert_eq!(config.cache_bytes, 1 << 20);
    }

    #[test]
    fn the_published_rule_is_chosen_by_its_name() {
        let config = parse(&Config::sample()).unwrap();
        assert_eq!(config.rate_rule, RateRule::Adaptive);
        assert!(!config.describe().contains("published"));
        let with = |rule: &str| parse(&format!("rule = \"{rule}\"\n{}", Config::sample()));
        let config = with("published").unwrap();
        assert_eq!(config.rate_rule, RateRule::Published);
        let told = config.describe();
        assert!(told.contains("rates by the published rule\n"), "{told}");
        let error = with("publishd").unwrap_err();
        assert!(
            error.contains("rule") && error.contains("published"),
            "{error}"
        );
    }

    #[test]
    fn the_reference_is_as_defined() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/leotp.md");
        trials::pinned(Path::new(file), &TOP).unwrap();
    }

    #[test]
    fn neighbours_may_be_in_files_of_their_own() {
        let folder = folder();
        let main = folder.path().join("relay.toml");
        let sample = Config::sample();
        let (top, neighbours) = sample.split_once("# Each neighbour").unwrap();
        fs::write(&main, format!("include = \"n/*.toml\"\n{top}")).unwrap();
        fs::create_dir(folder.path().join("n")).unwrap();
        fs::write(folder.path().join("n/all.toml"), format!("# {neighbours}")).unwrap();
        assert_eq!(Config::load(&main).unwrap().neighbours.len(), 2);
    }
}
