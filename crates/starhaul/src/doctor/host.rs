//! The host: socket buffers, offload, devices, programs, disks, and the gateway's process.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use starhaul_gateway::{
    Config,
    config::{ConnectionTargets, ControlPath, IdentitySource},
};
use starhaul_net::{BindOptions, BulkSocket, IoMode};

use super::Finding;

/// What a gateway asks for, for each socket.
const BUFFER_BYTES: u64 = 4 << 20;
/// Less free than this is as good as full.
const LEAST_FREE_BYTES: u64 = 16 << 20;
/// A share of a processor above which one more packet has to wait.
const BUSY: f64 = 0.9;
/// Clock ticks of `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn examine(config: Option<&Config>) -> Vec<Finding> {
    let mut findings = buffers();
    findings.push(offload());
    findings.extend(config.map(needs).unwrap_or_default());
    findings.extend(config.map(disks).unwrap_or_default());
    findings
}

fn buffers() -> Vec<Finding> {
    let limit = |name: &str| {
        let file = format!("/proc/sys/net/core/{name}");
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    };
    let finding = |name: &str| {
        let subject = format!("net.core.{name}");
        let bytes = limit(name)?;
        Some(match bytes >= BUFFER_BYTES {
            true => Finding::good(subject, format!("{bytes} bytes")),
            false => Finding::note(
                subject,
                format!("{bytes} bytes: bursts of fast links are lost in the socket"),
                format!("sysctl -w net.core.{name}={BUFFER_BYTES}, and the same in /etc/sysctl.d"),
            ),
        })
    };
    ["rmem_max", "wmem_max"]
        .into_iter()
        .filter_map(finding)
        .collect()
}

/// Whether the kernel cuts large buffers into datagrams.
fn offload() -> Finding {
    let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    match BulkSocket::bind_with(&BindOptions::new(loopback), IoMode::Gso) {
        Ok(_) => Finding::good("UDP segmentation offload", "the kernel has it"),
        Err(error) => Finding::note(
            "UDP segmentation offload",
            format!("not possible: {error}"),
            "use a kernel of version 5.0 or later: without it a fast session takes several times the processor",
        ),
    }
}

/// What the rules of a configuration need.
fn needs(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !config.tunnels.is_empty() {
        let device = "/dev/net/tun";
        let opened = fs::OpenOptions::new().read(true).write(true).open(device);
        findings.push(match opened {
            Ok(_) => Finding::good("[[tun]]", format!("{device} can be opened")),
            Err(error) => Finding::problem(
                "[[tun]]",
                format!("{device}: {error}"),
                "modprobe tun, and give the gateway's user /dev/net/tun and CAP_NET_ADMIN",
            ),
        });
    }
    let mut rules = config.connection_rules.iter();
    let intercepts = rules
        .any(|rule| matches!(rule.service.targets, ConnectionTargets::Transparent(_)))
        || !config.egress.clients.is_empty();
    for program in ["nft", "ip"].into_iter().filter(|_| intercepts) {
        if !is_there(program) {
            let found = format!("the program {program} is missing");
            let advice = "install nftables and iproute2";
            findings.push(Finding::problem("[[tproxy]]", found, advice));
        }
    }
    findings
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(system);
    folders.any(|folder| folder.join(program).is_file())
}

/// The file systems of the key and of the control socket.
fn disks(config: &Config) -> Vec<Finding> {
    let mut folders = Vec::new();
    if let IdentitySource::File(file) = &config.identity {
        folders.extend(file.parent().map(Path::to_owned));
    }
    let socket = match &config.control {
        ControlPath::At(socket) => Some(socket.clone()),
        ControlPath::Default => Some(ControlPath::default_path()),
        ControlPath::Off => None,
    };
    folders.extend(socket.and_then(|socket| Some(socket.parent()?.to_owned())));
    let full = |folder: &PathBuf| {
        let system = rustix::fs::statvfs(folder).ok()?;
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        (free < LEAST_FREE_BYTES).then(|| {
            Finding::problem(
                format!("disk of {}", folder.display()),
                format!("{free} bytes are free"),
                "make room: records, statistics and sockets cannot be written",
            )
        })
    };
    folders.iter().filter_map(full).collect()
}

/// The gateway's process at the beginning of the watch.
pub(super) struct Process {
    id: Option<i32>,
    since: Instant,
    ticks: Option<Vec<(String, u64)>>,
    throttled: Option<u64>,
}

/// How busy it was meanwhile.
pub(super) struct Busy {
    /// The busiest thread, and its share of a processor.
    pub(super) thread: Option<(String, f64)>,
    /// How often its control group held it back.
    throttled: u64,
}

impl Process {
    pub(super) fn watch(id: Option<i32>) -> Self {
        Self {
            id,
            since: Instant::now(),
            ticks: id.and_then(ticks),
            throttled: id.and_then(throttled),
        }
    }

    pub(super) fn ended(&self) -> Busy {
        let seconds = self.since.elapsed().as_secs_f64();
        let now = self.id.and_then(ticks).unwrap_or_default();
        let before = self.ticks.clone().unwrap_or_default();
        let shares = now.into_iter().filter_map(|(thread, ticks)| {
            let (_, earlier) = before.iter().find(|(name, _)| *name == thread)?;
            let used = u32::try_from(ticks.saturating_sub(*earlier)).ok()?;
            Some((thread, f64::from(used) / TICKS_PER_SECOND / seconds))
        });
        let earlier = self.throttled.unwrap_or_default();
        let throttled = self.id.and_then(throttled).unwrap_or(earlier);
        Busy {
            thread: shares.max_by(|one, other| one.1.total_cmp(&other.1)),
            throttled: throttled.saturating_sub(earlier),
        }
    }
}

impl Busy {
    /// The thread that has no time left.
    pub(super) fn full_thread(&self) -> Option<&(String, f64)> {
        self.thread.as_ref().filter(|(_, share)| *share >= BUSY)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.throttled > 0 {
            findings.push(Finding::problem(
                "processor",
                format!(
                    "the gateway's control group held it back {} times while it was watched",
                    self.throttled
                ),
                "raise CPUQuota of its unit, or cpu.max of its control group",
            ));
        }
        if let Some((thread, share)) = &self.thread {
            let found = format!("the busiest thread, {thread}, uses {:.0} %", share * 100.0);
            findings.push(Finding::good("processor", found));
        }
        findings
    }
}

/// Clock ticks of each thread, by its number and name.
fn ticks(process: i32) -> Option<Vec<(String, u64)>> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let of_thread = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name, in parentheses, may hold anything.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = rest.split_whitespace().skip(11);
        let user: u64 = fields.next()?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let number = thread.file_name().to_string_lossy().into_owned();
        Some((format!("{name} ({number})"), user + system))
    };
    Some(threads.flatten().filter_map(of_thread).collect())
}

/// How often the control group of a process was held back since it began.
fn throttled(process: i32) -> Option<u64> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = format!("/sys/fs/cgroup{group}/cpu.stat");
    let text = fs::read_to_string(file).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("nr_throttled "));
    line?.trim().parse().ok()
}
