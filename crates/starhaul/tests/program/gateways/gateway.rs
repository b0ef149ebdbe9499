//! The program as a gateway on one side, and a pair of gateways.

use std::{
    fs::{self, File},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{
    network::{Network, Side},
    wait_for,
};

const STARHAUL: &str = env!("CARGO_BIN_EXE_starhaul");
/// The ground's port for peers, on every address.
pub(crate) const PORT: u16 = 4600;
/// Where both serve metrics and the live page, each in its namespace.
pub(crate) const METRICS: &str = "127.0.0.1:9464";

/// A gateway process. It ends with the test; a failed test prints its log.
pub(crate) struct Gateway {
    name: &'static str,
    process: Child,
    directory: PathBuf,
}

/// A gateway on each side; the field opens the session.
pub(crate) struct Pair {
    pub(crate) field: Gateway,
    pub(crate) ground: Gateway,
    directory: TempDir,
}

/// How one side is started.
pub(crate) struct Launch {
    pub(crate) configuration: String,
    /// A command that runs the program, whose own command is appended.
    pub(crate) wrap: Vec<String>,
    /// Further arguments of the program.
    pub(crate) arguments: Vec<String>,
}

impl Launch {
    fn of(configuration: String) -> Self {
        Self {
            configuration,
            wrap: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Runs the program by this script, which ends with `exec "$@"`.
    pub(crate) fn by_script(&mut self, script: &str) {
        self.wrap = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    }
}

/// A path over each link, bound to its interface: the default content of `[[session]]`.
pub(crate) fn paths(network: &Network) -> String {
    let path = |link| {
        let remote = Network::address(Side::Ground, link);
        format!(
            "[[session.path]]\nname = \"link{link}\"\ninterface = \"wan{link}\"\nremote = \"{remote}:{PORT}\"\n"
        )
    };
    (0..network.links).map(path).collect()
}

impl Pair {
    /// Starts both, with a path over each link. The field forwards 127.0.0.1:8080 to 127.0.0.1:8000 on the ground, for
    /// [`super::transfer`].
    pub(crate) fn start(network: &Network) -> Self {
        Self::start_with(network, &paths(network), "", "")
    }

    /// Starts both with other paths (tables `[[session.path]]`), and with further tables for either side.
    pub(crate) fn start_with(network: &Network, paths: &str, field: &str, ground: &str) -> Self {
        Self::listening(network, "0.0.0.0", "", paths, field, ground, |_, _| ())
    }

    /// Starts both as [`Pair::start`] does, but for what `change` changes.
    pub(crate) fn start_changed(network: &Network, change: impl Fn(Side, &mut Launch)) -> Self {
        let paths = paths(network);
        Self::listening(network, "0.0.0.0", "", &paths, "", "", change)
    }

    /// Starts both, with a path over each link, and with further keys at the top of both.
    pub(crate) fn start_with_top(network: &Network, top: &str) -> Self {
        Self::listening(network, "0.0.0.0", top, &paths(network), "", "", |_, _| ())
    }

    /// Starts both over IPv6, with a path over each link, bound to its interface.
    pub(crate) fn start_ipv6(network: &Network) -> Self {
        let path = |link| {
            let remote = Network::ipv6(link, 1);
            format!(
                "[[session.path]]\nname = \"link{link}\"\ninterface = \"wan{link}\"\nremote = \"[{remote}]:{PORT}\"\n"
            )
        };
        let paths: String = (0..network.links).map(path).collect();
        Self::listening(network, "[::]", "", &paths, "", "", |_, _| ())
    }

    fn listening(
        network: &Network,
        host: &str,
        top: &str,
        paths: &str,
        field: &str,
        ground: &str,
        change: impl Fn(Side, &mut Launch),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let keys =
            ["field", "ground"].map(|name| new_key(&directory.path().join(format!("{name}.key"))));
        let head = |name, peer, key| {
            format!(
                "control = \"{name}.sock\"\nstate = \"{name}.state\"\nmetrics = \"{METRICS}\"\n{top}[identity]\nfile = \"{name}.key\"\n[[peer]]\nname = \"{peer}\"\npublic_key = \"{key}\"\n"
            )
        };
        let ground = format!(
            "listen = [\"{host}:{PORT}\"]\n{}[egress]\nallow = [\"127.0.0.0/8:*\"]\n{ground}",
            head("ground", "field", &keys[0])
        );
        let field = format!(
            "{}[[session]]\n{paths}[[tcp]]\nname = \"transfer\"\nlisten = \"127.0.0.1:8080\"\ntarget = \"127.0.0.1:8000\"\n{field}",
            head("field", "ground", &keys[1])
        );
        let path = directory.path().to_owned();
        let [mut ground, mut field] = [ground, field].map(Launch::of);
        change(Side::Ground, &mut ground);
        change(Side::Field, &mut field);
        Self {
            ground: Gateway::launch(network, Side::Ground, path.clone(), &ground),
            field: Gateway::launch(network, Side::Field, path, &field),
            directory,
        }
    }

    /// The directory of their files.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Waits until the field reports that all of these paths are up.
    pub(crate) fn wait_until_up(&self, names: &[&str]) {
        self.wait_for_state(names, "up");
    }

    /// Waits until the field reports that all of these paths are in this state.
    pub(crate) fn wait_for_state(&self, names: &[&str], state: &str) {
        wait_for(&format!("{names:?} {state}"), || {
            names
                .iter()
                .all(|name| self.field.path_state(name).as_deref() == Some(state))
                .then_some(())
        });
    }
}

impl Gateway {
    /// Writes the configuration and starts the program on one side; returns when its control socket answers.
    pub(crate) fn start(
        network: &Network,
        side: Side,
        directory: PathBuf,
        configuration: &str,
    ) -> Self {
        let launch = Launch::of(configuration.to_owned());
        Self::launch(network, side, directory, &launch)
    }

    fn launch(network: &Network, side: Side, directory: PathBuf, launch: &Launch) -> Self {
        let name = match side {
            Side::Field => "field",
            Side::Ground => "ground",
        };
        let file = |ending| directory.join(format!("{name}.{ending}"));
        fs::write(file("toml"), &launch.configuration).unwrap();
        let log = File::options()
            .create(true)
            .append(true)
            .open(file("log"))
            .unwrap();
        let mut words = launch.wrap.clone();
        words.push(STARHAUL.to_owned());
        let (program, first) = words.split_first().unwrap();
        let mut command = Command::new(program);
        command
            .args(first)
            .args(["gateway", "--config"])
            .arg(file("toml"))
            .args(&launch.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let socket = file("sock");
        let _ = fs::remove_file(&socket);
        let process = network.namespace(side).inside(|| command.spawn()).unwrap();
        let mut gateway = Self {
            name,
            process,
            directory,
        };
        wait_for("the gateway starts", || {
            let ended = gateway.process.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended: {ended:?}");
            UnixStream::connect(&socket).ok()
        });
        gateway
    }

    /// Bytes of memory that the process has now.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let file = format!("/proc/{}/status", self.process.id());
        let text = fs::read_to_string(file).unwrap();
        let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB"));
        kib.unwrap().parse::<u64>().unwrap() << 10
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }

    /// The object of `starhaul status --json`.
    pub(crate) fn status(&self) -> Value {
        let output = Command::new(STARHAUL)
            .args(["status", "--json", "--socket"])
            .arg(self.file("sock"))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// The path of this name in the newest session; `Null` where there is none.
    pub(crate) fn path(&self, name: &str) -> Value {
        let status = self.status();
        let sessions = status["sessions"].as_array().unwrap();
        let paths = sessions
            .iter()
            .min_by(|a, b| {
                a["age_s"]
                    .as_f64()
                    .partial_cmp(&b["age_s"].as_f64())
                    .unwrap()
            })
            .and_then(|session| session["paths"].as_array());
        let mut paths = paths.into_iter().flatten();
        paths
            .find(|path| path["name"] == name)
            .cloned()
            .unwrap_or_default()
    }

    /// `up`, `suspect` or `down`; `None` without such a path.
    pub(crate) fn path_state(&self, name: &str) -> Option<String> {
        Some(self.path(name)["state"].as_str()?.to_owned())
    }

    /// Reloads with a configuration that `change` makes of the present one.
    pub(crate) fn reload(&self, change: impl FnOnce(String) -> String) {
        let file = self.file("toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, change(text)).unwrap();
        self.signal("HUP");
    }

    /// The number of its process.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &process]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it by a signal and starts it again with the same configuration.
    pub(crate) fn restart(&mut self, network: &Network, side: Side, signal: &str) {
        self.signal(signal);
        assert!(self.wait(super::PATIENCE).is_some(), "it does not end");
        let configuration = fs::read_to_string(self.file("toml")).unwrap();
        let directory = self.directory.clone();
        *self = Self::start(network, side, directory, &configuration);
    }

    /// What the status says of quota and hours of a path; `Null` if nothing.
    pub(crate) fn service(&self, path: &str) -> Value {
        let status = self.status();
        let mut services = status["peers"][0]["service"]
            .as_array()
            .into_iter()
            .flatten();
        let found = services.find(|service| service["path"] == path);
        found.cloned().unwrap_or_default()
    }

    /// Waits for its end after a signal; `None` if it did not end in time.
    pub(crate) fn wait(&mut self, most: Duration) -> Option<std::process::ExitStatus> {
        let until = std::time::Instant::now() + most;
        loop {
            let ended = self.process.try_wait().unwrap();
            if ended.is_some() || std::time::Instant::now() > until {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.name))
    }
}

/// Makes a key in this file; returns its public key.
pub(crate) fn new_key(file: &std::path::Path) -> String {
    let mut keygen = Command::new(STARHAUL);
    let key = keygen.arg("keygen").arg("--out").arg(file).output();
    let key = String::from_utf8(key.unwrap().stdout).unwrap();
    key.trim().to_owned()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            println!("--- log of {}:\n{}", self.name, self.log());
        }
    }
}
